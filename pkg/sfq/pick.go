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
	f, o := s.pick(slotClass, now, 0, 0)
	if o == NumericLimit && s.Rebase() == Rebased {
		f, o = s.pick(slotClass, now, 0, 0)
	}
	if o != Picked {
		return Pick{}, o
	}
	job := s.cands[f.cand].id
	if s.cfg.Record != nil {
		s.record(Event{Kind: EventPick, Class: slotClass, Now: now, Job: job, Ticket: f.ticket})
	}
	return Pick{
		Ticket: f.ticket, Job: job, Tenant: s.tenants[f.tenant].id,
		Class: f.class, SlotClass: slotClass, Cost: f.est, Pinned: f.pinned,
	}, Picked
}

// choose returns the class and tenant the steal policy prefers for a slot.
func (s *Scheduler) choose(slotClass Class) (Class, uint32, bool) {
	own := s.trees[slotClass].root()
	if own != none && s.cfg.Steal == PreferFit || s.cfg.Classes[slotClass].Exclusive {
		return slotClass, own, own != none
	}
	best, class := none, slotClass
	for k := int(slotClass) - 1; k >= 0; k-- {
		if s.cfg.Classes[k].Exclusive {
			continue
		}
		// Larger classes come first, so an equal key keeps the larger size.
		r := s.trees[k].root()
		if r != none && (best == none || rootBefore(s.queue(r, Class(k)), s.queue(best, class))) {
			best, class = r, Class(k)
		}
	}
	switch {
	case best == none:
		return slotClass, own, own != none
	case own != none:
		bound, over := s.queue(best, class).key.add(u128{hi: s.cfg.Margin})
		if over || !bound.less(s.queue(own, slotClass).key) {
			return slotClass, own, true
		}
	}
	return class, best, true
}

// rootBefore compares the heads of two classes: by start tag, then by tier.
func rootBefore(a, b *classQueue) bool {
	if a.key != b.key {
		return a.key.less(b.key)
	}
	return a.tie>>56 < b.tie>>56
}

// pick is Pick without rebase and record. A replay passes the ticket and job it
// expects (0 when it expects nothing in particular).
func (s *Scheduler) pick(slotClass Class, now int64, wantTicket Ticket, wantJob JobID) (*flight, Outcome) {
	switch {
	case int(slotClass) >= len(s.cfg.Classes):
		return nil, InvalidClass
	case now < 0 || now > MaxTime:
		return nil, InvalidTime
	case s.used[slotClass] >= s.slots[slotClass]:
		return nil, NoFreeSlot
	case s.lastTicket >= maxSequence:
		return nil, SequenceExhausted
	}
	k, ti, ok := s.choose(slotClass)
	if !ok {
		return nil, NothingEligible
	}
	t := &s.tenants[ti]
	q := s.queue(ti, k)
	at := q.first
	c := &s.cands[at]
	if wantTicket != 0 && (wantTicket != s.lastTicket+1 || wantJob != c.id) {
		return nil, Diverged
	}
	weight := s.weightAt(t, now)
	cost := q.firstCost
	distance, remotePay := charge(cost, weight), u128{}
	if q.firstPinned {
		remotePay = charge(scaleCost(cost, s.cfg.Kappa), weight)
	}
	after := t.acct
	start := after.dispatchStep(q.lift, distance, remotePay, q.firstPinned)
	if after.finish.hi >= tagLimit-MaxCost<<weightShift || after.finish.plus(after.remote).hi >= tagLimit {
		return nil, NumericLimit
	}
	s.lastTicket++
	if t.firstOut == none {
		t.base = t.acct
	}
	t.acct = after
	fi, f := s.launch(t)
	f.ticket, f.cand, f.tenant = s.lastTicket, at, ti
	f.state, f.class, f.slotClass, f.pinned = flightPicked, k, slotClass, q.firstPinned
	f.est, f.charged, f.weight = cost, cost, weight
	f.lift, f.start, f.distance, f.remotePay = q.lift, start, distance, remotePay
	s.byTicket.put(f.ticket, fi)
	s.pull(q, at)
	c.state, c.aux = candFlight, fi
	q.picked++
	t.picked++
	t.queuedN--
	t.queued -= cost
	t.inFlight += cost
	t.pickedSum += cost
	s.used[slotClass]++
	s.refresh(ti)
	warmPage(&s.candByID.pages[c.cell>>pageBits]) // for the job's end
	s.warmNext(k, q)
	return f, Picked
}

// warmNext asks for the memory of those who came forward when the owner of q was
// picked: of who may be next soon, the tenant itself; of who may be next sooner,
// the candidates that a pick takes and leaves as head.
func (s *Scheduler) warmNext(k Class, q *classQueue) {
	if q.leaf == none {
		return
	}
	soon, sooner := s.trees[k].near(q.leaf)
	if soon != none {
		t, p := &s.tenants[soon], s.queue(soon, k)
		warmTenant(t, p)
	}
	if sooner != none {
		if p := s.queue(sooner, k); p.n > 1 && p.runSecond != none {
			warm3(&s.cands[p.first].order.UID, &s.cands[p.runSecond].order.UID, &s.cands[p.runTail].order.UID)
		}
	}
}

// launch adds a flight to the end of its tenant's chain; the caller fills it in.
func (s *Scheduler) launch(t *tenant) (uint32, *flight) {
	at := s.freeFlight
	if at == none {
		at = uint32(len(s.flights))
		s.flights = append(s.flights, flight{})
	} else {
		s.freeFlight = s.flights[at].next
	}
	if t.lastOut == none {
		t.firstOut = at
	} else {
		s.flights[t.lastOut].next = at
	}
	f := &s.flights[at]
	f.prev, f.next, f.chained = t.lastOut, none, true
	t.lastOut = at
	return at, f
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
	s.reclaim(ti, t)
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
	s.byTicket.del(id)
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
