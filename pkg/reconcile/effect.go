package reconcile

import (
	"time"

	"github.com/barista-fleet/barista/pkg/fleet"
	"github.com/barista-fleet/barista/pkg/lease"
	"github.com/barista-fleet/barista/pkg/runtime"
)

// Input is something that happened: one of the types below, or a lease.GotObject,
// PutDone, Listed or IdentitySaved that answers a request.
type Input any

// Inputs.
type (
	// Start begins a process life.
	Start struct {
		Identity   lease.Identity
		FleetID    string // as journaled; empty on a first start
		NewFleetID string // to use if this node is the first of its fleet
		Suspicious bool   // see lease.Boot
		Owned      []Owned
		Runs       []runtime.Workload
		Epochs     map[string]uint64 // the highest ever seen, by name
		// Confirmed and KillAt are what the previous life published last, if it was
		// in this boot; 0 if that is not known.
		Confirmed, KillAt lease.Instant
	}
	// Tick says that time has passed.
	Tick struct{}
	// OpDone answers a RunOp.
	OpDone struct {
		Op  uint64
		Run runtime.Workload // as it is now; for OpRemove meaningless
		Err error
		// Refused: it can never be done here, as opposed to not now.
		Refused bool
		// Withdrawn: it was not begun, because its token no longer held.
		Withdrawn bool
	}
	// RunChanged tells that a run ended, or is otherwise another than was known.
	RunChanged struct{ Run runtime.Workload }
	// Runs is everything that the runtime knew at some instant after Asked. What
	// was learned of a run later than that is newer.
	Runs struct {
		Asked lease.Instant
		Runs  []runtime.Workload
	}
	// Committed answers a Commit that has an Op.
	Committed struct {
		Op  uint64
		Err error
	}
	// Drain begins or ends giving names up. With Leave the node leaves its fleet
	// once nothing is held and nothing runs.
	Drain struct{ On, Leave bool }
	// Guard says whether the process stands that ends workloads with
	// on_bucket_loss: stop when this one cannot. While it is missing none of them is
	// started; with End those that run are ended in time.
	Guard struct{ Missing, End bool }
)

// Effect is something that the machine wants done: one of the types below, or a
// lease.Get, Put, List, SaveIdentity or Ring.
type Effect any

// Effects.
type (
	// RunOp is one operation on a run. It is answered by OpDone. What sets a
	// workload going, or hands it a token, needs a lease that still holds right
	// before it is done; see OpKind.Needs.
	RunOp struct {
		Op       uint64
		Kind     OpKind
		Name     string
		Instance string
		Start    runtime.StartRequest // OpStart
		Grace    time.Duration        // OpStop
		Keep     bool                 // OpRemove: the name was lost, and what the run left is kept
		Epoch    uint64               // of the claim that the operation is done under
		Inc      uint64               // the incarnation of that claim
	}
	// Commit makes a batch durable, after every earlier one. With an Op it is
	// answered by Committed.
	Commit struct {
		Op    uint64
		Batch Batch
	}
	// SaveFleet makes the fleet's id durable.
	SaveFleet struct{ FleetID string }
	// Publish makes known, outside this process, up to when it holds its lease.
	Publish struct {
		Confirmed, Deadline lease.Instant
		KillAt              lease.Instant // nothing with on_bucket_loss: stop may run from here on
		Incarnation         uint64
	}
	// Fatal ends the agent with a reason for people.
	Fatal struct{ Reason string }
	// Gone says that the node has left its fleet.
	Gone struct{}
)

// Batch is a set of journal changes that are made together.
type Batch struct {
	Put    []Owned
	Drop   []string // names no longer owned
	PutOp  []Pending
	DropOp []string
	Events []Event
}

func (b *Batch) empty() bool {
	return len(b.Put) == 0 && len(b.Drop) == 0 && len(b.PutOp) == 0 && len(b.DropOp) == 0 && len(b.Events) == 0
}

// Owned is what the journal keeps of a name that this node owns.
type Owned struct {
	Name, UID          string
	Epoch, Incarnation uint64
	Generation         uint64
	Instance           string
	Attempt            int
	Phase              fleet.Phase
	Desired            *fleet.Desired // to go on with when the record cannot be read
}

// Pending is an operation whose intent is journaled and whose result is not.
type Pending struct {
	Name, UID, Instance string
	Kind                OpKind
	Epoch, Incarnation  uint64
	Attempt             int
}
