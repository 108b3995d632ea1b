package sim

import (
	"fmt"
	"math/rand/v2"
	"time"
)

// world is one simulated fleet: a queue of events in true time, one source of
// randomness, the bucket, the machines, and the checks. Everything happens in one
// goroutine, one event after another, so a seed is a schedule.
type world struct {
	sc    scenario
	rng   *rand.Rand
	now   time.Duration // true time; no machine can read it
	queue queue
	seq   uint64
	trace trace

	store    *store
	nodes    []*node
	names    []*subject
	operator *operator
	check    *checker

	weather    weather
	nextOutage time.Duration
	backups    []backup
	calm       bool // no faults any more
	ended      bool
	failure    *Failure
	entropy    uint64        // for identities that production takes from a random source
	healed     time.Duration // when faults ceased
	restful    int           // audits in a row that found nothing to do
	lost       *node         // the machine that the node-loss profile switched off
	stats      Stats
}

// after runs f d later.
func (w *world) after(d time.Duration, f func()) { w.at(w.now+max(d, 0), f) }

func (w *world) at(t time.Duration, f func()) {
	w.seq++
	w.queue.push(event{at: max(t, w.now), seq: w.seq, run: f})
}

// loop runs events until the world has ended, by a verdict or by a failure.
func (w *world) loop() {
	for !w.ended && w.failure == nil {
		if w.queue.empty() {
			w.fail(invariantSim, "no event is left: nothing would ever happen again")
			return
		}
		e := w.queue.pop()
		w.now = e.at
		w.stats.Events++
		e.run()
	}
}

// fail records the first violation; everything after it is a consequence.
func (w *world) fail(inv Invariant, format string, args ...any) {
	if w.failure != nil {
		return
	}
	w.failure = &Failure{Seed: w.sc.seed, At: w.now, Invariant: inv, Message: fmt.Sprintf(format, args...)}
	w.note(-1, "violation", string(inv)+": "+w.failure.Message, 0)
}

// Randomness. Every draw comes from here.

func (w *world) chance(p float64) bool { return p > 0 && w.rng.Float64() < p }

func (w *world) between(lo, hi time.Duration) time.Duration {
	if hi <= lo {
		return lo
	}
	return lo + time.Duration(w.rng.Int64N(int64(hi-lo)))
}

func (w *world) pick(n int) int { return w.rng.IntN(n) }

// unique makes an identity that repeats in each replay and in nothing else.
func (w *world) unique(prefix string) string {
	w.entropy++
	return fmt.Sprintf("%s%06x", prefix, w.sc.seed<<12^w.entropy)
}

// queue is a binary heap of events, ordered by time and then by when they were
// made.
type queue struct{ heap []event }

type event struct {
	at  time.Duration
	seq uint64
	run func()
}

func (e event) before(o event) bool { return e.at < o.at || e.at == o.at && e.seq < o.seq }

func (q *queue) empty() bool { return len(q.heap) == 0 }

func (q *queue) push(e event) {
	q.heap = append(q.heap, e)
	i := len(q.heap) - 1
	for i > 0 {
		parent := (i - 1) / 2
		if !q.heap[i].before(q.heap[parent]) {
			return
		}
		q.heap[i], q.heap[parent] = q.heap[parent], q.heap[i]
		i = parent
	}
}

func (q *queue) pop() event {
	top := q.heap[0]
	last := len(q.heap) - 1
	q.heap[0] = q.heap[last]
	q.heap[last] = event{} // let go of what it refers to
	q.heap = q.heap[:last]
	for i := 0; ; {
		least := i
		for c := 2*i + 1; c <= 2*i+2 && c < last; c++ {
			if q.heap[c].before(q.heap[least]) {
				least = c
			}
		}
		if least == i {
			return top
		}
		q.heap[i], q.heap[least] = q.heap[least], q.heap[i]
		i = least
	}
}
