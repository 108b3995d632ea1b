package sfq

import (
	"math/big"
	"slices"
)

// naive is the tenant scheduler as its definition reads, in big integers (tags
// in units of 2⁻⁶⁴): no heap, no cached account, no incremental count. It is the
// oracle for Scheduler. It shares the weight of a moment with it (which has its
// own tests) and nothing else.
type naive struct {
	cfg     Config
	clock   []*big.Int
	slots   []int
	highest *big.Int
	tenants []*naiveTenant
	jobs    []*naiveCand
	ticket  Ticket
}

type naiveTenant struct {
	id     TenantID
	spec   TenantSpec
	base   naiveAccount
	chain  []*naiveRun // from the oldest unresolved pick on
	usage  u128
	step   uint64
	lift   []*big.Int
	claim  []bool
	served int64
	peak   int64
	runs   map[uint32][]int64
	peers  map[PeerID]int64
}

type naiveAccount struct{ finish, credit, remote *big.Int }

type naiveCand struct {
	Candidate
	cost int64
	held bool
	run  *naiveRun
}

type naiveRun struct {
	ticket       Ticket
	cand         *naiveCand
	class, slot  Class
	committed    bool
	over         bool
	est, charged int64
	weight       uint64
	lift, start  *big.Int
}

func newNaive(cfg Config) *naive {
	n := &naive{cfg: cfg, highest: new(big.Int)}
	for _, k := range cfg.Classes {
		n.clock = append(n.clock, new(big.Int))
		n.slots = append(n.slots, k.Slots)
	}
	return n
}

func bigMax(a, b *big.Int) *big.Int {
	if a.Cmp(b) < 0 {
		return b
	}
	return a
}

func bigMin(a, b *big.Int) *big.Int {
	if a.Cmp(b) > 0 {
		return b
	}
	return a
}

func sub(a, b *big.Int) *big.Int { return new(big.Int).Sub(a, b) }
func add(a, b *big.Int) *big.Int { return new(big.Int).Add(a, b) }

// bigCharge is cost/weight in units of 2⁻⁶⁴, rounded up.
func bigCharge(cost int64, weight uint64) *big.Int {
	n := new(big.Int).Lsh(big.NewInt(cost), 64+weightShift)
	w := new(big.Int).SetUint64(weight)
	q, r := new(big.Int).QuoRem(n, w, new(big.Int))
	if r.Sign() > 0 {
		q.Add(q, big.NewInt(1))
	}
	return q
}

func (n *naive) tenant(id TenantID) *naiveTenant {
	for _, t := range n.tenants {
		if t.id == id {
			return t
		}
	}
	return nil
}

func (n *naive) cand(id JobID) *naiveCand {
	for _, c := range n.jobs {
		if c.Job == id {
			return c
		}
	}
	return nil
}

func (n *naive) run(id Ticket) *naiveRun {
	for _, c := range n.jobs {
		if c.run != nil && c.run.ticket == id {
			return c.run
		}
	}
	return nil
}

// waits lists a tenant's pickable candidates of a class in order.
func (n *naive) waits(t *naiveTenant, k Class) (cs []*naiveCand) {
	for _, c := range n.jobs {
		if c.Tenant == t.id && c.Class == k && !c.held && c.run == nil {
			cs = append(cs, c)
		}
	}
	slices.SortFunc(cs, func(a, b *naiveCand) int {
		switch {
		case a.Pinned != b.Pinned:
			if a.Pinned {
				return -1
			}
			return 1
		case a.Order.Created != b.Order.Created:
			return int(int64(a.Order.Created) - int64(b.Order.Created))
		case a.Order.UID != b.Order.UID:
			return int(int64(a.Order.UID) - int64(b.Order.UID))
		}
		return int(int64(a.Job) - int64(b.Job))
	})
	return cs
}

// flight sums a tenant's jobs in flight, with or without reservations.
func (n *naive) flight(t *naiveTenant, reserved bool) (jobs, cost int64) {
	for _, c := range n.jobs {
		if c.Tenant == t.id && c.run != nil && (reserved || c.run.committed) {
			jobs, cost = jobs+1, cost+c.run.est
		}
	}
	return jobs, cost
}

func (n *naive) barred(t *naiveTenant, head *naiveCand, reserved bool) bool {
	jobs, cost := n.flight(t, reserved)
	limit := t.spec.MaxRunningCost
	return jobs >= int64(t.spec.MaxRunning) || limit > 0 && cost > 0 && cost+head.cost > limit
}

// after gives each tenant that gained a claim on a clock its lift, and lowers
// the start tags that a change of the chain has lowered.
func (n *naive) after() {
	for _, t := range n.tenants {
		a, start := t.base, (*big.Int)(nil)
		for _, r := range t.chain {
			if a, start = a.dispatch(n, r); r.start == nil || start.Cmp(r.start) < 0 {
				r.start = start
			}
		}
		for k := range n.clock {
			claim := false
			for _, c := range n.jobs {
				if c.Tenant == t.id && int(c.Class) == k && c.run != nil && !c.run.committed {
					claim = true
				}
			}
			if w := n.waits(t, Class(k)); len(w) > 0 && !n.barred(t, w[0], false) {
				claim = true
			}
			if claim && !t.claim[k] {
				t.lift[k] = n.clock[k]
			}
			t.claim[k] = claim
		}
	}
}

func (n *naive) settle() {
	if len(n.jobs) > 0 {
		return
	}
	for k := range n.clock {
		n.clock[k] = bigMax(n.clock[k], n.highest)
	}
	for _, t := range n.tenants {
		t.base.remote = new(big.Int)
	}
}

// dispatch moves an account and returns the start tag.
func (a naiveAccount) dispatch(n *naive, r *naiveRun) (naiveAccount, *big.Int) {
	stand := a.finish
	if !r.cand.Pinned {
		stand = add(stand, a.remote)
	}
	start := bigMax(r.lift, sub(stand, a.credit))
	credit := a.credit
	if start.Cmp(stand) < 0 {
		credit = sub(credit, sub(stand, start))
	}
	cost := bigCharge(r.est, r.weight)
	free := bigMin(credit, cost)
	out := naiveAccount{finish: add(start, sub(cost, free)), credit: sub(credit, free), remote: new(big.Int)}
	if r.cand.Pinned {
		scaled := (r.est*int64(n.cfg.Kappa) + KappaOne - 1) / KappaOne
		pay := bigMin(a.remote, bigCharge(scaled, r.weight))
		out.finish, out.remote = add(out.finish, pay), sub(a.remote, pay)
	}
	return out, start
}

// account folds the chain over the base.
func (n *naive) account(t *naiveTenant) naiveAccount {
	a := t.base
	for _, r := range t.chain {
		a, _ = a.dispatch(n, r)
	}
	return a
}

func (n *naive) note(a naiveAccount) { n.highest = bigMax(n.highest, add(a.finish, a.remote)) }

// fold moves resolved runs at the front of the chain into the base.
func (n *naive) fold(t *naiveTenant) {
	for len(t.chain) > 0 && (t.chain[0].committed || t.chain[0].over) {
		t.base, _ = t.base.dispatch(n, t.chain[0])
		n.note(t.base)
		t.chain = t.chain[1:]
	}
}

func (n *naive) weight(t *naiveTenant, now int64) uint64 {
	w := t.spec.baseWeight()
	if d := n.cfg.Decay; d != nil {
		return effectiveWeight(w, d.usageAt(t.usage, t.step, now), d.norm(t.spec.Tier))
	}
	return w
}

func (n *naive) use(t *naiveTenant, cost, now int64) {
	if d := n.cfg.Decay; d != nil {
		t.usage = d.usageAt(t.usage, t.step, now)
		t.step = max(t.step, d.step(now))
		if cost >= 0 {
			t.usage = t.usage.plus(u128{hi: uint64(cost)})
		} else {
			t.usage = t.usage.monus(u128{hi: uint64(-cost)})
		}
	}
	t.served += cost
	t.peak = max(t.peak, t.served)
}
