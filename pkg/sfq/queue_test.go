package sfq

import (
	"math"
	"math/big"
	"testing"
)

type testQueue = Queue[string, int, string]

func newTestQueue(t testing.TB, depth int, c Cancellation, d WeightDomain) *testQueue {
	t.Helper()
	q, err := NewQueue[string, int, string](QueueConfig{
		IssueDepth: depth, MaxFlows: 100, MaxLiveJobs: max(depth, 2000), Cancellation: c, Domain: d,
	})
	if err != nil {
		t.Fatal(err)
	}
	return q
}

func mustFlow(t testing.TB, q *testQueue, id string, w int64) FlowHandle {
	t.Helper()
	h, o := q.RegisterFlow(id, w)
	if o != Registered {
		t.Fatalf("register %s: %v", id, o)
	}
	return h
}

func mustEnqueue(t testing.TB, q *testQueue, f FlowHandle, id int, cost int64) JobHandle {
	t.Helper()
	h, o := q.Enqueue(f, id, "", cost)
	if o != Accepted {
		t.Fatalf("enqueue %d: %v", id, o)
	}
	return h
}

func mustDispatch(t testing.TB, q *testQueue) Dispatch[string, int, string] {
	t.Helper()
	d := q.DispatchUpTo(1, nil)
	if len(d) != 1 {
		t.Fatalf("dispatched %d jobs, want 1", len(d))
	}
	return d[0]
}

func want(t testing.TB, what string, got, want Outcome) {
	t.Helper()
	if got != want {
		t.Fatalf("%s: got %v, want %v", what, got, want)
	}
}

func TestQueueConfig(t *testing.T) {
	good := QueueConfig{IssueDepth: 1, MaxFlows: 1, MaxLiveJobs: 1, Domain: Unrestricted()}
	if err := good.Validate(); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*QueueConfig){
		"depth 0":         func(c *QueueConfig) { c.IssueDepth = 0 },
		"depth too large": func(c *QueueConfig) { c.IssueDepth, c.MaxLiveJobs = MaxIssueDepth+1, MaxIssueDepth+1 },
		"no flows":        func(c *QueueConfig) { c.MaxFlows = 0 },
		"too many flows":  func(c *QueueConfig) { c.MaxFlows = math.MaxInt32 + 1 },
		"live below D":    func(c *QueueConfig) { c.IssueDepth = 2 },
		"live too large":  func(c *QueueConfig) { c.MaxLiveJobs = math.MaxInt32 + 1 },
		"policy":          func(c *QueueConfig) { c.Cancellation = 2 },
		"no domain":       func(c *QueueConfig) { c.Domain = WeightDomain{} },
		"scale 0":         func(c *QueueConfig) { c.Domain = DivisorsOf(0) },
	} {
		c := good
		change(&c)
		if _, err := NewQueue[int, int, int](c); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

// TestQueueOutcomes walks every named result of every call.
func TestQueueOutcomes(t *testing.T) {
	q, err := NewQueue[string, int, string](QueueConfig{
		IssueDepth: 2, MaxFlows: 2, MaxLiveJobs: 3, Domain: DivisorsOf(8),
	})
	if err != nil {
		t.Fatal(err)
	}
	other := newTestQueue(t, 2, ChargeReservedCost, DivisorsOf(8))
	_, o := q.RegisterFlow("a", 0)
	want(t, "weight 0", o, InvalidWeight)
	_, o = q.RegisterFlow("a", -1)
	want(t, "weight -1", o, InvalidWeight)
	_, o = q.RegisterFlow("a", 3)
	want(t, "weight 3 of 8", o, WeightOutsideDomain)
	a := mustFlow(t, q, "a", 2)
	_, o = q.RegisterFlow("a", 2)
	want(t, "second a", o, DuplicateRegisteredID)
	b := mustFlow(t, q, "b", 1)
	_, o = q.RegisterFlow("c", 1)
	want(t, "third flow", o, FlowLimit)

	_, o = q.Enqueue(a, 1, "", 0)
	want(t, "cost 0", o, InvalidCost)
	_, o = q.Enqueue(FlowHandle{}, 1, "", 1)
	want(t, "zero handle", o, FlowNotRegistered)
	_, o = q.Enqueue(mustFlow(t, other, "a", 2), 1, "", 1)
	want(t, "foreign handle", o, FlowNotRegistered)
	j1 := mustEnqueue(t, q, a, 1, 4)
	_, o = q.Enqueue(b, 1, "", 1)
	want(t, "same id", o, DuplicateLiveID)
	j2 := mustEnqueue(t, q, b, 2, 5)
	j3 := mustEnqueue(t, q, a, 3, 6)
	_, o = q.Enqueue(b, 4, "", 1)
	want(t, "fourth live", o, LiveLimit)

	want(t, "complete queued", q.Complete(j1), NotDispatched)
	want(t, "complete foreign", q.Complete(JobHandle{owner: other.owner, seq: 1}), NotLive)
	if d := q.DispatchUpTo(5, nil); len(d) != 2 || d[0].Job != j1 || d[1].Job != j2 {
		t.Fatalf("dispatched %v", d)
	}
	if d := q.DispatchUpTo(1, nil); len(d) != 0 {
		t.Fatalf("dispatched %v beyond the depth", d)
	}
	want(t, "cancel running", q.Cancel(j1), TooLateAlreadyDispatched)
	want(t, "close active", q.CloseFlow(a), FlowActive)
	want(t, "complete", q.Complete(j1), Completed)
	want(t, "complete twice", q.Complete(j1), NotLive)
	want(t, "cancel", q.Cancel(j3), Cancelled)
	want(t, "cancel twice", q.Cancel(j3), NotLive)
	want(t, "close with debt", q.CloseFlow(a), FairnessDebtActive)
	want(t, "complete last", q.Complete(j2), Completed)
	want(t, "close after idle", q.CloseFlow(a), Closed)
	want(t, "close twice", q.CloseFlow(a), FlowNotRegistered)
	_, o = q.Enqueue(a, 9, "", 1)
	want(t, "stale handle", o, FlowNotRegistered)
	a2 := mustFlow(t, q, "a", 8)
	if a2 == a {
		t.Fatal("a new registration has the old handle")
	}
	_, o = q.Enqueue(a, 9, "", 1)
	want(t, "stale handle, slot in use again", o, FlowNotRegistered)
	// The slot of j1 is in use again: its handle must not reach the new job.
	j4 := mustEnqueue(t, q, a2, 1, 1)
	want(t, "cancel by a stale handle", q.Cancel(j1), NotLive)
	want(t, "cancel the new one", q.Cancel(j4), Cancelled)
	if _, ok := q.FlowSnapshot(a); ok {
		t.Fatal("a stale handle has a snapshot")
	}
}

func TestQueueSequencesEnd(t *testing.T) {
	q := newTestQueue(t, 1, ChargeReservedCost, DivisorsOf(1))
	q.jobSeq, q.flowSeq = maxSequence-1, maxSequence-1
	f := mustFlow(t, q, "a", 1)
	_, o := q.RegisterFlow("b", 1)
	want(t, "flow after the last", o, FlowSequenceExhausted)
	mustEnqueue(t, q, f, 1, 1)
	_, o = q.Enqueue(f, 2, "", 1)
	want(t, "job after the last", o, SequenceExhausted)
}

// TestQueueDebtIsRepaid: a flow may be closed while others are busy once
// virtual time has passed its finish tag, and not a dispatch earlier.
func TestQueueDebtIsRepaid(t *testing.T) {
	q := newTestQueue(t, 2, ChargeReservedCost, DivisorsOf(4))
	a, b := mustFlow(t, q, "a", 1), mustFlow(t, q, "b", 1)
	ja := mustEnqueue(t, q, a, 1, 3)
	for i := range 5 {
		mustEnqueue(t, q, b, 10+i, 1)
	}
	mustDispatch(t, q)
	want(t, "complete a", q.Complete(ja), Completed)
	for v := range 3 { // b's jobs start at 0, 1, 2: a's finish tag is 3
		want(t, "close in debt", q.CloseFlow(a), FairnessDebtActive)
		want(t, "complete b", q.Complete(mustDispatch(t, q).Job), Completed)
		_ = v
	}
	d := mustDispatch(t, q) // start tag 3
	want(t, "close when repaid", q.CloseFlow(a), Closed)
	want(t, "complete b", q.Complete(d.Job), Completed)
}

// TestCancellationExample: with the reserved cost charged, a cancelled job of
// cost 1,000,000 lets a million jobs of the other flow go first; refunded, none
// but the one that is ahead anyway.
func TestCancellationExample(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		policy Cancellation
		first  int
	}{{ChargeReservedCost, 1_000_000}, {RefundCancelledCost, 1}} {
		q := newTestQueue(t, 1, c.policy, DivisorsOf(1))
		a, b := mustFlow(t, q, "A", 1), mustFlow(t, q, "B", 1)
		big := mustEnqueue(t, q, a, 1, 1_000_000)
		mustEnqueue(t, q, b, 2, 1)
		want(t, "cancel", q.Cancel(big), Cancelled)
		mustEnqueue(t, q, a, 1, 1)
		n := 0
		buf := make([]Dispatch[string, int, string], 0, 1)
		for {
			buf = q.DispatchUpTo(1, buf[:0])
			if buf[0].FlowID == "A" {
				break
			}
			n++
			mustEnqueue(t, q, b, 2+n, 1)
			want(t, "complete", q.Complete(buf[0].Job), Completed)
		}
		if n != c.first {
			t.Errorf("policy %d: %d jobs of B went first, want %d", c.policy, n, c.first)
		}
	}
}

// TestCancellationIdleReset: when the cancelled job was the last live one, the
// queue is idle and the charge is gone.
func TestCancellationIdleReset(t *testing.T) {
	q := newTestQueue(t, 1, ChargeReservedCost, DivisorsOf(1))
	a, b := mustFlow(t, q, "A", 1), mustFlow(t, q, "B", 1)
	want(t, "cancel", q.Cancel(mustEnqueue(t, q, a, 1, 1_000_000)), Cancelled)
	mustEnqueue(t, q, a, 2, 1)
	mustEnqueue(t, q, b, 3, 1)
	if d := mustDispatch(t, q); d.FlowID != "A" {
		t.Fatalf("%s went first: the charge outlived the busy period", d.FlowID)
	}
}

// primesAbove returns the n smallest primes above 2^bits.
func primesAbove(bits uint, n int) []int64 {
	var ps []int64
	for p := new(big.Int).Lsh(big.NewInt(1), bits); len(ps) < n; {
		p.Add(p, big.NewInt(1))
		if p.ProbablyPrime(20) {
			ps = append(ps, p.Int64())
		}
	}
	return ps
}

// TestNumericLimitTrace: an anchor job that keeps the busy period alive, and 69
// flows whose weights are consecutive primes above 2⁶⁰, visited in turn with
// two jobs each. The denominator of virtual time gains one prime per visit. At
// the 69th the tag outgrows 4,096 bits and one normalisation makes room, but
// leaves the anchor's finish tag with the product of 68 primes; at the 137th
// visit that tag would need all 69, so the 274th admission is refused. Divisors
// of 8 refuse such weights at registration.
func TestNumericLimitTrace(t *testing.T) {
	weights := primesAbove(60, 69)
	q := newTestQueue(t, 2, ChargeReservedCost, Unrestricted())
	anchor := mustFlow(t, q, "anchor", 1)
	mustEnqueue(t, q, anchor, 0, 1)
	mustDispatch(t, q)
	flows := make([]FlowHandle, len(weights))
	for i, w := range weights {
		flows[i] = mustFlow(t, q, string(rune('a'+i)), w)
	}
	accepted := 1
	for visit := 0; ; visit++ {
		f := flows[visit%len(flows)]
		for range 2 {
			before := q.Snapshot()
			if _, o := q.Enqueue(f, accepted, "", 1); o != Accepted {
				want(t, "the refusal", o, NumericLimit)
				if accepted != 273 {
					t.Fatalf("refused after %d admissions, want 273", accepted)
				}
				if q.Snapshot() != before {
					t.Fatal("the refusal changed the counters")
				}
				restricted := newTestQueue(t, 2, ChargeReservedCost, DivisorsOf(8))
				_, o := restricted.RegisterFlow("p", weights[0])
				want(t, "a prime weight among divisors of 8", o, WeightOutsideDomain)
				return
			}
			accepted++
			if accepted > 300 {
				t.Fatal("never refused")
			}
		}
		for range 2 {
			want(t, "complete", q.Complete(mustDispatch(t, q).Job), Completed)
		}
	}
}

// TestNormaliseDivisors: numerators that run out of 128 bits are moved down
// once; when that does not help, the call is a no-op.
func TestNormaliseDivisors(t *testing.T) {
	const L = math.MaxInt64
	q := newTestQueue(t, 4, ChargeReservedCost, DivisorsOf(L))
	a, b := mustFlow(t, q, "a", 1), mustFlow(t, q, "b", 1)
	// Each job of cost 2⁶³-1 adds (2⁶³-1)² ≈ 2¹²⁶ to the tag: four fit, five do not.
	for i := range 4 {
		mustEnqueue(t, q, a, i, math.MaxInt64)
	}
	_, o := q.Enqueue(a, 4, "", math.MaxInt64)
	want(t, "fifth, with virtual time at 0", o, NumericLimit)
	for range 3 {
		mustDispatch(t, q) // start tags 0, 1, 2 steps
	}
	mustEnqueue(t, q, b, 10, 1)
	mustEnqueue(t, q, a, 4, math.MaxInt64) // needs the normalisation by 2 steps
	if !q.virtual.n.isZero() {
		t.Fatal("no normalisation took place")
	}
	order := []int{10, 3, 4}
	for _, id := range order {
		for q.Snapshot().FreeSlots == 0 {
			for i := range q.jobs {
				if q.jobs[i].prev == inService {
					q.Complete(JobHandle{q.owner, q.jobs[i].seq, uint32(i)})
					break
				}
			}
		}
		if d := mustDispatch(t, q); d.JobID != id {
			t.Fatalf("dispatched %d, want %d", d.JobID, id)
		}
	}
}

// TestSumCannotOverflow: the cost figures pass 2⁶⁴ and stay exact.
func TestSumCannotOverflow(t *testing.T) {
	q := newTestQueue(t, 3, ChargeReservedCost, DivisorsOf(1))
	f := mustFlow(t, q, "a", 1)
	var hs []JobHandle
	for i := range 6 {
		hs = append(hs, mustEnqueue(t, q, f, i, math.MaxInt64))
	}
	q.DispatchUpTo(3, nil)
	want(t, "complete", q.Complete(hs[0]), Completed)
	want(t, "cancel", q.Cancel(hs[5]), Cancelled)
	s, _ := q.FlowSnapshot(f)
	times := func(n int64) string {
		return new(big.Int).Mul(big.NewInt(n), big.NewInt(math.MaxInt64)).String()
	}
	for what, c := range map[string][2]string{
		"accepted":   {s.AcceptedCost.String(), times(6)},
		"dispatched": {s.DispatchedCost.String(), times(3)},
		"cancelled":  {s.CancelledCost.String(), times(1)},
		"queued":     {s.QueuedCost.String(), times(2)},
		"running":    {s.RunningCost.String(), times(2)},
		"completed":  {s.CompletedCost.String(), times(1)},
	} {
		if c[0] != c[1] {
			t.Errorf("%s: %s, want %s", what, c[0], c[1])
		}
	}
	if _, ok := s.AcceptedCost.Uint64(); ok {
		t.Error("six times 2⁶³ is said to fit 64 bits")
	}
}

// TestQueueRetainsNothing: slots, payloads and index entries of finished jobs
// are gone, and their memory is used again.
func TestQueueRetainsNothing(t *testing.T) {
	q := newTestQueue(t, 4, RefundCancelledCost, DivisorsOf(4))
	f := mustFlow(t, q, "a", 2)
	for i := range 1000 {
		h, o := q.Enqueue(f, i, "payload", 1)
		want(t, "enqueue", o, Accepted)
		if i%3 == 0 {
			want(t, "cancel", q.Cancel(h), Cancelled)
			continue
		}
		d := mustDispatch(t, q)
		if q.jobs[d.Job.slot].payload != "" {
			t.Fatal("the payload of a running job is kept")
		}
		want(t, "complete", q.Complete(d.Job), Completed)
	}
	if len(q.jobs) != 1 || q.jobByID.len() != 0 || q.heads.n != 0 || q.jobs[0].payload != "" {
		t.Fatalf("%d job slots, %d identifiers, %d heads are kept", len(q.jobs), q.jobByID.len(), q.heads.n)
	}
}

func TestOutcomeNames(t *testing.T) {
	seen := map[string]Outcome{}
	for o := range outcomeCount {
		name := o.String()
		if name == "" {
			t.Errorf("outcome %d has no name", o)
		}
		if prev, dup := seen[name]; dup && o != firstRejection {
			t.Errorf("outcomes %d and %d are both %s", prev, o, name)
		}
		seen[name] = o
	}
	if Outcome(250).String() != "UNKNOWN" || Unknown.OK() || NumericLimit.OK() || !Accepted.OK() || !Unchanged.OK() {
		t.Error("success and rejection are not told apart")
	}
}
