package sfq

import (
	"bytes"
	"encoding/hex"
	"errors"
	"testing"

	"pgregory.net/rapid"
)

// history plays a fixed scenario that uses every kind of event.
func history(f *fixture) {
	f.tenant(1, Gold, 4)
	f.tenant(2, Free, 4)
	f.tenant(3, Silver, 1)
	want(f, "remove", f.RemoveTenant(3), Closed)
	want(f, "slots", f.SetSlots(0, 6), Updated)
	for i := range 12 {
		f.nextJob++
		want(f, "add", f.Add(Candidate{
			Job: f.nextJob, Tenant: TenantID(1 + i%2), Class: Class(i % 3), Cost: int64(10 + i), Type: uint32(i % 2),
			Order: Order{Created: uint64(100 - i), UID: uint64(i)}, Pinned: i == 7, Held: i == 8,
		}), Accepted)
	}
	want(f, "unhold", f.Unhold(9), Updated)
	want(f, "hold", f.Hold(10), Updated)
	want(f, "drop", f.Drop(11), Cancelled)
	want(f, "baseline", f.Observe(5, 2, 10, 1000), Baseline)
	want(f, "observe", f.Observe(5, 2, 40, 2000), Observed)
	want(f, "other peer", f.Observe(6, 1, 1, 2000), Baseline)
	want(f, "forget", f.ForgetPeer(6), Closed)
	var ps []Pick
	for range 5 {
		p, o := f.Pick(0, 3000)
		if o == NothingEligible {
			p, o = f.Pick(2, 3000)
		}
		want(f, "pick", o, Picked)
		ps = append(ps, p)
	}
	want(f, "abort", f.Abort(ps[1].Ticket), Aborted)
	for _, i := range []int{3, 0, 2} {
		want(f, "commit", f.Commit(ps[i].Ticket, 4000), Committed)
	}
	want(f, "correct", f.Correct(ps[3].Ticket, 25, 5000), Corrected)
	want(f, "requeue", f.Requeue(ps[0].Ticket, 7, 6000), Requeued)
	want(f, "complete", f.Complete(ps[2].Ticket, 3, 7000), Completed)
	f.check()
}

func decayingSizes() Config {
	cfg := sizes(4, 2, 2)
	cfg.Decay = &Decay{HalfLife: 10_000, Norm: 50}
	return cfg
}

// TestStateHashIsTheSameEverywhere: the hash of a fixed history is a constant.
// It must not depend on the machine, the word size, map order or the run; when
// it changes, journals and checkpoints of older versions no longer mean the
// same, and stateVersion has to change with it.
func TestStateHashIsTheSameEverywhere(t *testing.T) {
	const golden = "376c35a9e532fcc5b9da9e0f50511b7c9a9790c6c5e220e92c6b5794fa047eea"
	for range 3 {
		f := newFixture(t, decayingSizes())
		history(f)
		h := f.StateHash()
		if got := hex.EncodeToString(h[:]); got != golden {
			t.Fatalf("state hash %s, want %s", got, golden)
		}
	}
}

// TestReplayReachesTheSameState: the journal of a history, replayed, leads to
// the same hash; and so does a checkpoint plus the journal after it.
func TestReplayReachesTheSameState(t *testing.T) {
	f := newFixture(t, decayingSizes())
	history(f)
	seen := map[EventKind]bool{}
	var ends []int
	for off := 0; off < len(f.journal); {
		var ev Event
		n, err := DecodeEvent(f.journal[off:], &ev)
		if err != nil {
			t.Fatal(err)
		}
		if again := AppendEvent(nil, &ev); !bytes.Equal(again, f.journal[off:off+n]) {
			t.Fatalf("event %+v encodes to %x and to %x", ev, f.journal[off:off+n], again)
		}
		seen[ev.Kind] = true
		off += n
		ends = append(ends, off)
	}
	for k := EventSetTenant; k < EventRebase; k++ {
		if !seen[k] {
			t.Errorf("the history has no event of kind %d", k)
		}
	}
	for _, cut := range ends {
		s, err := NewScheduler(decayingSizes())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Replay(f.journal[:cut]); err != nil {
			t.Fatal(err)
		}
		r, err := Restore(decayingSizes(), s.AppendState(nil))
		if err != nil {
			t.Fatalf("checkpoint at byte %d: %v", cut, err)
		}
		if _, err := r.Replay(f.journal[cut:]); err != nil {
			t.Fatal(err)
		}
		if r.StateHash() != f.StateHash() {
			t.Fatalf("a checkpoint at byte %d leads to another state", cut)
		}
	}
}

// TestReplayNoticesDivergence: under another configuration a recorded pick may
// choose otherwise; the replay stops there and says so.
func TestReplayNoticesDivergence(t *testing.T) {
	f := newFixture(t, sizes(0, 0, 9))
	f.tenant(1, Free, 9)
	f.add(1, 2, 100)
	f.run(2)
	f.add(1, 2, 100)
	f.tenant(2, Free, 9)
	f.add(2, 0, 100)
	if p := f.run(2); p.Tenant != 1 {
		t.Fatal("prefer-fit did not prefer the fit")
	}
	cfg := sizes(0, 0, 9)
	cfg.Steal = Reserve
	s, err := NewScheduler(cfg)
	if err != nil {
		t.Fatal(err)
	}
	n, err := s.Replay(f.journal)
	var re *ReplayError
	if !errors.As(err, &re) || re.Outcome != Diverged || re.Index != n {
		t.Fatalf("after %d events: %v", n, err)
	}
	bad := append(bytes.Clone(f.journal), 0xff)
	s, _ = NewScheduler(sizes(0, 0, 9))
	_, err = s.Replay(bad)
	if !errors.Is(err, ErrEncoding) || err.Error() == "" {
		t.Fatalf("bytes behind the journal: %v", err)
	}
}

func TestApplyRefusesUnknownEvents(t *testing.T) {
	s, err := NewScheduler(oneClass(1))
	if err != nil {
		t.Fatal(err)
	}
	want(t, "kind 0", s.Apply(&Event{}), InvalidEvent)
	want(t, "kind 99", s.Apply(&Event{Kind: 99}), InvalidEvent)
	want(t, "slots", s.Apply(&Event{Kind: EventSetSlots, Cost: -1}), InvalidCap)
	want(t, "rebase", s.Apply(&Event{Kind: EventRebase}), Unchanged)
}

// TestRestoreRefuses: damaged states are refused with an error, never a panic.
func TestRestoreRefuses(t *testing.T) {
	f := newFixture(t, decayingSizes())
	history(f)
	state := f.AppendState(nil)
	if _, err := Restore(oneClass(1), state); !errors.Is(err, ErrConfig) {
		t.Errorf("another number of classes: %v", err)
	}
	if _, err := Restore(Config{}, state); !errors.Is(err, ErrConfig) {
		t.Errorf("no configuration: %v", err)
	}
	for cut := range state {
		if _, err := Restore(decayingSizes(), state[:cut]); !errors.Is(err, ErrEncoding) && !errors.Is(err, ErrConfig) {
			t.Fatalf("cut at byte %d: %v", cut, err)
		}
	}
	if _, err := Restore(decayingSizes(), append(bytes.Clone(state), 0)); !errors.Is(err, ErrEncoding) {
		t.Errorf("a byte too many: %v", err)
	}
	for i := range state {
		bad := bytes.Clone(state)
		bad[i] ^= 0x41
		if s, err := Restore(decayingSizes(), bad); err == nil {
			if err := s.Check(); err != nil {
				t.Fatalf("byte %d changed: restored, but %v", i, err)
			}
		}
	}
}

// TestRestoreWithAnotherHalfLife: usage goes on from where it was.
func TestRestoreWithAnotherHalfLife(t *testing.T) {
	cfg := oneClass(1)
	cfg.Decay = &Decay{HalfLife: 1000, Norm: 100}
	f := newFixture(t, cfg)
	f.tenant(1, Gold, 1)
	f.add(1, 0, 100)
	p, _ := f.Pick(0, 50_000)
	want(t, "commit", f.Commit(p.Ticket, 50_000), Committed)
	cfg.Decay = &Decay{HalfLife: 4000, Norm: 100}
	s, err := Restore(cfg, f.AppendState(nil))
	if err != nil {
		t.Fatal(err)
	}
	for at, w := range map[int64]uint64{50_000: 4 << weightShift, 54_000: 370_727} { // 2^(-1) and 2^(-1/2) of 8
		if got := s.weightAt(&s.tenants[0], at); got != w {
			t.Errorf("at %d: weight %d, want %d", at, got, w)
		}
	}
}

// TestRebaseKeepsOrder: two schedulers get the same calls and one of them is
// rebased all the time: the picks are the same.
func TestRebaseKeepsOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cfg := sizes(2, 1, 1)
		a, _ := NewScheduler(cfg)
		b, _ := NewScheduler(cfg)
		for id := TenantID(1); id <= 4; id++ {
			spec := drawSpec(t)
			a.SetTenant(id, spec)
			b.SetTenant(id, spec)
		}
		var open []Pick
		var job JobID
		for range 80 {
			if o := b.Rebase(); o != Rebased && o != Unchanged {
				t.Fatal(o)
			}
			if err := b.Check(); err != nil {
				t.Fatal(err)
			}
			switch n := rapid.IntRange(0, 9).Draw(t, "move"); {
			case n < 5:
				job++
				c := Candidate{
					Job: job, Tenant: TenantID(rapid.IntRange(1, 4).Draw(t, "tenant")), Class: Class(rapid.IntRange(0, 2).Draw(t, "class")),
					Cost: rapid.Int64Range(1, 100).Draw(t, "cost"), Order: Order{Created: uint64(job)},
				}
				if x, y := a.Add(c), b.Add(c); x != y {
					t.Fatalf("add: %v and %v", x, y)
				}
			case n < 8:
				k := Class(rapid.IntRange(0, 2).Draw(t, "slot"))
				p, x := a.Pick(k, 0)
				q, y := b.Pick(k, 0)
				if p != q || x != y {
					t.Fatalf("picked %+v %v, rebased %+v %v", p, x, q, y)
				}
				if x == Picked {
					open = append(open, p)
				}
			case len(open) > 0:
				p := open[0]
				open = open[1:]
				if n == 8 && rapid.Bool().Draw(t, "abort") {
					a.Abort(p.Ticket)
					b.Abort(p.Ticket)
					continue
				}
				a.Commit(p.Ticket, 0)
				b.Commit(p.Ticket, 0)
				actual := p.Cost + rapid.Int64Range(0, 50).Draw(t, "more")
				a.Complete(p.Ticket, actual, 0)
				b.Complete(p.Ticket, actual, 0)
			}
		}
	})
}

// TestTagsRunOutOfRange: near the end of the tag range a pick rebases first, as
// an event of its own, loses no order, and replays.
func TestTagsRunOutOfRange(t *testing.T) {
	build := func(raise uint64) *fixture {
		f := newFixture(t, oneClass(1))
		f.tenant(1, Gold, 9)
		f.tenant(2, Free, 9)
		f.clock[0], f.maxFinish = vms(raise), vms(raise)
		for range 30 {
			f.add(1, 0, MaxCost)
			f.add(2, 0, MaxCost)
		}
		return f
	}
	low, high := build(0), build(tagLimit-(MaxCost<<weightShift)-3*MaxCost)
	for i := range 40 {
		p, q := low.run(0), high.run(0)
		if p != q {
			t.Fatalf("pick %d: %+v, near the limit %+v", i, p, q)
		}
		low.complete(p, MaxCost)
		high.complete(q, MaxCost)
	}
	var ev Event
	rebases := 0
	for off := 0; off < len(high.journal); {
		n, err := DecodeEvent(high.journal[off:], &ev)
		if err != nil {
			t.Fatal(err)
		}
		if off += n; ev.Kind == EventRebase {
			rebases++
		}
	}
	if rebases != 1 || high.clock[0].hi > 100*MaxCost {
		t.Fatalf("%d rebases, clock %v", rebases, high.clock[0])
	}
}

// TestUnusedClassDoesNotHoldTheOrigin: a class that never had a job keeps its
// clock at zero; tags of the others are rebased all the same, once it is urgent.
func TestUnusedClassDoesNotHoldTheOrigin(t *testing.T) {
	f := newFixture(t, sizes(1, 0, 1))
	f.tenant(1, Free, 9)
	f.add(1, 0, 10)
	f.add(1, 0, 10)
	f.run(0)
	f.clock[0] = vms(5)
	want(t, "not urgent", f.Rebase(), Unchanged)
	f.clock[0], f.maxFinish, f.tenants[0].acct.finish = vms(rebaseUrgent), vms(rebaseUrgent+10), vms(rebaseUrgent+10)
	f.refresh(0)
	want(t, "urgent", f.Rebase(), Rebased)
	f.check()
	if f.clock[0] != vms(0) || f.clock[2] != vms(0) || f.acct(1).finish != vms(10) {
		t.Fatalf("clocks %v, tag %v", f.clock[:3], f.acct(1).finish)
	}
}

// TestCorrectionOutOfRange: when not even a rebase makes room, a session's
// correction is refused as a whole, and a run that ends is ended all the same.
func TestCorrectionOutOfRange(t *testing.T) {
	f := newFixture(t, oneClass(3))
	f.tenant(1, Free, 9)
	f.tenant(2, Free, 9)
	f.add(2, 0, 1)
	f.add(1, 0, 1)
	f.add(1, 0, 1)
	ps := []Pick{f.run(0), f.run(0), f.run(0)}
	f.Rebase()
	ti, _ := f.tenantByID.get(1)
	f.tenants[ti].acct.finish = u128{hi: tagLimit - 1} // by no history shorter than the universe's
	var mine []Pick
	for _, p := range ps {
		if p.Tenant == 1 {
			mine = append(mine, p)
		}
	}
	before := f.StateHash()
	want(t, "correct", f.Correct(mine[0].Ticket, MaxCost, 0), NumericLimit)
	if f.StateHash() != before {
		t.Fatal("the refusal changed the state")
	}
	want(t, "complete", f.Complete(mine[0].Ticket, MaxCost, 0), CompletedUncorrected)
	want(t, "requeue", f.Requeue(mine[1].Ticket, MaxCost, 0), Requeued)
	f.check()
	if f.tenants[ti].running != 0 {
		t.Fatal("the slots are still taken")
	}
}

// TestEncodingIsCanonical: there is one encoding per event.
func TestEncodingIsCanonical(t *testing.T) {
	var ev Event
	for name, b := range map[string][]byte{
		"leading zero":  {byte(EventDrop), 0x81, 0x00},
		"unknown kind":  {99},
		"kind zero":     {0},
		"nothing":       {},
		"cut short":     {byte(EventDrop)},
		"unknown flags": {byte(EventAdd), 0, 4, 1, 1, 1, 1, 1, 1},
		"65 bits":       {byte(EventDrop), 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02},
		"late time":     {byte(EventCommit), 1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01},
	} {
		if n, err := DecodeEvent(b, &ev); !errors.Is(err, ErrEncoding) {
			t.Errorf("%s: %d bytes, %v", name, n, err)
		}
	}
}
