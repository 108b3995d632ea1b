package sfq

import (
	"errors"
	"fmt"
	"math"
	"sync"
)

// MaxIssueDepth is the largest issue depth a [Queue] accepts. It bounds what
// one DispatchUpTo call may return and hold the lock for; a node's depth is the
// number of its slots.
const MaxIssueDepth = 1_000_000

// Cancellation says what becomes of the virtual time that a queued job reserved
// when it was accepted, once the job is cancelled.
type Cancellation uint8

const (
	// ChargeReservedCost keeps the charge until the queue is idle: later tags
	// of the flow stay where they are. It is the default.
	ChargeReservedCost Cancellation = iota
	// RefundCancelledCost gives it back: later queued jobs of the flow, and the
	// flow's finish tag, move down by cost/weight.
	RefundCancelledCost
)

// QueueConfig is the immutable shape of a [Queue].
type QueueConfig struct {
	// IssueDepth is D, the number of jobs that may be dispatched and not yet
	// completed: 1…MaxIssueDepth. For N equal slots use N.
	IssueDepth int
	// MaxFlows bounds registered flows, 1…2³¹-1.
	MaxFlows int
	// MaxLiveJobs bounds queued plus running jobs, IssueDepth…2³¹-1.
	MaxLiveJobs int
	// Cancellation is the policy for the cost of cancelled jobs.
	Cancellation Cancellation
	// Domain says which weights may be registered.
	Domain WeightDomain
}

// ErrConfig is wrapped by every configuration error of this package.
var ErrConfig = errors.New("sfq: invalid configuration")

// Validate reports the first relation of the configuration that does not hold,
// wrapping [ErrConfig].
func (c QueueConfig) Validate() error {
	switch {
	case c.IssueDepth < 1 || c.IssueDepth > MaxIssueDepth:
		return fmt.Errorf("%w: issue depth %d is not in 1…%d", ErrConfig, c.IssueDepth, MaxIssueDepth)
	case c.MaxFlows < 1 || c.MaxFlows > math.MaxInt32:
		return fmt.Errorf("%w: max flows %d is not in 1…%d", ErrConfig, c.MaxFlows, math.MaxInt32)
	case c.MaxLiveJobs < c.IssueDepth || c.MaxLiveJobs > math.MaxInt32:
		return fmt.Errorf("%w: max live jobs %d is not in %d (the issue depth)…%d",
			ErrConfig, c.MaxLiveJobs, c.IssueDepth, math.MaxInt32)
	case c.Cancellation > RefundCancelledCost:
		return fmt.Errorf("%w: cancellation policy %d is unknown", ErrConfig, c.Cancellation)
	case c.Domain.kind == domainNone:
		return fmt.Errorf("%w: the weight domain is missing or has a scale below 1", ErrConfig)
	}
	return nil
}

// identity tells the handles of one queue from those of all others. It refers
// to nothing, so that a kept handle keeps nothing else alive.
type identity struct{ _ byte }

// FlowHandle is the capability for one registration of a flow. Handles are
// comparable; the zero handle belongs to no queue.
type FlowHandle struct {
	owner *identity
	seq   uint64
	slot  uint32
}

// JobHandle is the capability for one accepted job.
type JobHandle struct {
	owner *identity
	seq   uint64
	slot  uint32
}

// Dispatch is one job that was moved to running. It must be completed exactly
// once, also when the caller fails to start it.
type Dispatch[F, J comparable, P any] struct {
	// Job is the handle to complete.
	Job JobHandle
	// FlowID and JobID are the identifiers given at registration and enqueue.
	FlowID F
	JobID  J
	// Payload is the enqueued value; the queue no longer refers to it.
	Payload P
	// Cost is the supplied cost.
	Cost int64
}

// queueFlow is one registration. A backlogged flow's tags form a chain: only
// the head's start tag and the last finish tag are kept, every other tag
// follows from the costs between them.
//
// With an identifier of one word it is four lines of memory, the last of them
// for what is seldom asked for.
type queueFlow[F comparable] struct {
	id     F
	seq    uint64 // 0: the slot is free
	period uint64 // busy period that start and finish belong to
	start  tag    // start tag of head, when queued > 0
	first  uint64 // seq of head
	head   uint32
	leaf   uint32 // in heads, or none

	finish          tag    // finish tag of the newest accepted job
	gap             u128   // cost cancelled behind the newest queued job
	queued, running uint32 // fewer than 2³¹ jobs are live
	gaps            uint32 // queued jobs with a gap before them
	tail            uint32 // of a free slot, the next free one
	unit            uint64 // scale / weight, the distance of cost 1; 0 in the unrestricted domain

	accepted, dispatched, inRun u128 // cost sums
	cancelled                   u128
	weight                      int64
	_                           [7]uint64
}

// queueJob is one live job, queued or running.
type queueJob[J comparable, P any] struct {
	id      J
	payload P // zero once dispatched
	cost    int64
	gap     u128 // cost cancelled between the previous queued job and this one
	seq     uint64
	nextSeq uint64 // of the one behind it, so that it need not be looked at
	flow    uint32
	prev    uint32 // the one before it in its flow, of all but the head; or inService
	next    uint32 // the one behind it; links the free list
	cell    uint32 // in the index of identifiers
}

// inService marks a job as dispatched, in place of the one before it.
const inService = none - 1

// Queue is a start-time fair queue with issue depth, SFQ(D): it decides which
// accepted jobs may start and runs nothing itself. Tags are assigned when a job
// is accepted. All methods may be called concurrently and are linearizable;
// each runs under one lock.
//
// F and J identify flows and jobs and are used as map keys, with the same
// precondition: an interface type must hold comparable values only.
type Queue[F, J comparable, P any] struct {
	cfg   QueueConfig
	owner *identity

	mu sync.Mutex // guards everything below

	virtual tag     // start tag of the newest dispatch in this busy period
	period  uint64  // number of the current busy period
	heads   tagTree // backlogged flows by the start tags of their heads

	flows     []queueFlow[F]
	flowByID  map[F]uint32
	freeFlow  uint32
	flowSeq   uint64
	jobs      []queueJob[J, P]
	jobByID   jobIDs[J]
	freeJob   uint32
	jobSeq    uint64
	queued    int
	running   int
	active    int // flows with live jobs
	dispatchN uint64
	cancelN   uint64
	completeN uint64
}

// NewQueue returns an empty queue, or an error wrapping [ErrConfig].
func NewQueue[F, J comparable, P any](cfg QueueConfig) (*Queue[F, J, P], error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	q := &Queue[F, J, P]{
		cfg: cfg, owner: new(identity),
		flowByID: make(map[F]uint32), freeFlow: none,
		jobByID: newJobIDs[J](), freeJob: none,
	}
	q.heads.before = q.headBefore
	return q, nil
}

// headBefore orders two backlogged flows: by start tag, then by acceptance of
// their heads.
func (q *Queue[F, J, P]) headBefore(a, b uint32) bool {
	fa, fb := &q.flows[a], &q.flows[b]
	if c := fa.start.cmp(fb.start); c != 0 {
		return c < 0
	}
	return fa.first < fb.first
}

// RegisterFlow creates a flow with a fixed weight. It returns [Registered] or
// one of [InvalidWeight], [WeightOutsideDomain], [DuplicateRegisteredID],
// [FlowLimit], [FlowSequenceExhausted].
func (q *Queue[F, J, P]) RegisterFlow(id F, weight int64) (FlowHandle, Outcome) {
	if weight < 1 {
		return FlowHandle{}, InvalidWeight
	}
	if !q.cfg.Domain.accepts(weight) {
		return FlowHandle{}, WeightOutsideDomain
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if _, dup := q.flowByID[id]; dup {
		return FlowHandle{}, DuplicateRegisteredID
	}
	if len(q.flowByID) >= q.cfg.MaxFlows {
		return FlowHandle{}, FlowLimit
	}
	if q.flowSeq >= maxSequence {
		return FlowHandle{}, FlowSequenceExhausted
	}
	slot := q.freeFlow
	if slot == none {
		slot = uint32(len(q.flows))
		q.flows = append(q.flows, queueFlow[F]{})
	} else {
		q.freeFlow = q.flows[slot].tail
	}
	q.flowSeq++
	q.flows[slot] = queueFlow[F]{id: id, seq: q.flowSeq, weight: weight, unit: q.cfg.Domain.scale / uint64(weight), head: none, tail: none, leaf: none}
	q.flowByID[id] = slot
	return FlowHandle{q.owner, q.flowSeq, slot}, Registered
}

// CloseFlow removes a flow without live jobs whose finish tag is not ahead of
// virtual time, so that closing and registering again never wipes a debt. It
// returns [Closed] or one of [FlowNotRegistered], [FlowActive],
// [FairnessDebtActive].
func (q *Queue[F, J, P]) CloseFlow(h FlowHandle) Outcome {
	q.mu.Lock()
	defer q.mu.Unlock()
	f := q.flow(h)
	if f == nil {
		return FlowNotRegistered
	}
	if f.queued+f.running > 0 {
		return FlowActive
	}
	if q.virtual.less(q.finishOf(f)) {
		return FairnessDebtActive
	}
	delete(q.flowByID, f.id)
	*f = queueFlow[F]{tail: q.freeFlow}
	q.freeFlow = h.slot
	return Closed
}

// flow resolves a handle, nil when it is foreign, stale or closed.
func (q *Queue[F, J, P]) flow(h FlowHandle) *queueFlow[F] {
	if h.owner != q.owner || q.flows[h.slot].seq != h.seq {
		return nil
	}
	return &q.flows[h.slot]
}

// job resolves a handle, nil when it is foreign or stale.
func (q *Queue[F, J, P]) job(h JobHandle) *queueJob[J, P] {
	if h.owner != q.owner || q.jobs[h.slot].seq != h.seq {
		return nil
	}
	return &q.jobs[h.slot]
}

// finishOf is the flow's finish tag in the current busy period: a tag of an
// earlier period counts as zero, which makes the reset at idle O(1).
func (q *Queue[F, J, P]) finishOf(f *queueFlow[F]) tag {
	if f.period != q.period {
		return tag{}
	}
	return f.finish
}

// endBusyPeriod starts a new busy period when no job is left alive.
func (q *Queue[F, J, P]) endBusyPeriod() {
	if q.queued+q.running == 0 {
		q.virtual = tag{}
		q.period++
	}
}
