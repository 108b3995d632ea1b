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
	if c == lease.ClaimInvalid {
		v.Lost = boot
	}
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
	node, n := okNode(), Name{Name: "a", Known: Present, Desired: wanted(fleet.KindSession), DesiredAt: boot}
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
