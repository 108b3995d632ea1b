package sfq

// flight resolves a ticket. A nil flight comes with the reason.
func (s *Scheduler) flight(id Ticket, now int64) (uint32, *flight, Outcome) {
	if now < 0 || now > MaxTime {
		return none, nil, InvalidTime
	}
	at, ok := s.byTicket.get(id)
	if !ok {
		return none, nil, NotLive
	}
	return at, &s.flights[at], Unknown
}

// running resolves a ticket that must be committed.
func (s *Scheduler) running(id Ticket, now int64) (uint32, *flight, Outcome) {
	at, f, o := s.flight(id, now)
	if f != nil && f.state == flightPicked {
		return none, nil, NotCommitted
	}
	return at, f, o
}

// minActual is the least cost a finished run is charged, CPU ms. Were it zero,
// a tenant whose jobs report nothing would be refunded everything and never
// move behind anybody.
const minActual = 1

// recharge moves what the run has been charged to total, by the weight stored
// at its dispatch, and reports whether tags stayed in range. Charges telescope:
// after any number of corrections the account has moved by exactly the rounded
// charge of the total.
func (s *Scheduler) recharge(f *flight, total, now int64) bool {
	if total == f.charged {
		return true
	}
	t := &s.tenants[f.tenant]
	was, is := charge(f.charged, f.weight), charge(total, f.weight)
	amount, refund := is.monus(was), total < f.charged
	if refund {
		amount = was.minus(is)
	}
	target := &t.acct
	if t.firstOut != none {
		target = &t.base
	}
	if !target.correct(amount, refund) {
		return false
	}
	s.noteFinish(target)
	if t.firstOut != none {
		s.rechain(t)
	}
	s.addUsage(t, total-f.charged, now)
	t.addCharged(total - f.charged)
	f.charged = total
	return true
}

// land ends a run: its slot and its caps are free again. The flight itself
// lives on while older picks of the tenant are unresolved.
func (s *Scheduler) land(at uint32, f *flight, t *tenant) {
	t.running--
	t.over = min(t.over, t.excess())
	t.inFlight -= f.est
	s.used[f.slotClass]--
	s.byTicket.del(f.ticket)
	if f.chained {
		f.state, f.cand = flightOver, none
		return
	}
	s.freeFlightSlot(at)
}

// validActual checks a reported cost and returns the total to charge.
func validActual(actual int64) (int64, bool) {
	return max(actual, minActual), actual >= 0 && actual <= MaxCost
}

// Complete ends a run. actual is the CPU ms it used in all, at least what was
// reported by [Scheduler.Correct] before; the difference to the charge so far
// is corrected by the weight of its dispatch, and the tenant's average for the
// job type learns it. Use it for every end that is not retried here: success,
// failure, cancellation, loss of the claim. It returns [Completed],
// [CompletedUncorrected], or one of [NotLive], [NotCommitted], [InvalidCost],
// [InvalidTime].
func (s *Scheduler) Complete(id Ticket, actual, now int64) Outcome {
	at, f, o := s.running(id, now)
	if f == nil {
		return o
	}
	total, ok := validActual(actual)
	if !ok {
		return InvalidCost
	}
	ti, ci := f.tenant, f.cand
	t := &s.tenants[ti]
	done, moved := Completed, total != f.charged
	if moved && !s.rechargeWithRebase(f, total, now) {
		done = CompletedUncorrected
	}
	if typ := s.cands[ci].typ; typ != 0 {
		s.learn(t.id, typ, total)
	}
	s.land(at, f, t)
	s.forget(ci)
	if moved {
		s.refresh(ti)
	} else {
		s.relieve(ti, t)
	}
	if s.liveN == 0 {
		s.settle()
	}
	if s.cfg.Record != nil {
		s.record(Event{Kind: EventComplete, Ticket: id, Cost: actual, Now: now})
	}
	return done
}

// Requeue ends a run that will be tried again: the job waits in its old place.
// A retry is not a refund: what the lost run was charged stays charged, and more
// is charged when it used more. It returns [Requeued], or one of [NotLive],
// [NotCommitted], [InvalidCost], [InvalidTime]. It is never refused for
// admission limits.
func (s *Scheduler) Requeue(id Ticket, actual, now int64) Outcome {
	at, f, o := s.running(id, now)
	if f == nil {
		return o
	}
	total, ok := validActual(actual)
	if !ok {
		return InvalidCost
	}
	if total > f.charged {
		// Out of range even after a rebase: the run is over all the same.
		s.rechargeWithRebase(f, total, now)
	}
	ti, ci, k := f.tenant, f.cand, f.class
	t := &s.tenants[ti]
	s.land(at, f, t)
	c := &s.cands[ci]
	t.queuedN++
	t.queued += c.cost
	t.classes |= 1 << k
	s.push(s.queue(ti, k), ci)
	s.refresh(ti)
	if s.cfg.Record != nil {
		s.record(Event{Kind: EventRequeue, Ticket: id, Cost: actual, Now: now})
	}
	return Requeued
}

// Correct charges (or, with a negative delta, gives back) CPU ms of a run that
// goes on: a session is charged this way every accounting interval. It returns
// [Corrected], [Unchanged], or one of [NotLive], [NotCommitted], [InvalidCost]
// (the run's total would leave 0…2⁴⁶), [InvalidTime], [NumericLimit].
func (s *Scheduler) Correct(id Ticket, delta, now int64) Outcome {
	_, f, o := s.running(id, now)
	switch {
	case f == nil:
		return o
	case delta < -MaxCost || delta > MaxCost || f.charged+delta < 0 || f.charged+delta > maxCharged:
		return InvalidCost
	case delta == 0:
		return Unchanged
	case !s.rechargeWithRebase(f, f.charged+delta, now):
		return NumericLimit
	}
	s.refresh(f.tenant)
	if s.cfg.Record != nil {
		s.record(Event{Kind: EventCorrect, Ticket: id, Cost: delta, Now: now})
	}
	return Corrected
}

// rechargeWithRebase retries once after a rebase, recorded as its own event.
func (s *Scheduler) rechargeWithRebase(f *flight, total, now int64) bool {
	return s.recharge(f, total, now) || s.Rebase() == Rebased && s.recharge(f, total, now)
}

// typeKey and average keep a moving average of actual costs.
type typeKey struct {
	tenant TenantID
	typ    uint32
}

type average struct {
	mean    uint64 // CPU ms, 16 fraction bits
	samples uint32 // stops at averageSamples
}

const (
	// averageSamples is how many runs an average needs before it overrules the
	// spec: fewer are an accident.
	averageSamples = 5
	// averageShift makes the newest run weigh 1/8.
	averageShift = 3
)

// learn adds an actual cost to the average of a job type.
func (s *Scheduler) learn(id TenantID, typ uint32, actual int64) {
	if typ == 0 {
		return
	}
	key := typeKey{id, typ}
	a, known := s.averages[key]
	x := uint64(actual) << 16 // < 2⁵⁷
	switch {
	case !known && len(s.averages) >= s.cfg.MaxTypes:
		return
	case !known:
		a.mean = x
	case x >= a.mean:
		a.mean += (x - a.mean) >> averageShift
	default:
		a.mean -= (a.mean - x) >> averageShift
	}
	a.samples = min(a.samples+1, averageSamples)
	s.averages[key] = a
}

// Estimate is the CPU ms that a new job would be charged at dispatch: the
// tenant's average for the type once it has five samples, else the spec's
// estimate, else the class's default.
func (s *Scheduler) Estimate(tenant TenantID, typ uint32, spec int64, k Class) int64 {
	if typ != 0 {
		if a := s.averages[typeKey{tenant, typ}]; a.samples >= averageSamples {
			return min(max(int64((a.mean+0xffff)>>16), minActual), MaxCost)
		}
	}
	if spec > 0 {
		return min(spec, MaxCost)
	}
	if int(k) < len(s.cfg.Classes) {
		return s.cfg.Classes[k].DefaultCost
	}
	return minActual
}
