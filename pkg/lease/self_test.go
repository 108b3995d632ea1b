package lease

import (
	"testing"
	"time"

	"github.com/barista-fleet/barista/internal/bucket"
	"github.com/barista-fleet/barista/pkg/fleet"
)

const selfKeyName = fleet.PrefixNodes + "n-self"

func TestFirstRegistrationJournalsItsIntentBeforeThePut(t *testing.T) {
	r := newRig(t)
	r.step(AllowRaise{OK: true})
	r.step(Boot{})
	read := r.open[0]
	r.open = nil
	r.answer(read) // absent
	save, ok := r.open[len(r.open)-1].(SaveIdentity)
	if !ok || save.Identity.Intended != 1 {
		t.Fatalf("want an intent for incarnation 1 first, got %+v", r.open)
	}
	if r.hasOpen(func(e Effect) bool { _, put := e.(Put); return put }) {
		t.Fatal("the record was written before its intent was on disk")
	}
	r.step(IdentitySaved{Op: save.Op})
	put := r.takePut(selfKeyName)
	if !put.Cond.WantAbsent() {
		t.Errorf("a first registration must create, got %v", put.Cond)
	}
}

func TestRegistrationWaitsUntilStopWorkloadsAreDead(t *testing.T) {
	r := newRig(t)
	r.step(Boot{})
	r.settle()
	r.run(10 * testTTL)
	if _, ok := r.store[selfKeyName]; ok || r.m.CanAct() {
		t.Fatal("registered although raising was not allowed")
	}
	r.step(AllowRaise{OK: true})
	r.settle()
	if !r.m.CanAct() {
		t.Fatal("not live after raising was allowed")
	}
}

func TestDeadlineCountsFromTheSendOfAConfirmedRenewal(t *testing.T) {
	r := newRig(t)
	r.join()
	r.now = r.now.Add(testBeat)
	sent := r.now
	r.step(Tick{})
	put := r.takePut(selfKeyName)
	r.open = nil
	r.now = r.now.Add(time.Second) // the reply takes a second
	r.step(PutDone{Op: put.Op, Result: r.apply(put)})
	if got := r.m.Deadline(); got != sent.Add(testTTL) {
		t.Errorf("deadline %v after the send, want the ttl %v", got.Sub(sent), testTTL)
	}
}

func TestLostReplyOfARenewalIsConfirmedAsOfItsSend(t *testing.T) {
	r := newRig(t)
	r.join()
	r.now = r.now.Add(testBeat)
	sent := r.now
	r.step(Tick{})
	put := r.takePut(selfKeyName)
	r.open = nil
	r.apply(put) // it landed
	r.now = r.now.Add(time.Second)
	r.step(PutDone{Op: put.Op, Result: bucket.PutResult{Outcome: bucket.Ambiguous, Err: bucket.ErrUnreachable}})
	get := r.open[len(r.open)-1].(Get)
	r.open = nil
	r.step(GotObject{Op: get.Op, Object: r.look(selfKeyName)})
	if got := r.m.Deadline(); got != sent.Add(testTTL) {
		t.Errorf("deadline %v after the send, want %v: neither the reply's nor the read-back's time", got.Sub(sent), testTTL)
	}
	if len(toldOf[Fenced](r)) > 0 {
		t.Error("fenced itself over a lost reply")
	}
}

func TestRejectedRenewal(t *testing.T) {
	live := func(inc uint64, writer string) *fleet.Node {
		n := peerRecord("n-self", inc, 99, testTTL)
		n.Writer = writer
		return n
	}
	fenced := live(2, "w1")
	fenced.State = fleet.NodeFenced
	for name, tc := range map[string]struct {
		record any // nil: deleted
		state  string
	}{
		"same incarnation, live: not fenced, whatever the nonce": {live(1, "w1"), "live"},
		"same incarnation, another writer: a shared identity":    {live(1, "w9"), "halted"},
		"higher incarnation: fenced":                             {fenced, "raising"},
		"missing: fenced":                                        {nil, "raising"},
		"unreadable: fenced":                                     {"garbage", "raising"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.join()
			r.hold("a")
			r.step(AllowRaise{OK: false})
			if tc.record == nil {
				delete(r.store, selfKeyName)
			} else {
				r.write(selfKeyName, tc.record)
			}
			r.run(2 * testBeat)
			if got := r.m.State(); got != tc.state {
				t.Fatalf("state %q, want %q", got, tc.state)
			}
			if held := r.m.Name("a").Held; held != (tc.state == "live") {
				t.Errorf("held %v while %s", held, tc.state)
			}
		})
	}
}

func TestOutageLapsesOnceAndFencesNothing(t *testing.T) {
	r := newRig(t)
	r.join()
	r.hold("a")
	for range 40 { // every request fails for ten seconds
		r.now = r.now.Add(250 * time.Millisecond)
		r.step(Tick{})
		open := r.open
		r.open = nil
		for _, e := range open {
			switch e := e.(type) {
			case Get:
				r.step(GotObject{Op: e.Op, Err: bucket.ErrUnreachable})
			case Put:
				r.step(PutDone{Op: e.Op, Result: bucket.PutResult{Err: bucket.ErrUnreachable}})
			case List:
				r.step(Listed{Op: e.Op, Err: bucket.ErrUnreachable})
			}
		}
	}
	if n := len(toldOf[Lapsed](r)); n != 1 {
		t.Errorf("told of the lapse %d times, want once", n)
	}
	if r.m.CanAct() || !r.m.Name("a").Held {
		t.Errorf("can act %v, held %v; a lapsed node may not act and gives nothing up", r.m.CanAct(), r.m.Name("a").Held)
	}
	r.run(time.Second)
	if !r.m.CanAct() || !r.m.Name("a").Held || len(toldOf[Fenced](r)) > 0 || r.m.Incarnation() != 1 {
		t.Errorf("after the outage: can act %v, held %v, incarnation %d", r.m.CanAct(), r.m.Name("a").Held, r.m.Incarnation())
	}
	if n := len(toldOf[Renewed](r)); n != 1 {
		t.Errorf("told of the renewal %d times, want once", n)
	}
}

func TestRestart(t *testing.T) {
	id := Identity{Incarnation: 4, Writer: "w1", Intended: 4, NewWriter: "w1"}
	live := func(inc uint64, writer string) *fleet.Node {
		n := peerRecord("n-self", inc, 7, testTTL)
		n.Writer = writer
		return n
	}
	left := live(5, "w1")
	left.State = fleet.NodeLeft
	for name, tc := range map[string]struct {
		id     Identity
		rec    any
		labels uint64
		want   uint64 // incarnation once live; 0: does not get live by itself within a heartbeat
	}{
		"within the ttl: the same incarnation":             {id, live(4, "w1"), 4, 4},
		"crashed between registering and journaling it":    {Identity{Incarnation: 4, Writer: "w1", Intended: 6, NewWriter: "w2"}, live(6, "w2"), 4, 6},
		"fenced meanwhile: above the fence and the labels": {id, left, 8, 9},
		"record deleted: above everything known":           {id, nil, 6, 7},
		"record unreadable":                                {id, "x", 4, 5},
		"someone registered higher: watched first":         {id, live(9, "w7"), 4, 0},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			if tc.rec != nil {
				r.write(selfKeyName, tc.rec)
			}
			r.step(AllowRaise{OK: true})
			r.step(Boot{Identity: tc.id, MaxSeen: tc.labels})
			r.settle()
			r.run(testBeat)
			if tc.want == 0 {
				if r.m.CanAct() {
					t.Fatal("went on under an identity that someone else may use")
				}
				return
			}
			if !r.m.CanAct() || r.m.Incarnation() != tc.want {
				t.Errorf("%s, incarnation %d, want live at %d", r.m.State(), r.m.Incarnation(), tc.want)
			}
		})
	}
}

func TestSuspiciousStartWatchesForAFullTTL(t *testing.T) {
	id := Identity{Incarnation: 4, Writer: "w1", Intended: 4, NewWriter: "w1"}
	t.Run("silence: it was us, before a reboot", func(t *testing.T) {
		r := newRig(t)
		r.write(selfKeyName, peerRecord("n-self", 4, 7, testTTL))
		start := r.now
		r.step(AllowRaise{OK: true})
		r.step(Boot{Identity: id, Suspicious: true})
		for !r.m.CanAct() && r.now.Sub(start) < 3*testTTL {
			r.run(50 * time.Millisecond)
		}
		if waited := r.now.Sub(start); waited < ContenderWait(testTTL, DefaultKillTime) || r.m.Incarnation() != 5 {
			t.Errorf("live after %v at incarnation %d, want at least %v and 5", waited, r.m.Incarnation(), ContenderWait(testTTL, DefaultKillTime))
		}
	})
	t.Run("a beat: another agent lives", func(t *testing.T) {
		r := newRig(t)
		r.step(AllowRaise{OK: true})
		for beat := uint64(7); beat < 12; beat++ {
			rec := peerRecord("n-self", 4, beat, testTTL)
			rec.Writer = "w1"
			r.write(selfKeyName, rec)
			r.step(Boot{Identity: id, Suspicious: true})
			r.run(testBeat)
		}
		if r.m.State() != "halted" || len(toldOf[Halted](r)) != 1 {
			t.Errorf("state %s, want halted", r.m.State())
		}
	})
}

func TestLeaveRaisesTheIncarnation(t *testing.T) {
	r := newRig(t)
	r.join()
	r.step(Leave{})
	r.settle()
	if n := r.node("n-self"); n.State != fleet.NodeLeft || n.Incarnation != 2 {
		t.Errorf("record %s at %d, want left at 2", n.State, n.Incarnation)
	}
	if len(toldOf[Left](r)) != 1 {
		t.Error("did not say that it left")
	}
}

// The TTL of an incarnation never changes: a contender may have read the record
// before the configuration changed.
func TestTTLIsConstantWithinAnIncarnation(t *testing.T) {
	id := Identity{Incarnation: 4, Writer: "w1", Intended: 4, NewWriter: "w1"}
	for name, tc := range map[string]struct {
		old  time.Duration
		idle bool
		inc  uint64
		want time.Duration
	}{
		"it was longer: it stays":                      {2 * testTTL, false, 4, 2 * testTTL},
		"it was shorter: it stays":                     {testTTL / 5, false, 4, testTTL / 5},
		"it was the same":                              {testTTL, true, 4, testTTL},
		"nothing is owned: a new incarnation has it":   {2 * testTTL, true, 5, testTTL},
		"the record has none that works: a new one is": {time.Millisecond, false, 5, testTTL},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			rec := peerRecord("n-self", 4, 7, tc.old)
			rec.Writer = "w1"
			r.write(selfKeyName, rec)
			r.step(AllowRaise{OK: true})
			r.step(Boot{Identity: id, Idle: tc.idle})
			r.settle()
			for range 8 {
				r.run(testBeat / 2)
				if got := r.node("n-self"); r.m.Incarnation() != tc.inc || r.m.TTL() != tc.want || got.TTL() != tc.want {
					t.Fatalf("incarnation %d, ttl %v, record's %v; want %d and %v", r.m.Incarnation(), r.m.TTL(), got.TTL(), tc.inc, tc.want)
				}
				if !r.m.CanAct() {
					t.Fatal("lapsed: the heartbeat does not go with the ttl")
				}
			}
			if got := r.m.Deadline().Sub(r.m.Confirmed()); got != tc.want {
				t.Errorf("deadline %v after the confirmed send, want %v", got, tc.want)
			}
			r.hold("a")
			if got := r.session("a").OwnerTTLMillis; got != tc.want.Milliseconds() {
				t.Errorf("claim says %d ms, want %d", got, tc.want.Milliseconds())
			}
		})
	}
	t.Run("fenced: the next one has the configured", func(t *testing.T) {
		r := newRig(t)
		rec := peerRecord("n-self", 4, 7, 2*testTTL)
		rec.Writer = "w1"
		r.write(selfKeyName, rec)
		r.step(AllowRaise{OK: true})
		r.step(Boot{Identity: id})
		r.settle()
		delete(r.store, selfKeyName)
		r.run(4 * testBeat)
		if r.m.TTL() != testTTL || r.node("n-self").TTL() != testTTL || !r.m.CanAct() {
			t.Errorf("ttl %v, record's %v, can act %v", r.m.TTL(), r.node("n-self").TTL(), r.m.CanAct())
		}
	})
}

// A record below the journal's incarnation, under someone who may be another: its
// writer is watched for like that of any other.
func TestSuspiciousStartWatchesAnOlderRecordToo(t *testing.T) {
	r := newRig(t)
	rec := peerRecord("n-self", 2, 7, testTTL)
	rec.Writer = "w-other"
	r.write(selfKeyName, rec)
	start := r.now
	r.step(AllowRaise{OK: true})
	r.step(Boot{Identity: Identity{Incarnation: 4, Writer: "w1", Intended: 4, NewWriter: "w1"}, Suspicious: true})
	r.run(testTTL)
	if got := r.node("n-self"); got.Incarnation != 2 || r.m.State() != "watching" {
		t.Fatalf("after %v: %s, record at incarnation %d; want it watched for a whole ttl", r.now.Sub(start), r.m.State(), got.Incarnation)
	}
	r.run(testTTL)
	if !r.m.CanAct() || r.m.Incarnation() != 5 {
		t.Errorf("%s at incarnation %d, want live at 5", r.m.State(), r.m.Incarnation())
	}
}
