package reconcile

import (
	"time"

	"github.com/barista-fleet/barista/pkg/fleet"
	"github.com/barista-fleet/barista/pkg/lease"
	"github.com/barista-fleet/barista/pkg/runtime"
)

// Node is what Decide knows of this machine.
type Node struct {
	ID, Name string
	Now      lease.Instant
	Wall     time.Time // for alarms, TTLs and time-outs, never for ownership

	// CanAct: the lease's deadline is ahead. Without it nothing is claimed and
	// nothing is started.
	CanAct bool
	// Fresh: the last look at the bucket succeeded. Without it nothing new is
	// acquired.
	Fresh bool
	// Recovering: names from before the restart still wait for their standing.
	Recovering bool
	// StopDue: workloads with on_bucket_loss: stop must end, and be dead by KillAt.
	StopDue bool
	KillAt  lease.Instant
	// Unguarded: nothing would end such workloads if this agent could not.
	Unguarded bool

	Draining, Cordoned bool
	// DrainNow: the drain does not wait for what would lose its memory.
	DrainNow bool

	Labels  map[string]string
	Runtime string // the driver's name
	Images  bool   // the driver runs container images
	Peers   int    // other live nodes known
}

// Known says what is known of a desired record.
type Known uint8

// What can be known of a desired record.
const (
	Unknown Known = iota // not read yet: nothing follows from it
	Absent
	Present
	Unreadable
)

// Name is what Decide knows of one name.
type Name struct {
	Name    string
	Known   Known          // of Desired
	Desired *fleet.Desired // the last readable version; kept when it is gone
	// DesiredAt is when the read that gave Known and Desired was sent.
	DesiredAt lease.Instant
	View      lease.NameView // the ownership record, as the protocol judges it
	Runs      []runtime.Workload
	Op        OpKind // an operation in flight; 0: none
	// NotBefore is when the next start may be tried, by this node's clock.
	NotBefore lease.Instant
	// BehindSeen is the intent that the record had seen when it was first found to
	// be older than what this node knows.
	BehindSeen uint64
	NoPause    bool // the runtime said that it cannot pause this run
	// Stopped is why this node told the current run to end; 0 if it did not, or in
	// a process life before this one.
	Stopped StopCause
}

// StopCause is why a run was told to end. It decides what its end counts as.
type StopCause uint8

// The causes. An end that nobody asked for has none of them.
const (
	_              StopCause = iota
	StopUnwanted             // the name was deleted, or is someone else's
	StopWished               // an operator's intent, or a policy of the spec
	StopTimeout              // a job ran longer than it may
	StopDrained              // its node is being emptied
	StopBucketLoss           // the lease was not confirmed in time
	StopChanged              // the spec has a newer generation
)

// interrupted reports an end that says nothing about the workload: the node or
// the bucket was the reason. It uses up none of its attempts.
func (c StopCause) interrupted() bool { return c == StopDrained || c == StopBucketLoss }

// record is the ownership record, or an empty one.
func (n *Name) record() *fleet.Session {
	if n.View.Rec != nil {
		return n.View.Rec
	}
	return &fleet.Session{Name: n.Name}
}

// spec is the spec that applies, with its defaults.
func (n *Name) spec() fleet.Spec {
	if n.Desired == nil {
		return fleet.Spec{}.WithDefaults()
	}
	return n.Desired.Spec.WithDefaults()
}

// unwanted reports a name that was deleted, or deleted and made again, since it
// was claimed. An absent or unreadable record never says so.
func (n *Name) unwanted() bool {
	return n.Known == Present && n.Desired != nil &&
		(n.Desired.State == fleet.DesiredDeleted || n.Desired.UID != n.record().UID)
}

// asked returns the intent that was not carried out yet.
func (n *Name) asked() (fleet.Intent, bool) {
	if n.Desired == nil || n.Known != Present || n.Desired.UID != n.record().UID {
		return fleet.Intent{}, false
	}
	return n.Desired.Intent, n.Desired.Intent.Seq > n.record().Seen
}

// word returns the last intent if it is one by which an operator says that a
// bucket that went back is right.
func (n *Name) word() (fleet.Intent, bool) {
	if n.Known != Present || n.Desired == nil || n.Desired.State != fleet.DesiredPresent {
		return fleet.Intent{}, false
	}
	in := n.Desired.Intent
	return in, in.Verb == fleet.VerbReleaseHold || in.Verb == fleet.VerbRestart
}

// alarmDue reports an alarm that has come and was not acted on.
func (n *Name) alarmDue(wall time.Time) bool {
	if n.Desired == nil || n.Known != Present || n.Desired.UID != n.record().UID {
		return false
	}
	w := n.Desired.WakeAt
	return w.Seq > n.record().WakeSeen && !w.At.IsZero() && !wall.Before(w.At)
}

// current returns the run that the record speaks of.
func (n *Name) current() (runtime.Workload, bool) {
	rec := n.record()
	for _, r := range n.Runs {
		if rec.Instance != "" && r.Instance == rec.Instance {
			return r, true
		}
	}
	return runtime.Workload{}, false
}

// OpKind is what an operation does to a run.
type OpKind uint8

// The operations. At most one is in flight for a name.
const (
	_ OpKind = iota
	OpStart
	OpStop
	OpPause
	OpResume
	OpSetEpoch
	OpRemove
)

// Needs reports an operation that only the owner of a name may do: it sets a
// workload going or raises its fencing token. Ending one, or keeping it from
// running, is harmless whoever owns the name.
func (k OpKind) Needs() bool { return k == OpStart || k == OpResume || k == OpSetEpoch }

func (k OpKind) String() string {
	return [...]string{"none", "start", "stop", "pause", "resume", "set-epoch", "remove"}[k]
}

// ActionKind is what Decide wants done.
type ActionKind uint8

// The kinds of actions, in the order of the tick: what ends comes before what
// begins, and what is owned before what is acquired.
const (
	Wait    ActionKind = iota // nothing, for the reason given
	Fence                     // end a run that has no right to run
	Operate                   // one operation on a run of a held name
	Write                     // one write of the ownership record
	Acquire                   // a write that takes a name: a candidate for the queue
)

func (k ActionKind) String() string {
	return [...]string{"wait", "fence", "operate", "write", "acquire"}[k]
}

// Action is one decision about one name, with its reason. Reasons are sentences
// for people: `describe` prints them.
type Action struct {
	Kind   ActionKind
	Reason string

	Op       OpKind        // Fence, Operate
	Instance string        // Fence, Operate
	Grace    time.Duration // OpStop
	Cause    StopCause     // OpStop

	Write    lease.Write    // Write, Acquire
	Record   *fleet.Session // Write, Acquire
	Override bool           // Acquire: an operator allowed it although the bucket is behind

	Event *Event        // told when the action has succeeded
	Until lease.Instant // Wait: when to look again; 0: when something changes
	Look  bool          // Wait: the desired record must be read again first
}

// Event is something worth telling operators.
type Event struct {
	Type    EventType
	Name    string
	Epoch   uint64
	Message string
}

// EventType is the kind of an event.
type EventType = fleet.EventType

// The types of events that this package tells.
const (
	EventClaimed   = fleet.EventClaimed
	EventReclaimed = fleet.EventReclaimed
	EventStarting  = fleet.EventStarting
	EventStarted   = fleet.EventStarted
	EventExited    = fleet.EventExited
	EventPaused    = fleet.EventPaused
	EventResumed   = fleet.EventResumed
	EventStopped   = fleet.EventStopped
	EventAlarm     = fleet.EventAlarm
	EventReleased  = fleet.EventReleased
	EventFenced    = fleet.EventFenced
	EventDegraded  = fleet.EventDegraded
	EventHeld      = fleet.EventHeld
	EventOrphaned  = fleet.EventOrphaned
	EventLapsed    = fleet.EventLapsed
	EventJoined    = fleet.EventJoined
	EventLeft      = fleet.EventLeft
	EventCordoned  = fleet.EventCordoned
	EventCompleted = fleet.EventCompleted
	EventFailed    = fleet.EventFailed
	EventDeleted   = fleet.EventDeleted

	EventRenewed   EventType = "RENEWED"     // confirmed again after LAPSED
	EventNodeLost  EventType = "NODE_FENCED" // this node fenced a silent one
	EventCancelled EventType = "CANCELLED"
	EventTimedOut  EventType = "TIMED_OUT"
	EventBehind    EventType = "BEHIND" // the bucket is older than the journal
)
