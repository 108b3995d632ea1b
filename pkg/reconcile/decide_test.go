package reconcile

import (
	"testing"
	"time"

	"github.com/barista-fleet/barista/pkg/fleet"
	"github.com/barista-fleet/barista/pkg/lease"
	"github.com/barista-fleet/barista/pkg/runtime"
)

var wall = time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)

const boot = lease.Instant(1 << 40)

func okNode() Node {
	return Node{ID: "n-1", Name: "one", Now: boot, Wall: wall, CanAct: true, Fresh: true, Runtime: "process"}
}

func wanted(kind fleet.Kind) *fleet.Desired {
	return &fleet.Desired{Name: "a", UID: "u", Generation: 1, State: fleet.DesiredPresent, Spec: fleet.Spec{Kind: kind, Command: []string{"x"}}}
}

func ours(phase fleet.Phase) *fleet.Session {
	return &fleet.Session{
		Name: "a", Owner: "n-1", OwnerName: "one", Incarnation: 3, Epoch: 5, UID: "u", Generation: 1, Phase: phase,
		Instance: "b-5", Attempt: 1, Started: wall.Add(-time.Minute), ActiveSince: wall.Add(-time.Minute),
		Lineage: fleet.Lineage{UID: "u", Epoch: 5},
	}
}

func theirs(phase fleet.Phase) *fleet.Session {
	s := ours(phase)
	s.Owner, s.OwnerName = "n-2", "two"
	return s
}

func run(state runtime.State) runtime.Workload {
	w := runtime.Workload{State: state, Ref: runtime.Ref{Name: "a", UID: "u", Instance: "b-5", Epoch: 5, Incarnation: 3, Attempt: 1, Generation: 1}}
	if state == runtime.StateExited {
		w.Exit = &fleet.Exit{Code: 0}
	}
	if state == runtime.StatePaused {
		w.PauseKind = "frozen"
	}
	return w
}

func held(rec *fleet.Session) lease.NameView {
	return lease.NameView{Claim: lease.ClaimOurs, Held: true, Rec: rec, Seen: boot, Epoch: rec.Epoch, Next: rec.Epoch + 1}
}

func view(c lease.Claim, rec *fleet.Session) lease.NameView {
	v := lease.NameView{Claim: c, Rec: rec, Seen: boot, Next: 1}
	if rec != nil {
		v.Epoch, v.Next = rec.Epoch, rec.Epoch+1
	}
	return v
}

// tc is one decision: what is known, and what must come of it.
type tc struct {
	node  func(*Node)
	name  func(*Name)
	kind  ActionKind
	op    OpKind
	write lease.Write
	check func(t *testing.T, a Action)
}

func (c tc) run(t *testing.T) {
	t.Helper()
	node, n := okNode(), Name{Name: "a", Known: Present, Desired: wanted(fleet.KindSession)}
	if c.node != nil {
		c.node(&node)
	}
	c.name(&n)
	a := Decide(node, n)
	if a.Kind != c.kind || a.Op != c.op || a.Write != c.write {
		t.Fatalf("decided %v op=%v write=%v (%s)\nwant    %v op=%v write=%v", a.Kind, a.Op, a.Write, a.Reason, c.kind, c.op, c.write)
	}
	if a.Reason == "" {
		t.Error("a decision without a reason")
	}
	if c.check != nil {
		c.check(t, a)
	}
}

func phaseIs(want fleet.Phase) func(*testing.T, Action) {
	return func(t *testing.T, a Action) {
		t.Helper()
		if a.Record == nil || a.Record.Phase != want {
			t.Errorf("record %+v, want phase %s", a.Record, want)
		}
	}
}

func ask(n *Name, seq uint64, verb fleet.Verb) {
	n.Desired.Intent = fleet.Intent{Seq: seq, Verb: verb}
}

func TestEndWhatMayNotRun(t *testing.T) {
	for name, c := range map[string]tc{
		"taken by another node: stopped": {
			name: func(n *Name) {
				n.View, n.Runs = view(lease.ClaimValid, theirs(fleet.PhaseRunning)), []runtime.Workload{run(runtime.StateRunning)}
			}, kind: Fence, op: OpStop,
		},
		"freed by a release of ours: stopped": {
			name: func(n *Name) {
				rec := theirs(fleet.PhasePending)
				rec.Owner, rec.Incarnation = "", 0
				n.View, n.Runs = view(lease.ClaimFree, rec), []runtime.Workload{run(runtime.StateRunning)}
			}, kind: Fence, op: OpStop,
		},
		"record not read yet: goes on": {
			name: func(n *Name) { n.Runs = []runtime.Workload{run(runtime.StateRunning)} },
			kind: Wait,
		},
		"record missing: goes on": {
			name: func(n *Name) {
				n.View, n.Runs = view(lease.ClaimMissing, nil), []runtime.Workload{run(runtime.StateRunning)}
			}, kind: Wait,
		},
		"bucket behind: goes on": {
			name: func(n *Name) {
				n.View, n.Runs = view(lease.ClaimBehind, theirs(fleet.PhaseRunning)), []runtime.Workload{run(runtime.StateRunning)}
			}, kind: Wait,
		},
		"names us, not held, lapsed: goes on and waits": {
			node: func(n *Node) { n.CanAct = false },
			name: func(n *Name) {
				n.View, n.Runs = view(lease.ClaimOurs, ours(fleet.PhaseRunning)), []runtime.Workload{run(runtime.StateRunning)}
			}, kind: Wait,
		},
		"names us at this incarnation: touched": {
			name: func(n *Name) {
				n.View, n.Runs = view(lease.ClaimOurs, ours(fleet.PhaseRunning)), []runtime.Workload{run(runtime.StateRunning)}
			}, kind: Write, write: lease.WriteTouch,
		},
		"names us at an older one: re-claimed without a restart": {
			name: func(n *Name) {
				n.View, n.Runs = view(lease.ClaimOursOld, ours(fleet.PhaseRunning)), []runtime.Workload{run(runtime.StateRunning)}
			}, kind: Write, write: lease.WriteReclaim,
		},
		"an earlier run of a held name: stopped": {
			name: func(n *Name) {
				old := run(runtime.StateRunning)
				old.Instance = "b-old"
				n.View, n.Runs = held(ours(fleet.PhaseRunning)), []runtime.Workload{old}
			}, kind: Fence, op: OpStop,
		},
		"stop workload whose time is up: stopped although the record is ours": {
			node: func(n *Node) { n.StopDue, n.KillAt = true, boot.Add(5*time.Second) },
			name: func(n *Name) {
				w := run(runtime.StateRunning)
				w.StopOnLoss = true
				n.View, n.Runs = held(ours(fleet.PhaseRunning)), []runtime.Workload{w}
			}, kind: Fence, op: OpStop,
			check: func(t *testing.T, a Action) {
				t.Helper()
				if a.Grace != 5*time.Second {
					t.Errorf("grace %v, want up to the kill", a.Grace)
				}
			},
		},
		"keep workload in the same outage: goes on": {
			node: func(n *Node) { n.StopDue, n.CanAct, n.Fresh = true, false, false },
			name: func(n *Name) {
				n.View, n.Runs = held(ours(fleet.PhaseRunning)), []runtime.Workload{run(runtime.StateRunning)}
			}, kind: Wait,
		},
		"record deleted by a hand under a live run: made again": {
			name: func(n *Name) {
				n.View, n.Runs = view(lease.ClaimGone, ours(fleet.PhaseRunning)), []runtime.Workload{run(runtime.StateRunning)}
			}, kind: Write, write: lease.WriteClaim,
		},
	} {
		t.Run(name, c.run)
	}
}

func TestHeldName(t *testing.T) {
	later := func(n *Node) { n.Now, n.Wall = boot.Add(time.Hour), wall.Add(time.Hour) }
	for name, c := range map[string]tc{
		"claimed: starts": {
			name: func(n *Name) { n.View = held(ours(fleet.PhaseStarting)) }, kind: Operate, op: OpStart,
		},
		"claimed while lapsed: starts nothing": {
			node: func(n *Node) { n.CanAct = false },
			name: func(n *Name) { n.View = held(ours(fleet.PhaseStarting)) }, kind: Wait,
		},
		"started: told": {
			name: func(n *Name) {
				n.View, n.Runs = held(ours(fleet.PhaseStarting)), []runtime.Workload{run(runtime.StateRunning)}
			}, kind: Write, write: lease.WriteUpdate, check: phaseIs(fleet.PhaseRunning),
		},
		"runs: left alone": {
			name: func(n *Name) {
				n.View, n.Runs = held(ours(fleet.PhaseRunning)), []runtime.Workload{run(runtime.StateRunning)}
			}, kind: Wait,
		},
		"re-claimed: the token rises before anything else": {
			name: func(n *Name) {
				rec := ours(fleet.PhaseRunning)
				rec.Epoch, rec.Incarnation = 6, 4
				n.View, n.Runs = held(rec), []runtime.Workload{run(runtime.StateRunning)}
				ask(n, 1, fleet.VerbStop)
			}, kind: Operate, op: OpSetEpoch,
		},
		"desired record gone: goes on": {
			name: func(n *Name) {
				n.Known = Absent
				n.View, n.Runs = held(ours(fleet.PhaseRunning)), []runtime.Workload{run(runtime.StateRunning)}
			}, kind: Wait,
		},
		"desired record unreadable: goes on": {
			name: func(n *Name) {
				n.Known = Unreadable
				n.View, n.Runs = held(ours(fleet.PhaseRunning)), []runtime.Workload{run(runtime.StateRunning)}
			}, kind: Wait,
		},
		"deleted: torn down first": {
			name: func(n *Name) {
				n.Desired.State = fleet.DesiredDeleted
				n.View, n.Runs = held(ours(fleet.PhaseRunning)), []runtime.Workload{run(runtime.StateRunning)}
			}, kind: Operate, op: OpStop,
		},
		"deleted and dead: then released": {
			name: func(n *Name) {
				n.Desired.State = fleet.DesiredDeleted
				n.View, n.Runs = held(ours(fleet.PhaseRunning)), []runtime.Workload{run(runtime.StateExited)}
			}, kind: Write, write: lease.WriteRelease, check: phaseIs(fleet.PhasePending),
		},
		"deleted and made again: the old content is torn down": {
			name: func(n *Name) {
				n.Desired.UID = "other"
				n.View, n.Runs = held(ours(fleet.PhaseRunning)), []runtime.Workload{run(runtime.StateRunning)}
			}, kind: Operate, op: OpStop,
		},
		"job ended well: completed and free in one write": {
			name: func(n *Name) {
				n.Desired.Spec.Kind = fleet.KindJob
				n.View, n.Runs = held(ours(fleet.PhaseRunning)), []runtime.Workload{run(runtime.StateExited)}
			}, kind: Write, write: lease.WriteRelease, check: phaseIs(fleet.PhaseCompleted),
		},
		"job failed: backs off": {
			name: func(n *Name) {
				n.Desired.Spec.Kind = fleet.KindJob
				w := run(runtime.StateExited)
				w.Exit = &fleet.Exit{Code: 3}
				n.View, n.Runs = held(ours(fleet.PhaseRunning)), []runtime.Workload{w}
			}, kind: Write, write: lease.WriteUpdate, check: phaseIs(fleet.PhaseBackoff),
		},
		"job failed for the last time: failed": {
			name: func(n *Name) {
				n.Desired.Spec.Kind = fleet.KindJob
				w := run(runtime.StateExited)
				w.Exit = &fleet.Exit{Code: 3}
				rec := ours(fleet.PhaseRunning)
				rec.Failures = fleet.DefaultMaxAttempts - 1
				n.View, n.Runs = held(rec), []runtime.Workload{w}
			}, kind: Write, write: lease.WriteRelease, check: phaseIs(fleet.PhaseFailed),
		},
		"job lost in a reboot: an attempt that failed, never success": {
			name: func(n *Name) {
				n.Desired.Spec.Kind = fleet.KindJob
				n.View, n.Runs = held(ours(fleet.PhaseRunning)), []runtime.Workload{run(runtime.StateLost)}
			}, kind: Write, write: lease.WriteUpdate, check: phaseIs(fleet.PhaseBackoff),
		},
		"job over its time-out: stopped": {
			node: later,
			name: func(n *Name) {
				n.Desired.Spec.Kind, n.Desired.Spec.TimeoutMs = fleet.KindJob, 1000
				n.View, n.Runs = held(ours(fleet.PhaseRunning)), []runtime.Workload{run(runtime.StateRunning)}
			}, kind: Operate, op: OpStop,
		},
		"job stopped for its time-out: timed out, not retried": {
			node: later,
			name: func(n *Name) {
				n.Desired.Spec.Kind, n.Desired.Spec.TimeoutMs = fleet.KindJob, 1000
				w := run(runtime.StateExited)
				w.Exit = &fleet.Exit{Signal: 15, Code: 143}
				n.View, n.Runs = held(ours(fleet.PhaseRunning)), []runtime.Workload{w}
			}, kind: Write, write: lease.WriteRelease, check: phaseIs(fleet.PhaseTimedOut),
		},
		"paused memory lost in a reboot: waits to be wanted, loudly": {
			name: func(n *Name) {
				n.View, n.Runs = held(ours(fleet.PhasePaused)), []runtime.Workload{run(runtime.StateLost)}
			}, kind: Write, write: lease.WriteUpdate, check: func(t *testing.T, a Action) {
				t.Helper()
				if a.Record.Phase != fleet.PhaseStopped || a.Event.Type != EventDegraded {
					t.Errorf("record %+v, event %+v", a.Record, a.Event)
				}
			},
		},
		"draining, named but not held, nothing here: freed": {
			node: func(n *Node) { n.Draining = true },
			name: func(n *Name) { n.View = view(lease.ClaimOursOld, ours(fleet.PhaseBackoff)) },
			kind: Write, write: lease.WriteRelease, check: phaseIs(fleet.PhasePending),
		},
		"exit is recorded before the run is removed": {
			name: func(n *Name) {
				rec := ours(fleet.PhaseBackoff)
				rec.RetryAfterMillis = 1000
				n.View, n.Runs = held(rec), []runtime.Workload{run(runtime.StateExited)}
			}, kind: Operate, op: OpRemove,
		},
		"back-off not over: waits until then": {
			name: func(n *Name) {
				rec := ours(fleet.PhaseBackoff)
				rec.RetryAfterMillis = 1000
				n.View = held(rec)
			}, kind: Wait, check: func(t *testing.T, a Action) {
				t.Helper()
				if a.Until != boot.Add(time.Second) {
					t.Errorf("until %v", a.Until)
				}
			},
		},
		"back-off over: a new attempt under a new instance": {
			node: later,
			name: func(n *Name) {
				rec := ours(fleet.PhaseBackoff)
				rec.RetryAfterMillis = 1000
				n.View = held(rec)
			}, kind: Write, write: lease.WriteUpdate, check: func(t *testing.T, a Action) {
				t.Helper()
				if a.Record.Phase != fleet.PhaseStarting || a.Record.Attempt != 2 || a.Record.Instance == "b-5" {
					t.Errorf("record %+v", a.Record)
				}
			},
		},
		"spec changed: restarted": {
			name: func(n *Name) {
				n.Desired.Generation = 2
				n.View, n.Runs = held(ours(fleet.PhaseRunning)), []runtime.Workload{run(runtime.StateRunning)}
			}, kind: Operate, op: OpStop,
		},
		"time to live over: paused": {
			node: later,
			name: func(n *Name) {
				n.Desired.Spec.TTLSeconds = 1
				n.View, n.Runs = held(ours(fleet.PhaseRunning)), []runtime.Workload{run(runtime.StateRunning)}
			}, kind: Operate, op: OpPause,
		},
		"draining: stopped": {
			node: func(n *Node) { n.Draining = true },
			name: func(n *Name) {
				n.View, n.Runs = held(ours(fleet.PhaseRunning)), []runtime.Workload{run(runtime.StateRunning)}
			}, kind: Operate, op: OpStop,
		},
		"a write of unknown fate: nothing else": {
			name: func(n *Name) {
				n.View = held(ours(fleet.PhaseStarting))
				n.View.Writing = lease.WriteUpdate
			}, kind: Wait,
		},
		"an operation in flight: nothing else": {
			name: func(n *Name) {
				n.View, n.Op = held(ours(fleet.PhaseStarting)), OpStart
			}, kind: Wait,
		},
	} {
		t.Run(name, c.run)
	}
}

func TestIntentsAreEdges(t *testing.T) {
	paused := func(n *Name) {
		rec := ours(fleet.PhasePaused)
		rec.Seen = 4
		n.View, n.Runs = held(rec), []runtime.Workload{run(runtime.StatePaused)}
	}
	for name, c := range map[string]tc{
		"an old run does not undo a pause": {
			name: func(n *Name) { paused(n); ask(n, 4, fleet.VerbRun) }, kind: Wait,
		},
		"a new run resumes": {
			name: func(n *Name) { paused(n); ask(n, 5, fleet.VerbRun) }, kind: Operate, op: OpResume,
		},
		"resume waits for the lease": {
			node: func(n *Node) { n.CanAct = false },
			name: func(n *Name) { paused(n); ask(n, 5, fleet.VerbRun) }, kind: Wait,
		},
		"resumed: seen and running in one write": {
			name: func(n *Name) {
				paused(n)
				n.Runs = []runtime.Workload{run(runtime.StateRunning)}
				ask(n, 5, fleet.VerbRun)
			}, kind: Write, write: lease.WriteUpdate, check: func(t *testing.T, a Action) {
				t.Helper()
				if a.Record.Phase != fleet.PhaseRunning || a.Record.Seen != 5 || !a.Record.ActiveSince.Equal(wall) {
					t.Errorf("record %+v", a.Record)
				}
			},
		},
		"pause: frozen first": {
			name: func(n *Name) {
				n.View, n.Runs = held(ours(fleet.PhaseRunning)), []runtime.Workload{run(runtime.StateRunning)}
				ask(n, 1, fleet.VerbPause)
			}, kind: Operate, op: OpPause,
		},
		"pause that the runtime cannot do: stopped": {
			name: func(n *Name) {
				n.NoPause = true
				n.View, n.Runs = held(ours(fleet.PhaseRunning)), []runtime.Workload{run(runtime.StateRunning)}
				ask(n, 1, fleet.VerbPause)
			}, kind: Operate, op: OpStop,
		},
		"frozen: recorded with its lineage": {
			name: func(n *Name) {
				n.View, n.Runs = held(ours(fleet.PhaseRunning)), []runtime.Workload{run(runtime.StatePaused)}
				ask(n, 1, fleet.VerbPause)
			}, kind: Write, write: lease.WriteUpdate, check: func(t *testing.T, a Action) {
				t.Helper()
				if s := a.Record.Snapshot; a.Record.Phase != fleet.PhasePaused || s.Kind != "frozen" || s.Node != "n-1" || s.Lineage.Epoch != 5 {
					t.Errorf("record %+v", a.Record)
				}
			},
		},
		"stop: ended, then parked": {
			name: func(n *Name) {
				n.View, n.Runs = held(ours(fleet.PhaseRunning)), []runtime.Workload{run(runtime.StateExited)}
				ask(n, 1, fleet.VerbStop)
			}, kind: Write, write: lease.WriteUpdate, check: phaseIs(fleet.PhaseStopped),
		},
		"cancel of a job: ended, then cancelled for good": {
			name: func(n *Name) {
				n.Desired.Spec.Kind = fleet.KindJob
				n.View, n.Runs = held(ours(fleet.PhaseRunning)), []runtime.Workload{run(runtime.StateExited)}
				ask(n, 1, fleet.VerbCancel)
			}, kind: Write, write: lease.WriteRelease, check: phaseIs(fleet.PhaseCancelled),
		},
		"evict for another epoch: only taken note of": {
			name: func(n *Name) {
				n.View, n.Runs = held(ours(fleet.PhaseRunning)), []runtime.Workload{run(runtime.StateRunning)}
				n.Desired.Intent = fleet.Intent{Seq: 1, Verb: fleet.VerbEvict, Epoch: 4}
			}, kind: Write, write: lease.WriteUpdate, check: phaseIs(fleet.PhaseRunning),
		},
		"alarm in the future: waits": {
			name: func(n *Name) { paused(n); n.Desired.WakeAt = fleet.Alarm{Seq: 1, At: wall.Add(time.Minute)} }, kind: Wait,
		},
		"alarm missed while down: rings once": {
			name: func(n *Name) { paused(n); n.Desired.WakeAt = fleet.Alarm{Seq: 1, At: wall.Add(-time.Hour)} }, kind: Operate, op: OpResume,
		},
		"alarm rung already: does not ring again": {
			name: func(n *Name) {
				paused(n)
				n.View.Rec.WakeSeen = 1
				n.Desired.WakeAt = fleet.Alarm{Seq: 1, At: wall.Add(-time.Hour)}
			}, kind: Wait,
		},
	} {
		t.Run(name, c.run)
	}
}

func TestFreeName(t *testing.T) {
	lost := func(phase fleet.Phase) func(*Name) {
		return func(n *Name) { n.View = view(lease.ClaimInvalid, theirs(phase)) }
	}
	for name, c := range map[string]tc{
		"never owned: claimed": {
			name: func(n *Name) { n.View = view(lease.ClaimFree, nil) }, kind: Acquire, write: lease.WriteClaim,
		},
		"owned elsewhere: left": {
			name: func(n *Name) { n.View = view(lease.ClaimValid, theirs(fleet.PhaseRunning)) }, kind: Wait,
		},
		"desired record not read: left": {
			name: func(n *Name) { n.Known, n.View = Unknown, view(lease.ClaimFree, nil) }, kind: Wait,
		},
		"nobody desires it: left": {
			name: func(n *Name) { n.Known, n.View = Absent, view(lease.ClaimInvalid, theirs(fleet.PhaseRunning)) }, kind: Wait,
		},
		"deleted and free: left": {
			name: func(n *Name) { n.Desired.State = fleet.DesiredDeleted; n.View = view(lease.ClaimFree, nil) }, kind: Wait,
		},
		"deleted under a lost owner: finished, nothing started": {
			name: func(n *Name) {
				n.Desired.State = fleet.DesiredDeleted
				n.View = view(lease.ClaimInvalid, theirs(fleet.PhaseRunning))
			},
			kind: Write, write: lease.WriteFinal,
		},
		"lost: taken with a loud word": {
			name: lost(fleet.PhaseRunning), kind: Acquire, write: lease.WriteClaim, check: func(t *testing.T, a Action) {
				t.Helper()
				if a.Event == nil || a.Event.Type != EventDegraded || a.Record.Lineage.Epoch != 6 {
					t.Errorf("event %+v, lineage %+v", a.Event, a.Record.Lineage)
				}
			},
		},
		"lost on hold: left and told": {
			name: func(n *Name) { lost(fleet.PhaseRunning)(n); n.Desired.Spec.OnOwnerLoss = fleet.OwnerLossHold },
			kind: Wait, check: func(t *testing.T, a Action) {
				t.Helper()
				if a.Event == nil || a.Event.Type != EventHeld {
					t.Errorf("event %+v", a.Event)
				}
			},
		},
		"lost on hold, released by an operator: taken": {
			name: func(n *Name) {
				lost(fleet.PhaseRunning)(n)
				n.Desired.Spec.OnOwnerLoss = fleet.OwnerLossHold
				ask(n, 1, fleet.VerbReleaseHold)
			}, kind: Acquire, write: lease.WriteClaim,
		},
		"paused on a lost node: left for its grace": {
			name: lost(fleet.PhasePaused), kind: Wait, check: func(t *testing.T, a Action) {
				t.Helper()
				if a.Until != boot.Add(10*time.Minute) {
					t.Errorf("until %v", a.Until)
				}
			},
		},
		"paused on a lost node, resume wanted: taken": {
			name: func(n *Name) { lost(fleet.PhasePaused)(n); ask(n, 1, fleet.VerbRun) }, kind: Acquire, write: lease.WriteClaim,
		},
		"paused on a lost node, grace over: taken": {
			node: func(n *Node) { n.Now = boot.Add(10 * time.Minute) },
			name: lost(fleet.PhasePaused), kind: Acquire, write: lease.WriteClaim,
		},
		"stopped on a lost node: left until it is wanted": {
			name: lost(fleet.PhaseStopped), kind: Wait,
		},
		"done for this uid: never again": {
			name: func(n *Name) {
				rec := theirs(fleet.PhaseCompleted)
				rec.Owner, rec.Incarnation = "", 0
				n.Desired.Spec.Kind = fleet.KindJob
				n.View = view(lease.ClaimFree, rec)
			}, kind: Wait,
		},
		"done for another uid: claimed afresh": {
			name: func(n *Name) {
				rec := theirs(fleet.PhaseCompleted)
				rec.Owner, rec.Incarnation, rec.UID, rec.Failures, rec.Seen = "", 0, "old", 2, 9
				n.View = view(lease.ClaimFree, rec)
			}, kind: Acquire, write: lease.WriteClaim, check: func(t *testing.T, a Action) {
				t.Helper()
				if a.Record.Failures != 0 || a.Record.Seen != 0 || a.Record.UID != "u" {
					t.Errorf("carried over from another creation: %+v", a.Record)
				}
			},
		},
		"job lost in its last attempt: failed, not run again": {
			name: func(n *Name) {
				lost(fleet.PhaseRunning)(n)
				n.Desired.Spec.Kind = fleet.KindJob
				n.View.Rec.Failures = fleet.DefaultMaxAttempts - 1
			}, kind: Write, write: lease.WriteFinal, check: phaseIs(fleet.PhaseFailed),
		},
		"job lost: the attempt counts as failed": {
			name: func(n *Name) { lost(fleet.PhaseRunning)(n); n.Desired.Spec.Kind = fleet.KindJob },
			kind: Acquire, write: lease.WriteClaim, check: func(t *testing.T, a Action) {
				t.Helper()
				if a.Record.Failures != 1 || a.Record.Attempt != 2 {
					t.Errorf("failures %d attempt %d", a.Record.Failures, a.Record.Attempt)
				}
			},
		},
		"cancel pending under a lost owner: cancelled, nothing started": {
			name: func(n *Name) {
				lost(fleet.PhaseRunning)(n)
				n.Desired.Spec.Kind = fleet.KindJob
				ask(n, 1, fleet.VerbCancel)
			}, kind: Write, write: lease.WriteFinal, check: phaseIs(fleet.PhaseCancelled),
		},
		"does not fit: left": {
			name: func(n *Name) {
				n.Desired.Spec.Require = map[string]string{"gpu": "yes"}
				n.View = view(lease.ClaimFree, nil)
			}, kind: Wait,
		},
		"old view of the bucket: acquires nothing": {
			node: func(n *Node) { n.Fresh = false },
			name: func(n *Name) { n.View = view(lease.ClaimFree, nil) }, kind: Wait,
		},
		"before the restart is settled: acquires nothing": {
			node: func(n *Node) { n.Recovering = true },
			name: func(n *Name) { n.View = view(lease.ClaimFree, nil) }, kind: Wait,
		},
		"draining: acquires nothing": {
			node: func(n *Node) { n.Draining = true },
			name: func(n *Name) { n.View = view(lease.ClaimFree, nil) }, kind: Wait,
		},
		"leftover run of a name that is not ours: removed": {
			name: func(n *Name) {
				n.View, n.Runs = view(lease.ClaimValid, theirs(fleet.PhaseRunning)), []runtime.Workload{run(runtime.StateExited)}
			}, kind: Operate, op: OpRemove,
		},
		"behind, and an operator says so: taken": {
			name: func(n *Name) {
				n.View = view(lease.ClaimBehind, theirs(fleet.PhaseRunning))
				ask(n, 1, fleet.VerbReleaseHold)
			}, kind: Acquire, write: lease.WriteClaim, check: func(t *testing.T, a Action) {
				t.Helper()
				if !a.Override {
					t.Error("without an override the lease refuses it")
				}
			},
		},
	} {
		t.Run(name, c.run)
	}
}

func TestBackoffDoublesToACap(t *testing.T) {
	last := time.Duration(0)
	for f := 1; f < 100; f++ {
		d := backoff("a", f)
		if d > backoffMost || d < backoffFirst*3/4 {
			t.Fatalf("after %d failures: %v", f, d)
		}
		if f < 8 && d <= last {
			t.Errorf("after %d failures %v, not more than %v", f, d, last)
		}
		last = d
	}
	if backoff("a", 3) == backoff("b", 3) {
		t.Error("two names that fail together try again together")
	}
}
