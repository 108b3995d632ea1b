package sfq

import "fmt"

// EventKind says what a transition was.
type EventKind uint8

// The transitions of a scheduler. The numbers are part of the journal format.
const (
	EventSetTenant    EventKind = 1
	EventRemoveTenant EventKind = 2
	EventSetSlots     EventKind = 3
	EventAdd          EventKind = 4
	EventDrop         EventKind = 5
	EventHold         EventKind = 6
	EventUnhold       EventKind = 7
	EventPick         EventKind = 8
	EventCommit       EventKind = 9
	EventAbort        EventKind = 10
	EventComplete     EventKind = 11
	EventRequeue      EventKind = 12
	EventCorrect      EventKind = 13
	EventObserve      EventKind = 14
	EventForgetPeer   EventKind = 15
	EventRebase       EventKind = 16

	eventKinds = 17
)

// Event is one accepted transition. Which fields count depends on the kind; see
// kindFields. A recorded pick carries the job and ticket it chose, so that a
// replay that would choose otherwise stops instead of going its own way.
type Event struct {
	Kind   EventKind
	Class  Class // of the job; of the slot for a pick
	Pinned bool
	Held   bool
	Tenant TenantID
	Job    JobID
	Ticket Ticket
	Peer   PeerID
	Cost   int64 // CPU ms: estimate, actual, delta or counter; slots for EventSetSlots
	Now    int64 // ms
	Type   uint32
	Order  Order
	Spec   TenantSpec
}

// Apply performs a transition, as the method of that name would, and returns
// its outcome. For the same events every scheduler of the same configuration
// returns the same outcomes and ends in the same state.
func (s *Scheduler) Apply(ev *Event) Outcome {
	switch ev.Kind {
	case EventSetTenant:
		return s.SetTenant(ev.Tenant, ev.Spec)
	case EventRemoveTenant:
		return s.RemoveTenant(ev.Tenant)
	case EventSetSlots:
		if ev.Cost < 0 || ev.Cost > maxSlotsLimit {
			return InvalidCap
		}
		return s.SetSlots(ev.Class, int(ev.Cost))
	case EventAdd:
		return s.Add(Candidate{
			Job: ev.Job, Tenant: ev.Tenant, Class: ev.Class, Cost: ev.Cost,
			Type: ev.Type, Order: ev.Order, Pinned: ev.Pinned, Held: ev.Held,
		})
	case EventDrop:
		return s.Drop(ev.Job)
	case EventHold:
		return s.Hold(ev.Job)
	case EventUnhold:
		return s.Unhold(ev.Job)
	case EventPick:
		return s.applyPick(ev)
	case EventCommit:
		return s.Commit(ev.Ticket, ev.Now)
	case EventAbort:
		return s.Abort(ev.Ticket)
	case EventComplete:
		return s.Complete(ev.Ticket, ev.Cost, ev.Now)
	case EventRequeue:
		return s.Requeue(ev.Ticket, ev.Cost, ev.Now)
	case EventCorrect:
		return s.Correct(ev.Ticket, ev.Cost, ev.Now)
	case EventObserve:
		return s.Observe(ev.Peer, ev.Tenant, ev.Cost, ev.Now)
	case EventForgetPeer:
		return s.ForgetPeer(ev.Peer)
	case EventRebase:
		return s.Rebase()
	}
	return InvalidEvent
}

func (s *Scheduler) applyPick(ev *Event) Outcome {
	f, o := s.pick(ev.Class, ev.Now, ev.Ticket, ev.Job)
	if o == Picked && s.cfg.Record != nil {
		s.record(Event{Kind: EventPick, Class: ev.Class, Now: ev.Now, Job: s.cands[f.cand].id, Ticket: f.ticket})
	}
	return o
}

// ReplayError says which event of a journal could not be repeated, and why.
type ReplayError struct {
	// Index counts events from 0; Offset is the event's first byte.
	Index, Offset int
	// Outcome is what the event led to; Unknown when it could not be decoded,
	// then Err says why.
	Outcome Outcome
	Err     error
}

// Error describes the failure.
func (e *ReplayError) Error() string {
	if e.Err != nil {
		return fmt.Sprintf("sfq: replay event %d at byte %d: %v", e.Index, e.Offset, e.Err)
	}
	return fmt.Sprintf("sfq: replay event %d at byte %d: %v", e.Index, e.Offset, e.Outcome)
}

// Unwrap returns the decoding error, if that was it.
func (e *ReplayError) Unwrap() error { return e.Err }

// Replay applies a journal of encoded events. It returns the number of events
// applied, and a [*ReplayError] at the first one that cannot be decoded or that
// is not accepted as it was when it was recorded.
func (s *Scheduler) Replay(journal []byte) (int, error) {
	n := 0
	var ev Event
	for off := 0; off < len(journal); n++ {
		size, err := DecodeEvent(journal[off:], &ev)
		if err != nil {
			return n, &ReplayError{Index: n, Offset: off, Err: err}
		}
		if o := s.Apply(&ev); !o.OK() {
			return n, &ReplayError{Index: n, Offset: off, Outcome: o}
		}
		off += size
	}
	return n, nil
}
