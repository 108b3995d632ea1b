package reconcile

import (
	"maps"
	"slices"

	"github.com/barista-fleet/barista/pkg/fleet"
	"github.com/barista-fleet/barista/pkg/lease"
	"github.com/barista-fleet/barista/pkg/runtime"
)

// Snapshot is a node at one instant, for people and for tests.
type Snapshot struct {
	NodeID, FleetID string
	State           string // see lease.Machine.State
	Reason          string
	Incarnation     uint64
	Now, Deadline   lease.Instant
	Fresh           bool
	Recovering      int // names whose standing is not settled since the start
	Operations      int
	Names           []NameStatus
}

// NameStatus is what this node makes of one name.
type NameStatus struct {
	Name               string
	Held               bool
	Claim              lease.Claim
	Phase              fleet.Phase
	Epoch, Incarnation uint64
	Instance           string
	Operation          string      // in flight; empty: none
	Writing            lease.Write // in flight or of unknown fate; 0: none
	Decision           ActionKind
	Reason             string // of the last decision
	Runs               []runtime.Workload
}

// Head describes the node now, without its names.
func (m *Machine) Head() Snapshot {
	s := Snapshot{
		NodeID: m.cfg.NodeID, FleetID: m.sync.fleetID, State: m.own.State(), Incarnation: m.own.Incarnation(),
		Now: m.now, Deadline: m.own.Deadline(), Fresh: m.sync.fresh, Recovering: len(m.recovering), Operations: m.running,
	}
	switch {
	case !m.sync.ready:
		s.State, s.Reason = "booting", "waits for the bucket to say which fleet it is"
	case !m.sync.fresh:
		s.Reason = "the bucket did not answer the last look"
	}
	return s
}

// Snapshot describes the node and every name it knows of.
func (m *Machine) Snapshot() Snapshot {
	s := m.Head()
	for _, name := range slices.Sorted(maps.Keys(m.items)) {
		it, v := m.items[name], m.own.Name(name)
		n := NameStatus{Name: name, Held: v.Held, Claim: v.Claim, Decision: it.action.Kind, Reason: it.action.Reason, Writing: v.Writing, Runs: slices.Clone(it.runs)}
		if v.Rec != nil {
			n.Phase, n.Epoch, n.Incarnation, n.Instance = v.Rec.Phase, v.Rec.Epoch, v.Rec.Incarnation, v.Rec.Instance
		}
		if it.op != nil {
			n.Operation = it.op.kind.String()
		}
		s.Names = append(s.Names, n)
	}
	return s
}
