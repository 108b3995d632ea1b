package sfq

import (
	"strings"
	"testing"
)

func TestWhy(t *testing.T) {
	f := newFixture(t, sizes(1, 0, 0))
	f.tenant(1, Gold, 2)
	want(t, "set", f.SetTenant(2, TenantSpec{Multiplier: 1, MaxRunning: 9, MaxRunningCost: 100}), Registered)
	f.tenant(3, Free, 1)
	a1, a2 := f.add(1, 0, 800), f.add(1, 0, 800)
	b1 := f.add(2, 0, 80)
	big := f.add(3, 2, 5)
	ask := func(id JobID, r Reason, text string) Waiting {
		t.Helper()
		w, ok := f.Why(id, 0)
		if !ok || w.Reason != r || !strings.Contains(w.String(), text) {
			t.Fatalf("job %d: %+v %q, want reason %d and %q", id, w, w.String(), r, text)
		}
		return w
	}
	ask(a1, ReasonNext, "next and a slot is free")
	if w := ask(a2, ReasonBehindOwn, "job 1 of the same tenant"); w.CostFirst != 800+80 || w.BehindJob != a1 {
		t.Errorf("%+v, want 880 CPU ms first: both others", w)
	}
	if w := ask(b1, ReasonBehindTenant, "tenant 1 is further behind"); w.CostFirst != 801 || w.BehindTenant != 1 {
		t.Errorf("%+v, want one job of tenant 1 first", w)
	}
	ask(big, ReasonNoSlotOfSize, "no slot of size 2")
	p := f.run(0)
	ask(a1, ReasonRunning, "running")
	f.run0(t, p)
	ask(b1, ReasonSlotsBusy, "every slot is busy")
	want(t, "hold", f.Hold(b1), Updated)
	ask(b1, ReasonHeld, "held back")
	want(t, "unhold", f.Unhold(b1), Updated)
	want(t, "slots", f.SetSlots(0, 9), Updated)
	f.run(0)
	b2 := f.add(2, 0, 30)
	if w := ask(b2, ReasonCappedCost, "80 CPU ms in flight and may have 100"); w.InFlight != 80 || w.Cap != 100 {
		t.Errorf("%+v", w)
	}
	f.run(0)
	a3 := f.add(1, 0, 800)
	if w := ask(a3, ReasonCappedJobs, "2 of 2 jobs"); w.InFlight != 2 || w.Cap != 2 {
		t.Errorf("%+v", w)
	}
	if _, ok := f.Why(99, 0); ok {
		t.Error("there is a reason for a job that does not exist")
	}
	if (Waiting{}).String() != "unknown" {
		t.Error("the zero explanation explains")
	}
}

// run0 checks that the slot of a pick is taken.
func (f *fixture) run0(t *testing.T, p Pick) {
	t.Helper()
	if _, o := f.Pick(p.SlotClass, 0); o != NoFreeSlot {
		t.Fatalf("the slot of %+v is free: %v", p, o)
	}
}
