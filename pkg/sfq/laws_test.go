package sfq

import (
	"math/big"
	"testing"

	"pgregory.net/rapid"
)

// The laws hold over every interval of dispatches. A law bounds the change of a
// figure X between any two instants, so it is checked as max X - min X ≤ bound.
type spread struct{ low, high, x big.Int }

func (s *spread) add(d *big.Int) {
	s.x.Add(&s.x, d)
	if s.x.Cmp(&s.low) < 0 {
		s.low.Set(&s.x)
	}
	if s.x.Cmp(&s.high) > 0 {
		s.high.Set(&s.x)
	}
}

func (s *spread) width() *big.Int { return new(big.Int).Sub(&s.high, &s.low) }

func mulBig(a, b int64) *big.Int { return new(big.Int).Mul(big.NewInt(a), big.NewInt(b)) }

// TestLawDispatchedWork: for two tenants that are backlogged and uncapped,
// |Wf·wg - Wg·wf| ≤ cf·wg + cg·wf over any interval of dispatches, whatever the
// number of slots and however late commits and completions come.
func TestLawDispatchedWork(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, err := NewScheduler(oneClass(rapid.IntRange(1, 6).Draw(t, "slots")))
		if err != nil {
			t.Fatal(err)
		}
		n := rapid.IntRange(2, 4).Draw(t, "tenants")
		weights, largest := make([]int64, n), make([]int64, n)
		var job JobID
		add := func(i int) {
			job++
			cost := rapid.Int64Range(1, 500).Draw(t, "cost")
			if o := s.Add(Candidate{Job: job, Tenant: TenantID(i), Cost: cost, Order: Order{Created: uint64(job)}}); o != Accepted {
				t.Fatal(o)
			}
		}
		for i := range n {
			spec := TenantSpec{
				Tier:       Tier(rapid.IntRange(0, 4).Draw(t, "tier")),
				Multiplier: rapid.Uint32Range(1, 9).Draw(t, "multiplier"), MaxRunning: 100,
			}
			weights[i] = spec.Tier.Weight() * int64(spec.Multiplier)
			s.SetTenant(TenantID(i), spec)
			for range 3 {
				add(i)
			}
		}
		pairs := make([]spread, n*n)
		var open, running []Pick
		take := func(ps *[]Pick) Pick {
			i := rapid.IntRange(0, len(*ps)-1).Draw(t, "which")
			p := (*ps)[i]
			*ps = append((*ps)[:i:i], (*ps)[i+1:]...)
			return p
		}
		for range 80 {
			switch p, o := s.Pick(0, 0); {
			case o == Picked:
				f := int(p.Tenant)
				largest[f] = max(largest[f], p.Cost)
				for g := range n {
					pairs[f*n+g].add(mulBig(p.Cost, weights[g]))
					pairs[g*n+f].add(mulBig(-p.Cost, weights[g]))
				}
				open = append(open, p)
				add(f)
			case len(open) > 0 && (len(running) == 0 || rapid.Bool().Draw(t, "commit")):
				p := take(&open)
				s.Commit(p.Ticket, 0)
				running = append(running, p)
			default:
				p := take(&running)
				s.Complete(p.Ticket, p.Cost, 0)
			}
		}
		for f := range n {
			for g := range n {
				if f == g {
					continue
				}
				bound := new(big.Int).Add(mulBig(largest[f], weights[g]), mulBig(largest[g], weights[f]))
				if w := pairs[f*n+g].width(); w.Cmp(bound) > 0 {
					t.Fatalf("tenants %d and %d: |Wf·wg - Wg·wf| reached %v, bound %v", f, g, w, bound)
				}
			}
		}
	})
}

// TestLawCompletedWork: the bound of SFQ(D) on completed work,
// |Wf/wf - Wg/wg| ≤ (D+1)(cf/wf + cg/wg), for flows that stay backlogged.
func TestLawCompletedWork(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		depth := rapid.IntRange(1, 6).Draw(t, "D")
		q, err := NewQueue[int, int, struct{}](QueueConfig{IssueDepth: depth, MaxFlows: 4, MaxLiveJobs: 1000, Domain: Unrestricted()})
		if err != nil {
			t.Fatal(err)
		}
		n := rapid.IntRange(2, 4).Draw(t, "flows")
		weights, largest, flows := make([]int64, n), make([]int64, n), make([]FlowHandle, n)
		job := 0
		add := func(i int) {
			job++
			cost := rapid.Int64Range(1, 500).Draw(t, "cost")
			largest[i] = max(largest[i], cost)
			if _, o := q.Enqueue(flows[i], job, struct{}{}, cost); o != Accepted {
				t.Fatal(o)
			}
		}
		for i := range n {
			weights[i] = rapid.Int64Range(1, 20).Draw(t, "weight")
			flows[i], _ = q.RegisterFlow(i, weights[i])
			for range depth + 2 {
				add(i)
			}
		}
		pairs := make([]spread, n*n)
		var running []Dispatch[int, int, struct{}]
		for range 60 {
			had := len(running)
			running = q.DispatchUpTo(rapid.IntRange(1, depth).Draw(t, "k"), running)
			for _, d := range running[had:] {
				add(d.FlowID)
			}
			i := rapid.IntRange(0, len(running)-1).Draw(t, "done")
			d := running[i]
			running = append(running[:i], running[i+1:]...)
			q.Complete(d.Job)
			for g := range n {
				pairs[d.FlowID*n+g].add(mulBig(d.Cost, weights[g]))
				pairs[g*n+d.FlowID].add(mulBig(-d.Cost, weights[g]))
			}
		}
		for f := range n {
			for g := range n {
				if f == g {
					continue
				}
				bound := new(big.Int).Add(mulBig(largest[f], weights[g]), mulBig(largest[g], weights[f]))
				bound.Mul(bound, big.NewInt(int64(depth+1)))
				if w := pairs[f*n+g].width(); w.Cmp(bound) > 0 {
					t.Fatalf("flows %d and %d: %v, bound %v", f, g, w, bound)
				}
			}
		}
	})
}

// TestLawChangingWeights: with weights that change at any time (tier changes,
// decay), Σ c/w at the weights of the dispatches differs between two backlogged
// tenants by at most their two largest steps; with corrections by as much more
// as the corrections of the interval come to.
func TestLawChangingWeights(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		correcting := rapid.Bool().Draw(t, "correct")
		cfg := oneClass(rapid.IntRange(1, 4).Draw(t, "slots"))
		cfg.Decay = &Decay{HalfLife: 5000, Norm: rapid.Int64Range(100, 5000).Draw(t, "norm")}
		s, err := NewScheduler(cfg)
		if err != nil {
			t.Fatal(err)
		}
		var job JobID
		add := func(i TenantID) {
			job++
			s.Add(Candidate{Job: job, Tenant: i, Cost: rapid.Int64Range(1, 300).Draw(t, "cost"), Order: Order{Created: uint64(job)}})
		}
		set := func(i TenantID) {
			s.SetTenant(i, TenantSpec{
				Tier: Tier(rapid.IntRange(0, 4).Draw(t, "tier")), Multiplier: rapid.Uint32Range(1, 5).Draw(t, "mul"), MaxRunning: 100,
			})
		}
		for i := range TenantID(2) {
			set(i)
			for range 4 {
				add(i)
			}
		}
		var xs, jumps []*big.Int // x = N0 - N1 and Σ|corrections| after each dispatch
		x, jump := new(big.Int), new(big.Int)
		var step [2]*big.Int
		step[0], step[1] = new(big.Int), new(big.Int)
		var running []Pick
		weight := map[Ticket]uint64{}
		now := int64(0)
		for range 60 {
			now += rapid.Int64Range(0, 2000).Draw(t, "time")
			if rapid.IntRange(0, 5).Draw(t, "set") == 0 {
				set(TenantID(rapid.IntRange(0, 1).Draw(t, "who")))
			}
			p, o := s.Pick(0, now)
			if o != Picked {
				d := running[0]
				running = running[1:]
				actual := d.Cost
				if correcting {
					actual = rapid.Int64Range(1, 900).Draw(t, "actual")
					diff := sub(bigCharge(actual, weight[d.Ticket]), bigCharge(d.Cost, weight[d.Ticket]))
					jump = add2(jump, diff.Abs(diff))
				}
				s.Complete(d.Ticket, actual, now)
				continue
			}
			at, _ := s.byTicket.get(p.Ticket)
			weight[p.Ticket] = s.flights[at].weight
			n := s.flights[at].distance.big()
			step[p.Tenant] = bigMax(step[p.Tenant], n)
			if p.Tenant == 1 {
				n = new(big.Int).Neg(n)
			}
			x = add2(x, n)
			xs, jumps = append(xs, x), append(jumps, jump)
			s.Commit(p.Ticket, now)
			running = append(running, p)
			add(p.Tenant)
		}
		bound := add2(step[0], step[1])
		for b := range xs {
			for a := range b {
				d := sub(xs[b], xs[a])
				if d.Abs(d); d.Cmp(add2(bound, jumps[b])) > 0 {
					t.Fatalf("dispatches %d to %d: normalised service differs by %v, bound %v and corrections %v", a, b, d, bound, jumps[b])
				}
			}
		}
	})
}

func add2(a, b *big.Int) *big.Int { return new(big.Int).Add(a, b) }

// TestPlainBoundFailsUnderCorrection: the law without corrections is not true
// with them, so the extra term is needed.
func TestPlainBoundFailsUnderCorrection(t *testing.T) {
	f := newFixture(t, oneClass(1))
	f.tenant(1, Free, 9)
	f.tenant(2, Free, 9)
	for range 30 {
		f.add(1, 0, 10)
		f.add(2, 0, 10)
	}
	p := f.run(0)
	f.complete(p, 500) // fifty times the estimate
	var x spread
	for range 20 {
		p := f.run(0)
		f.complete(p, 10)
		x.add(big.NewInt(map[TenantID]int64{1: 10, 2: -10}[p.Tenant]))
	}
	if x.width().Cmp(big.NewInt(20)) <= 0 {
		t.Error("the plain bound of 20 held; it was expected to be exceeded")
	}
	if x.width().Cmp(big.NewInt(20+490)) > 0 {
		t.Error("the bound with the correction of 490 is exceeded")
	}
}
