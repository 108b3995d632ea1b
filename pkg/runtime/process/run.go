//go:build linux

package process

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"

	"github.com/barista-fleet/barista/pkg/fleet"
	"github.com/barista-fleet/barista/pkg/runtime"
	"github.com/barista-fleet/barista/pkg/runtime/proctree"
	"github.com/barista-fleet/barista/pkg/runtime/shim"
)

// filePaused marks a run without a cgroup that was paused. Whether it still is
// the state of its first process says.
const filePaused = "paused"

// Kinds of pause.
const (
	PauseFrozen      = "frozen"
	PauseStoppedTree = "stopped-tree"
)

// run is one run as this driver object knows it.
type run struct {
	instance string
	dir      string
	op       chan struct{} // held by Pause, Resume, SetEpoch and Remove
	started  chan struct{} // closed when the start was decided
	startErr error         // set before started is closed
	shimPid  int           // if the shim is this process's child; set before started is closed
	ended    chan struct{} // closed when every process is dead and exit is set

	mu    sync.Mutex
	ref   runtime.Ref // guarded by mu
	state shim.State  // guarded by mu; what the shim last wrote
	exit  *shim.Exit  // guarded by mu; set before ended is closed
}

func newRun(instance, dir string) *run {
	return &run{
		instance: instance, dir: dir, op: make(chan struct{}, 1),
		started: make(chan struct{}), ended: make(chan struct{}),
	}
}

func (r *run) hasEnded() bool {
	select {
	case <-r.ended:
		return true
	default:
		return false
	}
}

// lock makes the caller the only one that changes the run.
func (r *run) lock(ctx context.Context) error {
	select {
	case r.op <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (r *run) unlock() { <-r.op }

// reap takes the status of a dead shim from the kernel, if this process is its
// parent. Nobody else may: a number that was not ours to reap may be reused.
func (r *run) reap() {
	if r.shimPid != 0 {
		_, _ = syscall.Wait4(r.shimPid, nil, 0, nil) // its status is in the exit file
	}
}

// shimState returns what the shim has written, looking again while it has not
// recorded its first process.
func (r *run) shimState() shim.State {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.state.Child.Pid == 0 {
		if st, err := shim.ReadState(r.dir); err == nil {
			r.state = *st
		}
	}
	return r.state
}

func (r *run) group() proctree.Group { return proctree.Group(r.shimState().Cgroup) }

func (r *run) tree() proctree.Tree {
	st := r.shimState()
	return proctree.Tree{Reaper: st.Shim, Root: st.Child, Tag: st.Tag}
}

// members lists the live processes of the run.
func (r *run) members() ([]proctree.Stat, error) {
	if g := r.group(); g != "" {
		return g.Members()
	}
	return r.tree().Members()
}

// anyAlive reports whether a process of the run lives, and that one does where
// that cannot be found out.
func (r *run) anyAlive() bool {
	members, err := r.members()
	return err != nil || len(members) > 0
}

// paused reports how the run is paused, "" if it is not.
func (r *run) paused() string {
	if g := r.group(); g != "" {
		if g.FreezeAsked() {
			return PauseFrozen
		}
		return ""
	}
	if _, err := os.Stat(filepath.Join(r.dir, filePaused)); err != nil {
		return ""
	}
	st, err := proctree.ReadStat(r.shimState().Child.Pid)
	if err != nil || !st.Stopped() {
		return ""
	}
	return PauseStoppedTree
}

// workload describes the run as it is now.
func (d *Driver) workload(r *run) runtime.Workload {
	r.mu.Lock()
	w := runtime.Workload{Ref: r.ref, State: runtime.StateStarting}
	r.mu.Unlock()
	if r.hasEnded() {
		r.mu.Lock()
		defer r.mu.Unlock()
		w.State, w.Exit = runtime.StateExited, fleetExit(r.exit)
		if r.exit.Lost {
			w.State = runtime.StateLost
		}
		w.Started, w.CPUMillis = r.exit.Started, r.exit.CPUMsec
		if r.exit.Signal != 0 || r.exit.Lost {
			_, err := os.Stat(filepath.Join(r.dir, fileOverdue))
			w.Overdue = err == nil
		}
		return w
	}
	st := r.shimState()
	w.Started = st.Started
	if st.Child.Pid == 0 {
		return w
	}
	w.State = runtime.StateRunning
	if st.Child.Alive() {
		w.Pid = st.Child.Pid
	}
	if kind := r.paused(); kind != "" {
		w.State, w.PauseKind = runtime.StatePaused, kind
	}
	if st.Cgroup != "" {
		w.CPUMillis = proctree.Group(st.Cgroup).CPU().Milliseconds()
	} else {
		w.CPUMillis = r.tree().CPU().Milliseconds()
	}
	return w
}

func fleetExit(e *shim.Exit) *fleet.Exit {
	return &fleet.Exit{
		Code: e.Code, Signal: e.Signal, OOM: e.OOM, Lost: e.Lost,
		Reason: e.Reason, At: e.Ended, CPUMsec: e.CPUMsec,
	}
}

func tag(instance string) string { return fmt.Sprintf("BARISTA_INSTANCE=%s", instance) }
