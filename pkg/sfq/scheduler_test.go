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

// finish returns a tenant's finish tag.
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

// TestCostCap: a cap on cost in flight holds back the burst of big jobs that a
// cap on their number lets through.
func TestCostCap(t *testing.T) {
	f := newFixture(t, oneClass(9))
	spec := TenantSpec{Multiplier: 1, MaxRunning: 9, MaxRunningCost: 1000}
	want(t, "set", f.SetTenant(1, spec), Registered)
	f.add(1, 0, 600)
	f.add(1, 0, 400)
	big := f.add(1, 0, 5000)
	p1, p2 := f.run(0), f.run(0)
	if _, o := f.Pick(0, 0); o != NothingEligible {
		t.Fatalf("picked beyond the cap: %v", o)
	}
	f.complete(p1, 600)
	if _, o := f.Pick(0, 0); o != NothingEligible {
		t.Fatalf("a job above the whole cap was picked beside another: %v", o)
	}
	f.complete(p2, 400)
	if p := f.run(0); p.Job != big {
		t.Fatalf("picked %d, want the big job alone", p.Job)
	}
}

// TestCappedTenantDoesNotBurst: while a tenant sits at its cap the clock moves
// on; what it may run afterwards starts at the clock, not at its old tag.
func TestCappedTenantDoesNotBurst(t *testing.T) {
	f := newFixture(t, oneClass(9))
	f.tenant(1, Free, 1)
	f.tenant(2, Free, 9)
	for range 60 {
		f.add(1, 0, 100)
		f.add(2, 0, 100)
	}
	long := f.run(0)
	if long.Tenant != 1 {
		t.Fatal("tenant 1 did not start")
	}
	for range 20 {
		f.complete(f.run(0), 100) // tenant 2 alone
	}
	f.complete(long, 100)
	got := ""
	for range 10 {
		p := f.run(0)
		got += fmt.Sprint(p.Tenant)
		f.complete(p, 100)
	}
	if got != "1121212121" { // one lift to the clock, then turns
		t.Errorf("after its cap tenant 1 ran %s", got)
	}
}

// TestIdleTenantHasNoCredit: an idle tenant does not save up service.
func TestIdleTenantHasNoCredit(t *testing.T) {
	f := newFixture(t, oneClass(1))
	f.tenant(1, Free, 9)
	f.tenant(2, Free, 9)
	f.add(1, 0, 100)
	for range 50 {
		f.add(1, 0, 100)
		f.complete(f.run(0), 100)
	}
	for range 10 {
		f.add(1, 0, 100)
		f.add(2, 0, 100)
	}
	ran := 0
	for range 10 {
		p := f.run(0)
		if p.Tenant == 2 {
			ran++
		}
		f.complete(p, 100)
	}
	if ran < 4 || ran > 6 {
		t.Errorf("tenant 2 ran %d of 10 after its rest, want about half", ran)
	}
}

// TestIdleRule: when the node is idle every class's clock stands at the highest
// finish tag.
func TestIdleRule(t *testing.T) {
	f := newFixture(t, sizes(1, 1, 1))
	f.tenant(1, Free, 9)
	f.tenant(2, Free, 9)
	f.add(1, 0, 700)
	f.add(2, 2, 300)
	p, q := f.run(0), f.run(2)
	f.complete(p, 700)
	if f.clock[1] != vms(0) {
		t.Error("a clock moved while the node was busy")
	}
	f.complete(q, 300)
	for k := range 3 {
		if f.clock[k] != vms(700) {
			t.Errorf("idle, and the clock of class %d is at %v", k, f.clock[k])
		}
	}
}

// TestCorrection: the tag ends where it would be had the cost been known, by
// the weight of the dispatch, also when tier and usage have changed since.
func TestCorrection(t *testing.T) {
	f := newFixture(t, oneClass(2))
	f.tenant(1, Gold, 9)
	f.tenant(2, Free, 9)
	f.add(2, 0, 1) // keeps the node from being idle
	f.add(1, 0, 800)
	f.add(1, 0, 800)
	p := f.run(0)
	want(t, "set", f.SetTenant(1, TenantSpec{Tier: Free, Multiplier: 1, MaxRunning: 9}), Updated)
	f.complete(p, 4000)
	if got := f.acct(1).finish; got != vms(500) {
		t.Errorf("tag %v after 4,000 ms at weight 8, want 500", got)
	}
}

// TestRefundIsCarried: an overcharge is given back in full, and not more, also
// when the tag is behind the clock by then.
func TestRefundIsCarried(t *testing.T) {
	f := newFixture(t, oneClass(2))
	f.tenant(1, Free, 9)
	f.tenant(2, Free, 9)
	f.add(1, 0, 1000)
	p := f.run(0)
	for range 30 {
		f.add(2, 0, 100)
	}
	for range 20 {
		f.complete(f.run(0), 100) // the clock passes 1,000
	}
	f.complete(p, 100) // 900 too much
	if a := f.acct(1); a.credit != vms(900) {
		t.Fatalf("credit %v, want 900", a.credit)
	}
	f.add(1, 0, 1000)
	f.run(0)
	a := f.acct(1)
	if a.credit != vms(0) || a.finish.minus(f.clock[0]) != vms(100) {
		t.Errorf("after the next job: credit %v, tag %v beyond the clock; want 0 and 100", a.credit, a.finish.minus(f.clock[0]))
	}
}

// TestRetryIsNotARefund: a lost run stays charged; the retry is charged again.
func TestRetryIsNotARefund(t *testing.T) {
	f := newFixture(t, oneClass(1))
	f.tenant(1, Free, 9)
	f.add(1, 0, 100)
	p := f.run(0)
	want(t, "requeue", f.Requeue(p.Ticket, 5, 0), Requeued)
	f.check()
	p = f.run(0)
	if a := f.acct(1); a.finish != vms(200) || !a.credit.isZero() {
		t.Errorf("after a retry: %+v, want a tag of 200 and no credit", a)
	}
	want(t, "requeue", f.Requeue(p.Ticket, 130, 0), Requeued)
	if a := f.acct(1); a.finish != vms(230) {
		t.Errorf("a lost run that used more is at %v, want 230", a.finish)
	}
}

// TestDoubleRelease: a second completion, and a late answer about an older run
// of the same job, change nothing: the counter of running jobs stays right.
func TestDoubleRelease(t *testing.T) {
	f := newFixture(t, oneClass(9))
	f.tenant(1, Free, 1)
	for range 12 {
		f.add(1, 0, 100)
	}
	p := f.run(0)
	f.complete(p, 100)
	for range 11 {
		want(t, "second release", f.Complete(p.Ticket, 100, 0), NotLive)
	}
	f.run(0)
	if _, o := f.Pick(0, 0); o != NothingEligible {
		t.Fatalf("a cap of one let a second job run: %v", o)
	}
	// The same job, picked again after an abort, has another ticket.
	g := newFixture(t, oneClass(1))
	g.tenant(1, Free, 1)
	g.add(1, 0, 100)
	old := g.pick(0)
	want(t, "abort", g.Abort(old.Ticket), Aborted)
	now := g.pick(0)
	before := g.StateHash()
	want(t, "late commit", g.Commit(old.Ticket, 0), NotLive)
	want(t, "late abort", g.Abort(old.Ticket), NotLive)
	want(t, "complete a reservation", g.Complete(now.Ticket, 1, 0), NotCommitted)
	want(t, "requeue a reservation", g.Requeue(now.Ticket, 1, 0), NotCommitted)
	want(t, "correct a reservation", g.Correct(now.Ticket, 1, 0), NotCommitted)
	if g.StateHash() != before {
		t.Fatal("a rejected call changed the state")
	}
	g.commit(now)
	want(t, "commit twice", g.Commit(now.Ticket, 0), AlreadyCommitted)
	want(t, "abort a run", g.Abort(now.Ticket), AlreadyCommitted)
}

// TestAbortIsExact: whatever the order of answers, aborted picks leave no trace
// in any tag: the state is that of a scheduler that made only the others.
func TestAbortIsExact(t *testing.T) {
	build := func() *fixture {
		f := newFixture(t, oneClass(9))
		f.tenant(1, Free, 9)
		f.tenant(2, Gold, 9)
		for range 6 {
			f.add(1, 0, 100)
			f.add(2, 0, 4000)
		}
		return f
	}
	f := build()
	before := f.AppendState(nil)
	p := f.pick(0)
	want(t, "abort", f.Abort(p.Ticket), Aborted)
	f.check()
	f.lastTicket = 0 // the only thing an aborted pick uses up
	if string(f.AppendState(nil)) != string(before) {
		t.Error("a pick and its abort are not the identity")
	}
	g := build()
	var ps []Pick
	for range 6 {
		ps = append(ps, g.pick(0))
	}
	order := []int{4, 1, 5, 0, 3, 2} // answers; even ones are aborted
	for _, i := range order {
		if i%2 == 0 {
			want(t, "abort", g.Abort(ps[i].Ticket), Aborted)
			g.check()
			continue
		}
		g.commit(ps[i])
	}
	charged := map[TenantID]uint64{}
	for i, p := range ps {
		if i%2 == 1 {
			charged[p.Tenant] += uint64(p.Cost) / uint64([...]int64{0, 1, 8}[p.Tenant])
		}
	}
	for id, v := range charged {
		if a := g.acct(id); a.finish != vms(v) {
			t.Errorf("tenant %d is at %v, its committed jobs make %d", id, a.finish, v)
		}
	}
}

// TestSessionIsChargedAsItRuns: corrections move the tag by exactly the charge
// of their sum, however it is cut up.
func TestSessionIsChargedAsItRuns(t *testing.T) {
	f := newFixture(t, oneClass(2))
	want(t, "set", f.SetTenant(1, TenantSpec{Multiplier: 3, MaxRunning: 2}), Registered)
	f.tenant(2, Free, 1)
	f.add(2, 0, 1)
	f.add(1, 0, 1)
	f.run(0)
	p := f.run(0)
	if p.Tenant != 1 {
		p.Ticket--
	}
	total := int64(1)
	for _, d := range []int64{1, 2, 3, 5, 8, 13, 21, 34, 55, 89, -100, 7} {
		want(t, "correct", f.Correct(p.Ticket, d, 0), Corrected)
		f.check()
		total += d
	}
	if a := f.acct(1); a.finish.minus(a.credit) != charge(total, 3<<weightShift) {
		t.Errorf("after %d CPU ms in pieces: %+v, want %v", total, a, charge(total, 3<<weightShift))
	}
	want(t, "nothing", f.Correct(p.Ticket, 0, 0), Unchanged)
	want(t, "below zero", f.Correct(p.Ticket, -total-1, 0), InvalidCost)
	want(t, "too much", f.Correct(p.Ticket, MaxCost+1, 0), InvalidCost)
}

func TestMovingAverage(t *testing.T) {
	f := newFixture(t, oneClass(1))
	f.tenant(1, Free, 1)
	f.tenant(2, Free, 1)
	add := func(id JobID, spec int64) int64 {
		want(t, "add", f.Add(Candidate{Job: id, Tenant: 1, Cost: spec, Type: 7}), Accepted)
		p := f.run(0)
		f.complete(p, 800)
		return p.Cost
	}
	for i := range JobID(5) {
		if got := add(i, 100); got != 100 {
			t.Fatalf("run %d was estimated %d before there were five samples", i, got)
		}
	}
	if got := add(9, 100); got != 800 {
		t.Fatalf("estimate %d, want the average 800", got)
	}
	for spec, c := range map[int64]int64{0: 1000, 42: 42} {
		if got := f.Estimate(2, 7, spec, 0); got != c {
			t.Errorf("another tenant's estimate for spec %d is %d, want %d", spec, got, c)
		}
	}
	// The newest run weighs an eighth.
	want(t, "add", f.Add(Candidate{Job: 99, Tenant: 1, Type: 7}), Accepted)
	f.complete(f.run(0), 1600)
	if got := f.Estimate(1, 7, 0, 0); got != 900 {
		t.Errorf("estimate %d after 800 and one of 1,600, want 900", got)
	}
}

func TestAdmissionLimits(t *testing.T) {
	cfg := oneClass(1)
	cfg.MaxJobs, cfg.MaxTenants = 4, 2
	f := newFixture(t, cfg)
	want(t, "set", f.SetTenant(1, TenantSpec{Multiplier: 1, MaxRunning: 1, MaxQueued: 2}), Registered)
	want(t, "set", f.SetTenant(2, TenantSpec{Multiplier: 1, MaxRunning: 1, MaxQueuedCost: 1000}), Registered)
	want(t, "third tenant", f.SetTenant(3, TenantSpec{Multiplier: 1, MaxRunning: 1}), FlowLimit)
	f.add(1, 0, 1)
	f.add(1, 0, 1)
	try := func(what string, c Candidate, o Outcome) {
		t.Helper()
		before := f.StateHash()
		want(t, what, f.Add(c), o)
		if !o.OK() && f.StateHash() != before {
			t.Errorf("%s: the refusal changed the state", what)
		}
	}
	try("queue limit", Candidate{Job: 9, Tenant: 1}, TenantQueueLimit)
	try("cost limit", Candidate{Job: 9, Tenant: 2, Cost: 1001}, TenantCostLimit)
	try("no tenant", Candidate{Job: 9, Tenant: 3}, FlowNotRegistered)
	try("no class", Candidate{Job: 9, Tenant: 1, Class: 1}, InvalidClass)
	try("negative", Candidate{Job: 9, Tenant: 1, Cost: -1}, InvalidCost)
	try("too costly", Candidate{Job: 9, Tenant: 1, Cost: MaxCost + 1}, InvalidCost)
	try("order", Candidate{Job: 9, Tenant: 1, Order: Order{Created: 1 << 56}}, InvalidOrder)
	try("duplicate", Candidate{Job: 1, Tenant: 2}, DuplicateLiveID)
	try("within the cost limit", Candidate{Job: 10, Tenant: 2, Cost: 1000}, Accepted)
	try("pinned, beyond the queue limit", Candidate{Job: 11, Tenant: 1, Pinned: true}, Accepted)
	try("live limit", Candidate{Job: 12, Tenant: 1, Pinned: true}, LiveLimit)
}

// TestRefusedSpecs: weight 0, cap 0 and negative values are refused by name;
// none of them reaches a division.
func TestRefusedSpecs(t *testing.T) {
	f := newFixture(t, oneClass(1))
	ok := TenantSpec{Multiplier: 1, MaxRunning: 1}
	for _, c := range []struct {
		change func(*TenantSpec)
		o      Outcome
	}{
		{func(s *TenantSpec) { s.Multiplier = 0 }, InvalidWeight},
		{func(s *TenantSpec) { s.Multiplier = MaxMultiplier + 1 }, InvalidWeight},
		{func(s *TenantSpec) { s.Tier = TierCount }, InvalidWeight},
		{func(s *TenantSpec) { s.MaxRunning = 0 }, InvalidCap},
		{func(s *TenantSpec) { s.MaxRunningCost = -1 }, InvalidCap},
		{func(s *TenantSpec) { s.MaxQueuedCost = -1 }, InvalidCap},
	} {
		spec := ok
		c.change(&spec)
		want(t, fmt.Sprintf("%+v", spec), f.SetTenant(1, spec), c.o)
	}
	for name, change := range map[string]func(*Config){
		"no class":        func(c *Config) { c.Classes = nil },
		"nine classes":    func(c *Config) { c.Classes = make([]ClassConfig, 9) },
		"negative slots":  func(c *Config) { c.Classes[0].Slots = -1 },
		"default cost 0":  func(c *Config) { c.Classes[0].DefaultCost = 0 },
		"steal":           func(c *Config) { c.Steal = 2 },
		"margin":          func(c *Config) { c.Margin = 1 << 63 },
		"no tenants":      func(c *Config) { c.MaxTenants = 0 },
		"no jobs":         func(c *Config) { c.MaxJobs = 0 },
		"negative limit":  func(c *Config) { c.MaxTypes = -1 },
		"kappa":           func(c *Config) { c.Kappa = maxKappa + 1 },
		"half-life 0":     func(c *Config) { c.Decay = &Decay{HalfLife: 0, Norm: 1} },
		"half-life below": func(c *Config) { c.Decay = &Decay{HalfLife: -1, Norm: 1} },
		"norm 0":          func(c *Config) { c.Decay = &Decay{HalfLife: 1, Norm: 0} },
		"tier norm":       func(c *Config) { c.Decay = &Decay{HalfLife: 1, Norm: 1, TierNorm: [5]int64{-1}} },
	} {
		cfg := oneClass(1)
		change(&cfg)
		if _, err := NewScheduler(cfg); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	if _, err := NewScheduler(DefaultConfig(4, 2, 1, 50)); err != nil {
		t.Errorf("the default configuration: %v", err)
	}
}

// TestRemoveTenant: a debt cannot be washed by leaving and coming back.
func TestRemoveTenant(t *testing.T) {
	f := newFixture(t, oneClass(2))
	f.tenant(1, Free, 1)
	f.tenant(2, Free, 1)
	want(t, "unknown", f.RemoveTenant(9), FlowNotRegistered)
	f.add(1, 0, 1000)
	f.add(2, 0, 10)
	want(t, "busy", f.RemoveTenant(1), FlowActive)
	f.complete(f.run(0), 1000)
	want(t, "in debt", f.RemoveTenant(1), FairnessDebtActive)
	f.complete(f.run(0), 10)
	want(t, "idle", f.RemoveTenant(1), Closed)
	f.check()
	f.tenant(1, Free, 1)
	f.check()
}

// TestCapLoweredUnderRunningJobs: running jobs finish, no new one starts.
func TestCapLoweredUnderRunningJobs(t *testing.T) {
	f := newFixture(t, oneClass(9))
	f.tenant(1, Free, 3)
	for range 6 {
		f.add(1, 0, 10)
	}
	ps := []Pick{f.run(0), f.run(0), f.run(0)}
	want(t, "lower", f.SetTenant(1, TenantSpec{Multiplier: 1, MaxRunning: 1}), Updated)
	f.check()
	for i, p := range ps {
		if _, o := f.Pick(0, 0); o != NothingEligible {
			t.Fatalf("with %d running and a cap of 1: %v", 3-i, o)
		}
		f.complete(p, 10)
	}
	f.run(0)
}

// TestSlotsAreCounted: a class never runs more jobs than it has slots.
func TestSlotsAreCounted(t *testing.T) {
	f := newFixture(t, sizes(1, 0, 1))
	f.tenant(1, Free, 9)
	for range 4 {
		f.add(1, 0, 10)
	}
	p := f.run(0)
	if _, o := f.Pick(0, 0); o != NoFreeSlot {
		t.Fatalf("second job in one slot: %v", o)
	}
	f.run(2)
	want(t, "more slots", f.SetSlots(0, 2), Updated)
	f.run(0)
	f.complete(p, 10)
	want(t, "fewer slots", f.SetSlots(0, 1), Updated)
	if _, o := f.Pick(0, 0); o != NoFreeSlot {
		t.Fatalf("a job in a slot that is gone: %v", o)
	}
	want(t, "no such class", f.SetSlots(7, 1), InvalidClass)
	want(t, "negative", f.SetSlots(0, -1), InvalidCap)
	_, o := f.Pick(9, 0)
	want(t, "no such class", o, InvalidClass)
	_, o = f.Pick(0, -1)
	want(t, "before time", o, InvalidTime)
	_, o = f.Pick(0, MaxTime+1)
	want(t, "after time", o, InvalidTime)
}
