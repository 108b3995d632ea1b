package sim

import (
	"errors"
	"time"

	"github.com/barista-fleet/barista/pkg/fleet"
	"github.com/barista-fleet/barista/pkg/lease"
	"github.com/barista-fleet/barista/pkg/reconcile"
	"github.com/barista-fleet/barista/pkg/runtime"
)

var (
	errNoSpace = errors.New("no space left on device")
	errDriver  = errors.New("the driver failed")
)

// run is one run of a workload on a machine. It does not need the agent.
type run struct {
	w        runtime.Workload
	kind     fleet.Kind // of the spec it was started with
	by       *agent
	node     *node
	alive    bool
	born     time.Duration
	died     time.Duration
	stubborn bool          // ignores SIGTERM
	ends     time.Duration // by itself; never
	code     int
	dying    bool
	excused  bool          // I4 does not cover it: see guard.go
	lapsed   time.Duration // for how long it has been superseded and could have known
}

func (n *node) run(instance string) *run {
	for _, r := range n.runs {
		if r.w.Instance == instance {
			return r
		}
	}
	return nil
}

// list is what the runtime says of this machine, now.
func (n *node) list() []runtime.Workload {
	out := make([]runtime.Workload, 0, len(n.runs))
	for _, r := range n.runs {
		out = append(out, r.w)
	}
	return out
}

// operate performs one operation on a run, in a goroutine of the agent. The token
// is checked right before, as the loop does it.
func (a *agent) operate(op reconcile.RunOp) {
	w := a.n.w
	delay := w.between(0, time.Millisecond)
	if op.Kind == reconcile.OpStart && w.chance(w.sc.slowGoroutine) {
		delay = w.between(0, w.sc.longestTTL)
	}
	a.do(delay, func() {
		if n := a.n; op.Kind.Needs() && (a.token == nil || n.boottime() >= a.token.Deadline || a.token.Incarnation != op.Inc) {
			w.note(n.idx, "withdrawn", op.Instance, 0)
			a.input(reconcile.OpDone{Op: op.Op, Withdrawn: true})
			return
		}
		switch op.Kind {
		case reconcile.OpStart:
			a.startRun(op)
		case reconcile.OpStop:
			a.stopRun(op)
		default:
			a.do(w.between(time.Millisecond, 20*time.Millisecond), func() { a.otherOp(op) })
		}
	})
}

func (a *agent) opDone(op reconcile.RunOp, r *run, err error) {
	d := reconcile.OpDone{Op: op.Op, Err: err}
	if r != nil {
		d.Run = r.w
	}
	a.do(a.n.w.between(0, time.Millisecond), func() { a.input(d) })
}

// startRun begins a run: the driver works for a while in the agent and, from the
// fork on, without it.
func (a *agent) startRun(op reconcile.RunOp) {
	w, n := a.n.w, a.n
	if !w.calm && (w.chance(w.sc.startFails) || n.badStarts) {
		a.do(w.between(0, 20*time.Millisecond), func() {
			a.input(reconcile.OpDone{Op: op.Op, Err: errDriver, Refused: w.chance(0.3)})
		})
		return
	}
	inside, outside := w.between(0, 20*time.Millisecond), w.between(0, 20*time.Millisecond)
	if w.chance(w.sc.slowStart) {
		inside = w.between(0, 2*w.sc.longestTTL)
	}
	a.do(inside, func() {
		boot := n.boots
		w.after(outside, func() {
			if n.boots != boot || !n.powered {
				return
			}
			n.whenAwake(func() { a.execute(op) })
		})
	})
}

// execute is the instant at which the workload's first process exists.
func (a *agent) execute(op reconcile.RunOp) {
	w, n := a.n.w, a.n
	if r := n.run(op.Instance); r != nil {
		a.opDone(op, r, nil)
		return
	}
	if op.Start.StopOnLoss && w.sc.guard && !n.guardAllows(op.Start.Ref) {
		w.note(n.idx, "guard refuses", op.Instance, 0)
		a.do(time.Millisecond, func() { a.input(reconcile.OpDone{Op: op.Op, Withdrawn: true}) })
		return
	}
	r := &run{w: runtime.Workload{Ref: op.Start.Ref, State: runtime.StateRunning, Pid: 1, Started: n.clock.wallNow(w.now)}, node: n, by: a, alive: true, born: w.now, ends: never}
	r.kind = op.Start.Spec.WithDefaults().Kind
	r.stubborn = w.chance(0.3)
	if r.kind == fleet.KindJob {
		r.ends = w.now + w.between(50*time.Millisecond, 2*w.sc.longestTTL)
		if w.chance(w.sc.exits) {
			r.code = 1
		}
	} else if w.chance(w.sc.exits) && !w.calm {
		r.ends, r.code = w.now+w.between(10*time.Millisecond, 4*w.sc.longestTTL), w.pick(2)
	}
	n.runs = append(n.runs, r)
	w.stats.Runs++
	w.note(n.idx, "runs", r.w.Name+" "+r.w.Instance, r.w.Epoch)
	w.check.started(r)
	if r.ends != never {
		w.at(r.ends, func() { r.exit() })
	}
	n.watchRun(r)
	a.opDone(op, r, nil)
}

// exit ends a run by itself. A paused one, or one on a suspended machine, cannot.
func (r *run) exit() {
	if r.alive && (r.w.State == runtime.StatePaused || r.node.frozen) {
		r.node.w.after(r.node.w.between(100*time.Millisecond, time.Second), r.exit)
		return
	}
	r.end(&fleet.Exit{Code: r.code})
}

// end is the instant at which no process of the run is alive any more.
func (r *run) end(exit *fleet.Exit) {
	if !r.alive {
		return
	}
	n := r.node
	w := n.w
	r.alive, r.died = false, w.now
	r.w.State, r.w.Exit, r.w.Pid = runtime.StateExited, exit, 0
	if exit.Lost {
		r.w.State = runtime.StateLost
	}
	w.note(n.idx, "ends", r.w.Name+" "+r.w.Instance, r.w.Epoch)
	w.check.ended(r)
	if a := n.agent; a != nil && !w.chance(w.sc.deafWatch) {
		news := r.w
		a.do(w.between(0, 10*time.Millisecond), func() { a.input(reconcile.RunChanged{Run: news}) })
	}
}

// kill ends a run within d.
func (r *run) kill(d time.Duration, exit *fleet.Exit) {
	w := r.node.w
	w.after(w.between(0, d), func() { r.node.whenAwake(func() { r.end(exit) }) })
}

func (a *agent) stopRun(op reconcile.RunOp) {
	w, n := a.n.w, a.n
	r := n.run(op.Instance)
	if r == nil {
		a.input(reconcile.OpDone{Op: op.Op, Run: runtime.Workload{Ref: runtime.Ref{Instance: op.Instance, Name: op.Name}, State: runtime.StateLost}})
		return
	}
	w.note(n.idx, "stop", r.w.Name+" "+r.w.Instance, uint64(op.Grace.Milliseconds()))
	w.check.stopping(a, r)
	a.awaitEnd(op, r)
	if !r.alive {
		return
	}
	if !r.stubborn && r.w.State != runtime.StatePaused {
		r.kill(50*time.Millisecond, &fleet.Exit{Signal: 15})
		return
	}
	grace := op.Grace
	if r.w.State == runtime.StatePaused {
		grace = 0
	}
	a.do(n.clock.span(grace), func() { r.kill(n.times.KillTime/2, &fleet.Exit{Signal: 9}) })
}

// awaitEnd answers a stop when nothing of the run is alive.
func (a *agent) awaitEnd(op reconcile.RunOp, r *run) {
	if !r.alive {
		a.opDone(op, r, nil)
		return
	}
	a.do(5*time.Millisecond, func() { a.awaitEnd(op, r) })
}

func (a *agent) otherOp(op reconcile.RunOp) {
	n := a.n
	r := n.run(op.Instance)
	if r == nil {
		if op.Kind == reconcile.OpRemove {
			a.input(reconcile.OpDone{Op: op.Op})
			return
		}
		a.input(reconcile.OpDone{Op: op.Op, Run: runtime.Workload{Ref: runtime.Ref{Instance: op.Instance, Name: op.Name}, State: runtime.StateLost}})
		return
	}
	n.w.note(n.idx, op.Kind.String(), r.w.Name+" "+r.w.Instance, op.Epoch)
	var err error
	switch op.Kind {
	case reconcile.OpPause:
		switch {
		case n.noPause:
			a.input(reconcile.OpDone{Op: op.Op, Run: r.w, Err: reconcile.ErrUnsupported, Refused: true})
			return
		case r.alive:
			r.w.State, r.w.PauseKind = runtime.StatePaused, "frozen"
		}
	case reconcile.OpResume:
		if r.alive {
			r.w.State, r.w.PauseKind = runtime.StateRunning, ""
		}
	case reconcile.OpSetEpoch:
		r.w.Epoch, r.w.Incarnation = op.Epoch, op.Inc
	case reconcile.OpRemove:
		if r.alive {
			err = errDriver
			break
		}
		n.forget(r)
		r = nil
	default: // starts and stops are done elsewhere
	}
	a.opDone(op, r, err)
}

func (n *node) forget(r *run) {
	for i, o := range n.runs {
		if o == r {
			n.runs = append(n.runs[:i:i], n.runs[i+1:]...)
			return
		}
	}
}

// boottime is the machine's boot-time clock now.
func (n *node) boottime() lease.Instant { return n.clock.boot(n.w.now) }
