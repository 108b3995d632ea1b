package sfq

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
)

// The sequential model of a queue with two flows of weights 1 and 2, for the
// linearizability checker: tags in halves, everything by value.
type modelState struct {
	v      int64
	finish [2]int64
	jobs   []modelJob // live, by acceptance
}

type modelJob struct {
	h       JobHandle
	id      int
	flow    int
	cost    int64
	start   int64
	running bool
}

type modelOp struct {
	kind string // enqueue, dispatch, cancel, complete, snapshot
	flow int
	id   int
	cost int64
	k    int
	h    JobHandle
}

type modelResult struct {
	o               Outcome
	h               JobHandle
	got             []JobHandle
	queued, running int
}

const (
	modelDepth = 2
	modelLive  = 4
)

func (s modelState) find(h JobHandle) int {
	return slices.IndexFunc(s.jobs, func(j modelJob) bool { return j.h == h })
}

func (s modelState) running() (n int) {
	for _, j := range s.jobs {
		if j.running {
			n++
		}
	}
	return n
}

func (s modelState) remove(i int) modelState {
	s.jobs = slices.Delete(slices.Clone(s.jobs), i, i+1)
	if len(s.jobs) == 0 {
		s.v, s.finish = 0, [2]int64{}
	}
	return s
}

func (s modelState) enqueue(op modelOp, r modelResult) (bool, modelState) {
	if slices.ContainsFunc(s.jobs, func(j modelJob) bool { return j.id == op.id }) {
		return r.o == DuplicateLiveID, s
	}
	if len(s.jobs) >= modelLive {
		return r.o == LiveLimit, s
	}
	start := max(s.v, s.finish[op.flow])
	s.finish[op.flow] = start + op.cost*2/int64(op.flow+1)
	s.jobs = append(slices.Clone(s.jobs), modelJob{r.h, op.id, op.flow, op.cost, start, false})
	return r.o == Accepted, s
}

func (s modelState) dispatch(op modelOp, r modelResult) (bool, modelState) {
	s.jobs = slices.Clone(s.jobs)
	for n := 0; ; n++ {
		best := -1
		for i, j := range s.jobs {
			if !j.running && (best < 0 || j.start < s.jobs[best].start) {
				best = i
			}
		}
		if best < 0 || n == op.k || s.running() == modelDepth {
			return n == len(r.got), s
		}
		if n >= len(r.got) || r.got[n] != s.jobs[best].h {
			return false, s
		}
		s.jobs[best].running = true
		s.v = s.jobs[best].start
	}
}

func (s modelState) step(op modelOp, r modelResult) (bool, modelState) {
	i := s.find(op.h)
	switch op.kind {
	case "enqueue":
		return s.enqueue(op, r)
	case "dispatch":
		return s.dispatch(op, r)
	case "cancel":
		switch {
		case i < 0:
			return r.o == NotLive, s
		case s.jobs[i].running:
			return r.o == TooLateAlreadyDispatched, s
		}
		return r.o == Cancelled, s.remove(i)
	case "complete":
		switch {
		case i < 0:
			return r.o == NotLive, s
		case !s.jobs[i].running:
			return r.o == NotDispatched, s
		}
		return r.o == Completed, s.remove(i)
	}
	return r.running == s.running() && r.queued == len(s.jobs)-r.running, s
}

var queueModel = porcupine.Model{
	Init: func() any { return modelState{} },
	Step: func(state, in, out any) (bool, any) {
		ok, next := state.(modelState).step(in.(modelOp), out.(modelResult))
		return ok, next
	},
	Equal: func(a, b any) bool {
		x, y := a.(modelState), b.(modelState)
		return x.v == y.v && x.finish == y.finish && slices.Equal(x.jobs, y.jobs)
	},
	DescribeOperation: func(in, out any) string { return fmt.Sprintf("%+v → %+v", in, out) },
}

// handles is the shared list from which the clients draw jobs to end.
type handles struct {
	mu sync.Mutex
	hs []JobHandle
}

func (l *handles) add(h JobHandle) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.hs = append(l.hs, h)
}

func (l *handles) draw(n int) JobHandle {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.hs) == 0 {
		return JobHandle{}
	}
	return l.hs[len(l.hs)-1-n%min(len(l.hs), 4)]
}

// client performs a fixed mix of operations, numbered so that clients differ.
func client(q *Queue[int, int, int], flows []FlowHandle, l *handles, c, round int, log func(modelOp, func() modelResult)) {
	for i := range 7 {
		n := c*31 + i*17 + round*7
		op := modelOp{flow: n % 2, id: n % 5, cost: int64(1 + n%3), k: 1 + n%2}
		switch n % 6 {
		case 0, 1:
			op.kind = "enqueue"
			log(op, func() modelResult {
				h, o := q.Enqueue(flows[op.flow], op.id, 0, op.cost)
				if o == Accepted {
					l.add(h)
				}
				return modelResult{o: o, h: h}
			})
		case 2:
			op.kind = "dispatch"
			log(op, func() (r modelResult) {
				for _, d := range q.DispatchUpTo(op.k, nil) {
					r.got = append(r.got, d.Job)
				}
				return r
			})
		case 3:
			op.kind, op.h = "cancel", l.draw(n)
			log(op, func() modelResult { return modelResult{o: q.Cancel(op.h)} })
		case 4:
			op.kind, op.h = "complete", l.draw(n)
			log(op, func() modelResult { return modelResult{o: q.Complete(op.h)} })
		case 5:
			op.kind = "snapshot"
			log(op, func() modelResult {
				s := q.Snapshot()
				return modelResult{queued: s.Queued, running: s.Running}
			})
		}
	}
}

// TestQueueIsLinearizable runs concurrent clients and has porcupine look for a
// sequential order of their calls that the model explains.
func TestQueueIsLinearizable(t *testing.T) {
	const clients = 4
	for round := range 150 {
		q, err := NewQueue[int, int, int](QueueConfig{
			IssueDepth: modelDepth, MaxFlows: 2, MaxLiveJobs: modelLive, Domain: DivisorsOf(2),
		})
		if err != nil {
			t.Fatal(err)
		}
		var flows []FlowHandle
		for i := range 2 {
			h, _ := q.RegisterFlow(i, int64(i+1))
			flows = append(flows, h)
		}
		start := time.Now()
		histories := make([][]porcupine.Operation, clients)
		var l handles
		var wg sync.WaitGroup
		for c := range clients {
			wg.Go(func() {
				client(q, flows, &l, c, round, func(op modelOp, do func() modelResult) {
					call := time.Since(start).Nanoseconds()
					r := do()
					histories[c] = append(histories[c], porcupine.Operation{
						ClientId: c, Input: op, Call: call, Output: r, Return: time.Since(start).Nanoseconds(),
					})
				})
			})
		}
		wg.Wait()
		history := slices.Concat(histories...)
		if !porcupine.CheckOperations(queueModel, history) {
			for _, o := range history {
				t.Log(o.Call, o.Return, queueModel.DescribeOperation(o.Input, o.Output))
			}
			t.Fatalf("round %d: no sequential order explains the history", round)
		}
	}
}

// TestModelRejectsBadHistories: the checker can fail. A job completed twice,
// and a dispatch out of order, are refused.
func TestModelRejectsBadHistories(t *testing.T) {
	owner := new(identity)
	h1, h2 := JobHandle{owner, 1, 0}, JobHandle{owner, 2, 1}
	op := func(at int64, in modelOp, out modelResult) porcupine.Operation {
		return porcupine.Operation{Input: in, Output: out, Call: at, Return: at + 1}
	}
	common := []porcupine.Operation{
		op(1, modelOp{kind: "enqueue", id: 1, cost: 1}, modelResult{o: Accepted, h: h1}),
		op(3, modelOp{kind: "enqueue", id: 2, cost: 1}, modelResult{o: Accepted, h: h2}),
	}
	good := append(slices.Clone(common), op(5, modelOp{kind: "dispatch", k: 1}, modelResult{got: []JobHandle{h1}}))
	if !porcupine.CheckOperations(queueModel, good) {
		t.Error("a correct history is refused")
	}
	if porcupine.CheckOperations(queueModel, append(slices.Clone(common), op(5, modelOp{kind: "dispatch", k: 1}, modelResult{got: []JobHandle{h2}}))) {
		t.Error("a dispatch out of order is accepted")
	}
	done := op(7, modelOp{kind: "complete", h: h1}, modelResult{o: Completed})
	again := op(9, modelOp{kind: "complete", h: h1}, modelResult{o: Completed})
	if porcupine.CheckOperations(queueModel, append(good, done, again)) {
		t.Error("a job completed twice is accepted")
	}
}
