package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/barista-fleet/barista/pkg/runtime/leasefile"
	"github.com/barista-fleet/barista/pkg/runtime/process"
	"github.com/barista-fleet/barista/pkg/runtime/proctree"
)

const (
	guardLock = "guard.lock"
	guardLog  = "guard.log"
	// guardUp is what a guard says to the agent that started it once it stands.
	guardUp = "up\n"
	// guardLook is how often the guard looks at the lease: a small part of the
	// sixth of a TTL that a kill has.
	guardLook = 50 * time.Millisecond
	// guardIdle is how long a guard without an agent and without anything to end
	// stays.
	guardIdle = time.Minute
	// guardOOM makes the kernel choose almost anything else. Only root may ask.
	guardOOM = "-900"
)

// GuardConfig is what the agent tells the guard that it starts.
type GuardConfig struct {
	DataDir string
	// Cgroup is the group that the guard moves itself into; empty: none.
	Cgroup string
	// Up is told once the guard stands; nil: nobody.
	Up  io.WriteCloser
	Log *slog.Logger
}

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

// guardPid is the guard that last took the lock; 0 if it did not say.
func guardPid(dir string) int {
	b, err := os.ReadFile(filepath.Join(dir, guardLock))
	if err != nil {
		return 0
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		return 0
	}
	return pid
}

// Guard ends the workloads of a data directory that must not outlive the node's
// lease, at the instant that the agent published, whatever has become of the
// agent. It knows no fleet and no bucket: it reads one file and kills by cgroup.
// It returns when ctx ends, when another guard stands already, or when it has
// been without an agent and without anything to end for a while.
func Guard(ctx context.Context, cfg GuardConfig) error {
	dir, err := filepath.Abs(cfg.DataDir)
	if err != nil {
		return err
	}
	// Before it stands: what stands must not be reached by what ends the agent.
	if group := proctree.Group(cfg.Cgroup); group != "" {
		if err := group.Join(); err != nil {
			cfg.Log.Warn("the guard shares the agent's cgroup: what ends that group ends the guard with it", "err", err)
		} else {
			defer leaveGroup(group)
		}
	}
	lock, err := lockGuard(dir)
	if err != nil || lock == nil {
		return err
	}
	defer lock.Close()
	if err := errors.Join(lock.Truncate(0), writeAt(lock, strconv.Itoa(os.Getpid())+"\n")); err != nil {
		cfg.Log.Warn("the guard cannot say who it is", "err", err) // the disk is full: it stands all the same
	}
	// Nothing of the machine's load may keep it from its work.
	_ = unix.Setpriority(unix.PRIO_PROCESS, 0, -10)
	_ = os.WriteFile("/proc/self/oom_score_adj", []byte(guardOOM), 0)
	if cfg.Up != nil {
		_, err := io.WriteString(cfg.Up, guardUp)
		if err := errors.Join(err, cfg.Up.Close()); err != nil {
			cfg.Log.Warn("the agent that started this guard is gone", "err", err)
		}
	}
	return watchLease(ctx, dir, cfg.Log)
}

func writeAt(f *os.File, text string) error {
	_, err := f.WriteAt([]byte(text), 0)
	return err
}

// leaveGroup takes the group away that the guard was in. Where the guard may not
// leave it, the group stays, empty, for the next one.
func leaveGroup(g proctree.Group) {
	mount, _, err := proctree.FindHierarchy()
	if err == nil && proctree.Group(mount).Join() == nil {
		for range 2 { // and the one above, which was made for this data directory
			_ = os.Remove(string(g))
			g = proctree.Group(filepath.Dir(string(g)))
		}
	}
}

// watchLease is the guard's life.
func watchLease(ctx context.Context, dir string, log *slog.Logger) error {
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
		ended, err := endOverdue(ctx, dir, l, log)
		switch {
		case err != nil:
			log.Error("could not end everything that is overdue", "err", err)
		case ended || agentRuns(dir):
			idle = time.Now()
		case time.Since(idle) > guardIdle:
			return nil
		}
	}
}

// endOverdue kills what must not outlive the lease, and reports whether there was
// anything.
func endOverdue(ctx context.Context, dir string, l leasefile.Lease, log *slog.Logger) (bool, error) {
	killed, err := process.KillOverdue(ctx, filepath.Join(dir, runDirName))
	for _, ref := range killed {
		log.Warn("ended a workload that must not outlive the lease", "name", ref.Name, "epoch", ref.Epoch, "instance", ref.Instance,
			"overdue", time.Duration(leasefile.Now()-l.KillAt))
	}
	if errors.Is(err, os.ErrNotExist) {
		err = nil // nothing was ever started here
	}
	if err != nil {
		err = fmt.Errorf("end what is overdue: %w", err)
	}
	return len(killed) > 0, err
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
