package sfq

// QueueSnapshot is one atomic view of a [Queue]: gauges and counters since
// creation. Rejected calls count nowhere.
type QueueSnapshot struct {
	// IssueDepth, MaxFlows and MaxLiveJobs repeat the configuration.
	IssueDepth, MaxFlows, MaxLiveJobs int
	// Flows are registered; ActiveFlows of them have live jobs;
	// BackloggedFlows of them have queued jobs.
	Flows, ActiveFlows, BackloggedFlows int
	// Queued and Running are live jobs; FreeSlots = IssueDepth - Running.
	Queued, Running, FreeSlots int
	// Accepted = Queued + Running + Cancelled + Completed;
	// Dispatched = Running + Completed.
	Accepted, Dispatched, Cancelled, Completed uint64
}

// FlowSnapshot is one atomic view of a flow's registration. The six costs are
// exact sums of supplied costs: estimates, not measurements.
type FlowSnapshot struct {
	// Queued and Running are the flow's live jobs.
	Queued, Running int
	// AcceptedCost, DispatchedCost and CancelledCost only grow.
	AcceptedCost, DispatchedCost, CancelledCost Sum
	// QueuedCost = AcceptedCost - DispatchedCost - CancelledCost.
	QueuedCost Sum
	// RunningCost is in flight now; CompletedCost = DispatchedCost - RunningCost.
	RunningCost, CompletedCost Sum
}

// Snapshot returns the queue's counters.
func (q *Queue[F, J, P]) Snapshot() QueueSnapshot {
	q.mu.Lock()
	defer q.mu.Unlock()
	return QueueSnapshot{
		IssueDepth: q.cfg.IssueDepth, MaxFlows: q.cfg.MaxFlows, MaxLiveJobs: q.cfg.MaxLiveJobs,
		Flows: len(q.flowByID), ActiveFlows: q.active, BackloggedFlows: q.heads.n,
		Queued: q.queued, Running: q.running, FreeSlots: q.cfg.IssueDepth - q.running,
		Accepted: q.jobSeq, Dispatched: q.dispatchN, Cancelled: q.cancelN, Completed: q.completeN,
	}
}

// FlowSnapshot returns the flow's counters, and false for a foreign, stale or
// closed handle.
func (q *Queue[F, J, P]) FlowSnapshot(h FlowHandle) (FlowSnapshot, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	f := q.flow(h)
	if f == nil {
		return FlowSnapshot{}, false
	}
	queued := f.accepted.minus(f.dispatched).minus(f.cancelled)
	done := f.dispatched.minus(f.inRun)
	return FlowSnapshot{
		Queued: int(f.queued), Running: int(f.running),
		AcceptedCost: Sum{f.accepted.hi, f.accepted.lo}, DispatchedCost: Sum{f.dispatched.hi, f.dispatched.lo},
		CancelledCost: Sum{f.cancelled.hi, f.cancelled.lo}, QueuedCost: Sum{queued.hi, queued.lo},
		RunningCost: Sum{f.inRun.hi, f.inRun.lo}, CompletedCost: Sum{done.hi, done.lo},
	}, true
}
