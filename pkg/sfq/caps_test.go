package sfq

import (
	"fmt"
	"testing"
)

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
