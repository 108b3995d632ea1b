package model

import (
	"runtime"
	"slices"
	"sync"
)

// Result is what an exploration found.
type Result struct {
	States      int // distinct ones
	Transitions int
	Depth       int // of the last state that was new, in actions
	Cut         int // states that were not followed because of a bound
	Unfinished  bool
	Goals       goals
	Violation   string // empty: none
	Trace       []string
}

// origin is how a state was first reached.
type origin struct {
	from key
	act  action
}

// pending is a state whose successors are not known yet.
type pending struct {
	w *world
	k key
}

const shards = 64

// seen is the set of states, in shards so that workers rarely wait.
type seen struct {
	mu [shards]sync.Mutex
	m  [shards]map[key]origin
}

// add reports whether k is new.
func (s *seen) add(k key, o origin) bool {
	i := k % shards
	s.mu[i].Lock()
	defer s.mu[i].Unlock()
	if _, old := s.m[i][k]; old {
		return false
	}
	s.m[i][k] = o
	return true
}

func (s *seen) get(k key) origin { return s.m[k%shards][k] }

// Explore visits every state of a scenario in the order of depth, so that the
// first violation has a shortest trace. It stops at a violation, or after limit
// states (0: none).
func Explore(sc *Scenario, limit int) Result {
	s := &search{sc: sc, seen: new(seen)}
	for i := range s.seen.m {
		s.seen.m[i] = map[key]origin{}
	}
	first := sc.begin()
	var e encoder
	s.first = e.key(first)
	s.seen.add(s.first, origin{})
	level := []pending{{first, s.first}}
	s.res.States = 1
	for depth := 1; len(level) > 0 && s.res.Violation == ""; depth++ {
		if limit > 0 && s.res.States >= limit {
			s.res.Unfinished = true
			break
		}
		if level = s.level(level); len(level) > 0 {
			s.res.Depth = depth
		}
	}
	return s.res
}

type search struct {
	sc    *Scenario
	seen  *seen
	first key
	mu    sync.Mutex
	res   Result
}

// level makes the successors of all states of one depth.
func (s *search) level(level []pending) []pending {
	workers := min(runtime.GOMAXPROCS(0), 8, len(level))
	out := make([][]pending, workers)
	next := make(chan []pending, workers)
	var wg sync.WaitGroup
	for i := range workers {
		wg.Go(func() {
			x := explorer{search: s}
			for batch := range next {
				for k := range batch {
					x.expand(batch[k])
					batch[k].w = nil
				}
			}
			out[i] = x.out
			s.merge(&x)
		})
	}
	for batch := range slices.Chunk(level, 64) {
		next <- batch
	}
	close(next)
	wg.Wait()
	return slices.Concat(out...)
}

// explorer is one worker's part of a level.
type explorer struct {
	*search
	enc   encoder
	acts  []action
	out   []pending
	res   Result
	found *origin
}

func (x *explorer) expand(p pending) {
	if x.found != nil {
		return
	}
	x.acts = p.w.actions(x.acts)
	for _, a := range x.acts {
		w := p.w.clone()
		w.do(a)
		x.res.Transitions++
		x.res.Goals |= w.goals
		if w.found != "" {
			x.found, x.res.Violation = &origin{p.k, a}, w.found
			return
		}
		k := x.enc.key(w)
		if !x.seen.add(k, origin{p.k, a}) {
			continue
		}
		x.res.States++
		if w.bounded() {
			x.res.Cut++
			continue
		}
		x.out = append(x.out, pending{w, k})
	}
}

func (s *search) merge(x *explorer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.res.States += x.res.States
	s.res.Transitions += x.res.Transitions
	s.res.Cut += x.res.Cut
	s.res.Goals |= x.res.Goals
	if x.found != nil && s.res.Violation == "" {
		s.res.Violation = x.res.Violation
		s.res.Trace = s.trace(*x.found)
	}
}
