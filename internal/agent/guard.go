package agent

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/barista-fleet/barista/pkg/runtime/leasefile"
	"github.com/barista-fleet/barista/pkg/runtime/process"
)

const (
	guardLock = "guard.lock"
	guardLog  = "guard.log"
	// guardLook is how often the guard looks at the lease and the agent looks
	// after the guard: a small part of the sixth of a TTL that a kill has.
	guardLook = 50 * time.Millisecond
	// guardIdle is how long a guard without an agent and without anything to end
	// stays.
	guardIdle = time.Minute
)

// lockGuard takes the guard's lock; a nil file means that a guard holds it.
func lockGuard(dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, guardLock), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	switch {
	case errors.Is(err, unix.EWOULDBLOCK):
		return nil, f.Close()
	case err != nil:
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// keepGuard makes sure that a guard stands beside this agent, in a session of its
// own so that what stops or kills the agent leaves it alone.
func (a *Agent) keepGuard(ctx context.Context) {
	if a.cfg.NoGuard {
		a.log.Warn("runs without a guard: a stopped agent's workloads can outlive its lease")
		return
	}
	for ctx.Err() == nil {
		lock, err := lockGuard(a.cfg.DataDir)
		if err == nil && lock != nil {
			lock.Close()
			err = a.spawnGuard()
		}
		if err != nil {
			a.log.Error("the guard could not be started", "err", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
}

func (a *Agent) spawnGuard() error {
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	out, err := os.OpenFile(filepath.Join(a.cfg.DataDir, guardLog), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer out.Close()
	cmd := exec.Command(exe, "guard", "--data-dir", a.cfg.DataDir)
	cmd.Dir, cmd.Stdout, cmd.Stderr = "/", out, out
	cmd.Env = []string{}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return err
	}
	go func() { _ = cmd.Wait() }() // reaped; whether it stands is told by its lock
	return nil
}

// Guard ends the workloads of a data directory that must not outlive the node's
// lease, at the instant that the agent published, whatever has become of the
// agent. It knows no fleet and no bucket: it reads one file and kills by cgroup.
// It returns when ctx ends, when another guard stands already, or when it has
// been without an agent and without anything to end for a while.
func Guard(ctx context.Context, dataDir string, log *slog.Logger) error {
	dir, err := filepath.Abs(dataDir)
	if err != nil {
		return err
	}
	lock, err := lockGuard(dir)
	if err != nil || lock == nil {
		return err
	}
	defer lock.Close()
	// Nothing of the machine's load may keep it from its work.
	_ = unix.Setpriority(unix.PRIO_PROCESS, 0, -10)
	idle := time.Now()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(guardLook):
		}
		l, err := leasefile.Read(filepath.Join(dir, leasefile.Name))
		if errors.Is(err, os.ErrNotExist) {
			l, err = leasefile.Lease{}, nil // never joined: nothing can have been started under a lease
		}
		switch {
		case err != nil && !errors.Is(err, leasefile.ErrOver):
			log.Error("the lease cannot be read; what must not outlive it is ended", "err", err)
		case err == nil && leasefile.Now() < l.KillAt:
			idle = time.Now()
			continue
		}
		killed, err := process.KillOverdue(ctx, filepath.Join(dir, runDirName))
		for _, ref := range killed {
			log.Warn("ended a workload that must not outlive the lease", "name", ref.Name, "epoch", ref.Epoch, "instance", ref.Instance,
				"overdue", time.Duration(leasefile.Now()-l.KillAt))
		}
		switch {
		case err != nil && !errors.Is(err, os.ErrNotExist):
			log.Error("could not end everything that is overdue", "err", err)
		case len(killed) > 0 || agentRuns(dir):
			idle = time.Now()
		case time.Since(idle) > guardIdle:
			return nil
		}
	}
}

// agentRuns reports whether an agent holds the data directory.
func agentRuns(dir string) bool {
	f, err := os.Open(filepath.Join(dir, "agent.lock"))
	if err != nil {
		return false
	}
	defer f.Close()
	if err := unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB); err != nil {
		return true
	}
	return false // closing gives it back
}
