package sfq

import "math/bits"

// Pick is what [Scheduler.Pick] reserved.
type Pick struct {
	Ticket Ticket
	Job    JobID
	Tenant TenantID
	// Class is the job's class; SlotClass the class of the slot it takes.
	Class, SlotClass Class
	// Cost is the estimate that the job will be charged, in CPU ms.
	Cost int64
	// Pinned repeats the candidate's flag.
	Pinned bool
}

// Pick chooses the next job for a free slot of a class and reserves it: the job
// leaves the queue, the slot and the tenant's caps count it, and its tenant's
// tag moves provisionally. Nothing is charged, and no clock moves, before
// [Scheduler.Commit]. It returns [Picked] or one of [InvalidClass],
// [InvalidTime], [NoFreeSlot], [SequenceExhausted], [NothingEligible],
// [NumericLimit].
//
// When tags have run out of range, Pick rebases them first, as an event of its
// own, and tries once more.
func (s *Scheduler) Pick(slotClass Class, now int64) (Pick, Outcome) {
	p, o := s.pick(slotClass, now, 0, 0)
	if o == NumericLimit && s.Rebase() == Rebased {
		p, o = s.pick(slotClass, now, 0, 0)
	}
	if o == Picked && s.cfg.Record != nil {
		s.record(Event{Kind: EventPick, Class: slotClass, Now: now, Job: p.Job, Ticket: p.Ticket})
	}
	return p, o
}

// choose returns the class and tenant the steal policy prefers for a slot.
func (s *Scheduler) choose(slotClass Class) (Class, uint32, bool) {
	own := s.settledRoot(slotClass)
	if own != nil && s.cfg.Steal == PreferFit || s.cfg.Classes[slotClass].Exclusive {
		if own == nil {
			return 0, none, false
		}
		return slotClass, own.owner, true
	}
	best, class := (*heapEntry)(nil), slotClass
	for k := int(slotClass) - 1; k >= 0; k-- {
		if s.cfg.Classes[k].Exclusive {
			continue
		}
		// Larger classes come first, so an equal key keeps the larger size.
		if e := s.settledRoot(Class(k)); e != nil && (best == nil || rootBefore(e, best)) {
			best, class = e, Class(k)
		}
	}
	switch {
	case best == nil && own == nil:
		return 0, none, false
	case best == nil:
		return slotClass, own.owner, true
	case own != nil:
		bound, over := best.key.add(u128{hi: s.cfg.Margin})
		if over || !bound.less(own.key) {
			return slotClass, own.owner, true
		}
	}
	return class, best.owner, true
}

// rootBefore compares the heads of two classes: by start tag, then by tier.
func rootBefore(a, b *heapEntry) bool {
	if a.key != b.key {
		return a.key.less(b.key)
	}
	return a.tie>>56 < b.tie>>56
}

// pick is Pick without rebase and record. A replay passes the ticket and job it
// expects (0 when it expects nothing in particular).
func (s *Scheduler) pick(slotClass Class, now int64, wantTicket Ticket, wantJob JobID) (Pick, Outcome) {
	switch {
	case int(slotClass) >= len(s.cfg.Classes):
		return Pick{}, InvalidClass
	case now < 0 || now > MaxTime:
		return Pick{}, InvalidTime
	case s.used[slotClass] >= s.slots[slotClass]:
		return Pick{}, NoFreeSlot
	case s.lastTicket >= maxSequence:
		return Pick{}, SequenceExhausted
	}
	k, ti, ok := s.choose(slotClass)
	if !ok {
		return Pick{}, NothingEligible
	}
	t := &s.tenants[ti]
	q := s.queue(ti, k)
	at := q.first
	c := &s.cands[at]
	if wantTicket != 0 && (wantTicket != s.lastTicket+1 || wantJob != c.id) {
		return Pick{}, Diverged
	}
	weight := s.weightAt(t, now)
	f := flight{
		ticket: s.lastTicket + 1, cand: at, tenant: ti, prev: t.lastOut, next: none, chained: true,
		state: flightPicked, class: k, slotClass: slotClass, pinned: c.pinned,
		est: c.cost, charged: c.cost, weight: weight, lift: q.lift, distance: charge(c.cost, weight),
	}
	if c.pinned {
		f.remotePay = charge(scaleCost(c.cost, s.cfg.Kappa), weight)
	}
	after := t.acct
	f.start = after.dispatchStep(f.lift, f.distance, f.remotePay, f.pinned)
	if after.finish.hi >= tagLimit-MaxCost<<weightShift || after.finish.plus(after.remote).hi >= tagLimit {
		return Pick{}, NumericLimit
	}
	s.pull(q, at)
	c.state = candFlight
	q.picked++
	if t.firstOut == none {
		t.base = t.acct
	}
	t.acct = after
	c.aux = s.launch(t, f)
	t.picked++
	t.queuedN--
	t.queued -= c.cost
	t.inFlight += c.cost
	t.pickedSum += c.cost
	s.used[slotClass]++
	s.lastTicket++
	s.refresh(ti)
	return Pick{
		Ticket: f.ticket, Job: c.id, Tenant: t.id, Class: k, SlotClass: slotClass, Cost: c.cost, Pinned: c.pinned,
	}, Picked
}

// launch stores a flight at the end of its tenant's chain.
func (s *Scheduler) launch(t *tenant, f flight) uint32 {
	at := s.freeFlight
	if at == none {
		at = uint32(len(s.flights))
		s.flights = append(s.flights, f)
	} else {
		s.freeFlight = s.flights[at].next
		s.flights[at] = f
	}
	if t.lastOut == none {
		t.firstOut = at
	} else {
		s.flights[t.lastOut].next = at
	}
	t.lastOut = at
	s.byTicket.put(uint64(f.ticket), at)
	return at
}

// scaleCost is cost·kappa/2¹⁶ rounded up; cost ≤ 2⁴⁰ and kappa ≤ 2²⁰.
func scaleCost(cost int64, kappa uint32) int64 {
	hi, lo := bits.Mul64(uint64(cost), uint64(kappa))
	lo, carry := bits.Add64(lo, KappaOne-1, 0)
	return int64((hi+carry)<<48 | lo>>16)
}

// Commit charges a reserved job: its tenant's tag keeps the move the pick made,
// the class's clock advances to the job's start tag, and the tenant's usage
// grows by the estimate. It returns [Committed] or one of [NotLive],
// [AlreadyCommitted], [InvalidTime].
func (s *Scheduler) Commit(id Ticket, now int64) Outcome {
	at, f, o := s.flight(id, now)
	if f == nil {
		return o
	}
	if f.state != flightPicked {
		return AlreadyCommitted
	}
	t := &s.tenants[f.tenant]
	k, ti := f.class, f.tenant
	f.state = flightRunning
	s.clock[k] = maxU128(s.clock[k], f.start)
	t.picked--
	t.running++
	t.pickedSum -= f.est
	s.queue(ti, k).picked--
	s.addUsage(t, f.est, now)
	t.addCharged(f.est)
	if t.firstOut == at {
		s.unchain(t)
	}
	s.refresh(ti)
	if s.cfg.Record != nil {
		s.record(Event{Kind: EventCommit, Ticket: id, Now: now})
	}
	return Committed
}

// Abort undoes a reservation: the job is queued again in its old place and its
// tenant's tag is what it would be had the pick never been made, also when
// later picks of the tenant are outstanding or committed. Drop the candidate
// afterwards if it must not be picked again. It returns [Aborted], [NotLive] or
// [AlreadyCommitted].
func (s *Scheduler) Abort(id Ticket) Outcome {
	at, f, o := s.flight(id, 0)
	if f == nil {
		return o
	}
	if f.state != flightPicked {
		return AlreadyCommitted
	}
	ti, t := f.tenant, &s.tenants[f.tenant]
	q := s.queue(ti, f.class)
	q.picked--
	t.picked--
	t.over = min(t.over, t.excess())
	t.pickedSum -= f.est
	t.inFlight -= f.est
	t.queuedN++
	t.queued += f.est
	s.used[f.slotClass]--
	s.dropLink(t, at)
	s.byTicket.del(uint64(id))
	s.push(q, f.cand)
	s.freeFlightSlot(at)
	s.rechain(t)
	s.unchain(t)
	// The claim on the clock was never given up (see claims), so refresh keeps
	// the old lift.
	s.refresh(ti)
	if s.cfg.Record != nil {
		s.record(Event{Kind: EventAbort, Ticket: id})
	}
	return Aborted
}
