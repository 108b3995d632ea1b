package agent

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/barista-fleet/barista/internal/api"
	"github.com/barista-fleet/barista/pkg/lease"
	"github.com/barista-fleet/barista/pkg/reconcile"
	"github.com/barista-fleet/barista/pkg/runtime/leasefile"
	"github.com/barista-fleet/barista/pkg/runtime/proctree"
)

const (
	// guardStart bounds how long a guard may take to stand: a program of this size
	// takes some milliseconds.
	guardStart = 5 * time.Second
	// guardRetryFirst and guardRetryMost bound the wait before a guard that could not
	// be started is tried again.
	guardRetryFirst = 20 * time.Millisecond
	guardRetryMost  = time.Second
)

var errGuardEnded = errors.New("it has ended")

// guardKeeper sees to it that a guard stands beside the agent. Between a guard's
// death and the next one nothing that must end with the lease may be started, and
// when there is no next one such workloads are ended while their lease still holds.
type guardKeeper struct {
	a      *Agent
	status atomic.Pointer[api.Guard]

	retry  time.Duration
	endAt  lease.Instant // when what needs a guard is ended without one
	absent bool
	over   bool
}

// run keeps a guard until ctx ends. The guard outlives it.
func (k *guardKeeper) run(ctx context.Context) {
	for ctx.Err() == nil {
		guard, err := k.standing()
		if guard == nil && err == nil {
			guard, err = k.spawn()
		}
		if err != nil {
			k.missing(ctx, err)
			k.sleep(ctx)
			continue
		}
		k.stands(ctx, guard.ID.Pid)
		_ = guard.Wait(ctx) // an error is ctx's
		guard.Close()
		if ctx.Err() == nil {
			k.missing(ctx, errGuardEnded)
		}
	}
}

// stands tells the machine that workloads are guarded.
func (k *guardKeeper) stands(ctx context.Context, pid int) {
	k.retry, k.absent, k.over = 0, false, false
	group, _ := proctree.PathOf(pid) // for people: it may have ended already
	k.status.Store(&api.Guard{Pid: pid, Cgroup: group})
	k.a.loop.Input(ctx, reconcile.Guard{})
}

// missing tells the machine that they are not, and, when that has lasted for half
// of what was left of the lease, that they must end.
func (k *guardKeeper) missing(ctx context.Context, why error) {
	if !k.absent {
		k.absent, k.endAt = true, 0
		now := leasefile.Now()
		if l, err := leasefile.Read(filepath.Join(k.a.cfg.DataDir, leasefile.Name)); err == nil && l.KillAt > now {
			k.endAt = lease.Instant(now + (l.KillAt-now)/2)
		}
		k.a.log.Warn("no guard stands beside this agent", "err", why)
		k.a.loop.Input(ctx, reconcile.Guard{Missing: true})
	}
	k.status.Store(&api.Guard{Reason: why.Error()})
	if !k.over && BootTime() >= k.endAt {
		k.over = true
		k.a.log.Error("no guard can be started: workloads with on_bucket_loss: stop are ended", "err", why)
		k.a.loop.Input(ctx, reconcile.Guard{Missing: true, End: true})
	}
}

// sleep waits before the next try, and no longer than until something is due.
func (k *guardKeeper) sleep(ctx context.Context) {
	k.retry = min(max(2*k.retry, guardRetryFirst), guardRetryMost)
	wait := k.retry
	if left := k.endAt.Sub(BootTime()); !k.over && left < wait {
		wait = max(left, 0)
	}
	select {
	case <-ctx.Done():
	case <-time.After(wait):
	}
}

// standing returns the guard that stands already: another agent's of this data
// directory, which outlived it. Nil: there is none.
func (k *guardKeeper) standing() (*proctree.Handle, error) {
	free, err := k.free()
	if err != nil || free {
		return nil, err
	}
	st, err := proctree.ReadStat(guardPid(k.a.cfg.DataDir))
	if err != nil {
		return nil, fmt.Errorf("a guard holds the lock and does not say who it is: %w", err)
	}
	h, err := proctree.Open(st.ID())
	if err != nil {
		return nil, fmt.Errorf("the guard is ending: %w", err)
	}
	// Its number may have passed to a stranger before it was held on to.
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", st.Pid))
	if err == nil && bytes.Contains(line, []byte("\x00guard\x00")) {
		return h, nil
	}
	h.Close()
	return nil, errors.New("the process that the lock of the guard names is no guard")
}

func (k *guardKeeper) free() (bool, error) {
	lock, err := lockGuard(k.a.cfg.DataDir)
	if err != nil || lock == nil {
		return false, err
	}
	return true, lock.Close()
}

// spawn starts a guard, in a session and, where there is a place for it, a cgroup
// of its own, so that what stops or ends the agent leaves it alone. It returns when
// the guard stands.
func (k *guardKeeper) spawn() (*proctree.Handle, error) {
	group, err := k.a.driver.Beside()
	if err != nil {
		k.a.log.Warn("the guard has no cgroup of its own: what ends the agent's group ends the guard with it", "err", err)
	}
	out, err := os.OpenFile(filepath.Join(k.a.cfg.DataDir, guardLog), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	up, says, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer up.Close()
	defer says.Close()
	// This very program, also when another was put in its place.
	cmd := exec.Command("/proc/self/exe", "guard", "--data-dir", k.a.cfg.DataDir, "--cgroup", string(group), "--ready")
	cmd.Args[0] = os.Args[0]
	cmd.Dir, cmd.Stdout, cmd.Stderr = "/", out, out
	cmd.Env = []string{}
	cmd.ExtraFiles = []*os.File{says}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	says.Close() // the guard's is the only one now, so its death ends the pipe
	var h *proctree.Handle
	st, err := proctree.ReadStat(cmd.Process.Pid) // not reaped yet, so it is there
	if err == nil {
		h, err = proctree.Open(st.ID())
	}
	go func() { _ = cmd.Wait() }() // reaped; that it has ended is told by its handle
	if err != nil {
		return nil, err
	}
	_ = up.SetReadDeadline(time.Now().Add(guardStart))
	if line, err := bufio.NewReader(up).ReadString('\n'); line != guardUp {
		_ = h.Signal(syscall.SIGKILL)
		h.Close()
		return nil, fmt.Errorf("the guard does not come up (see %s): %w", out.Name(), err)
	}
	return h, nil
}
