package sfq

import "testing"

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
