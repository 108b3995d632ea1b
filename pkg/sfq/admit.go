package sfq

// SetTenant registers a tenant or changes its spec. A lower cap stops new picks
// and lets running jobs finish. It returns [Registered], [Updated], or one of
// [InvalidWeight], [InvalidCap], [FlowLimit].
func (s *Scheduler) SetTenant(id TenantID, spec TenantSpec) Outcome {
	if o := spec.check(); o != Unknown {
		return o
	}
	o := Updated
	ti, known := s.tenantByID.get(uint64(id))
	if !known {
		if s.tenantN >= s.cfg.MaxTenants {
			return FlowLimit
		}
		o, ti = Registered, s.newTenant(id)
	}
	t := &s.tenants[ti]
	t.spec, t.weight = spec, spec.baseWeight()
	t.over = t.excess()
	s.refresh(ti)
	if s.cfg.Record != nil {
		s.record(Event{Kind: EventSetTenant, Tenant: id, Spec: spec})
	}
	return o
}

func (s *Scheduler) newTenant(id TenantID) uint32 {
	ti := s.freeTenant
	if ti == none {
		ti = uint32(len(s.tenants))
		s.tenants = append(s.tenants, tenant{})
		for range s.cfg.Classes {
			s.queues = append(s.queues, classQueue{})
		}
	} else {
		s.freeTenant = s.tenants[ti].next
	}
	s.tenants[ti] = tenant{id: id, live: true, firstOut: none, lastOut: none, next: none}
	for k := range s.cfg.Classes {
		*s.queue(ti, Class(k)) = classQueue{runHead: none, runSecond: none, runTail: none, first: none, leaf: none}
	}
	hint, _ := s.tenantByID.reserve(uint64(id))
	s.tenantByID.put(uint64(id), hint, ti)
	s.tenantN++
	return ti
}

// RemoveTenant forgets a tenant without live candidates whose finish tag is not
// ahead of any class's clock; a credit it still has is lost. It returns
// [Closed], [FlowNotRegistered], [FlowActive] or [FairnessDebtActive].
func (s *Scheduler) RemoveTenant(id TenantID) Outcome {
	ti, ok := s.tenantByID.get(uint64(id))
	if !ok {
		return FlowNotRegistered
	}
	t := &s.tenants[ti]
	if t.queuedN+t.picked+t.running > 0 {
		return FlowActive
	}
	for k := range s.cfg.Classes {
		if s.clock[k].less(t.acct.finish.plus(t.acct.remote)) {
			return FairnessDebtActive
		}
	}
	for k := range s.averages {
		if k.tenant == id {
			delete(s.averages, k)
		}
	}
	for k := range s.remotes {
		if k.tenant == id {
			delete(s.remotes, k)
		}
	}
	cell, _ := s.tenantByID.reserve(uint64(id))
	s.tenantByID.del(cell)
	*t = tenant{next: s.freeTenant}
	s.freeTenant = ti
	s.tenantN--
	if s.cfg.Record != nil {
		s.record(Event{Kind: EventRemoveTenant, Tenant: id})
	}
	return Closed
}

// SetSlots changes a class's slot count; jobs in slots that are gone finish. It
// returns [Updated], [InvalidClass] or [InvalidCap].
func (s *Scheduler) SetSlots(k Class, n int) Outcome {
	if int(k) >= len(s.cfg.Classes) {
		return InvalidClass
	}
	if n < 0 || n > maxSlotsLimit {
		return InvalidCap
	}
	s.slots[k] = uint32(n)
	if s.cfg.Record != nil {
		s.record(Event{Kind: EventSetSlots, Class: k, Cost: int64(n)})
	}
	return Updated
}

// Add admits a candidate. It returns [Accepted] or one of [InvalidClass],
// [InvalidCost], [InvalidOrder], [FlowNotRegistered], [DuplicateLiveID],
// [LiveLimit], [TenantQueueLimit], [TenantCostLimit]. Pinned work was admitted
// before it came here and is not held to the tenant's limits.
func (s *Scheduler) Add(c Candidate) Outcome {
	ti, hint, o := s.admissible(&c)
	if o != Unknown {
		return o
	}
	t := &s.tenants[ti]
	cost := s.Estimate(c.Tenant, c.Type, c.Cost, c.Class)
	if !c.Pinned {
		if t.spec.MaxQueued > 0 && t.queuedN >= t.spec.MaxQueued {
			return TenantQueueLimit
		}
		if t.spec.MaxQueuedCost > 0 && t.queued+cost > t.spec.MaxQueuedCost {
			return TenantCostLimit
		}
	}
	at := s.freeCand
	if at == none {
		at = uint32(len(s.cands))
		s.cands = append(s.cands, cand{})
	} else {
		s.freeCand = s.cands[at].next
	}
	s.cands[at] = cand{
		id: c.Job, order: c.Order, cost: cost, tenant: ti, prev: none, next: none,
		typ: c.Type, class: c.Class, pinned: c.Pinned, state: candHeld,
		cell: s.candByID.put(uint64(c.Job), hint, at),
	}
	s.liveN++
	t.queuedN++
	t.queued += cost
	if !c.Held {
		s.enter(ti, t, at)
	}
	if s.cfg.Record != nil {
		s.record(Event{
			Kind: EventAdd, Tenant: c.Tenant, Job: c.Job, Class: c.Class, Cost: c.Cost,
			Type: c.Type, Order: c.Order, Pinned: c.Pinned, Held: c.Held,
		})
	}
	return Accepted
}

// admissible checks a candidate against everything but its tenant's limits. It
// returns the tenant's slot and the cell for the job's number.
func (s *Scheduler) admissible(c *Candidate) (ti, cell uint32, o Outcome) {
	switch {
	case int(c.Class) >= len(s.cfg.Classes):
		return none, none, InvalidClass
	case c.Cost < 0 || c.Cost > MaxCost:
		return none, none, InvalidCost
	case c.Order.Created > maxCreated:
		return none, none, InvalidOrder
	}
	ti, ok := s.tenantByID.get(uint64(c.Tenant))
	if !ok {
		return none, none, FlowNotRegistered
	}
	cell, dup := s.candByID.reserve(uint64(c.Job))
	if dup {
		return none, none, DuplicateLiveID
	}
	if s.liveN >= s.cfg.MaxJobs {
		return none, none, LiveLimit
	}
	return ti, cell, Unknown
}

// enter puts a candidate among those that may be picked.
func (s *Scheduler) enter(ti uint32, t *tenant, at uint32) {
	k := s.cands[at].class
	t.classes |= 1 << k
	q := s.queue(ti, k)
	s.push(q, at)
	if q.first == at {
		s.refreshClass(ti, t, int(k))
	} // else the head, and all that depends on it, is as it was
}

// queuedCand resolves a candidate that is queued or held.
func (s *Scheduler) queuedCand(id JobID) (uint32, Outcome) {
	at, ok := s.candByID.get(uint64(id))
	if !ok {
		return none, NotLive
	}
	if s.cands[at].state == candFlight {
		return none, TooLateAlreadyDispatched
	}
	return at, Unknown
}

// Drop removes a candidate that is queued or held: its claim was lost, or it is
// no longer wanted. Nothing was charged for it, so nothing is refunded. It
// returns [Cancelled], [NotLive] or [TooLateAlreadyDispatched] (abort or
// complete it first).
func (s *Scheduler) Drop(id JobID) Outcome {
	at, o := s.queuedCand(id)
	if o != Unknown {
		return o
	}
	c := &s.cands[at]
	ti := c.tenant
	t := &s.tenants[ti]
	t.queuedN--
	t.queued -= c.cost
	if c.state != candHeld {
		s.pull(s.queue(ti, c.class), at)
	}
	s.forget(at)
	s.refresh(ti)
	s.settle()
	if s.cfg.Record != nil {
		s.record(Event{Kind: EventDrop, Job: id})
	}
	return Cancelled
}

// Hold keeps a queued candidate from being picked, as while another node is
// given the first chance at it. It returns [Updated], [Unchanged], [NotLive] or
// [TooLateAlreadyDispatched].
func (s *Scheduler) Hold(id JobID) Outcome {
	at, o := s.queuedCand(id)
	if o != Unknown {
		return o
	}
	c := &s.cands[at]
	if c.state == candHeld {
		return Unchanged
	}
	s.pull(s.queue(c.tenant, c.class), at)
	c.state, c.prev, c.next = candHeld, none, none
	s.refresh(c.tenant)
	if s.cfg.Record != nil {
		s.record(Event{Kind: EventHold, Job: id})
	}
	return Updated
}

// Unhold ends a hold; the candidate is where its order key puts it. It returns
// as [Scheduler.Hold].
func (s *Scheduler) Unhold(id JobID) Outcome {
	at, o := s.queuedCand(id)
	if o != Unknown {
		return o
	}
	c := &s.cands[at]
	if c.state != candHeld {
		return Unchanged
	}
	s.enter(c.tenant, &s.tenants[c.tenant], at)
	if s.cfg.Record != nil {
		s.record(Event{Kind: EventUnhold, Job: id})
	}
	return Updated
}

// forget removes a candidate that is over from every index.
func (s *Scheduler) forget(at uint32) {
	c := &s.cands[at]
	s.candByID.del(c.cell)
	c.state, c.next = candFree, s.freeCand
	s.freeCand = at
	s.liveN--
}

// excess is how far the jobs in flight are above the cap: not at all, unless
// the cap was lowered under them.
func (t *tenant) excess() uint32 {
	return max(t.running+t.picked, t.spec.MaxRunning) - t.spec.MaxRunning
}
