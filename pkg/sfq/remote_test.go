package sfq

import "testing"

// TestObserve: a baseline charges nothing, growth is charged once, a skipped
// read loses nothing, a counter that goes back is a new baseline.
func TestObserve(t *testing.T) {
	cfg := oneClass(2)
	cfg.MaxRemote = 2
	f := newFixture(t, cfg)
	f.tenant(1, Gold, 9)
	f.tenant(2, Free, 9)
	want(t, "observe an idle node", f.Observe(8, 1, 0, 0), Baseline)
	want(t, "observe an idle node", f.Observe(8, 1, 800, 0), Observed)
	want(t, "forget", f.ForgetPeer(8), Closed)
	if a := f.acct(1); !a.remote.isZero() || f.clock[0] != vms(100) {
		t.Fatalf("an idle node keeps a debt: %+v", a)
	}
	f.add(2, 0, 1) // busy from here on
	debt := func(want uint64) {
		t.Helper()
		f.check()
		if got := f.acct(1).remote; got != vms(want) {
			t.Fatalf("remote debt %v, want %d", got, want)
		}
	}
	want(t, "first sight", f.Observe(7, 1, 1_000_000, 0), Baseline)
	debt(0)
	want(t, "growth", f.Observe(7, 1, 1_000_800, 0), Observed)
	debt(100)
	want(t, "again", f.Observe(7, 1, 1_000_800, 0), Unchanged)
	want(t, "after skipped reads", f.Observe(7, 1, 1_002_400, 0), Observed)
	debt(300)
	want(t, "restarted peer", f.Observe(7, 1, 50, 0), Baseline)
	debt(300)
	want(t, "second peer", f.Observe(8, 1, 0, 0), Baseline)
	want(t, "too many", f.Observe(9, 1, 0, 0), RemoteLimit)
	want(t, "no tenant", f.Observe(7, 5, 0, 0), FlowNotRegistered)
	want(t, "negative", f.Observe(7, 1, -1, 0), InvalidCost)
	want(t, "time", f.Observe(7, 1, 1, -1), InvalidTime)
	want(t, "a leap", f.Observe(7, 1, 1<<60, 0), InvalidCost)
	want(t, "forget", f.ForgetPeer(7), Closed)
	want(t, "forget again", f.ForgetPeer(7), Unchanged)
	want(t, "room again", f.Observe(9, 1, 0, 0), Baseline)
}

// TestRemoteServiceIsFairlyShared: a tenant served elsewhere waits here until
// the others have had as much.
func TestRemoteServiceIsFairlyShared(t *testing.T) {
	f := newFixture(t, oneClass(1))
	f.tenant(1, Free, 9)
	f.tenant(2, Free, 9)
	for range 30 {
		f.add(1, 0, 100)
		f.add(2, 0, 100)
	}
	f.Observe(7, 1, 0, 0)
	want(t, "observe", f.Observe(7, 1, 1000, 0), Observed)
	ran := map[TenantID]int{}
	for range 30 {
		p := f.run(0)
		ran[p.Tenant]++
		f.complete(p, 100)
	}
	if ran[1] != 10 || ran[2] != 20 {
		t.Errorf("ran %v, want 10 and 20: tenant 1 had ten jobs' worth elsewhere", ran)
	}
}

// TestPinnedWorkIsNotStarvedByRemoteService: work that can run only here keeps
// its tenant's local turn; it pays the remote debt off at κ times its own cost.
func TestPinnedWorkIsNotStarvedByRemoteService(t *testing.T) {
	f := newFixture(t, oneClass(1)) // κ = 1
	f.tenant(1, Free, 9)
	f.tenant(2, Free, 9)
	for i := range 20 {
		want(t, "add", f.Add(Candidate{
			Job: JobID(1000 + i), Tenant: 1, Cost: 100, Pinned: true, Order: Order{Created: uint64(i)},
		}), Accepted)
		f.add(2, 0, 100)
		f.add(2, 0, 100)
	}
	f.Observe(7, 1, 0, 0)
	want(t, "observe", f.Observe(7, 1, 100_000_000, 0), Observed)
	ran := map[TenantID]int{}
	for range 30 {
		p := f.run(0)
		ran[p.Tenant]++
		f.complete(p, 100)
	}
	if ran[1] != 10 || ran[2] != 20 {
		t.Errorf("ran %v, want 10 and 20: each pinned job pays for itself and as much again", ran)
	}
}

// TestServiceNeverGoesBack: estimates that turn out too high do not make the
// published counter fall, or a reader would count the same service twice.
func TestServiceNeverGoesBack(t *testing.T) {
	f := newFixture(t, oneClass(1))
	f.tenant(1, Free, 9)
	var last, total int64
	for _, c := range [][2]int64{{100, 10}, {50, 60}, {10, 1}, {200, 300}} {
		f.add(1, 0, c[0])
		p := f.run(0)
		for range 2 {
			got, ok := f.Service(1)
			if !ok || got < last {
				t.Fatalf("published %d after %d", got, last)
			}
			last = got
		}
		f.complete(p, c[1])
		total += c[1]
	}
	if got, _ := f.Service(1); got != total {
		t.Errorf("published %d in the end, served %d", got, total)
	}
	if _, ok := f.Service(9); ok {
		t.Error("an unknown tenant has a counter")
	}
}
