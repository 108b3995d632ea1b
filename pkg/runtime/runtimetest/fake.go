package runtimetest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/barista-fleet/barista/pkg/fleet"
	"github.com/barista-fleet/barista/pkg/reconcile"
	"github.com/barista-fleet/barista/pkg/runtime"
	"github.com/barista-fleet/barista/pkg/runtime/runtimetest/history"
)

var (
	_ reconcile.Runtime   = (*Fake)(nil)
	_ reconcile.LogReader = (*Fake)(nil)
)

// PauseFrozen is how a Fake pauses.
const PauseFrozen = "frozen"

// Script is what one run of a Fake does. The zero Script starts at once, runs
// until it is stopped, obeys SIGTERM at once and consumes nothing.
type Script struct {
	StartErr   error         // the start fails with it
	StartTakes time.Duration // before the start succeeds or fails
	ExitAfter  time.Duration // of running, pauses not counted; 0: never
	Exit       fleet.Exit    // how it ends by itself
	StopTakes  time.Duration // between SIGTERM and the end; beyond the grace it is killed
	CPU        float64       // CPUs in use while it runs
	Output     string        // what Logs shows
}

// Fake is a Runtime in memory. Time is package time's, so that in a
// testing/synctest bubble it is the bubble's; there is no randomness, and no
// goroutine outlives a call. One Fake is one machine: an agent that is
// "restarted" is given the same Fake again.
type Fake struct {
	// Scripts says what a run does. It is called once per start, before
	// anything else happens. nil: the zero Script for all.
	Scripts func(runtime.StartRequest) Script
	// Fault, if set, is asked before every call and may make it fail.
	Fault func(op, instance string) error
	// PauseErr is what Pause returns; nil: it works.
	PauseErr error

	mu       sync.Mutex
	runs     map[string]*fakeRun     // by instance; guarded by mu
	watchers map[*fakeWatch]struct{} // guarded by mu
	lines    []history.Line          // guarded by mu
	calls    map[string]int          // by operation; guarded by mu
	nextPid  int                     // guarded by mu
	zero     time.Time               // of the history
}

// fakeRun is one run; all of it is guarded by the Fake's mu.
type fakeRun struct {
	req    runtime.StartRequest
	script Script
	w      runtime.Workload
	ready  chan struct{} // closed when the start is decided
	err    error
	pid    int // also when it is dead
	ended  chan struct{}
	timer  *time.Timer   // for ExitAfter
	left   time.Duration // of ExitAfter
	since  time.Time     // running since
	cpu    time.Duration // consumed before since
	extra  int64         // CPU milliseconds added by AddCPU
}

type fakeWatch struct {
	pending []string // instances
	ready   chan struct{}
}

// NewFake returns a machine on which nothing runs.
func NewFake() *Fake {
	return &Fake{
		runs: make(map[string]*fakeRun), watchers: make(map[*fakeWatch]struct{}),
		calls: make(map[string]int), nextPid: 1000, zero: time.Now(),
	}
}

// begin counts a call and asks for its fault.
func (f *Fake) begin(ctx context.Context, op, instance string) error {
	f.mu.Lock()
	f.calls[op]++
	fault := f.Fault
	f.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	if fault != nil {
		return fault(op, instance)
	}
	return nil
}

// Start implements reconcile.Runtime.
func (f *Fake) Start(ctx context.Context, req runtime.StartRequest) (runtime.Workload, error) {
	if err := f.begin(ctx, "start", req.Instance); err != nil {
		return runtime.Workload{}, err
	}
	f.mu.Lock()
	r := f.runs[req.Instance]
	if r == nil {
		r = &fakeRun{
			req: req, ready: make(chan struct{}), ended: make(chan struct{}),
			w: runtime.Workload{Ref: req.Ref, State: runtime.StateStarting},
		}
		if f.Scripts != nil {
			r.script = f.Scripts(req)
		}
		f.runs[req.Instance] = r
		if r.script.StartTakes > 0 {
			// Not by this call: it goes on when the caller's context ends.
			time.AfterFunc(r.script.StartTakes, func() {
				f.mu.Lock()
				defer f.mu.Unlock()
				f.decideLocked(r)
			})
		} else {
			f.decideLocked(r)
		}
	}
	f.mu.Unlock()
	select {
	case <-r.ready:
	case <-ctx.Done():
		return runtime.Workload{}, ctx.Err()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if r.err != nil {
		return runtime.Workload{}, r.err
	}
	return f.seenLocked(r), nil
}

// decideLocked makes a start succeed or fail.
func (f *Fake) decideLocked(r *fakeRun) {
	defer close(r.ready)
	if r.script.StartErr != nil {
		r.err = r.script.StartErr
		delete(f.runs, r.req.Instance)
		return
	}
	f.nextPid++
	r.pid = f.nextPid
	r.w.State, r.w.Pid, r.w.Started = runtime.StateRunning, r.pid, time.Now()
	r.left = r.script.ExitAfter
	f.recordLocked(r, history.Start)
	f.runLocked(r)
}

// runLocked lets time pass for a run.
func (f *Fake) runLocked(r *fakeRun) {
	r.since = time.Now()
	if r.script.ExitAfter > 0 {
		r.timer = time.AfterFunc(r.left, func() {
			f.mu.Lock()
			defer f.mu.Unlock()
			if r.w.State == runtime.StateRunning && time.Since(r.since) >= r.left {
				f.endLocked(r, runtime.StateExited, r.script.Exit)
			}
		})
	}
}

// haltLocked stops time for a run.
func (f *Fake) haltLocked(r *fakeRun) {
	if r.w.State != runtime.StateRunning {
		return
	}
	ran := time.Since(r.since)
	r.cpu += time.Duration(float64(ran) * r.script.CPU)
	r.left = max(r.left-ran, 0)
	if r.timer != nil {
		r.timer.Stop()
	}
}

func (f *Fake) endLocked(r *fakeRun, state runtime.State, exit fleet.Exit) {
	if r.w.State.Dead() {
		return
	}
	f.haltLocked(r)
	r.w.State, r.w.Pid, r.w.PauseKind = state, 0, ""
	exit.At, exit.Lost = time.Now(), state == runtime.StateLost
	exit.CPUMsec = r.cpu.Milliseconds() + r.extra
	r.w.Exit = &exit
	f.recordLocked(r, history.Stop)
	close(r.ended)
	for w := range f.watchers {
		w.pending = append(w.pending, r.req.Instance)
		select {
		case w.ready <- struct{}{}:
		default:
		}
	}
}

// seenLocked returns a run as callers may see it: nothing in it changes later.
func (f *Fake) seenLocked(r *fakeRun) runtime.Workload {
	w := r.w
	if w.Exit != nil {
		e := *w.Exit
		w.Exit = &e
	}
	cpu := r.cpu
	if w.State == runtime.StateRunning {
		cpu += time.Duration(float64(time.Since(r.since)) * r.script.CPU)
	}
	w.CPUMillis = cpu.Milliseconds() + r.extra
	return w
}

func (f *Fake) recordLocked(r *fakeRun, e history.Event) {
	at := int64(time.Since(f.zero))
	if n := len(f.lines); n > 0 {
		at = max(at, f.lines[n-1].At+1) // in a bubble many things happen at one instant, one after the other
	}
	f.lines = append(f.lines, history.Line{
		At: at, Event: e, Name: r.w.Name, Epoch: r.w.Epoch, Node: r.w.NodeID,
		Instance: r.w.Instance, Pid: r.pid,
	})
}

// started returns a run whose start was decided.
func (f *Fake) started(ctx context.Context, instance string) (*fakeRun, error) {
	f.mu.Lock()
	r := f.runs[instance]
	f.mu.Unlock()
	if r != nil {
		select {
		case <-r.ready:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	if r == nil || r.err != nil {
		return nil, fmt.Errorf("fake run %s: %w", instance, reconcile.ErrNoInstance)
	}
	return r, nil
}

// Stop implements reconcile.Runtime.
func (f *Fake) Stop(ctx context.Context, instance string, grace time.Duration) (runtime.Workload, error) {
	if err := f.begin(ctx, "stop", instance); err != nil {
		return runtime.Workload{}, err
	}
	r, err := f.started(ctx, instance)
	if err != nil {
		return runtime.Workload{}, err
	}
	f.mu.Lock()
	obeys := r.w.State == runtime.StateRunning && grace > 0
	takes := r.script.StopTakes
	f.mu.Unlock()
	if obeys && takes > 0 {
		t := time.NewTimer(min(takes, grace))
		defer t.Stop()
		select {
		case <-t.C:
		case <-r.ended:
		case <-ctx.Done():
			return runtime.Workload{}, ctx.Err()
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if obeys && takes <= grace && r.w.State == runtime.StateRunning {
		f.endLocked(r, runtime.StateExited, fleet.Exit{})
	} else {
		f.endLocked(r, runtime.StateExited, fleet.Exit{Code: 128 + int(syscall.SIGKILL), Signal: int(syscall.SIGKILL)})
	}
	return f.seenLocked(r), nil
}

// Pause implements reconcile.Runtime.
func (f *Fake) Pause(ctx context.Context, instance string) (string, error) {
	if err := f.begin(ctx, "pause", instance); err != nil {
		return "", err
	}
	r, err := f.started(ctx, instance)
	if err != nil {
		return "", err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.PauseErr != nil:
		return "", f.PauseErr
	case r.w.State.Dead():
		return "", errors.New("the run has ended")
	}
	f.haltLocked(r)
	r.w.State, r.w.PauseKind = runtime.StatePaused, PauseFrozen
	return PauseFrozen, nil
}

// Resume implements reconcile.Runtime.
func (f *Fake) Resume(ctx context.Context, instance string) error {
	if err := f.begin(ctx, "resume", instance); err != nil {
		return err
	}
	r, err := f.started(ctx, instance)
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if r.w.State.Dead() {
		return errors.New("the run has ended")
	}
	if r.w.State == runtime.StatePaused {
		r.w.State, r.w.PauseKind = runtime.StateRunning, ""
		f.runLocked(r)
	}
	return nil
}

// SetEpoch implements reconcile.Runtime.
func (f *Fake) SetEpoch(ctx context.Context, instance string, epoch, incarnation uint64) error {
	if err := f.begin(ctx, "set-epoch", instance); err != nil {
		return err
	}
	r, err := f.started(ctx, instance)
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if epoch < r.w.Epoch {
		return fmt.Errorf("epoch %d is below %d", epoch, r.w.Epoch)
	}
	r.w.Epoch, r.w.Incarnation = epoch, incarnation
	return nil
}

// List implements reconcile.Runtime: ordered by name, then instance.
func (f *Fake) List(ctx context.Context) ([]runtime.Workload, error) {
	if err := f.begin(ctx, "list", ""); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	runs := slices.SortedFunc(maps.Values(f.runs), func(a, b *fakeRun) int {
		return cmp.Or(strings.Compare(a.w.Name, b.w.Name), strings.Compare(a.w.Instance, b.w.Instance))
	})
	list := make([]runtime.Workload, len(runs))
	for i, r := range runs {
		list[i] = f.seenLocked(r)
	}
	return list, nil
}

// Remove implements reconcile.Runtime.
func (f *Fake) Remove(ctx context.Context, instance string) error {
	if err := f.begin(ctx, "remove", instance); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	r := f.runs[instance]
	if r == nil {
		return nil
	}
	if !r.w.State.Dead() {
		return errors.New("the run has not ended")
	}
	delete(f.runs, instance)
	return nil
}
