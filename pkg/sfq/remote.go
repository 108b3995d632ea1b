package sfq

// remoteKey is one peer's counter of one tenant.
type remoteKey struct {
	peer   PeerID
	tenant TenantID
}

// Service returns the CPU ms this node has charged the tenant since it was
// registered, as a counter that never goes back. It is what a node publishes
// for its peers' [Scheduler.Observe].
func (s *Scheduler) Service(id TenantID) (int64, bool) {
	ti, ok := s.tenantByID.get(uint64(id))
	if !ok {
		return 0, false
	}
	return s.tenants[ti].published, true
}

// Observe takes in a peer's published counter for a tenant, in CPU ms. The
// first value seen, and any value below the last one, is a baseline; growth
// after it is remote debt: all of it stands before the tenant's unowned work
// here, and pinned work pays it off at most Kappa times its own cost per
// dispatch. Because the counter is cumulative, a read that was skipped makes
// the view older but never wrong. It returns [Baseline], [Observed],
// [Unchanged], or one of [FlowNotRegistered], [InvalidCost], [InvalidTime],
// [RemoteLimit], [NumericLimit].
func (s *Scheduler) Observe(peer PeerID, id TenantID, cumulative, now int64) Outcome {
	if now < 0 || now > MaxTime {
		return InvalidTime
	}
	if cumulative < 0 {
		return InvalidCost
	}
	ti, ok := s.tenantByID.get(uint64(id))
	if !ok {
		return FlowNotRegistered
	}
	key := remoteKey{peer, id}
	last, known := s.remotes[key]
	if !known && len(s.remotes) >= s.cfg.MaxRemote {
		return RemoteLimit
	}
	o := Baseline
	if known && uint64(cumulative) == last {
		return Unchanged
	}
	if known && uint64(cumulative) > last {
		delta := uint64(cumulative) - last
		if delta > maxCharged {
			return InvalidCost
		}
		t := &s.tenants[ti]
		if !s.owe(t, int64(delta), now) && (s.Rebase() != Rebased || !s.owe(t, int64(delta), now)) {
			return NumericLimit
		}
		o = Observed
		s.refresh(ti)
		s.settle() // nobody waits on an idle node, so nobody owes anything there
	}
	s.remotes[key] = uint64(cumulative)
	if s.cfg.Record != nil {
		s.record(Event{Kind: EventObserve, Peer: peer, Tenant: id, Cost: cumulative, Now: now})
	}
	return o
}

// owe adds remote service to a tenant's accounts.
func (s *Scheduler) owe(t *tenant, cost, now int64) bool {
	d := charge(cost, s.weightAt(t, now))
	base := &t.acct
	if t.firstOut != none {
		base = &t.base
	}
	r, over := base.remote.add(d)
	if over || r.hi >= tagLimit || base.finish.plus(r).hi >= tagLimit || t.acct.finish.plus(r).hi >= tagLimit {
		return false
	}
	base.remote, s.remoteDue = r, true
	s.noteFinish(base)
	if t.firstOut != none {
		s.rechain(t)
	}
	return true
}

// ForgetPeer drops all counters of a peer that has left for good. Debt already
// taken in stays. It returns [Closed] or [Unchanged].
func (s *Scheduler) ForgetPeer(peer PeerID) Outcome {
	n := len(s.remotes)
	for k := range s.remotes {
		if k.peer == peer {
			delete(s.remotes, k)
		}
	}
	if len(s.remotes) == n {
		return Unchanged
	}
	if s.cfg.Record != nil {
		s.record(Event{Kind: EventForgetPeer, Peer: peer})
	}
	return Closed
}
