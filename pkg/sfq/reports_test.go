package sfq

import "testing"

// Failures of other schedulers, as reported in public, replayed on this one.
// Those that have a fuller test elsewhere are named there.
//
//	a worker dies and its limit stays taken   solid_queue 546      below
//	a double release lets a limit-1 job run   solid_queue 761      TestDoubleRelease
//	the running counter goes negative         AWS IDP 915          TestDoubleRelease, I2
//	weight 0 is NaN and jumps the queue       kueue 13564          TestRefusedSpecs
//	small usage truncates to nothing          kueue 13596          below
//	an idle flow winds up credit              kubernetes 95979     TestIdleTenantHasNoCredit
//	saturated tags lose their order           tgoskits 1775        TestTagsRunOutOfRange
//	zero cost monopolises                     seastar              TestNoReportIsStillCharged
//	a big job starves behind small ones       scale 172            below

// TestLimitOfDeadWorkerIsFreed: the node that ran a job dies. Whoever restores
// its state still has the ticket, and ending the run frees the limit, once.
func TestLimitOfDeadWorkerIsFreed(t *testing.T) {
	f := newFixture(t, oneClass(1))
	f.tenant(1, Free, 1)
	f.add(1, 0, 100)
	lost := f.run(0)
	f.add(1, 0, 100)
	s, err := Restore(oneClass(1), f.AppendState(nil))
	if err != nil {
		t.Fatal(err)
	}
	if _, o := s.Pick(0, 0); o != NoFreeSlot {
		t.Fatalf("the run was forgotten: %v", o)
	}
	want(t, "the lost run is tried again", s.Requeue(lost.Ticket, 0, 0), Requeued)
	want(t, "and told twice", s.Requeue(lost.Ticket, 0, 0), NotLive)
	p, o := s.Pick(0, 0)
	if o != Picked || p.Job != lost.Job {
		t.Fatalf("picked %+v, %v; want the lost job again", p, o)
	}
	if err := s.Check(); err != nil {
		t.Fatal(err)
	}
}

// TestSmallUsageAddsUp: a million charges of one CPU millisecond are a usage of
// a million, and halve a weight whose norm is a million.
func TestSmallUsageAddsUp(t *testing.T) {
	s := &Scheduler{cfg: Config{Decay: &Decay{HalfLife: MaxTime, Norm: 1_000_000}}}
	tn := &tenant{weight: 8 << weightShift}
	for i := range 1_000_000 {
		s.addUsage(tn, 1, int64(i))
	}
	if w := s.weightAt(tn, 1_000_000); w != 4<<weightShift {
		t.Errorf("weight %d/65536 after a norm's worth of small jobs, want 4", w)
	}
	if tn.usage != (u128{hi: 1_000_000}) {
		t.Errorf("usage %v, want a million", tn.usage)
	}
}

// TestBigJobIsNotStarvedBySmallOnes: a large job waits for no more than its
// bound although small ones keep coming, on its own slot under both policies.
func TestBigJobIsNotStarvedBySmallOnes(t *testing.T) {
	for _, steal := range []Steal{PreferFit, Reserve} {
		cfg := sizes(1, 0, 1)
		cfg.Steal = steal
		f := newFixture(t, cfg)
		f.tenant(1, Free, 9)
		f.tenant(2, Diamond, 9)
		for range 10 {
			f.add(2, 0, 10)
		}
		for range 20 {
			f.complete(f.run(2), 10) // the large slot helps out
			f.add(2, 0, 10)
		}
		big := f.add(1, 2, 1_000_000)
		w, _ := f.Why(big, 0)
		waited := 0
		for {
			p := f.run(2)
			if p.Job == big {
				break
			}
			f.complete(p, 10)
			f.add(2, 0, 10)
			if waited++; waited > 2 {
				t.Fatalf("policy %d: %d small jobs took the large slot first (%v)", steal, waited, w)
			}
		}
	}
}
