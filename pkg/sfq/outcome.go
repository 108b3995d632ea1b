package sfq

// Outcome names what a call did. Every operation of [Queue] and [Scheduler]
// returns one; whatever is not a success is an atomic no-op: no sequence number
// is used up, no tag, queue, counter or index changes.
type Outcome uint8

// The outcomes. Successes come first.
const (
	// Unknown is the zero value and is returned by no operation.
	Unknown Outcome = iota

	// Registered: the flow or tenant now exists.
	Registered
	// Updated: an existing tenant, slot count or hold changed.
	Updated
	// Accepted: the job is queued.
	Accepted
	// Picked: a job is reserved for a free slot, nothing is charged yet.
	Picked
	// Committed: the reserved job is charged and runs.
	Committed
	// Aborted: the reservation is undone as if it had never been made.
	Aborted
	// Completed: the job is over, its slot and its caps are free.
	Completed
	// CompletedUncorrected: as Completed, but the correction to the actual cost
	// did not fit the tag range even after a rebase and was left out.
	CompletedUncorrected
	// Requeued: the run is over and the job waits again in its old place.
	Requeued
	// Corrected: the cost charged for a running job was adjusted.
	Corrected
	// Cancelled: the queued job is gone.
	Cancelled
	// Closed: the flow or tenant is gone.
	Closed
	// Baseline: first sight of a peer's counter (or it went back); nothing is
	// charged, later growth will be.
	Baseline
	// Observed: the growth of a peer's counter was charged.
	Observed
	// Rebased: all tags moved down by one common amount.
	Rebased
	// Unchanged: the call was valid and there was nothing to do.
	Unchanged

	// firstRejection separates successes from rejections.
	firstRejection

	// InvalidWeight: weight or multiplier below 1, or tier unknown.
	InvalidWeight
	// WeightOutsideDomain: the weight does not divide the configured scale.
	WeightOutsideDomain
	// InvalidCost: cost below 1 (or negative), or above the maximum.
	InvalidCost
	// InvalidCap: a cap or limit is negative, or the running cap is below 1.
	InvalidCap
	// InvalidClass: no such size class.
	InvalidClass
	// InvalidOrder: the order key is out of range.
	InvalidOrder
	// InvalidTime: the time is negative or beyond the range.
	InvalidTime
	// InvalidEvent: the event's kind is unknown.
	InvalidEvent
	// DuplicateRegisteredID: a flow of that identifier exists.
	DuplicateRegisteredID
	// DuplicateLiveID: a live job of that identifier exists.
	DuplicateLiveID
	// FlowLimit: as many flows or tenants as configured exist.
	FlowLimit
	// LiveLimit: as many live jobs as configured exist.
	LiveLimit
	// TenantQueueLimit: the tenant has as many queued jobs as it may.
	TenantQueueLimit
	// TenantCostLimit: the tenant has as much queued cost as it may.
	TenantCostLimit
	// RemoteLimit: as many (peer, tenant) counters as configured are kept.
	RemoteLimit
	// SequenceExhausted: 2⁶³-1 jobs were accepted; numbers are never reused.
	SequenceExhausted
	// FlowSequenceExhausted: as SequenceExhausted, for registrations.
	FlowSequenceExhausted
	// NumericLimit: an exact tag would leave its range even after one
	// normalisation.
	NumericLimit
	// FlowNotRegistered: the flow handle or tenant is foreign, stale or closed.
	FlowNotRegistered
	// FlowActive: the flow or tenant still has live jobs.
	FlowActive
	// FairnessDebtActive: the finish tag is ahead of virtual time; closing now
	// and registering again would wipe the debt.
	FairnessDebtActive
	// NotLive: no live job answers to that handle, ticket or identifier.
	NotLive
	// TooLateAlreadyDispatched: the job is reserved or running.
	TooLateAlreadyDispatched
	// NotDispatched: the job is still queued.
	NotDispatched
	// NotCommitted: the ticket is still a reservation.
	NotCommitted
	// AlreadyCommitted: the ticket is a reservation no more.
	AlreadyCommitted
	// NoFreeSlot: every slot of the class is in use.
	NoFreeSlot
	// NothingEligible: no queued job may take the slot now.
	NothingEligible
	// Diverged: a replayed pick chose another job than the one recorded.
	Diverged

	outcomeCount
)

var outcomeNames = [outcomeCount]string{
	Unknown:                  "UNKNOWN",
	Registered:               "REGISTERED",
	Updated:                  "UPDATED",
	Accepted:                 "ACCEPTED",
	Picked:                   "PICKED",
	Committed:                "COMMITTED",
	Aborted:                  "ABORTED",
	Completed:                "COMPLETED",
	CompletedUncorrected:     "COMPLETED_UNCORRECTED",
	Requeued:                 "REQUEUED",
	Corrected:                "CORRECTED",
	Cancelled:                "CANCELLED",
	Closed:                   "CLOSED",
	Baseline:                 "BASELINE",
	Observed:                 "OBSERVED",
	Rebased:                  "REBASED",
	Unchanged:                "UNCHANGED",
	firstRejection:           "UNKNOWN",
	InvalidWeight:            "INVALID_WEIGHT",
	WeightOutsideDomain:      "WEIGHT_OUTSIDE_DOMAIN",
	InvalidCost:              "INVALID_COST",
	InvalidCap:               "INVALID_CAP",
	InvalidClass:             "INVALID_CLASS",
	InvalidOrder:             "INVALID_ORDER",
	InvalidTime:              "INVALID_TIME",
	InvalidEvent:             "INVALID_EVENT",
	DuplicateRegisteredID:    "DUPLICATE_REGISTERED_ID",
	DuplicateLiveID:          "DUPLICATE_LIVE_ID",
	FlowLimit:                "FLOW_LIMIT",
	LiveLimit:                "LIVE_LIMIT",
	TenantQueueLimit:         "TENANT_QUEUE_LIMIT",
	TenantCostLimit:          "TENANT_COST_LIMIT",
	RemoteLimit:              "REMOTE_LIMIT",
	SequenceExhausted:        "SEQUENCE_EXHAUSTED",
	FlowSequenceExhausted:    "FLOW_SEQUENCE_EXHAUSTED",
	NumericLimit:             "NUMERIC_LIMIT",
	FlowNotRegistered:        "FLOW_NOT_REGISTERED",
	FlowActive:               "FLOW_ACTIVE",
	FairnessDebtActive:       "FAIRNESS_DEBT_ACTIVE",
	NotLive:                  "NOT_LIVE",
	TooLateAlreadyDispatched: "TOO_LATE_ALREADY_DISPATCHED",
	NotDispatched:            "NOT_DISPATCHED",
	NotCommitted:             "NOT_COMMITTED",
	AlreadyCommitted:         "ALREADY_COMMITTED",
	NoFreeSlot:               "NO_FREE_SLOT",
	NothingEligible:          "NOTHING_ELIGIBLE",
	Diverged:                 "DIVERGED",
}

// String returns the outcome's name, as NUMERIC_LIMIT.
func (o Outcome) String() string {
	if o >= outcomeCount {
		return outcomeNames[Unknown]
	}
	return outcomeNames[o]
}

// OK reports that the call did what was asked, or had nothing to do.
func (o Outcome) OK() bool { return o > Unknown && o < firstRejection }
