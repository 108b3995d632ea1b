package sfq

import (
	"math/big"
	"slices"

	"pgregory.net/rapid"
)

func (n *naive) setTenant(id TenantID, spec TenantSpec) Outcome {
	t := n.tenant(id)
	if t != nil {
		t.spec = spec
		n.after()
		return Updated
	}
	z := func() *big.Int { return new(big.Int) }
	t = &naiveTenant{
		id: id, spec: spec, base: naiveAccount{z(), z(), z()},
		runs: map[uint32][]int64{}, peers: map[PeerID]int64{},
	}
	for range n.clock {
		t.lift, t.claim = append(t.lift, z()), append(t.claim, false)
	}
	n.tenants = append(n.tenants, t)
	return Registered
}

func (n *naive) removeTenant(id TenantID) Outcome {
	t := n.tenant(id)
	if t == nil {
		return FlowNotRegistered
	}
	for _, c := range n.jobs {
		if c.Tenant == id {
			return FlowActive
		}
	}
	for _, v := range n.clock {
		if add(t.base.finish, t.base.remote).Cmp(v) > 0 {
			return FairnessDebtActive
		}
	}
	n.tenants = slices.DeleteFunc(n.tenants, func(x *naiveTenant) bool { return x == t })
	return Closed
}

// estimate replays all runs of a type to average them.
func (n *naive) estimate(t *naiveTenant, typ uint32, spec int64, k Class) int64 {
	if runs := t.runs[typ]; typ != 0 && len(runs) >= 5 {
		mean := uint64(runs[0]) << 16
		for _, x := range runs[1:] {
			if v := uint64(x) << 16; v > mean {
				mean += (v - mean) / 8
			} else {
				mean -= (mean - v) / 8
			}
		}
		return int64((mean + 65535) / 65536)
	}
	if spec > 0 {
		return spec
	}
	return n.cfg.Classes[k].DefaultCost
}

func (n *naive) add(c Candidate) Outcome {
	t := n.tenant(c.Tenant)
	switch {
	case t == nil:
		return FlowNotRegistered
	case n.cand(c.Job) != nil:
		return DuplicateLiveID
	case len(n.jobs) >= n.cfg.MaxJobs:
		return LiveLimit
	}
	cost := n.estimate(t, c.Type, c.Cost, c.Class)
	var queued, sum int64
	for _, j := range n.jobs {
		if j.Tenant == t.id && j.run == nil {
			queued, sum = queued+1, sum+j.cost
		}
	}
	if !c.Pinned && t.spec.MaxQueued > 0 && queued >= int64(t.spec.MaxQueued) {
		return TenantQueueLimit
	}
	if !c.Pinned && t.spec.MaxQueuedCost > 0 && sum+cost > t.spec.MaxQueuedCost {
		return TenantCostLimit
	}
	n.jobs = append(n.jobs, &naiveCand{Candidate: c, cost: cost, held: c.Held})
	n.after()
	return Accepted
}

func (n *naive) drop(id JobID) Outcome {
	c := n.cand(id)
	switch {
	case c == nil:
		return NotLive
	case c.run != nil:
		return TooLateAlreadyDispatched
	}
	n.forget(c)
	n.after()
	n.settle()
	return Cancelled
}

func (n *naive) forget(c *naiveCand) {
	n.jobs = slices.DeleteFunc(n.jobs, func(x *naiveCand) bool { return x == c })
}

func (n *naive) hold(id JobID, held bool) Outcome {
	c := n.cand(id)
	switch {
	case c == nil:
		return NotLive
	case c.run != nil:
		return TooLateAlreadyDispatched
	case c.held == held:
		return Unchanged
	}
	c.held = held
	n.after()
	return Updated
}

type naiveChoice struct {
	t    *naiveTenant
	c    *naiveCand
	k    Class
	from *big.Int
}

// better orders choices: start tag, tier, larger size, submission, tenant.
func (a *naiveChoice) better(b *naiveChoice) bool {
	if b == nil {
		return true
	}
	if d := a.from.Cmp(b.from); d != 0 {
		return d < 0
	}
	if a.t.spec.Tier != b.t.spec.Tier {
		return a.t.spec.Tier > b.t.spec.Tier
	}
	if a.k != b.k {
		return a.k > b.k
	}
	if a.c.Order.Created != b.c.Order.Created {
		return a.c.Order.Created < b.c.Order.Created
	}
	return a.t.id < b.t.id
}

// first is the best choice of a class.
func (n *naive) first(k Class) (best *naiveChoice) {
	for _, t := range n.tenants {
		w := n.waits(t, k)
		if len(w) == 0 || n.barred(t, w[0], true) {
			continue
		}
		a := n.account(t)
		stand := a.finish
		if !w[0].Pinned {
			stand = add(stand, a.remote)
		}
		c := &naiveChoice{t, w[0], k, bigMax(bigMax(t.lift[k], new(big.Int)), sub(stand, a.credit))}
		if c.better(best) {
			best = c
		}
	}
	return best
}

func (n *naive) pick(slot Class, now int64) (Pick, Outcome) {
	used := 0
	for _, c := range n.jobs {
		if c.run != nil && c.run.slot == slot {
			used++
		}
	}
	if used >= n.slots[slot] {
		return Pick{}, NoFreeSlot
	}
	own := n.first(slot)
	var small *naiveChoice
	if !n.cfg.Classes[slot].Exclusive {
		for k := range slot {
			if c := n.first(k); c != nil && !n.cfg.Classes[k].Exclusive && c.better(small) {
				small = c
			}
		}
	}
	best := own
	if small != nil {
		margin := new(big.Int).Lsh(new(big.Int).SetUint64(n.cfg.Margin), 64)
		if own == nil || n.cfg.Steal == Reserve && add(small.from, margin).Cmp(own.from) < 0 {
			best = small
		}
	}
	if best == nil {
		return Pick{}, NothingEligible
	}
	n.ticket++
	t, c := best.t, best.c
	c.run = &naiveRun{
		ticket: n.ticket, cand: c, class: best.k, slot: slot, est: c.cost, charged: c.cost,
		weight: n.weight(t, now), lift: t.lift[best.k],
	}
	t.chain = append(t.chain, c.run)
	n.after()
	return Pick{n.ticket, c.Job, t.id, best.k, slot, c.cost, c.Pinned}, Picked
}

func (n *naive) commit(id Ticket, now int64) Outcome {
	r := n.run(id)
	switch {
	case r == nil:
		return NotLive
	case r.committed:
		return AlreadyCommitted
	}
	t := n.tenant(r.cand.Tenant)
	r.committed = true
	n.clock[r.class] = bigMax(n.clock[r.class], r.start)
	n.use(t, r.est, now)
	n.fold(t)
	n.after()
	return Committed
}

func (n *naive) abort(id Ticket) Outcome {
	r := n.run(id)
	switch {
	case r == nil:
		return NotLive
	case r.committed:
		return AlreadyCommitted
	}
	t := n.tenant(r.cand.Tenant)
	t.chain = slices.DeleteFunc(t.chain, func(x *naiveRun) bool { return x == r })
	r.cand.run = nil
	n.fold(t)
	n.after()
	return Aborted
}

// recharge corrects the base, before everything still unresolved.
func (n *naive) recharge(r *naiveRun, total, now int64) {
	if total == r.charged {
		return
	}
	t := n.tenant(r.cand.Tenant)
	d := sub(bigCharge(total, r.weight), bigCharge(r.charged, r.weight))
	b := &t.base
	if d.Sign() < 0 {
		b.credit = sub(b.credit, d)
	} else {
		free := bigMin(b.credit, d)
		b.credit, b.finish = sub(b.credit, free), add(b.finish, sub(d, free))
	}
	n.note(*b)
	n.use(t, total-r.charged, now)
	r.charged = total
}

func (n *naive) end(id Ticket, actual, now int64, requeue bool) Outcome {
	r := n.run(id)
	switch {
	case r == nil:
		return NotLive
	case !r.committed:
		return NotCommitted
	}
	t, total := n.tenant(r.cand.Tenant), max(actual, 1)
	if !requeue || total > r.charged {
		n.recharge(r, total, now)
	}
	r.over, r.cand.run = true, nil
	if requeue {
		n.after()
		return Requeued
	}
	if r.cand.Type != 0 {
		t.runs[r.cand.Type] = append(t.runs[r.cand.Type], total)
	}
	n.forget(r.cand)
	n.after()
	n.settle()
	return Completed
}

func (n *naive) correct(id Ticket, delta, now int64) Outcome {
	r := n.run(id)
	switch {
	case r == nil:
		return NotLive
	case !r.committed:
		return NotCommitted
	case r.charged+delta < 0:
		return InvalidCost
	case delta == 0:
		return Unchanged
	}
	n.recharge(r, r.charged+delta, now)
	n.after()
	return Corrected
}

func (n *naive) observe(p PeerID, id TenantID, cumulative, now int64) Outcome {
	t := n.tenant(id)
	if t == nil {
		return FlowNotRegistered
	}
	last, known := t.peers[p]
	t.peers[p] = cumulative
	switch {
	case !known || cumulative < last:
		return Baseline
	case cumulative == last:
		return Unchanged
	}
	t.base.remote = add(t.base.remote, bigCharge(cumulative-last, n.weight(t, now)))
	n.note(t.base)
	n.after()
	n.settle()
	return Observed
}

// drawSpec draws a tenant's spec from small and odd values.
func drawSpec(t *rapid.T) TenantSpec {
	return TenantSpec{
		Tier:           Tier(rapid.IntRange(0, 4).Draw(t, "tier")),
		Multiplier:     rapid.SampledFrom([]uint32{1, 1, 2, 3, 7}).Draw(t, "multiplier"),
		MaxRunning:     uint32(rapid.IntRange(1, 5).Draw(t, "cap")),
		MaxRunningCost: rapid.SampledFrom([]int64{0, 0, 30, 1000}).Draw(t, "cost cap"),
		MaxQueued:      rapid.SampledFrom([]uint32{0, 0, 3, 10}).Draw(t, "max queued"),
		MaxQueuedCost:  rapid.SampledFrom([]int64{0, 0, 500}).Draw(t, "max queued cost"),
	}
}
