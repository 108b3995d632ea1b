package sfq

import (
	"fmt"
	"strings"
	"testing"
)

// oneClass is the smallest useful configuration: no decay, one class.
func oneClass(slots int) Config {
	return Config{
		Classes:    []ClassConfig{{Slots: slots, DefaultCost: 1000}},
		MaxTenants: 1000, MaxJobs: 100_000, MaxTypes: 100, MaxRemote: 100, Kappa: KappaOne,
	}
}

// sizes is sm, md, lg with the given slots, no decay.
func sizes(sm, md, lg int) Config {
	c := oneClass(0)
	c.Classes = []ClassConfig{
		{Slots: sm, DefaultCost: 1000}, {Slots: md, DefaultCost: 1000}, {Slots: lg, DefaultCost: 1000},
	}
	return c
}

// fixture is a scheduler that checks its invariants after each step.
type fixture struct {
	testing.TB
	*Scheduler
	nextJob JobID
	journal []byte
}

func newFixture(t testing.TB, cfg Config) *fixture {
	t.Helper()
	f := &fixture{TB: t}
	cfg.Record = func(ev *Event) { f.journal = AppendEvent(f.journal, ev) }
	s, err := NewScheduler(cfg)
	if err != nil {
		t.Fatal(err)
	}
	f.Scheduler = s
	return f
}

func (f *fixture) check() {
	f.Helper()
	if err := f.Check(); err != nil {
		f.Fatal(err)
	}
}

func (f *fixture) tenant(id TenantID, tier Tier, maxRunning uint32) {
	f.Helper()
	want(f, "set tenant", f.SetTenant(id, TenantSpec{Tier: tier, Multiplier: 1, MaxRunning: maxRunning}), Registered)
}

// add queues a job whose number and order are the next ones.
func (f *fixture) add(id TenantID, k Class, cost int64) JobID {
	f.Helper()
	f.nextJob++
	want(f, "add", f.Add(Candidate{
		Job: f.nextJob, Tenant: id, Class: k, Cost: cost, Order: Order{Created: uint64(f.nextJob)},
	}), Accepted)
	f.check()
	return f.nextJob
}

func (f *fixture) pick(k Class) Pick {
	f.Helper()
	p, o := f.Pick(k, 0)
	want(f, "pick", o, Picked)
	f.check()
	return p
}

func (f *fixture) commit(p Pick) {
	f.Helper()
	want(f, "commit", f.Commit(p.Ticket, 0), Committed)
	f.check()
}

func (f *fixture) run(k Class) Pick {
	f.Helper()
	p := f.pick(k)
	f.commit(p)
	return p
}

func (f *fixture) complete(p Pick, actual int64) {
	f.Helper()
	want(f, "complete", f.Complete(p.Ticket, actual, 0), Completed)
	f.check()
}

// acct returns a copy of a tenant's account.
func (f *fixture) acct(id TenantID) account {
	f.Helper()
	ti, ok := f.tenantByID.get(uint64(id))
	if !ok {
		f.Fatalf("no tenant %d", id)
	}
	return f.tenants[ti].acct
}

// vms is a tag of whole virtual milliseconds.
func vms(n uint64) u128 { return u128{hi: n} }

// TestGoldFree is the worked example: a Gold tenant (weight 8) and a Free one
// (weight 1) with twenty jobs of one CPU second each. In the first eighteen
// dispatches Gold runs sixteen times and Free twice, in this order.
func TestGoldFree(t *testing.T) {
	const gold, free = 1, 2
	f := newFixture(t, oneClass(1))
	f.tenant(gold, Gold, 10)
	f.tenant(free, Free, 10)
	for range 20 {
		f.add(gold, 0, 1000)
		f.add(free, 0, 1000)
	}
	var got strings.Builder
	for n := 1; n <= 18; n++ {
		g, r := f.acct(gold).finish, f.acct(free).finish
		p := f.run(0)
		f.complete(p, 1000)
		fmt.Fprintf(&got, "%2d %5d %5d %s\n", n, g.hi, r.hi, [...]string{"", "gold", "free"}[p.Tenant])
		if g.lo|r.lo != 0 {
			t.Fatalf("dispatch %d: a tag is not whole", n)
		}
	}
	const table = "" +
		" 1     0     0 gold\n 2   125     0 free\n 3   125  1000 gold\n 4   250  1000 gold\n" +
		" 5   375  1000 gold\n 6   500  1000 gold\n 7   625  1000 gold\n 8   750  1000 gold\n" +
		" 9   875  1000 gold\n10  1000  1000 gold\n11  1125  1000 free\n12  1125  2000 gold\n" +
		"13  1250  2000 gold\n14  1375  2000 gold\n15  1500  2000 gold\n16  1625  2000 gold\n" +
		"17  1750  2000 gold\n18  1875  2000 gold\n"
	if got.String() != table {
		t.Errorf("got\n%swant\n%s", got.String(), table)
	}
}

// TestSmallTenantIsNotStarvedBySizes: A (Gold) and B (Free) have small jobs, C
// (Free) large ones; one slot of each size. On one clock for all sizes C's
// large jobs push B behind A for ever. With a clock per size B gets exactly its
// ninth of the small slot.
func TestSmallTenantIsNotStarvedBySizes(t *testing.T) {
	const a, b, c = 1, 2, 3
	f := newFixture(t, sizes(1, 0, 1))
	f.tenant(a, Gold, 4)
	f.tenant(b, Free, 4)
	f.tenant(c, Free, 4)
	ran := map[TenantID]int{}
	for range 900 {
		for len(f.cands) < 6 || f.liveN < 6 {
			f.add(a, 0, 1000)
			f.add(b, 0, 1000)
			f.add(c, 2, 1000)
		}
		sm, lg := f.run(0), f.run(2)
		ran[sm.Tenant]++
		ran[lg.Tenant]++
		f.complete(sm, 1000)
		f.complete(lg, 1000)
		f.add(sm.Tenant, 0, 1000)
		f.add(lg.Tenant, 2, 1000)
	}
	if ran[a] != 800 || ran[b] != 100 || ran[c] != 900 {
		t.Errorf("A ran %d, B %d, C %d; want 800, 100, 900", ran[a], ran[b], ran[c])
	}
}

// TestCheapJobsAreCharged: one CPU millisecond at weight 16 moves the tag by a
// sixteenth; a charge truncated to whole milliseconds would be nothing, and
// Diamond would take every pick.
func TestCheapJobsAreCharged(t *testing.T) {
	const diamond, free = 1, 2
	f := newFixture(t, oneClass(1))
	f.tenant(diamond, Diamond, 1)
	f.tenant(free, Free, 1)
	ran := map[TenantID]int{}
	for range 2 {
		f.add(diamond, 0, 1)
		f.add(free, 0, 1)
	}
	for range 170 {
		p := f.run(0)
		ran[p.Tenant]++
		f.complete(p, 1)
		f.add(p.Tenant, 0, 1)
	}
	if ran[diamond] != 160 || ran[free] != 10 {
		t.Errorf("Diamond ran %d, Free %d; want 160 and 10", ran[diamond], ran[free])
	}
}

// TestNoReportIsStillCharged: jobs that report no CPU at all are charged the
// least cost, so a tenant of such jobs cannot monopolise the node.
func TestNoReportIsStillCharged(t *testing.T) {
	const a, b = 1, 2
	f := newFixture(t, oneClass(1))
	f.tenant(a, Free, 1)
	f.tenant(b, Free, 1)
	ran := map[TenantID]int{}
	f.add(a, 0, 10)
	f.add(b, 0, 10)
	for range 400 {
		p := f.run(0)
		ran[p.Tenant]++
		actual := int64(0)
		if p.Tenant == b {
			actual = 10
		}
		f.complete(p, actual)
		f.add(p.Tenant, 0, 10)
	}
	if ran[b] < 30 {
		t.Errorf("B ran %d of 400 beside a tenant that reports nothing", ran[b])
	}
}

func TestTieBreaks(t *testing.T) {
	f := newFixture(t, sizes(1, 1, 1))
	f.tenant(1, Free, 9)
	f.tenant(2, Gold, 9)
	f.tenant(3, Gold, 9)
	small := f.add(3, 0, 8000) // older than the next, same tier, smaller
	medium := f.add(2, 1, 8000)
	f.add(1, 1, 8000)
	// The large slot has no job of its own. Equal tags: tier, then larger size.
	if p := f.pick(2); p.Job != medium {
		t.Errorf("picked %d, want the medium job %d", p.Job, medium)
	}
	if p := f.pick(0); p.Job != small {
		t.Errorf("picked %d, want %d", p.Job, small)
	}
	// Equal tag, tier, size and submission: the lower tenant.
	g := newFixture(t, oneClass(2))
	g.tenant(1, Free, 9)
	g.tenant(2, Free, 9)
	for i, c := range []Candidate{
		{Job: 1, Tenant: 2, Order: Order{Created: 5, UID: 8}},
		{Job: 2, Tenant: 1, Order: Order{Created: 5, UID: 9}},
	} {
		want(t, fmt.Sprint("add ", i), g.Add(c), Accepted)
	}
	if p := g.pick(0); p.Job != 2 {
		t.Errorf("picked %d, want the lower tenant's", p.Job)
	}
}

func TestStealPolicies(t *testing.T) {
	build := func(steal Steal, margin uint64) *fixture {
		cfg := sizes(0, 0, 4)
		cfg.Steal, cfg.Margin = steal, margin
		f := newFixture(t, cfg)
		f.tenant(1, Free, 9)
		f.tenant(2, Free, 9)
		f.add(1, 2, 500)
		f.add(1, 2, 500) // start tag 500 after the first
		f.add(2, 0, 100)
		return f
	}
	order := func(f *fixture, n int) string {
		var b strings.Builder
		for range n {
			fmt.Fprint(&b, f.run(2).Class)
		}
		return b.String()
	}
	if got := order(build(PreferFit, 0), 3); got != "220" {
		t.Errorf("prefer-fit: classes %s, want 220", got)
	}
	if got := order(build(Reserve, 0), 3); got != "202" {
		t.Errorf("reserve 0: classes %s, want 202", got)
	}
	if got := order(build(Reserve, 500), 3); got != "220" {
		t.Errorf("reserve 500, the difference: classes %s, want 220", got)
	}
	if got := order(build(Reserve, 499), 3); got != "202" {
		t.Errorf("reserve 499, just below the difference: classes %s, want 202", got)
	}
}

func TestExclusiveClass(t *testing.T) {
	cfg := sizes(0, 1, 1)
	cfg.Classes[1].Exclusive = true
	f := newFixture(t, cfg)
	f.tenant(1, Free, 9)
	f.add(1, 1, 100)
	if _, o := f.Pick(2, 0); o != NothingEligible {
		t.Errorf("a larger slot took an exclusive job: %v", o)
	}
	f.add(1, 0, 100)
	f.run(1)
	want(t, "complete", f.Complete(1, 100, 0), Completed)
	if _, o := f.Pick(1, 0); o != NothingEligible {
		t.Errorf("an exclusive slot took a smaller job: %v", o)
	}
	if p := f.pick(2); p.Class != 0 {
		t.Errorf("picked class %d", p.Class)
	}
}

// TestPinnedGoesFirst: work that can run only here goes ahead of its tenant's
// other work, whatever its order key, and not ahead of other tenants.
func TestPinnedGoesFirst(t *testing.T) {
	f := newFixture(t, oneClass(9))
	f.tenant(1, Free, 9)
	f.tenant(2, Gold, 9)
	f.add(1, 0, 800)
	other := f.add(2, 0, 800)
	want(t, "add", f.Add(Candidate{Job: 77, Tenant: 1, Cost: 800, Pinned: true, Order: Order{Created: 999}}), Accepted)
	want(t, "add", f.Add(Candidate{Job: 78, Tenant: 1, Cost: 800, Pinned: true, Order: Order{Created: 998}}), Accepted)
	for i, id := range []JobID{other, 78, 77, 1} {
		if p := f.run(0); p.Job != id {
			t.Fatalf("pick %d: job %d, want %d", i, p.Job, id)
		}
	}
}

// TestOrderIsKept: requeues and holds put a job back where it was.
func TestOrderIsKept(t *testing.T) {
	f := newFixture(t, oneClass(9))
	f.tenant(1, Free, 9)
	first, second, third := f.add(1, 0, 100), f.add(1, 0, 100), f.add(1, 0, 100)
	want(t, "hold", f.Hold(second), Updated)
	want(t, "hold again", f.Hold(second), Unchanged)
	p := f.run(0)
	if p.Job != first {
		t.Fatalf("picked %d", p.Job)
	}
	want(t, "requeue", f.Requeue(p.Ticket, 100, 0), Requeued)
	want(t, "unhold", f.Unhold(second), Updated)
	want(t, "unhold again", f.Unhold(second), Unchanged)
	f.check()
	for i, id := range []JobID{first, second, third} {
		if p := f.run(0); p.Job != id {
			t.Fatalf("pick %d: job %d, want %d", i, p.Job, id)
		}
	}
	want(t, "hold running", f.Hold(first), TooLateAlreadyDispatched)
	want(t, "drop running", f.Drop(first), TooLateAlreadyDispatched)
	want(t, "drop unknown", f.Drop(99), NotLive)
}
