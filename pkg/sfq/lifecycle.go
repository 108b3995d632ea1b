package sfq

// Phase is where a job is in its life.
type Phase uint8

// The phases. The last four are final.
const (
	Queued Phase = iota
	// Assigned: dispatched, and not yet known to have started.
	Assigned
	Running
	JobCompleted
	JobFailed
	JobCancelled
	JobTimedOut

	phaseCount
)

// String returns the phase's name, as timed_out.
func (p Phase) String() string {
	if p >= phaseCount {
		return "unknown"
	}
	return [phaseCount]string{"queued", "assigned", "running", "completed", "failed", "cancelled", "timed_out"}[p]
}

// Final reports that no event changes the phase any more.
func (p Phase) Final() bool { return p >= JobCompleted }

// StopReason is why a stop was asked for; it decides the final phase.
type StopReason uint8

// The reasons. The first one given stays.
const (
	StopNone StopReason = iota
	StopRequested
	StopTimeout

	stopReasons
)

// JobState is the whole state of a job's life. Attempt and Failures are apart
// because they answer different questions: Attempt, raised by every dispatch,
// says which run is the live one (it is the fencing token); Failures, raised by
// every run that was lost or failed, is held against MaxAttempts.
type JobState struct {
	Phase       Phase
	Stop        StopReason
	Attempt     uint32
	Failures    uint32
	MaxAttempts uint32 // at least 1
}

// Valid reports that the state can be reached.
func (s JobState) Valid() bool {
	if s.Phase >= phaseCount || s.Stop >= stopReasons || s.MaxAttempts < 1 || s.Failures > s.Attempt {
		return false
	}
	if s.Phase == JobFailed {
		return s.Failures == s.MaxAttempts && s.Stop == StopNone
	}
	if s.Failures >= s.MaxAttempts {
		return false
	}
	ran := s.Failures < s.Attempt // the live or last attempt is no failure
	switch s.Phase {
	case Queued:
		return s.Stop == StopNone
	case Assigned:
		return ran && s.Stop != StopTimeout
	case JobTimedOut:
		return ran && s.Stop == StopTimeout
	case JobCancelled:
		return s.Stop == StopRequested // perhaps in the queue, after a failure
	default: // Running and JobCompleted
	}
	return ran
}

// JobEventKind is something that happened to a job.
type JobEventKind uint8

// The events. All but JobDispatched and JobStop carry the attempt they speak of
// and count only while that attempt is the live one.
const (
	// JobDispatched: a slot was given to the job; the attempt goes up.
	JobDispatched JobEventKind = iota
	// JobStarted: the attempt runs.
	JobStarted
	// JobNotStarted: no start within its time. Not the job's failure: it goes
	// back to the queue with its failures as they were.
	JobNotStarted
	// JobSucceeded: the attempt ended well. Its start may have gone unseen.
	JobSucceeded
	// JobBroke: the attempt ended badly.
	JobBroke
	// JobStopped: the attempt ended because it was told to.
	JobStopped
	// JobLost: the attempt's lease ran out.
	JobLost
	// JobStop: somebody wants the job to end.
	JobStop
	// JobTimeout: the attempt ran too long; it is told to stop and is not
	// retried.
	JobTimeout

	jobEventKinds
)

// JobEvent is one event.
type JobEvent struct {
	Kind    JobEventKind
	Attempt uint32
}

// Change is what an event did.
type Change uint8

const (
	// Same: a duplicate, a stale attempt, or an event the phase does not know.
	// Whoever acts on changes must do nothing.
	Same Change = iota
	// Changed: the state is new; whatever follows from it is due exactly once.
	Changed
)

// String returns the change's name.
func (c Change) String() string {
	if c == Changed {
		return "Changed"
	}
	return "Unchanged"
}

// Apply is the job state machine: a pure function from a state and an event to
// the next state and whether it is a new one. An invalid state or an unknown
// event changes nothing.
//
//	queued    dispatched → assigned (attempt+1)       stop → cancelled
//	assigned  started → running                       not started → queued
//	running   (and assigned, if the start was unseen)
//	          succeeded → completed
//	          broke, lost → queued (failures+1), or failed at max attempts
//	          stop, timeout → asked to stop; then
//	          broke, lost, stopped, not started → cancelled or timed_out
func Apply(s JobState, e JobEvent) (JobState, Change) {
	if !s.Valid() || e.Kind >= jobEventKinds || s.Phase.Final() {
		return s, Same
	}
	if s.Phase == Queued {
		return applyQueued(s, e)
	}
	if e.Kind == JobDispatched || e.Kind != JobStop && e.Attempt != s.Attempt {
		return s, Same
	}
	next := s
	switch e.Kind {
	case JobStarted:
		if s.Phase == Assigned {
			next.Phase = Running
		}
	case JobNotStarted:
		if s.Phase == Assigned {
			next.Phase = Queued
			if s.Stop != StopNone {
				next.Phase = s.stopped()
			}
		}
	case JobSucceeded:
		next.Phase = JobCompleted
	case JobStop:
		if s.Stop == StopNone {
			next.Stop = StopRequested
		}
	case JobTimeout:
		if s.Phase == Running && s.Stop == StopNone {
			next.Stop = StopTimeout
		}
	case JobBroke, JobLost, JobStopped:
		next = s.ended()
	default: // JobDispatched: of a queued job only
	}
	if next == s {
		return s, Same
	}
	return next, Changed
}

func applyQueued(s JobState, e JobEvent) (JobState, Change) {
	const lastAttempt = 1<<32 - 1 // the token must not wrap
	switch {
	case e.Kind == JobDispatched && s.Attempt < lastAttempt:
		s.Phase, s.Attempt = Assigned, s.Attempt+1
		return s, Changed
	case e.Kind == JobStop:
		s.Phase, s.Stop = JobCancelled, StopRequested
		return s, Changed
	}
	return s, Same
}

// stopped is the final phase of a job that was asked to stop.
func (s JobState) stopped() Phase {
	if s.Stop == StopTimeout {
		return JobTimedOut
	}
	return JobCancelled
}

// ended is the state after a run that did not succeed. A run that stopped
// without having been asked was stopped from outside, and counts as lost.
func (s JobState) ended() JobState {
	if s.Stop != StopNone {
		s.Phase = s.stopped()
		return s
	}
	s.Failures++
	s.Phase = Queued
	if s.Failures >= s.MaxAttempts {
		s.Phase = JobFailed
	}
	return s
}
