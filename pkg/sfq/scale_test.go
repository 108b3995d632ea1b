package sfq

import (
	"math/bits"
	"testing"
)

// TestCyclesDoNotAllocate: once warm, neither scheduler allocates.
func TestCyclesDoNotAllocate(t *testing.T) {
	const flows, jobs = 1000, 10_000
	s := fullScheduler(t, flows, jobs, true)
	n := 0
	for ; n < 4*flows; n++ {
		fullCycle(t, s, jobs, n)
	}
	if a := testing.AllocsPerRun(2000, func() { fullCycle(t, s, jobs, n); n++ }); a != 0 {
		t.Errorf("a cycle of the tenant scheduler allocates %v times", a)
	}
	q, fs := bareQueue(t, flows, jobs)
	buf := make([]Dispatch[int, int, struct{}], 0, 1)
	for m := range 20_000 { // until the built-in map of identifiers has settled
		buf = bareCycle(t, q, fs, buf, jobs, m)
	}
	m := 20_000
	if a := testing.AllocsPerRun(2000, func() { buf = bareCycle(t, q, fs, buf, jobs, m); m++ }); a != 0 {
		t.Errorf("a cycle of the queue allocates %v times", a)
	}
}

// TestCostGrowsWithTheLogarithm counts key comparisons per cycle, not time: from
// 100 to 100,000 tenants they grow no faster than the depth of the tree.
func TestCostGrowsWithTheLogarithm(t *testing.T) {
	t.Parallel()
	const cycles = 3000
	type cost struct{ flows, sched, queue float64 }
	var costs []cost
	for _, flows := range []int{100, 1000, 10_000, 100_000} {
		jobs := 2 * flows
		s := fullScheduler(t, flows, jobs, false)
		q, fs := bareQueue(t, flows, jobs)
		var buf []Dispatch[int, int, struct{}]
		comparisons := func() (sum uint64) {
			for k := range s.cfg.Classes {
				sum += s.trees[k].comparisons
			}
			return sum
		}
		sched, queue := comparisons(), q.heads.comparisons
		for n := range cycles {
			fullCycle(t, s, jobs, n)
			buf = bareCycle(t, q, fs, buf, jobs, n)
		}
		costs = append(costs, cost{
			float64(flows), float64(comparisons()-sched) / cycles, float64(q.heads.comparisons-queue) / cycles,
		})
	}
	for _, c := range costs {
		// A dispatch moves its flow once, which is three comparisons on each level
		// of the tree, and an admission may move it once more.
		levels := float64(bits.Len(uint(c.flows))+2) / 2
		if limit := 2 * 3 * levels; c.sched > limit || c.queue > limit {
			t.Errorf("%v tenants: %.1f and %.1f comparisons per cycle, limit %.1f", c.flows, c.sched, c.queue, limit)
		}
		if c.sched < 1 || c.queue < 1 {
			t.Errorf("%v tenants: comparisons are not counted", c.flows)
		}
	}
	first, last := costs[0], costs[len(costs)-1]
	if r := last.sched / first.sched; r > 3 {
		t.Errorf("the scheduler's cost grew %.1f-fold over a thousandfold, log is 2.5", r)
	}
	if r := last.queue / first.queue; r > 3 {
		t.Errorf("the queue's cost grew %.1f-fold over a thousandfold, log is 2.5", r)
	}
}
