package reconcile

import (
	"testing"
	"time"

	"github.com/barista-fleet/barista/pkg/fleet"
	"github.com/barista-fleet/barista/pkg/lease"
	"github.com/barista-fleet/barista/pkg/runtime"
)

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
		"paused for long, its node lost just now: its grace begins with the loss": {
			node: func(n *Node) { n.Now = boot.Add(time.Hour) },
			name: func(n *Name) { lost(fleet.PhasePaused)(n); n.View.Lost = boot.Add(time.Hour) }, kind: Wait,
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
		"job lost before it was known to run: no failure": {
			name: func(n *Name) { lost(fleet.PhaseStarting)(n); n.Desired.Spec.Kind = fleet.KindJob },
			kind: Acquire, write: lease.WriteClaim, check: failuresAre(fleet.PhaseStarting, 0),
		},
		"job lost that ran longer than its time-out: timed out, not run again": {
			node: func(n *Node) { n.Now = boot.Add(time.Minute) },
			name: func(n *Name) {
				lost(fleet.PhaseRunning)(n)
				n.Desired.Spec.Kind, n.Desired.Spec.TimeoutMs = fleet.KindJob, 60_000
			}, kind: Write, write: lease.WriteFinal, check: phaseIs(fleet.PhaseTimedOut),
		},
		"job lost within its time-out, whatever the other clock says: run again": {
			name: func(n *Name) {
				lost(fleet.PhaseRunning)(n)
				n.Desired.Spec.Kind, n.Desired.Spec.TimeoutMs = fleet.KindJob, 60_000
				n.View.Rec.Started = wall.Add(-time.Hour)
			}, kind: Acquire, write: lease.WriteClaim,
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
