package sfq

import (
	"fmt"
	"math/big"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// naiveQueue is SFQ(D) as the definition reads: every job carries its own exact
// tags, everything is found by looking through everything, nothing is ever
// normalised. It is the oracle for Queue.
type naiveQueue struct {
	depth    int
	maxLive  int
	maxFlows int
	refund   bool
	v        *big.Rat
	flows    []*naiveFlow
	jobs     []*naiveJob
	seq      int
}

type naiveFlow struct {
	id     int
	weight int64
	finish *big.Rat
	closed bool

	accepted, dispatched, cancelled, running big.Int
}

type naiveJob struct {
	id, seq       int
	flow          *naiveFlow
	cost          int64
	start, finish *big.Rat
	running, over bool
}

func (q *naiveQueue) live() (jobs []*naiveJob) {
	for _, j := range q.jobs {
		if !j.over {
			jobs = append(jobs, j)
		}
	}
	return jobs
}

func (q *naiveQueue) register(id int, w int64) (*naiveFlow, Outcome) {
	n := 0
	for _, f := range q.flows {
		if !f.closed {
			if n++; f.id == id {
				return nil, DuplicateRegisteredID
			}
		}
	}
	if n >= q.maxFlows {
		return nil, FlowLimit
	}
	f := &naiveFlow{id: id, weight: w, finish: new(big.Rat)}
	q.flows = append(q.flows, f)
	return f, Registered
}

func (q *naiveQueue) close(f *naiveFlow) Outcome {
	if f.closed {
		return FlowNotRegistered
	}
	for _, j := range q.live() {
		if j.flow == f {
			return FlowActive
		}
	}
	if f.finish.Cmp(q.v) > 0 {
		return FairnessDebtActive
	}
	f.closed = true
	return Closed
}

func (f *naiveFlow) tags(start *big.Rat, cost int64) (*big.Rat, *big.Rat) {
	return start, new(big.Rat).Add(start, big.NewRat(cost, f.weight))
}

func (q *naiveQueue) enqueue(f *naiveFlow, id int, cost int64) (*naiveJob, Outcome) {
	if f.closed {
		return nil, FlowNotRegistered
	}
	live := q.live()
	for _, j := range live {
		if j.id == id {
			return nil, DuplicateLiveID
		}
	}
	if len(live) >= q.maxLive {
		return nil, LiveLimit
	}
	q.seq++
	j := &naiveJob{id: id, seq: q.seq, flow: f, cost: cost}
	start := q.v
	if f.finish.Cmp(start) > 0 {
		start = f.finish
	}
	j.start, j.finish = f.tags(start, cost)
	f.finish = j.finish
	f.accepted.Add(&f.accepted, big.NewInt(cost))
	q.jobs = append(q.jobs, j)
	return j, Accepted
}

func (q *naiveQueue) dispatch() *naiveJob {
	var best *naiveJob
	running := 0
	for _, j := range q.live() {
		if j.running {
			running++
			continue
		}
		if best == nil || j.start.Cmp(best.start) < 0 || j.start.Cmp(best.start) == 0 && j.seq < best.seq {
			best = j
		}
	}
	if best == nil || running >= q.depth {
		return nil
	}
	best.running = true
	q.v = best.start
	best.flow.dispatched.Add(&best.flow.dispatched, big.NewInt(best.cost))
	best.flow.running.Add(&best.flow.running, big.NewInt(best.cost))
	return best
}

func (q *naiveQueue) end(j *naiveJob) {
	j.over = true
	if len(q.live()) == 0 {
		q.v = new(big.Rat)
		for _, f := range q.flows {
			f.finish = new(big.Rat)
		}
	}
	q.jobs = slices.DeleteFunc(q.jobs, func(j *naiveJob) bool { return j.over })
}

func (q *naiveQueue) complete(j *naiveJob) Outcome {
	switch {
	case j.over:
		return NotLive
	case !j.running:
		return NotDispatched
	}
	j.flow.running.Sub(&j.flow.running, big.NewInt(j.cost))
	q.end(j)
	return Completed
}

func (q *naiveQueue) cancel(j *naiveJob) Outcome {
	switch {
	case j.over:
		return NotLive
	case j.running:
		return TooLateAlreadyDispatched
	}
	j.flow.cancelled.Add(&j.flow.cancelled, big.NewInt(j.cost))
	if q.refund {
		next := j.start
		for _, k := range q.live() {
			if k.flow == j.flow && !k.running && k.seq > j.seq {
				k.start, k.finish = k.flow.tags(next, k.cost)
				next = k.finish
			}
		}
		j.flow.finish = next
	}
	q.end(j)
	return Cancelled
}

// queuePair drives a Queue and its oracle together.
type queuePair struct {
	*rapid.T
	real   *Queue[int, int, int]
	naive  *naiveQueue
	flows  []FlowHandle
	nflows []*naiveFlow
	jobs   []JobHandle
	njobs  []*naiveJob
	weight *rapid.Generator[int64]
}

func newQueuePair(t *rapid.T) *queuePair {
	depth := rapid.IntRange(1, 5).Draw(t, "depth")
	cfg := QueueConfig{
		IssueDepth: depth, MaxFlows: rapid.IntRange(1, 6).Draw(t, "flows"),
		MaxLiveJobs:  rapid.IntRange(depth, 30).Draw(t, "live"),
		Cancellation: Cancellation(rapid.IntRange(0, 1).Draw(t, "policy")),
	}
	p := &queuePair{T: t}
	if rapid.Bool().Draw(t, "unrestricted") {
		cfg.Domain = Unrestricted()
		p.weight = rapid.Int64Range(1, 50)
	} else {
		cfg.Domain = DivisorsOf(720720)
		p.weight = rapid.SampledFrom([]int64{1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 13, 16, 720720})
	}
	q, err := NewQueue[int, int, int](cfg)
	if err != nil {
		t.Fatal(err)
	}
	p.real = q
	p.naive = &naiveQueue{
		depth: depth, maxLive: cfg.MaxLiveJobs, maxFlows: cfg.MaxFlows,
		refund: cfg.Cancellation == RefundCancelledCost, v: new(big.Rat),
	}
	return p
}

func (p *queuePair) same(what string, got, want Outcome) {
	if got != want {
		p.Fatalf("%s: got %v, the oracle says %v", what, got, want)
	}
}

func (p *queuePair) register(t *rapid.T) {
	id, w := rapid.IntRange(0, 7).Draw(t, "id"), p.weight.Draw(t, "weight")
	h, o := p.real.RegisterFlow(id, w)
	f, no := p.naive.register(id, w)
	p.same("register", o, no)
	if o == Registered {
		p.flows, p.nflows = append(p.flows, h), append(p.nflows, f)
	}
}

func (p *queuePair) close(t *rapid.T) {
	if len(p.flows) > 0 {
		i := rapid.IntRange(0, len(p.flows)-1).Draw(t, "flow")
		p.same("close", p.real.CloseFlow(p.flows[i]), p.naive.close(p.nflows[i]))
	}
}

func (p *queuePair) enqueue(t *rapid.T) {
	if len(p.flows) == 0 {
		return
	}
	i := rapid.IntRange(0, len(p.flows)-1).Draw(t, "flow")
	id := rapid.IntRange(0, 40).Draw(t, "id")
	cost := rapid.OneOf(rapid.Int64Range(1, 20), rapid.Int64Range(1, 1<<40)).Draw(t, "cost")
	h, o := p.real.Enqueue(p.flows[i], id, id, cost)
	j, no := p.naive.enqueue(p.nflows[i], id, cost)
	p.same("enqueue", o, no)
	if o == Accepted {
		p.jobs, p.njobs = append(p.jobs, h), append(p.njobs, j)
	}
}

func (p *queuePair) dispatch(t *rapid.T) {
	k := rapid.IntRange(0, 4).Draw(t, "k")
	got := p.real.DispatchUpTo(k, nil)
	for i := range k {
		j := p.naive.dispatch()
		if j == nil {
			if i < len(got) {
				p.Fatalf("dispatched %d jobs, the oracle %d", len(got), i)
			}
			return
		}
		if i >= len(got) || got[i].JobID != j.id || got[i].FlowID != j.flow.id || got[i].Cost != j.cost || got[i].Payload != j.id {
			p.Fatalf("dispatch %d of %v, the oracle's is job %d of flow %d", i, got, j.id, j.flow.id)
		}
	}
}

func (p *queuePair) finish(t *rapid.T, what string, do func(JobHandle) Outcome, naive func(*naiveJob) Outcome) {
	if len(p.jobs) > 0 {
		// Mostly recent handles, sometimes stale ones.
		i := rapid.IntRange(max(0, len(p.jobs)-40), len(p.jobs)-1).Draw(t, "job")
		p.same(what, do(p.jobs[i]), naive(p.njobs[i]))
	}
}

// check compares everything that can be seen, and the tags that cannot.
func (p *queuePair) check(*rapid.T) {
	s := p.real.Snapshot()
	live := p.naive.live()
	if s.Queued+s.Running != len(live) || s.Accepted != uint64(s.Queued+s.Running)+s.Cancelled+s.Completed ||
		s.Dispatched != uint64(s.Running)+s.Completed || s.FreeSlots != p.naive.depth-s.Running {
		p.Fatalf("snapshot %+v with %d live jobs", s, len(live))
	}
	for i, h := range p.flows {
		fs, ok := p.real.FlowSnapshot(h)
		f := p.nflows[i]
		if ok == f.closed {
			p.Fatalf("flow %d: snapshot %v, closed %v", f.id, ok, f.closed)
		}
		if !ok {
			continue
		}
		queued := new(big.Int).Sub(&f.accepted, &f.dispatched)
		queued.Sub(queued, &f.cancelled)
		done := new(big.Int).Sub(&f.dispatched, &f.running)
		for what, c := range map[string][2]fmt.Stringer{
			"accepted": {fs.AcceptedCost, &f.accepted}, "dispatched": {fs.DispatchedCost, &f.dispatched},
			"cancelled": {fs.CancelledCost, &f.cancelled}, "queued": {fs.QueuedCost, queued},
			"running": {fs.RunningCost, &f.running}, "completed": {fs.CompletedCost, done},
		} {
			if c[0].String() != c[1].String() {
				p.Fatalf("flow %d: %s cost %v, the oracle has %v", f.id, what, c[0], c[1])
			}
		}
	}
}

// TestQueueMatchesOracle runs random histories of every operation on a Queue
// and on the naive model: same outcomes, same order, same figures.
func TestQueueMatchesOracle(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := newQueuePair(t)
		enqueue, dispatch := p.enqueue, p.dispatch
		t.Repeat(map[string]func(*rapid.T){
			"":          p.check,
			"register":  p.register,
			"close":     p.close,
			"enqueue":   enqueue,
			"enqueue2":  enqueue,
			"enqueue3":  enqueue,
			"dispatch":  dispatch,
			"dispatch2": dispatch,
			"cancel":    func(t *rapid.T) { p.finish(t, "cancel", p.real.Cancel, p.naive.cancel) },
			"complete":  func(t *rapid.T) { p.finish(t, "complete", p.real.Complete, p.naive.complete) },
		})
	})
}

// TestQueueNormalisationKeepsOrder forces a normalisation before every
// admission and expects the oracle's order all the same.
func TestQueueNormalisationKeepsOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := newQueuePair(t)
		force := func(t *rapid.T) {
			// As Enqueue does when a tag is out of range, without the job.
			if len(p.real.flows) > 0 && p.real.flows[0].seq != 0 {
				p.real.mu.Lock()
				p.real.normalise(&p.real.flows[0], 1)
				p.real.mu.Unlock()
			}
			p.enqueue(t)
		}
		t.Repeat(map[string]func(*rapid.T){
			"": p.check, "register": p.register, "close": p.close,
			"force": force, "force2": force, "force3": force, "dispatch": p.dispatch, "dispatch2": p.dispatch,
			"cancel":   func(t *rapid.T) { p.finish(t, "cancel", p.real.Cancel, p.naive.cancel) },
			"complete": func(t *rapid.T) { p.finish(t, "complete", p.real.Complete, p.naive.complete) },
		})
	})
}
