package sfq

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"
)

// TestLawStarvation: before the head of any tenant, with start tag S at clock V,
// others are dispatched at most Σ (w·(S-V) + their largest job), however many
// jobs they keep adding.
func TestLawStarvation(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, err := NewScheduler(oneClass(1))
		if err != nil {
			t.Fatal(err)
		}
		n := rapid.IntRange(2, 4).Draw(t, "tenants")
		var job JobID
		const largest = 200
		add := func(i int) {
			job++
			s.Add(Candidate{Job: job, Tenant: TenantID(i), Cost: rapid.Int64Range(1, largest).Draw(t, "cost"), Order: Order{Created: uint64(job)}})
		}
		weights := make([]uint64, n)
		for i := range n {
			spec := TenantSpec{Tier: Tier(rapid.IntRange(0, 3).Draw(t, "tier")), Multiplier: rapid.Uint32Range(1, 5).Draw(t, "mul"), MaxRunning: 9}
			weights[i] = spec.baseWeight() >> weightShift
			s.SetTenant(TenantID(i), spec)
			add(i)
			add(i)
		}
		cycle := func() Pick {
			p, o := s.Pick(0, 0)
			if o != Picked {
				t.Fatal(o)
			}
			s.Commit(p.Ticket, 0)
			s.Complete(p.Ticket, p.Cost, 0)
			add(int(p.Tenant))
			return p
		}
		for range rapid.IntRange(0, 30).Draw(t, "warm up") {
			cycle()
		}
		victim := rapid.IntRange(0, n-1).Draw(t, "victim")
		ti, _ := s.tenantByID.get(uint64(victim))
		q := s.queue(ti, 0)
		distance := startTag(&s.tenants[ti].acct, q.lift, false).minus(s.clock[0])
		bound := new(big.Int)
		for g := range n {
			if g != victim {
				w := new(big.Int).Mul(distance.big(), new(big.Int).SetUint64(weights[g]))
				bound.Add(bound, w.Rsh(w, 64)).Add(bound, big.NewInt(largest+1))
			}
		}
		before := new(big.Int)
		for {
			p := cycle()
			if int(p.Tenant) == victim {
				return
			}
			if before.Add(before, big.NewInt(p.Cost)); before.Cmp(bound) > 0 {
				t.Fatalf("%v CPU ms went first, bound %v", before, bound)
			}
		}
	})
}

// TestLawWhyBound: what Why promises holds: no more than CostFirst of a job's
// class is dispatched before it, over everything a state can hold (decay,
// credit, remote debt, pinned work, several classes).
func TestLawWhyBound(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := newSchedPair(t)
		for id := TenantID(1); id <= 3; id++ {
			spec := drawSpec(t)
			p.real.SetTenant(id, spec)
			p.naive.setTenant(id, spec)
		}
		a := p.actions()
		delete(a, "")
		t.Repeat(a)
		s := p.real
		land := func() {
			for i := range s.flights {
				if f := &s.flights[i]; f.state == flightRunning {
					s.Complete(f.ticket, min(f.charged, MaxCost), p.now)
				}
			}
		}
		for _, c := range p.naive.jobs { // nothing is aborted or corrected after the promise
			if r := c.run; r != nil && !r.committed {
				s.Abort(r.ticket)
			}
		}
		land()
		var victims []JobID
		for i := range s.cands {
			if c := &s.cands[i]; c.state == candRun || c.state == candSide {
				victims = append(victims, c.id)
			}
		}
		if len(victims) == 0 {
			return
		}
		victim := rapid.SampledFrom(victims).Draw(t, "victim")
		at, _ := s.candByID.get(uint64(victim)) // lift its tenant's caps: the bound is void at a cap
		spec := s.tenants[s.cands[at].tenant].spec
		spec.MaxRunning, spec.MaxRunningCost = 1000, 0
		s.SetTenant(s.tenants[s.cands[at].tenant].id, spec)
		w, ok := s.Why(victim, p.now)
		if !ok || w.String() == "unknown" {
			t.Fatalf("no reason for job %d: %+v", victim, w)
		}
		var first int64
		for {
			land()
			progress := false
			for k := range s.cfg.Classes {
				got, o := s.Pick(Class(k), p.now)
				if o != Picked {
					continue
				}
				progress = true
				s.Commit(got.Ticket, p.now)
				if got.Job == victim {
					return
				}
				if got.Class == w.Class {
					if first += got.Cost; first > w.CostFirst {
						t.Fatalf("%d CPU ms went before job %d, promised %d (%v)", first, victim, w.CostFirst, w)
					}
				}
			}
			if !progress {
				return // no slot of its size, or none eligible: nothing more goes first
			}
		}
	})
}

// TestLawRoundingError: for a weight that is no power of two, n charges are above
// the exact sum by less than n·2⁻⁶⁴; for powers of two they are exact.
func TestLawRoundingError(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := rapid.Uint64Range(1, 1<<37).Draw(t, "weight")
		if rapid.Bool().Draw(t, "power") {
			w = 1 << rapid.IntRange(0, 36).Draw(t, "exponent")
		}
		sum, exact := new(big.Int), new(big.Rat)
		n := rapid.IntRange(1, 40).Draw(t, "n")
		for range n {
			c := rapid.Int64Range(1, maxCharged).Draw(t, "cost")
			d := charge(c, w)
			if d.isZero() {
				t.Fatalf("a charge of %d at weight %d is nothing", c, w)
			}
			sum.Add(sum, d.big())
			exact.Add(exact, new(big.Rat).SetFrac(new(big.Int).Lsh(big.NewInt(c), 64+weightShift), new(big.Int).SetUint64(w)))
		}
		over := new(big.Rat).Sub(new(big.Rat).SetInt(sum), exact)
		if over.Sign() < 0 || over.Cmp(big.NewRat(int64(n), 1)) >= 0 {
			t.Fatalf("%d charges are off by %v units", n, over)
		}
		if w&(w-1) == 0 && over.Sign() != 0 {
			t.Fatalf("weight %d is a power of two and its charges are off by %v", w, over)
		}
	})
}

// TestLawCancelNeverFails: close to the numeric limit, under the refund policy,
// every queued job can still be cancelled, in any order, and no tag outgrows
// its budget.
func TestLawCancelNeverFails(t *testing.T) {
	t.Parallel()
	weights := primesAbove(60, 69)
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 1))
		q, err := NewQueue[int, int, int](QueueConfig{
			IssueDepth: 2, MaxFlows: 100, MaxLiveJobs: 1000, Cancellation: RefundCancelledCost, Domain: Unrestricted(),
		})
		if err != nil {
			t.Fatal(err)
		}
		queued := fillToNumericLimit(t, q, weights, r)
		r.Shuffle(len(queued), func(i, j int) { queued[i], queued[j] = queued[j], queued[i] })
		for _, h := range queued {
			if o := q.Cancel(h); o != Cancelled && o != NotLive {
				t.Fatalf("seed %d: cancel: %v", seed, o)
			}
			for j := range q.flows {
				if f := &q.flows[j]; f.seq != 0 && (!ratFits(f.start.rat()) || !ratFits(f.finish.rat())) {
					t.Fatalf("seed %d: a refund left a tag out of its budget", seed)
				}
			}
		}
	}
}

// fillToNumericLimit visits flows of coprime weights in turn, as the trace of
// TestNumericLimitTrace does, until an admission is refused, and then queues
// costly jobs of the flows that still find room. It returns the jobs queued.
func fillToNumericLimit(t *testing.T, q *Queue[int, int, int], weights []int64, r *rand.Rand) []JobHandle {
	t.Helper()
	const maxVisits, extra, least = 200, 100, 20
	anchor, _ := q.RegisterFlow(-1, 1)
	q.Enqueue(anchor, -1, 0, 1)
	q.DispatchUpTo(1, nil)
	flows := make([]FlowHandle, len(weights))
	for i, w := range weights {
		flows[i], _ = q.RegisterFlow(i, w)
	}
	id := 0
	enqueue := func(f FlowHandle, cost int64) (JobHandle, Outcome) {
		id++
		return q.Enqueue(f, id, 0, cost)
	}
	for visit := 0; ; visit++ {
		f := flows[visit%len(flows)]
		if _, o := enqueue(f, 1); o == NumericLimit {
			break
		}
		enqueue(f, 1)
		for range 2 {
			for _, d := range q.DispatchUpTo(1, nil) {
				q.Complete(d.Job)
			}
		}
		if visit > maxVisits {
			t.Fatal("the numeric limit was never reached")
		}
	}
	var queued []JobHandle
	for range extra {
		h, o := enqueue(flows[r.IntN(len(flows))], 1+r.Int64N(math.MaxInt64))
		if o == Accepted {
			queued = append(queued, h)
		}
	}
	if len(queued) < least {
		t.Fatalf("only %d jobs found room at the limit", len(queued))
	}
	return queued
}
