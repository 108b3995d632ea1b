package reconcile

import (
	"testing"
	"time"

	"github.com/barista-fleet/barista/pkg/fleet"
	"github.com/barista-fleet/barista/pkg/lease"
	"github.com/barista-fleet/barista/pkg/runtime"
)

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
		"re-claimed but lapsed since: its token waits": {
			node: func(n *Node) { n.CanAct = false },
			name: func(n *Name) {
				rec := ours(fleet.PhaseRunning)
				rec.Epoch, rec.Incarnation = 6, 4
				n.View, n.Runs = held(rec), []runtime.Workload{run(runtime.StateRunning)}
			}, kind: Wait,
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

// killed is the run of a job that was told to end, and why.
func killed(cause StopCause) func(*Name) {
	return func(n *Name) {
		w := run(runtime.StateExited)
		w.Exit = &fleet.Exit{Signal: 15, Code: 143}
		rec := ours(fleet.PhaseRunning)
		rec.Failures = 1
		n.Desired.Spec.Kind, n.Stopped = fleet.KindJob, cause
		n.Desired.Spec.MaxAttempts = 2
		n.View, n.Runs = held(rec), []runtime.Workload{w}
	}
}

func failuresAre(phase fleet.Phase, failures int) func(*testing.T, Action) {
	return func(t *testing.T, a Action) {
		t.Helper()
		if a.Record.Phase != phase || a.Record.Failures != failures {
			t.Errorf("phase %s with %d failures, want %s with %d", a.Record.Phase, a.Record.Failures, phase, failures)
		}
	}
}

// What a node or the bucket did to a run is not the workload's failure.
func TestWhatAnEndCountsAs(t *testing.T) {
	draining := func(n *Node) { n.Draining = true }
	now := func(n *Node) { n.Draining, n.DrainNow = true, true }
	alive := func(kind fleet.Kind, change func(*Name)) func(*Name) {
		return func(n *Name) {
			n.Desired.Spec.Kind = kind
			n.View, n.Runs = held(ours(fleet.PhaseRunning)), []runtime.Workload{run(runtime.StateRunning)}
			if change != nil {
				change(n)
			}
		}
	}
	hold := func(n *Name) { n.Desired.Spec.OnOwnerLoss = fleet.OwnerLossHold }
	orphan := func(n *Name) { n.Known = Absent }
	newer := func(n *Name) { n.Desired.Generation = 2 }
	for name, c := range map[string]tc{
		"by itself, in its last attempt: failed": {
			name: killed(0), kind: Write, write: lease.WriteRelease, check: failuresAre(fleet.PhaseFailed, 2),
		},
		"ended for the bucket: tried again, no failure": {
			name: killed(StopBucketLoss), kind: Write, write: lease.WriteUpdate, check: failuresAre(fleet.PhaseBackoff, 1),
		},
		"ended by the guard: tried again, no failure": {
			name: func(n *Name) { killed(0)(n); n.Runs[0].Overdue = true },
			kind: Write, write: lease.WriteUpdate, check: failuresAre(fleet.PhaseBackoff, 1),
		},
		"ended by a drain: free for others, no failure": {
			node: now, name: killed(StopDrained), kind: Write, write: lease.WriteRelease, check: failuresAre(fleet.PhasePending, 1),
		},
		"ended by a drain before a restart: no failure": {
			node: now, name: killed(0), kind: Write, write: lease.WriteUpdate, check: failuresAre(fleet.PhaseBackoff, 1),
		},
		"ended for the bucket while draining: free for others, no failure": {
			node: draining, name: killed(StopBucketLoss), kind: Write, write: lease.WriteRelease, check: failuresAre(fleet.PhasePending, 1),
		},
		"draining: a job blocks":               {node: draining, name: alive(fleet.KindJob, nil), kind: Wait},
		"draining: a hold session blocks":      {node: draining, name: alive(fleet.KindSession, hold), kind: Wait},
		"draining: an orphan blocks":           {node: draining, name: alive(fleet.KindSession, orphan), kind: Wait},
		"draining: another session moves":      {node: draining, name: alive(fleet.KindSession, nil), kind: Operate, op: OpStop},
		"deadline come: the job is stopped":    {node: now, name: alive(fleet.KindJob, nil), kind: Operate, op: OpStop},
		"deadline come: the orphan is stopped": {node: now, name: alive(fleet.KindSession, orphan), kind: Operate, op: OpStop},
		"session stopped for a new spec: the new one starts, no failure": {
			name: func(n *Name) {
				killed(StopChanged)(n)
				n.Desired.Spec.Kind = fleet.KindSession
				newer(n)
			}, kind: Write, write: lease.WriteUpdate, check: failuresAre(fleet.PhaseStarting, 0),
		},
		"session in back-off, spec changed: starts at once": {
			name: func(n *Name) {
				rec := ours(fleet.PhaseBackoff)
				rec.Failures, rec.RetryAfterMillis = 5, 60_000
				n.View = held(rec)
				newer(n)
			}, kind: Write, write: lease.WriteUpdate, check: failuresAre(fleet.PhaseStarting, 0),
		},
		"job that ran long: its failures stay": {
			node: func(n *Node) { n.Wall = wall.Add(time.Hour) },
			name: func(n *Name) {
				killed(0)(n)
				n.Desired.Spec.MaxAttempts = 5
			}, kind: Write, write: lease.WriteUpdate, check: failuresAre(fleet.PhaseBackoff, 2),
		},
		"session that ran long: its failures are forgotten": {
			node: func(n *Node) { n.Wall = wall.Add(time.Hour) },
			name: func(n *Name) {
				killed(0)(n)
				n.Desired.Spec.Kind = fleet.KindSession
			}, kind: Write, write: lease.WriteUpdate, check: failuresAre(fleet.PhaseBackoff, 1),
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
				n.Stopped = StopWished
				ask(n, 1, fleet.VerbCancel)
			}, kind: Write, write: lease.WriteRelease, check: phaseIs(fleet.PhaseCancelled),
		},
		"cancel of a job that ended well by itself: completed": {
			name: func(n *Name) {
				n.Desired.Spec.Kind = fleet.KindJob
				n.View, n.Runs = held(ours(fleet.PhaseRunning)), []runtime.Workload{run(runtime.StateExited)}
				ask(n, 1, fleet.VerbCancel)
			}, kind: Write, write: lease.WriteRelease, check: phaseIs(fleet.PhaseCompleted),
		},
		"evict of a job that ended well by itself: completed, not run again": {
			name: func(n *Name) {
				n.Desired.Spec.Kind = fleet.KindJob
				n.View, n.Runs = held(ours(fleet.PhaseRunning)), []runtime.Workload{run(runtime.StateExited)}
				ask(n, 1, fleet.VerbEvict)
			}, kind: Write, write: lease.WriteRelease, check: phaseIs(fleet.PhaseCompleted),
		},
		"job told to end for its time-out that ends well: timed out": {
			node: func(n *Node) { n.Wall = wall.Add(time.Hour) },
			name: func(n *Name) {
				n.Desired.Spec.Kind, n.Desired.Spec.TimeoutMs, n.Stopped = fleet.KindJob, 1000, StopTimeout
				n.View, n.Runs = held(ours(fleet.PhaseRunning)), []runtime.Workload{run(runtime.StateExited)}
			}, kind: Write, write: lease.WriteRelease, check: phaseIs(fleet.PhaseTimedOut),
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
