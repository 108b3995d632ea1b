package lease

import (
	"testing"
	"time"

	"github.com/barista-fleet/barista/internal/bucket"
	"github.com/barista-fleet/barista/pkg/fleet"
)

func ambiguous() bucket.PutResult {
	return bucket.PutResult{Outcome: bucket.Ambiguous, Err: bucket.ErrUnreachable}
}

func TestClaimOfAFreshName(t *testing.T) {
	r := newRig(t)
	r.join()
	r.step(Floor{Floor: 9})
	r.hold("a")
	s := r.session("a")
	if s.Owner != "n-self" || s.Incarnation != 1 || s.Epoch != 10 || s.OwnerTTLMillis != testTTL.Milliseconds() {
		t.Errorf("record %+v: want us at incarnation 1, above the floor of 9", s)
	}
}

func TestLostClaimIsAConflictNotAnError(t *testing.T) {
	r := newRig(t)
	r.join()
	r.know("a")
	r.claim("a")
	put := r.takePut("sessions/a")
	r.write("sessions/a", ownedBy("a", "n-peer", 3, 1))
	r.step(PutDone{Op: put.Op, Result: r.apply(put)})
	r.settle()
	nw := toldOf[NotWritten](r)
	if len(nw) != 1 || !nw[0].Conflict || r.m.Name("a").Held {
		t.Fatalf("told %+v, held %v", nw, r.m.Name("a").Held)
	}
	if r.session("a").Epoch != 1 {
		t.Error("the epoch moved although the claim lost")
	}
}

func TestLostReplyOfAClaim(t *testing.T) {
	r := newRig(t)
	r.join()
	r.know("a")
	r.claim("a")
	put := r.takePut("sessions/a")
	r.apply(put)
	r.step(PutDone{Op: put.Op, Result: ambiguous()})
	r.settle()
	if !r.m.Name("a").Held || r.session("a").Epoch != 1 {
		t.Fatalf("our own nonce was there: held %v, epoch %d", r.m.Name("a").Held, r.session("a").Epoch)
	}
}

// A claim whose request never arrived is sent again from the same version, so
// that of all attempts at most one lands; the late one finds nothing to match.
func TestClaimThatNeverArrivedIsSentAgainAndTheZombieCannotLand(t *testing.T) {
	r := newRig(t)
	r.join()
	r.know("a")
	r.claim("a")
	zombie := r.takePut("sessions/a")
	r.step(PutDone{Op: zombie.Op, Result: ambiguous()})
	r.run(2 * time.Second)
	if !r.m.Name("a").Held {
		t.Fatal("not held after the second attempt")
	}
	if res := r.apply(zombie); res.Outcome != bucket.Rejected {
		t.Fatal("the first attempt landed after the second")
	}
	if r.session("a").Epoch != 1 {
		t.Errorf("epoch %d, want 1: it was one claim", r.session("a").Epoch)
	}
}

func TestClaimGivenUpWhileAmbiguousIsBurnt(t *testing.T) {
	r := newRig(t)
	free := ownedBy("a", "", 0, 4)
	free.Phase = fleet.PhasePending
	r.write("sessions/a", free)
	r.join()
	r.know("a")
	r.claim("a")
	zombie := r.takePut("sessions/a")
	r.step(AllowRaise{OK: false})
	// The node learns that it is fenced before it learns what became of the
	// claim; it may not claim any more.
	fenced := peerRecord("n-self", 2, 9, testTTL)
	fenced.State = fleet.NodeFenced
	r.write(selfKeyName, fenced)
	r.run(2 * testBeat)
	r.step(PutDone{Op: zombie.Op, Result: ambiguous()})
	r.run(3 * time.Second)
	if r.m.Name("a").Writing != 0 {
		t.Fatal("still unsettled")
	}
	if res := r.apply(zombie); res.Outcome != bucket.Rejected {
		t.Fatal("the claim that was given up could still land")
	}
	if s := r.session("a"); s.Owner != "" || s.Epoch != 4 {
		t.Errorf("the burnt record says owner %q epoch %d, want what it said before", s.Owner, s.Epoch)
	}
}

func TestClaimReplyAfterFenceAndReRegistrationIsNotOwnership(t *testing.T) {
	r := newRig(t)
	r.join()
	r.know("a")
	r.claim("a")
	put := r.takePut("sessions/a")
	res := r.apply(put) // it landed under incarnation 1; the reply is on its way
	fenced := peerRecord("n-self", 2, 9, testTTL)
	fenced.State = fleet.NodeFenced
	r.write(selfKeyName, fenced)
	r.run(2 * testBeat)
	if r.m.Incarnation() != 3 || !r.m.CanAct() {
		t.Fatalf("incarnation %d, can act %v; want re-registered as 3", r.m.Incarnation(), r.m.CanAct())
	}
	r.step(PutDone{Op: put.Op, Result: res})
	r.settle()
	v := r.m.Name("a")
	if v.Held || v.Claim != ClaimOursOld {
		t.Fatalf("held %v, claim %v: the claim's incarnation has passed", v.Held, v.Claim)
	}
	r.step(Submit{Name: "a", Kind: WriteReclaim, Record: v.Rec})
	r.settle()
	if s := r.session("a"); !r.m.Name("a").Held || s.Epoch != 2 || s.Incarnation != 3 {
		t.Errorf("after the re-claim: held %v, epoch %d, incarnation %d; want 2 and 3", r.m.Name("a").Held, s.Epoch, s.Incarnation)
	}
}

func TestReleaseIsUnheldFromTheSending(t *testing.T) {
	r := newRig(t)
	r.join()
	r.hold("a")
	rec := r.session("a")
	rec.Phase = fleet.PhasePending
	r.step(Submit{Name: "a", Kind: WriteRelease, Record: rec})
	if r.m.Name("a").Held {
		t.Fatal("still held while a release is on its way")
	}
	put := r.takePut("sessions/a")
	r.step(PutDone{Op: put.Op, Result: ambiguous()})
	r.run(3 * time.Second)
	if s := r.session("a"); s.Owner != "" || s.Epoch != 1 {
		t.Errorf("owner %q epoch %d after the release, want nobody at 1", s.Owner, s.Epoch)
	}
	if res := r.apply(put); res.Outcome != bucket.Rejected {
		t.Error("the first release could land after a later write")
	}
}

func TestForeignWriteOnAHeldNameIsAFence(t *testing.T) {
	r := newRig(t)
	r.join()
	r.hold("a")
	r.write("sessions/a", ownedBy("a", "n-peer", 3, 2))
	r.know("a")
	lost := toldOf[Lost](r)
	if r.m.Name("a").Held || len(lost) != 1 || lost[0].Epoch != 1 || lost[0].Owner != "n-peer" {
		t.Fatalf("held %v, told %+v", r.m.Name("a").Held, lost)
	}
}

func TestDeletedRecord(t *testing.T) {
	t.Run("its owner makes it again at once, above its epoch", func(t *testing.T) {
		r := newRig(t)
		r.join()
		r.hold("a")
		delete(r.store, "sessions/a")
		r.know("a")
		if c := r.m.Name("a").Claim; c != ClaimGone {
			t.Fatalf("claim %v, want gone", c)
		}
		r.claim("a")
		r.settle()
		if s := r.session("a"); s.Epoch != 2 || !r.m.Name("a").Held {
			t.Errorf("epoch %d held %v", s.Epoch, r.m.Name("a").Held)
		}
	})
	t.Run("an owner that was fenced is anyone else", func(t *testing.T) {
		for name, known := range map[string]bool{"in the same life": true, "in a new life": false} {
			r := newRig(t)
			if known {
				r.join()
				r.hold("a")
			} else {
				r.step(Seen{Name: "a", Epoch: 5, Owned: true})
			}
			fenced := peerRecord("n-self", 7, 1, testTTL)
			fenced.State = fleet.NodeFenced
			r.write(selfKeyName, fenced)
			delete(r.store, "sessions/a")
			if !known {
				r.step(AllowRaise{OK: true})
				r.step(Boot{})
			}
			r.run(2 * testBeat)
			r.know("a")
			if c := r.m.Name("a").Claim; c != ClaimMissing || r.m.State() != "live" {
				t.Errorf("%s: claim %v while %s, want missing: another may have taken it before it was removed", name, c, r.m.State())
			}
		}
	})
	t.Run("anyone else only after a ttl of absence", func(t *testing.T) {
		r := withPeer(t, testTTL)
		delete(r.store, "sessions/a")
		r.know("a")
		if c := r.m.Name("a").Claim; c != ClaimMissing {
			t.Fatalf("claim %v at once, want missing", c)
		}
		r.run(2 * testTTL)
		if c := r.m.Name("a").Claim; c != ClaimGone {
			t.Fatalf("claim %v after the wait, want gone", c)
		}
		r.claim("a")
		r.settle()
		if s := r.session("a"); s.Epoch != 6 {
			t.Errorf("made again at epoch %d, want above the 5 that was seen", s.Epoch)
		}
	})
}

func TestBucketBehindTheJournal(t *testing.T) {
	r := newRig(t)
	r.write("sessions/a", ownedBy("a", "n-peer", 3, 5))
	r.step(Seen{Name: "a", Epoch: 8})
	r.join()
	r.know("a")
	r.run(3 * time.Second)
	if c := r.m.Name("a").Claim; c != ClaimBehind {
		t.Fatalf("claim %v, want behind", c)
	}
	r.claim("a")
	r.settle()
	if s := r.session("a"); s.Owner != "n-peer" {
		t.Error("acted on a record that is older than what was seen")
	}
}

func TestTouchIsOfTheIncarnationThatItWasDecidedUnder(t *testing.T) {
	r := newRig(t)
	r.join()
	r.write("sessions/a", ownedBy("a", "n-self", 1, 5))
	r.know("a")
	r.step(Submit{Name: "a", Kind: WriteTouch, Record: r.session("a")})
	put := r.takePut("sessions/a")
	delete(r.store, selfKeyName) // this node registers anew while the answer is on its way
	r.run(2 * testBeat)
	r.step(PutDone{Op: put.Op, Result: bucket.PutResult{Outcome: bucket.Ambiguous, Err: bucket.ErrUnreachable}})
	r.run(testTTL)
	if r.m.Incarnation() != 2 || r.m.State() != "live" {
		t.Fatalf("%s under incarnation %d, want live under 2", r.m.State(), r.m.Incarnation())
	}
	if s := r.session("a"); s.Epoch == 5 && s.Incarnation != 1 || r.m.Name("a").Held {
		t.Errorf("epoch %d belonged to incarnation 1 and now to %d; held %v", s.Epoch, s.Incarnation, r.m.Name("a").Held)
	}
	if v := r.m.Name("a"); v.Claim != ClaimOursOld || v.Writing != 0 {
		t.Errorf("claim %v, writing %v; want ours of an older incarnation, to be re-claimed", v.Claim, v.Writing)
	}
}

func TestThrottledClaimIsNotApplied(t *testing.T) {
	r := newRig(t)
	r.join()
	r.know("a")
	r.claim("a")
	put := r.takePut("sessions/a")
	r.step(PutDone{Op: put.Op, Result: bucket.PutResult{Outcome: bucket.Rejected, Err: bucket.ErrThrottled}})
	if nw := toldOf[NotWritten](r); len(nw) != 1 || nw[0].Conflict || r.m.Name("a").Writing != 0 {
		t.Errorf("told %+v", nw)
	}
}

func TestLapsedNodeClaimsNothing(t *testing.T) {
	r := newRig(t)
	r.join()
	r.know("a")
	r.now = r.now.Add(testTTL)
	r.claim("a")
	if len(toldOf[NotWritten](r)) != 1 || r.hasOpen(func(e Effect) bool { p, ok := e.(Put); return ok && p.Key == "sessions/a" }) {
		t.Error("a lapsed node sent a claim")
	}
}

func TestTouchEstablishesOwnershipByAWrite(t *testing.T) {
	r := newRig(t)
	self := peerRecord("n-self", 4, 7, testTTL)
	self.Writer = "w1"
	r.write(selfKeyName, self)
	before := r.write("sessions/a", ownedBy("a", "n-self", 4, 5))
	r.step(AllowRaise{OK: true})
	r.step(Boot{Identity: Identity{Incarnation: 4, Writer: "w1"}})
	r.settle()
	r.know("a")
	v := r.m.Name("a")
	if v.Held || v.Claim != ClaimOurs {
		t.Fatalf("held %v claim %v: reading is not owning", v.Held, v.Claim)
	}
	r.step(Submit{Name: "a", Kind: WriteTouch, Record: v.Rec})
	r.settle()
	if !r.m.Name("a").Held || r.session("a").Epoch != 5 || r.store["sessions/a"].etag == before {
		t.Errorf("held %v epoch %d: want the same epoch under a new version", r.m.Name("a").Held, r.session("a").Epoch)
	}
}
