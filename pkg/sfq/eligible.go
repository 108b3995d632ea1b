package sfq

import "math/bits"

// classMask is the set of classes a tenant may have anything to do with.
func (t *tenant) hasClass(k int) bool { return t.classes>>k&1 == 1 }

// capped reports that the tenant's caps bar a candidate of this cost. It is
// asked twice: with outstanding picks counted (may it be picked?), and without
// (does it hold its place on the clock? an aborted pick must leave no trace).
func (t *tenant) capped(running uint32, inFlight, cost int64) bool {
	if running >= t.spec.MaxRunning {
		return true
	}
	limit := t.spec.MaxRunningCost
	return limit > 0 && inFlight > 0 && inFlight+cost > limit
}

// eligible reports that the class's head may be picked now.
func (t *tenant) eligible(q *classQueue) bool {
	return q.n > 0 && !t.capped(t.running+t.picked, t.inFlight, q.firstCost)
}

// claims reports that the tenant holds a place on the class's clock: it has an
// unresolved pick there, or queued work that its committed runs do not cap.
func (t *tenant) claims(q *classQueue) bool {
	return q.picked > 0 || q.n > 0 && !t.capped(t.running, t.inFlight-t.pickedSum, q.firstCost)
}

// startTag is the start tag the tenant's next job of the class would get.
// Work that is not pinned stands behind everything the tenant was served
// elsewhere; pinned work stands on the local tag alone.
func startTag(a *account, lift u128, pinned bool) u128 {
	base := a.finish
	if !pinned {
		base = base.plus(a.remote) // both below tagLimit
	}
	return maxU128(lift, base.monus(a.credit))
}

// refresh re-evaluates a tenant in every class after any change to it. A tenant
// that gains a claim on a class's clock is lifted to that clock: it cannot have
// saved up service while it was idle or capped.
func (s *Scheduler) refresh(ti uint32) {
	t := &s.tenants[ti]
	for set := t.classes; set != 0; set &= set - 1 {
		s.refreshClass(ti, t, bits.TrailingZeros8(set))
	}
}

func (s *Scheduler) refreshClass(ti uint32, t *tenant, k int) {
	q := s.queue(ti, Class(k))
	claims := t.claims(q)
	if claims && !q.active {
		q.lift = s.clock[k]
	}
	q.active = claims
	if !t.eligible(q) {
		if q.leaf != none {
			s.trees[k].remove(q.leaf)
			q.leaf = none
		}
		if !claims && q.n == 0 {
			t.classes &^= 1 << k
		}
		return
	}
	key, tie := s.headKey(t, q)
	if q.leaf == none {
		q.key, q.tie = key, tie
		q.leaf = s.trees[k].insert(ti, leadQ64(key))
	} else if q.key != key || q.tie != tie {
		q.key, q.tie = key, tie
		s.trees[k].play(q.leaf, ti, leadQ64(key))
	}
}

// reclaim is refresh after a commit, which changes no start tag and nobody's
// eligibility: all it can do is to take away claims, those that the caps now bar
// without counting reservations.
func (s *Scheduler) reclaim(ti uint32, t *tenant) {
	for set := t.classes; set != 0; set &= set - 1 {
		k := bits.TrailingZeros8(set)
		q := s.queue(ti, Class(k))
		if q.active = t.claims(q); !q.active && q.n == 0 {
			t.classes &^= 1 << k
		}
	}
}

// relieve is refresh after a run has ended that was charged nothing more: it
// moves no start tag, and can only give what the caps had barred.
func (s *Scheduler) relieve(ti uint32, t *tenant) {
	for set := t.classes; set != 0; set &= set - 1 {
		k := bits.TrailingZeros8(set)
		if q := s.queue(ti, Class(k)); !q.active || q.leaf == none {
			s.refreshClass(ti, t, k)
		}
	}
}

// headKey is the key under which the tenant stands in the class's tree: start
// tag, then higher tier, then earlier submission of its head.
func (s *Scheduler) headKey(t *tenant, q *classQueue) (u128, uint64) {
	return startTag(&t.acct, q.lift, q.firstPinned), uint64(TierCount-t.spec.Tier)<<56 | q.firstCreated
}

// headBefore orders two tenants of a class's tree. The last tie-break is the
// lower tenant number.
func (s *Scheduler) headBefore(k Class, a, b uint32) bool {
	p, q := s.queue(a, k), s.queue(b, k)
	switch {
	case p.key != q.key:
		return p.key.less(q.key)
	case p.tie != q.tie:
		return p.tie < q.tie
	}
	return s.tenants[a].id < s.tenants[b].id
}

// dispatchStep is the one place where a dispatch moves an account: it returns
// the start tag and leaves the account after the charge.
//
// Credit is spent first on standing earlier (not below lift), then on paying
// the charge. Work that is not pinned has waited for the tenant's remote
// service and thereby paid for it; pinned work pays at most remotePay of it.
func (a *account) dispatchStep(lift, distance, remotePay u128, pinned bool) u128 {
	base := a.finish
	if !pinned {
		base = base.plus(a.remote)
	}
	start := startTag(a, lift, pinned)
	if start.less(base) {
		a.credit = a.credit.minus(base.minus(start)) // start ≥ base-credit
	}
	free := minU128(a.credit, distance)
	a.credit = a.credit.minus(free)
	a.finish = start.plus(distance.minus(free)) // checked by the pick
	if pinned {
		pay := minU128(a.remote, remotePay)
		a.remote = a.remote.minus(pay)
		a.finish = a.finish.plus(pay)
	} else {
		a.remote = u128{}
	}
	return start
}

// correct adds a late charge, or gives back an overcharge. A charge uses up
// credit before it moves the finish tag; a refund becomes credit, because the
// finish tag may already be behind the clock, where lowering it would lose it.
func (a *account) correct(amount u128, refund bool) bool {
	if refund {
		c, over := a.credit.add(amount)
		if over || c.hi >= tagLimit {
			return false
		}
		a.credit = c
		return true
	}
	free := minU128(a.credit, amount)
	f, over := a.finish.add(amount.minus(free))
	if over || f.hi >= tagLimit || f.plus(a.remote).hi >= tagLimit {
		return false
	}
	a.credit, a.finish = a.credit.minus(free), f
	return true
}

// rechain recomputes what the outstanding picks make of the tenant's account,
// after one of them was aborted or the base was corrected. The result is the
// state in which the aborted pick was never made. A start tag is only ever
// revised downwards: what was charged after the choice must not push the clock
// beyond the tag by which the choice was made, or tenants that become eligible
// next would be lifted over those that waited.
func (s *Scheduler) rechain(t *tenant) {
	t.acct = t.base
	for i := t.firstOut; i != none; i = s.flights[i].next {
		f := &s.flights[i]
		f.start = minU128(f.start, t.acct.dispatchStep(f.lift, f.distance, f.remotePay, f.pinned))
	}
}

// unchain moves resolved picks at the front of the chain into the base.
func (s *Scheduler) unchain(t *tenant) {
	for t.firstOut != none {
		at := t.firstOut
		f := &s.flights[at]
		if f.state == flightPicked {
			return
		}
		if t.lastOut == at { // all that is left of the chain, which leads to acct
			s.noteFinish(&t.acct)
			t.firstOut, t.lastOut, f.chained = none, none, false
			if f.state == flightOver {
				s.freeFlightSlot(at)
			}
			return
		}
		t.base.dispatchStep(f.lift, f.distance, f.remotePay, f.pinned)
		s.noteFinish(&t.base)
		s.dropLink(t, at)
		if f.state == flightOver {
			s.freeFlightSlot(at)
		}
	}
}

// dropLink takes a flight out of its tenant's chain.
func (s *Scheduler) dropLink(t *tenant, at uint32) {
	f := &s.flights[at]
	if f.prev == none {
		t.firstOut = f.next
	} else {
		s.flights[f.prev].next = f.next
	}
	if f.next == none {
		t.lastOut = f.prev
	} else {
		s.flights[f.next].prev = f.prev
	}
	f.prev, f.next, f.chained = none, none, false
}

// noteFinish keeps the highest committed finish tag, for the idle rule.
func (s *Scheduler) noteFinish(a *account) {
	s.maxFinish = maxU128(s.maxFinish, a.finish.plus(a.remote)) // both below tagLimit
}

func (s *Scheduler) freeFlightSlot(at uint32) {
	s.flights[at].state, s.flights[at].next = flightFree, s.freeFlight
	s.freeFlight = at
}
