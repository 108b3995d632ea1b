//go:build linux

package process

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

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

// adoptLocked takes in a run from disk; nil if there is none. Whatever is
// damaged, a directory whose shim or processes live is a run.
func (d *Driver) adoptLocked(instance string) *run {
	dir := d.runDir(instance)
	if _, err := os.Stat(dir); err != nil {
		return nil
	}
	r := newRun(instance, dir)
	alive := shimAlive(dir)
	r.state = d.readState(instance, dir)
	r.ref = d.readRef(instance, dir, r.state)
	exit, exitErr := shim.ReadExit(dir)
	_, stateErr := os.Stat(filepath.Join(dir, shim.FileState))
	if !alive && exitErr != nil && errors.Is(stateErr, fs.ErrNotExist) && !r.anyAlive() {
		// Its shim was never started, or died before it could start anything.
		d.log.Info("forget a run that was never started", "instance", instance, "name", r.ref.Name)
		d.discard(r)
		return nil
	}
	close(r.started)
	d.runs[instance] = r
	if exitErr == nil && !alive {
		r.exit = exit
		close(r.ended)
		return r
	}
	d.wg.Add(1)
	go d.monitor(r)
	return r
}

// readState reads what the shim wrote. If that cannot be read, the run is
// still looked for where every run of this driver is.
func (d *Driver) readState(instance, dir string) shim.State {
	st, err := shim.ReadState(dir)
	if err == nil {
		return *st
	}
	if !errors.Is(err, fs.ErrNotExist) {
		d.log.Warn("state of a run is damaged", "instance", instance, "error", err)
	}
	guess := shim.State{Instance: instance, Tag: tag(instance)}
	if l, err := shim.ReadLaunch(dir); err == nil {
		guess.Cgroup, guess.LogDir, guess.Ref = l.Cgroup, l.LogDir, l.Ref
	} else if g := d.group(instance); g.Exists() {
		guess.Cgroup = string(g)
	}
	return guess
}

// readRef reads who the run is: from the file that SetEpoch keeps up to date,
// else from the copies made at the start.
func (d *Driver) readRef(instance, dir string, st shim.State) runtime.Ref {
	var ref runtime.Ref
	b, err := os.ReadFile(filepath.Join(dir, shim.FileRef))
	if err == nil {
		err = json.Unmarshal(b, &ref)
	}
	if err != nil {
		d.log.Warn("identity of a run is damaged, using the copy from its start", "instance", instance, "error", err)
		ref = runtime.Ref{}
		if err := json.Unmarshal(st.Ref, &ref); err != nil {
			d.log.Error("a run has lost its name", "instance", instance, "error", err)
		}
	}
	ref.Instance = instance // the directory's name cannot be damaged
	return ref
}

// shimAlive asks the kernel whether the shim of a run lives, by the lock that
// it holds for all its life.
func shimAlive(dir string) bool {
	f, err := os.Open(filepath.Join(dir, shim.FileLock))
	if err != nil {
		return false
	}
	defer f.Close()
	// Shared, so that two who ask at once do not take each other for the shim.
	return syscall.Flock(int(f.Fd()), syscall.LOCK_SH|syscall.LOCK_NB) == syscall.EWOULDBLOCK
}

// monitor waits for a run to end, and says so.
func (d *Driver) monitor(r *run) {
	defer d.wg.Done()
	if err := d.waitShim(r); err != nil {
		if d.ctx.Err() == nil {
			d.log.Error("cannot wait for a run", "instance", r.instance, "error", err)
		}
		return
	}
	exit, err := shim.ReadExit(r.dir)
	if err != nil {
		exit, err = d.waitOrphan(r, err)
	}
	if err == nil {
		err = d.endGroup(r)
	}
	if err != nil {
		if d.ctx.Err() == nil {
			d.log.Error("cannot follow a run to its end", "instance", r.instance, "error", err)
		}
		return
	}
	r.mu.Lock()
	r.exit = exit
	ref := r.ref
	r.mu.Unlock()
	close(r.ended)
	d.log.Info("run ended", "instance", r.instance, "name", ref.Name, "epoch", ref.Epoch,
		"code", exit.Code, "signal", exit.Signal, "lost", exit.Lost, "oom", exit.OOM)
	d.announce(r)
}

// waitShim returns nil when the run's shim is dead.
func (d *Driver) waitShim(r *run) error {
	st := r.shimState()
	h, err := proctree.Open(st.Shim)
	if err == nil {
		defer h.Close()
		if err := h.Wait(d.ctx); err != nil {
			return err
		}
		r.reap()
		return nil
	}
	if shimAlive(r.dir) {
		return d.waitLock(r)
	}
	r.reap()
	return nil
}

// waitLock is waitShim for a shim whose pid is not known: that of an agent
// killed between starting it and hearing from it, or one with a damaged state.
func (d *Driver) waitLock(r *run) error {
	f, err := os.Open(filepath.Join(r.dir, shim.FileLock))
	if err != nil {
		return err
	}
	free := make(chan error, 1)
	// Costs a thread, and ends at the latest with the shim; few runs come here.
	go func() {
		defer f.Close()
		for {
			err := syscall.Flock(int(f.Fd()), syscall.LOCK_SH)
			if err != syscall.EINTR {
				free <- err
				return
			}
		}
	}()
	select {
	case err := <-free:
		return err
	case <-d.ctx.Done():
		return d.ctx.Err()
	}
}

// waitOrphan waits for the processes of a run whose shim is dead without
// having recorded an exit, and records that nobody knows it.
func (d *Driver) waitOrphan(r *run, readErr error) (*shim.Exit, error) {
	st := r.shimState()
	reason := "its node-shim was killed"
	switch {
	case !errors.Is(readErr, fs.ErrNotExist):
		reason = "its exit record is damaged"
	case st.Shim.Boot != "" && st.Shim.Boot != proctree.BootID():
		reason = "the machine was restarted"
	default:
		members, err := r.members()
		if err != nil {
			return nil, err
		}
		if len(members) > 0 {
			d.log.Warn("a run goes on without its node-shim: its exit will not be known",
				"instance", r.instance, "processes", len(members))
		}
		if err := d.waitEmpty(d.ctx, r); err != nil {
			return nil, err
		}
	}
	exit := &shim.Exit{
		Instance: r.instance, Lost: true, Reason: reason, Pid: st.Child.Pid,
		Started: st.Started, Ended: time.Now().UTC().Round(0), CPUMsec: r.group().CPU().Milliseconds(),
	}
	if errors.Is(readErr, fs.ErrNotExist) {
		if err := shim.WriteExit(r.dir, exit); err != nil {
			// Found out again by the next agent; this one knows.
			d.log.Error("cannot record a lost run", "instance", r.instance, "error", err)
		}
	}
	return exit, nil
}

// waitEmpty returns nil when no process of the run is alive.
func (d *Driver) waitEmpty(ctx context.Context, r *run) error {
	g := r.group()
	if g == "" {
		return r.tree().WaitEmpty(ctx)
	}
	return d.waitGroup(ctx, g, r.ended, func(e proctree.Events) bool { return !e.Populated })
}

// waitGroup waits until the state of a group is as wanted, or its run has
// ended: whoever removes a group then takes with it the news that it is empty,
// which the kernel delivers up to 10 ms late.
func (d *Driver) waitGroup(ctx context.Context, g proctree.Group, ended <-chan struct{}, want func(proctree.Events) bool) error {
	if !g.Exists() {
		return nil // with all that was in it
	}
	changed, cancel, err := d.notify.watch(g.EventsFile())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer cancel()
	for {
		ev, err := g.Events()
		if err != nil {
			return err
		}
		if want(ev) {
			return nil
		}
		select {
		case <-changed:
		case <-ended:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// endGroup removes the group of a run that has ended, killing what a stranger
// may have put into it.
func (d *Driver) endGroup(r *run) error {
	g := r.group()
	if !g.Exists() {
		return nil
	}
	ev, err := g.Events()
	if err != nil {
		return err
	}
	if ev.Populated {
		if err := g.Kill(); err != nil {
			return err
		}
		if err := d.waitEmpty(d.ctx, r); err != nil {
			return err
		}
	}
	if err := g.Remove(); err != nil {
		// An empty group costs some memory; Remove of the run tries again.
		d.log.Warn("cannot remove the cgroup of an ended run", "instance", r.instance, "error", err)
	}
	return nil
}

func tag(instance string) string { return fmt.Sprintf("BARISTA_INSTANCE=%s", instance) }
