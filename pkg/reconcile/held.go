package reconcile

import (
	"fmt"
	"time"

	"github.com/barista-fleet/barista/pkg/fleet"
	"github.com/barista-fleet/barista/pkg/lease"
	"github.com/barista-fleet/barista/pkg/runtime"
)

// decideHeld brings a name that this node owns to where it should be.
func decideHeld(node Node, n Name) Action {
	rec := n.record()
	run, has := n.current()
	alive := has && !run.State.Dead()
	if n.unwanted() {
		return giveUp(n, alive, run, fleet.PhasePending, "deleted", StopUnwanted, EventDeleted, n.Desired.Intent.Seq)
	}
	if a, ok := finished(node, n, run); ok {
		return a
	}
	var blocked *Action
	if node.Draining && !n.unreported(run, has) {
		a := drain(node, n, alive, run) // a run that ended by itself is reported first
		if a.Kind != Wait {
			return a
		}
		blocked = &a // what operators ask of the name may unblock it
	}
	if alive && (run.Epoch != rec.Epoch || run.Incarnation != rec.Incarnation) {
		if !node.CanAct {
			return wait("the name was re-claimed; its workload learns its new token when the bucket confirms this node's lease")
		}
		// The token first: whatever goes on from here goes on under the new one.
		return operate(OpSetEpoch, run, "the name was re-claimed: its fencing token rises", nil)
	}
	for _, r := range n.Runs {
		if r.State.Dead() && r.Instance != rec.Instance {
			return operate(OpRemove, r, "an earlier run is over", nil)
		}
	}
	if in, ok := n.asked(); ok {
		if a, ok := obey(node, n, in, run, has, alive); ok {
			return a
		}
	}
	if n.alarmDue(node.Wall) {
		return ring(node, n, run, alive)
	}
	if blocked != nil && (!alive || rec.Phase != fleet.PhaseStarting) { // that it runs is recorded all the same
		return *blocked
	}
	switch {
	case has && run.State.Dead() && rec.Phase != fleet.PhaseBackoff && !rec.Phase.Parked():
		return recordExit(node, n, run)
	case has && run.State.Dead() && rec.Phase == fleet.PhasePaused:
		// What was paused died: its memory is gone.
		return recordExit(node, n, run)
	case has && run.State.Dead():
		return operate(OpRemove, run, "its exit is recorded", nil)
	case alive:
		return tend(node, n, run)
	}
	return start(node, n)
}

func operate(op OpKind, run runtime.Workload, reason string, ev *Event) Action {
	return Action{Kind: Operate, Op: op, Instance: run.Instance, Reason: reason, Event: ev}
}

func (n *Name) stop(run runtime.Workload, cause StopCause, reason string) Action {
	return Action{Kind: Operate, Op: OpStop, Instance: run.Instance, Grace: n.grace(), Cause: cause, Reason: reason}
}

// interrupted reports a run that its node ended for a reason of its own, by the
// agent or by the guard.
func (n *Name) interrupted(run runtime.Workload) bool { return n.Stopped.interrupted() || run.Overdue }

// unreported says that the run which the record speaks of is over and the record
// does not say so yet.
func (n *Name) unreported(run runtime.Workload, has bool) bool {
	phase := n.record().Phase
	return has && run.State.Dead() && phase != fleet.PhaseBackoff && !phase.Parked() && !n.interrupted(run)
}

// finished reports a job's good end, before anything else that may be asked of
// the name: what is done is done. It is one if the job ended by itself, and also
// if it was interrupted and chose to end well; not if it was told to end for its
// own sake, as by a cancel or its time-out.
func finished(node Node, n Name, run runtime.Workload) (Action, bool) {
	e := run.Exit
	if n.spec().Kind != fleet.KindJob || !run.State.Dead() || e == nil || e.Code != 0 || e.Signal != 0 || e.Lost || n.record().Phase.Done() {
		return Action{}, false
	}
	if n.Stopped != 0 && !n.Stopped.interrupted() {
		return Action{}, false
	}
	return giveUp(n, false, run, fleet.PhaseCompleted, "completed", 0, EventCompleted, 0), true
}

func (n *Name) event(t EventType, format string, args ...any) *Event {
	return &Event{Type: t, Name: n.Name, Epoch: n.record().Epoch, Message: fmt.Sprintf(format, args...)}
}

// giveUp ends the run and then, only then, frees the name in the given phase.
func giveUp(n Name, alive bool, run runtime.Workload, phase fleet.Phase, why string, cause StopCause, t EventType, seen uint64) Action {
	if alive {
		return n.stop(run, cause, why)
	}
	rec := n.record().Clone()
	rec.Phase, rec.Reason, rec.LastNode, rec.LastName = phase, why, rec.Owner, rec.OwnerName
	rec.Seen, rec.RetryAfterMillis = max(rec.Seen, seen), 0
	rec.Instance = ""
	if phase != fleet.PhasePending || run.Exit != nil {
		rec.Exit = run.Exit
	}
	return Action{Kind: Write, Write: lease.WriteRelease, Record: rec, Reason: why, Event: n.event(t, "%s", why)}
}

// giveUpParked frees a name of which nothing runs here.
func giveUpParked(n Name) Action {
	phase := fleet.PhasePending
	if n.record().Phase.Parked() {
		phase = fleet.PhaseStopped
	}
	return giveUp(n, false, runtime.Workload{}, phase, "its node was drained", StopDrained, EventReleased, 0)
}

// drain gives a name up because its node is being emptied. What was parked stays
// parked elsewhere. What would lose work or memory blocks the drain until its
// deadline, as batch work does in other schedulers.
func drain(node Node, n Name, alive bool, run runtime.Workload) Action {
	if why := n.blocksDrain(); why != "" && alive && !node.DrainNow {
		return wait("blocks the drain: " + why)
	}
	switch n.record().Phase {
	case fleet.PhaseStopped:
		return giveUp(n, alive, run, fleet.PhaseStopped, "stopped; its node was drained", StopDrained, EventReleased, 0)
	case fleet.PhasePaused:
		return giveUp(n, alive, run, fleet.PhaseStopped, "its node was drained: its paused memory is gone", StopDrained, EventDegraded, 0)
	default: // decided below
	}
	return giveUp(n, alive, run, fleet.PhasePending, "its node was drained", StopDrained, EventReleased, 0)
}

// blocksDrain says what ending the run of this name now would cost; empty if it
// would simply go on elsewhere.
func (n *Name) blocksDrain() string {
	spec, evict := n.spec(), "`fleetctl evict "+n.Name+"` ends it now, a drain with a deadline ends it then"
	switch {
	case n.Known == Absent:
		return "nobody desires it any more, and it runs until it is deleted by name or the drain's deadline comes"
	case n.record().Phase == fleet.PhasePaused:
		return "its paused memory would be lost; " + evict
	case spec.Kind == fleet.KindJob:
		return "the job runs to its end; " + evict
	case spec.OnOwnerLoss == fleet.OwnerLossHold:
		return "its spec says on_owner_loss: hold, and its memory would be lost; " + evict
	}
	return ""
}

// obey carries out an intent, step by step: each call finds the next one, and the
// last records the intent as seen. An intent that changes nothing is only seen.
func obey(node Node, n Name, in fleet.Intent, run runtime.Workload, has, alive bool) (Action, bool) {
	rec := n.record()
	switch in.Verb {
	case fleet.VerbCancel:
		return giveUp(n, alive, run, fleet.PhaseCancelled, "cancelled on request", StopWished, EventCancelled, in.Seq), true
	case fleet.VerbStop:
		if alive {
			return n.stop(run, StopWished, "stop was asked for"), true
		}
		return n.park(in.Seq, fleet.PhaseStopped, fleet.Snapshot{}, run.Exit, "stopped on request", EventStopped), true
	case fleet.VerbPause:
		return pause(node, n, run, alive, in.Seq, "paused on request"), true
	case fleet.VerbRestart:
		if alive {
			return n.stop(run, StopWished, "restart was asked for"), true
		}
		return n.again(node, in.Seq, 0, "restarted on request"), true
	case fleet.VerbEvict:
		if in.Epoch != 0 && in.Epoch != rec.Epoch {
			return n.see(in.Seq, "evict was meant for another epoch"), true
		}
		return giveUp(n, alive, run, fleet.PhasePending, "evicted on request", StopDrained, EventReleased, in.Seq), true
	case fleet.VerbRun:
		switch {
		case rec.Phase == fleet.PhasePaused && alive && run.State == runtime.StatePaused:
			if !node.CanAct {
				return wait("resume waits until the bucket confirms this node's lease"), true
			}
			return operate(OpResume, run, "resume was asked for", nil), true
		case rec.Phase == fleet.PhasePaused && alive:
			return n.woken(node, in.Seq, rec.WakeSeen, "resumed on request"), true
		case rec.Phase.Parked() && !has:
			return n.again(node, in.Seq, 0, "started on request"), true
		case rec.Phase.Parked():
			return Action{}, false // its end is recorded first
		}
		return n.see(in.Seq, ""), true
	case fleet.VerbReleaseHold:
		return n.see(in.Seq, ""), true // nothing to let go of where its owner is there
	default: // of a later version, perhaps
	}
	return n.see(in.Seq, "unknown verb "+string(in.Verb)), true
}

// see records an intent that needs nothing done.
func (n *Name) see(seq uint64, reason string) Action {
	rec := n.record().Clone()
	rec.Seen = max(rec.Seen, seq)
	if reason != "" {
		rec.Reason = reason
	}
	return Action{Kind: Write, Write: lease.WriteUpdate, Record: rec, Reason: "the intent is taken note of"}
}

// park records a phase in which nothing runs, or nothing moves, and nothing
// resumes it but a wish.
func (n *Name) park(seq uint64, phase fleet.Phase, snap fleet.Snapshot, exit *fleet.Exit, why string, t EventType) Action {
	rec := n.record().Clone()
	rec.Phase, rec.Reason, rec.Snapshot = phase, why, snap
	rec.Seen, rec.RetryAfterMillis = max(rec.Seen, seq), 0
	if phase == fleet.PhaseStopped {
		rec.Exit, rec.Instance = exit, ""
	}
	return Action{Kind: Write, Write: lease.WriteUpdate, Record: rec, Reason: why, Event: n.event(t, "%s", why)}
}

// pause stops a run from running without ending it; what has no run to keep is
// parked as stopped.
func pause(node Node, n Name, run runtime.Workload, alive bool, seq uint64, why string) Action {
	switch {
	case !alive:
		return n.park(seq, fleet.PhaseStopped, fleet.Snapshot{}, run.Exit, why+"; nothing was running", EventStopped)
	case run.State != runtime.StatePaused && n.NoPause:
		return n.stop(run, StopWished, why+"; this runtime cannot pause it, so it is stopped")
	case run.State != runtime.StatePaused:
		return operate(OpPause, run, why, nil)
	}
	snap := fleet.Snapshot{Kind: run.PauseKind, Node: node.ID, Lineage: n.record().Lineage, Since: node.Wall}
	return n.park(seq, fleet.PhasePaused, snap, nil, why, EventPaused)
}

// woken records that a paused run goes on. Its TTL begins again.
func (n *Name) woken(node Node, seq, wakeSeen uint64, why string) Action {
	rec := n.record().Clone()
	rec.Phase, rec.Reason, rec.Snapshot, rec.ActiveSince = fleet.PhaseRunning, "", fleet.Snapshot{}, node.Wall
	rec.Seen, rec.WakeSeen = max(rec.Seen, seq), max(rec.WakeSeen, wakeSeen)
	return Action{Kind: Write, Write: lease.WriteUpdate, Record: rec, Reason: why, Event: n.event(EventResumed, "%s", why)}
}

// again records that a new run is to start. It is written before anything
// starts, so that a run that is found later can be told from an older one.
func (n *Name) again(node Node, seq, wakeSeen uint64, why string) Action {
	if !node.CanAct {
		return wait("a start waits until the bucket confirms this node's lease")
	}
	rec := n.record().Clone()
	rec.Attempt++
	rec.Phase, rec.Reason, rec.Snapshot, rec.RetryAfterMillis = fleet.PhaseStarting, why, fleet.Snapshot{}, 0
	rec.Seen, rec.WakeSeen = max(rec.Seen, seq), max(rec.WakeSeen, wakeSeen)
	rec.Lineage = fleet.Lineage{UID: rec.UID, Epoch: rec.Epoch}
	if n.Known == Present {
		if rec.Generation != n.Desired.Generation {
			rec.Failures = 0 // those were another spec's
		}
		rec.Generation = n.Desired.Generation
	}
	rec.Instance = runtime.InstanceID(rec.Name, rec.UID, rec.Epoch, rec.Attempt)
	return Action{Kind: Write, Write: lease.WriteUpdate, Record: rec, Reason: why}
}

// ring carries out an alarm that has come: once, also when it was missed.
func ring(node Node, n Name, run runtime.Workload, alive bool) Action {
	rec := n.record()
	seq := n.Desired.WakeAt.Seq
	switch {
	case rec.Phase == fleet.PhasePaused && alive && run.State == runtime.StatePaused:
		if !node.CanAct {
			return wait("the alarm waits until the bucket confirms this node's lease")
		}
		return operate(OpResume, run, "its alarm has come", n.event(EventAlarm, "its alarm has come: it is resumed"))
	case rec.Phase == fleet.PhasePaused && alive:
		return n.woken(node, 0, seq, "woken by its alarm")
	case rec.Phase.Parked() && !alive:
		a := n.again(node, 0, seq, "started by its alarm")
		if a.Kind == Write {
			a.Event = n.event(EventAlarm, "its alarm has come: it is started")
		}
		return a
	}
	c := rec.Clone()
	c.WakeSeen = seq
	return Action{
		Kind: Write, Write: lease.WriteUpdate, Record: c, Reason: "the alarm found it running",
		Event: n.event(EventAlarm, "its alarm has come, and found it running"),
	}
}

// recordExit reports how a run ended, before anything of that name is started
// again. A job's good end is final; everything else is an attempt that failed.
func recordExit(node Node, n Name, run runtime.Workload) Action {
	spec, rec := n.spec(), n.record().Clone()
	exit := run.Exit
	if exit == nil {
		exit = &fleet.Exit{Lost: true, Reason: "ended, and nobody knows how"}
	}
	rec.Exit, rec.Snapshot = exit, fleet.Snapshot{}
	how := describeExit(exit)
	// A signal on a node that is being emptied is the drain's, also if the process
	// life that sent it is over.
	interrupted := n.interrupted(run) || node.Draining && exit.Signal != 0
	if spec.Kind == fleet.KindJob {
		timedOut := spec.TimeoutMs > 0 && !rec.Started.IsZero() && node.Wall.Sub(rec.Started) >= millis(spec.TimeoutMs)
		switch {
		case timedOut:
			return giveUp(n, false, run, fleet.PhaseTimedOut, fmt.Sprintf("ran longer than its time-out of %v", millis(spec.TimeoutMs)), 0, EventTimedOut, 0)
		case rec.Failures+1 >= spec.MaxAttempts && !interrupted:
			a := giveUp(n, false, run, fleet.PhaseFailed, fmt.Sprintf("%s; %d of %d attempts failed", how, rec.Failures+1, spec.MaxAttempts), 0, EventFailed, 0)
			a.Record.Failures++
			return a
		}
	}
	if n.NoPause && n.ttlOver(node) {
		// It was to be paused, and this runtime can only stop it.
		return n.park(0, fleet.PhaseStopped, fleet.Snapshot{}, exit, "stopped when its time to live ran out: this runtime cannot pause it", EventDegraded)
	}
	if rec.Phase == fleet.PhasePaused {
		// Nobody asked for it to run: it waits, without its memory, until somebody does.
		return n.park(0, fleet.PhaseStopped, fleet.Snapshot{}, exit, "its paused memory was lost: "+how, EventDegraded)
	}
	if spec.Kind == fleet.KindSession && n.Known == Present && n.Desired.Generation > rec.Generation {
		return n.again(node, 0, 0, fmt.Sprintf("its spec changed to generation %d", n.Desired.Generation))
	}
	rec.Phase, rec.Reason = fleet.PhaseBackoff, how
	switch {
	case interrupted:
		rec.Reason = "interrupted by its node or the bucket, which uses up no attempt: " + how
		rec.RetryAfterMillis = backoffFirst.Milliseconds()
	default:
		// A job's failures are its budget and are never forgiven.
		if spec.Kind == fleet.KindSession && !rec.ActiveSince.IsZero() && node.Wall.Sub(rec.ActiveSince) >= backoffForget {
			rec.Failures = 0
		}
		rec.Failures++
		rec.RetryAfterMillis = backoff(n.Name, rec.Failures).Milliseconds()
	}
	return Action{Kind: Write, Write: lease.WriteUpdate, Record: rec, Reason: how, Event: n.event(EventExited, "%s", how)}
}

func millis(ms int64) time.Duration { return time.Duration(ms) * time.Millisecond }

func describeExit(e *fleet.Exit) string {
	switch {
	case e.Reason != "":
		return e.Reason
	case e.Lost:
		return "ended, and nobody knows how"
	case e.OOM:
		return "ran out of memory"
	case e.Signal != 0:
		return fmt.Sprintf("killed by signal %d", e.Signal)
	}
	return fmt.Sprintf("exited with code %d", e.Code)
}

// ttlOver reports a session that has been active for as long as its spec allows.
func (n *Name) ttlOver(node Node) bool {
	spec := n.spec()
	return spec.Kind == fleet.KindSession && spec.TTLSeconds > 0 &&
		node.Wall.Sub(n.record().ActiveSince) >= time.Duration(spec.TTLSeconds)*time.Second
}

// tend looks after a run that is alive.
func tend(node Node, n Name, run runtime.Workload) Action {
	rec, spec := n.record(), n.spec()
	switch {
	case run.State == runtime.StatePaused && rec.Phase != fleet.PhasePaused:
		return pause(node, n, run, true, 0, "paused when its time to live ran out")
	case run.State == runtime.StatePaused:
		return wait("paused; `fleetctl resume " + n.Name + "` wakes it")
	case rec.Phase == fleet.PhasePaused:
		return n.woken(node, 0, 0, "found running")
	case rec.Phase != fleet.PhaseRunning:
		c := rec.Clone()
		c.Phase, c.Reason, c.Started, c.ActiveSince, c.Exit = fleet.PhaseRunning, "", node.Wall, node.Wall, nil
		if !run.Started.IsZero() {
			c.Started = run.Started
		}
		return Action{Kind: Write, Write: lease.WriteUpdate, Record: c, Reason: "it runs", Event: n.event(EventStarted, "attempt %d runs", rec.Attempt)}
	case n.Known == Present && n.Desired.Generation > rec.Generation && spec.Kind == fleet.KindSession:
		return n.stop(run, StopChanged, fmt.Sprintf("its spec changed to generation %d", n.Desired.Generation))
	case spec.Kind == fleet.KindJob && spec.TimeoutMs > 0 && node.Wall.Sub(rec.Started) >= millis(spec.TimeoutMs):
		return n.stop(run, StopTimeout, fmt.Sprintf("it ran longer than its time-out of %v", millis(spec.TimeoutMs)))
	case n.ttlOver(node):
		return pause(node, n, run, true, 0, "paused when its time to live ran out")
	}
	return wait("runs")
}

// start begins a run where the record says that one should be.
func start(node Node, n Name) Action {
	rec := n.record()
	switch rec.Phase {
	case fleet.PhaseStopped:
		return wait("stopped; `fleetctl start " + n.Name + "` starts it")
	case fleet.PhaseBackoff, fleet.PhasePending:
		if n.Known == Present && n.Desired.Generation > rec.Generation && n.spec().Kind == fleet.KindSession {
			return n.again(node, 0, 0, fmt.Sprintf("its spec changed to generation %d", n.Desired.Generation))
		}
		if due := n.View.Seen.Add(millis(rec.RetryAfterMillis)); node.Now < due {
			return waitUntil(due, "%s; the next attempt waits %v", rec.Reason, millis(rec.RetryAfterMillis))
		}
		return n.again(node, 0, 0, "tries again")
	case fleet.PhaseRunning, fleet.PhasePaused:
		// The record says that it runs here and the runtime knows nothing of it.
		return recordExit(node, n, runtime.Workload{Exit: &fleet.Exit{Lost: true, Reason: "the runtime has no trace of it"}})
	default: // decided below
	}
	switch {
	case n.Desired == nil:
		return wait("owned, but its desired record was never seen: nothing can be started")
	case !node.CanAct || node.StopDue && n.spec().OnBucketLoss == fleet.BucketLossStop:
		return wait("a start waits until the bucket confirms this node's lease")
	case node.Unguarded && n.spec().OnBucketLoss == fleet.BucketLossStop:
		return wait("a start waits for the guard that ends it if this agent cannot")
	case node.Now < n.NotBefore:
		return waitUntil(n.NotBefore, "the last start failed")
	}
	return Action{Kind: Operate, Op: OpStart, Instance: rec.Instance, Reason: "claimed; starts now"}
}
