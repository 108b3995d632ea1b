package lease

import (
	"errors"
	"testing"
	"time"

	"github.com/barista-fleet/barista/internal/bucket"
	"github.com/barista-fleet/barista/pkg/fleet"
)

// A transition whose reply was lost was written once, whether it landed or not,
// and costs no ownership.
func TestLostReplyOfATransition(t *testing.T) {
	for name, landed := range map[string]bool{"it landed": true, "it did not": false} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.join()
			r.hold("a")
			rec := r.session("a")
			rec.Phase, rec.Attempt = fleet.PhaseRunning, 7
			r.step(Submit{Name: "a", Kind: WriteUpdate, Record: rec})
			put := r.takePut("sessions/a")
			if landed {
				r.apply(put)
			}
			r.step(PutDone{Op: put.Op, Result: ambiguous()})
			r.run(2 * time.Second)
			s, v := r.session("a"), r.m.Name("a")
			if s.Attempt != 7 || s.Epoch != 1 || !v.Held || v.Writing != 0 {
				t.Errorf("record at attempt %d, epoch %d; held %v, writing %v", s.Attempt, s.Epoch, v.Held, v.Writing)
			}
			if n := len(toldOf[Lost](r)); n != 0 {
				t.Errorf("told %d times that it lost its own name", n)
			}
			if res := r.apply(put); res.Outcome != bucket.Rejected {
				t.Error("the first attempt could still land")
			}
		})
	}
}

// A store that says "too much" has not written. The renewal is sent again, within
// the same lease.
func TestThrottledRenewalIsSentAgain(t *testing.T) {
	r := newRig(t)
	r.join()
	r.hold("a")
	r.now = r.now.Add(testBeat)
	r.step(Tick{})
	put := r.takePut(selfKeyName)
	r.step(PutDone{Op: put.Op, Result: bucket.PutResult{Outcome: bucket.Rejected, Err: errors.New("slow down")}})
	r.run(2 * testBeat)
	if !r.m.CanAct() || !r.m.Name("a").Held || r.m.Incarnation() != 1 {
		t.Errorf("can act %v, held %v, incarnation %d after one throttled renewal", r.m.CanAct(), r.m.Name("a").Held, r.m.Incarnation())
	}
}

// A release that was sent before a crash can land after the restart. Whoever
// adopted the name by reading alone would then hold a name that is free.
func TestReleaseLandingAfterARestart(t *testing.T) {
	r := newRig(t)
	r.join()
	r.hold("a")
	rec := r.session("a")
	rec.Phase = fleet.PhasePending
	r.step(Submit{Name: "a", Kind: WriteRelease, Record: rec})
	late := r.takePut("sessions/a") // on its way when the process dies
	id := Identity{Incarnation: 1, Writer: "w1", Intended: 1, NewWriter: "w1"}

	next := newRig(t)
	next.store, next.version, next.now = r.store, r.version, r.now
	next.step(AllowRaise{OK: true})
	next.step(Seen{Name: "a", Epoch: 1, Owned: true})
	next.step(Boot{Identity: id})
	next.settle()
	next.know("a")
	if v := next.m.Name("a"); v.Held || v.Claim != ClaimOurs {
		t.Fatalf("held %v, claim %v before any write of this life", v.Held, v.Claim)
	}
	next.step(Submit{Name: "a", Kind: WriteTouch, Record: next.session("a")})
	next.settle()
	if !next.m.Name("a").Held {
		t.Fatal("not held after the touch")
	}
	if res := next.apply(late); res.Outcome != bucket.Rejected {
		t.Fatal("the release of the last life landed on a name that is held")
	}
	if s := next.session("a"); s.Owner != "n-self" || s.Epoch != 1 {
		t.Errorf("owner %q at epoch %d", s.Owner, s.Epoch)
	}
}

// The same release, earlier: the touch finds it and the name is not held.
func TestReleaseLandingBeforeTheTouch(t *testing.T) {
	r := newRig(t)
	r.write("sessions/a", ownedBy("a", "n-self", 1, 1))
	rec := peerRecord("n-self", 1, 7, testTTL)
	rec.Writer = "w1"
	r.write(selfKeyName, rec)
	r.step(AllowRaise{OK: true})
	r.step(Seen{Name: "a", Epoch: 1, Owned: true})
	r.step(Boot{Identity: Identity{Incarnation: 1, Writer: "w1", Intended: 1, NewWriter: "w1"}})
	r.settle()
	r.know("a")
	r.step(Submit{Name: "a", Kind: WriteTouch, Record: r.session("a")})
	put := r.takePut("sessions/a")
	free := ownedBy("a", "", 0, 1)
	r.write("sessions/a", free)
	r.step(PutDone{Op: put.Op, Result: r.apply(put)})
	r.settle()
	if v := r.m.Name("a"); v.Held || v.Claim != ClaimFree {
		t.Errorf("held %v, claim %v of a name that its own release had freed", v.Held, v.Claim)
	}
}

// A node that comes back re-claims what still names it; a contender that is about
// to take the same name has read the same version. One of the two writes wins.
func TestReclaimRacingATake(t *testing.T) {
	for name, ownerFirst := range map[string]bool{"the owner is first": true, "the contender is first": false} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.join()
			r.hold("a")
			old := r.session("a")
			fence := peerRecord("n-self", 2, 9, testTTL)
			fence.State = fleet.NodeFenced
			r.write(selfKeyName, fence)
			r.run(2 * testBeat) // fenced, and registered anew as 3
			r.step(Submit{Name: "a", Kind: WriteReclaim, Record: r.m.Name("a").Rec})
			mine := r.takePut("sessions/a")
			base := r.store["sessions/a"].etag // what the contender has read, too
			taken := ownedBy("a", "n-peer", 3, old.Epoch+1)
			if ownerFirst {
				res := r.apply(mine)
				if r.store["sessions/a"].etag == base {
					t.Fatal("a claim that does not change the version cannot keep anyone out")
				}
				r.step(PutDone{Op: mine.Op, Result: res})
			} else {
				r.write("sessions/a", taken)
				r.step(PutDone{Op: mine.Op, Result: r.apply(mine)})
			}
			r.settle()
			r.know("a")
			if held := r.m.Name("a").Held; held != ownerFirst {
				t.Errorf("held %v", held)
			}
			if s := r.session("a"); s.Epoch != old.Epoch+1 {
				t.Errorf("epoch %d, want %d", s.Epoch, old.Epoch+1)
			}
		})
	}
}

// A fence is helpable: whoever wrote it may die, and anyone takes the names.
func TestContenderDiesBetweenFenceAndTake(t *testing.T) {
	r := withPeer(t, testTTL)
	r.run(testTTL) // silent for as long as anyone waits
	fence := peerRecord("n-peer", 4, 1, testTTL)
	fence.State, fence.FencedBy = fleet.NodeFenced, "n-dead"
	r.write(peerKey, fence)
	r.run(2 * testBeat)
	if v := r.m.Name("a"); v.Claim != ClaimInvalid {
		t.Fatalf("claim %v after another's fence", v.Claim)
	}
	r.claim("a")
	r.settle()
	if s := r.session("a"); s.Owner != "n-self" || s.Epoch != 6 {
		t.Errorf("owner %q at epoch %d", s.Owner, s.Epoch)
	}
}

// A claim that lands after its own node was fenced is dead: the node's deadline
// may be fresh, its claim's incarnation is not.
func TestClaimRacingAFence(t *testing.T) {
	r := newRig(t)
	r.join()
	r.know("a")
	r.claim("a")
	put := r.takePut("sessions/a")
	fence := peerRecord("n-self", 2, 9, testTTL)
	fence.State = fleet.NodeFenced
	r.write(selfKeyName, fence)
	r.step(AllowRaise{OK: false})
	r.step(PutDone{Op: put.Op, Result: r.apply(put)}) // before the node knows
	r.settle()
	r.run(2 * testBeat)
	if v := r.m.Name("a"); v.Held || v.Claim != ClaimOursOld || r.m.CanAct() {
		t.Errorf("held %v, claim %v, can act %v; want nothing held after the fence", v.Held, v.Claim, r.m.CanAct())
	}
}
