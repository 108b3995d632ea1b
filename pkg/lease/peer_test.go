package lease

import (
	"testing"
	"time"

	"github.com/barista-fleet/barista/internal/bucket"
	"github.com/barista-fleet/barista/pkg/fleet"
)

const peerKey = fleet.PrefixNodes + "n-peer"

// withPeer returns a live node that has seen n-peer own "a" at (inc 3, epoch 5).
func withPeer(t *testing.T, ttl time.Duration) *rig {
	t.Helper()
	r := newRig(t)
	r.write(peerKey, peerRecord("n-peer", 3, 1, ttl))
	r.write("sessions/a", ownedBy("a", "n-peer", 3, 5))
	r.join()
	r.know("a")
	r.run(testBeat)
	return r
}

func (r *rig) fencedAfter(limit time.Duration) time.Duration {
	r.t.Helper()
	start := r.now
	for r.now.Sub(start) < limit {
		if r.node("n-peer").State == fleet.NodeFenced {
			return r.now.Sub(start)
		}
		r.run(20 * time.Millisecond)
	}
	return limit
}

func TestContenderWaitsTheRecordsTTL(t *testing.T) {
	for _, ttl := range []time.Duration{testTTL / 3, testTTL, 4 * testTTL} {
		r := withPeer(t, ttl)
		want := ContenderWait(ttl, r.m.cfg.KillTime)
		got := r.fencedAfter(3 * want)
		// The timer began when the version was first seen, up to two heartbeats ago.
		if got < want-2*testBeat || got > want+r.m.cfg.Stagger+testBeat {
			t.Errorf("ttl %v: fenced after %v, want about %v", ttl, got, want)
		}
		if n := r.node("n-peer"); n.Incarnation != 4 {
			t.Errorf("fence left incarnation %d, want 4", n.Incarnation)
		}
		if c := r.m.Name("a").Claim; c != ClaimInvalid {
			t.Errorf("the claim is %v after the fence, want invalid", c)
		}
	}
}

func TestBeatingPeerIsNeverFenced(t *testing.T) {
	r := withPeer(t, testTTL)
	for beat := uint64(2); beat < 60; beat++ {
		r.write(peerKey, peerRecord("n-peer", 3, beat, testTTL))
		r.run(testTTL / 3)
	}
	if n := r.node("n-peer"); n.State != fleet.NodeLive {
		t.Fatalf("a node that beats was fenced by %s", n.FencedBy)
	}
}

func TestFenceIsConditionedOnTheVersionThatWasTimed(t *testing.T) {
	r := withPeer(t, testTTL)
	for !r.hasOpen(func(e Effect) bool { p, ok := e.(Put); return ok && p.Key == peerKey }) {
		r.settle()
		r.now = r.now.Add(20 * time.Millisecond)
		r.step(Tick{})
		for len(r.open) > 0 { // answer all but the fence
			e := r.open[0]
			if p, ok := e.(Put); ok && p.Key == peerKey {
				break
			}
			r.open = r.open[1:]
			r.answer(e)
		}
	}
	put := r.takePut(peerKey)
	r.write(peerKey, peerRecord("n-peer", 3, 2, testTTL)) // it beats just now
	r.step(PutDone{Op: put.Op, Result: r.apply(put)})
	r.settle()
	if n := r.node("n-peer"); n.State != fleet.NodeLive {
		t.Fatal("the fence hit a version that was not the one timed")
	}
	r.run(testTTL / 2)
	if n := r.node("n-peer"); n.State != fleet.NodeLive {
		t.Fatal("fenced without timing the new beat from the start")
	}
}

func TestSilenceCountsOnlyWhileWatched(t *testing.T) {
	r := withPeer(t, testTTL)
	// The bucket is away for far longer than anybody's ttl; the peer could not
	// renew either.
	for range 100 {
		r.now = r.now.Add(testTTL / 10)
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
	if got := r.fencedAfter(10 * testTTL); got < testTTL {
		t.Errorf("fenced %v after the outage: silence was counted while nobody watched", got)
	}
}

func TestMissingNodeRecordIsSilenceNotInvalidity(t *testing.T) {
	r := withPeer(t, testTTL)
	delete(r.store, peerKey)
	r.run(2 * testBeat)
	if c := r.m.Name("a").Claim; c != ClaimValid {
		t.Fatalf("the claim is %v at once, want valid until the wait is over", c)
	}
	r.run(2 * testTTL)
	n := r.node("n-peer")
	if n.State != fleet.NodeFenced || n.Incarnation != 4 {
		t.Fatalf("record %s at %d, want fenced at 4", n.State, n.Incarnation)
	}
	if c := r.m.Name("a").Claim; c != ClaimInvalid {
		t.Errorf("the claim is %v, want invalid", c)
	}
}

func TestUnreadableNodeRecordIsOverwrittenOnlyAfterTheWait(t *testing.T) {
	r := withPeer(t, testTTL)
	r.write(peerKey, "")
	r.run(testTTL / 2)
	if string(r.store[peerKey].body) != "" {
		t.Fatal("overwritten before the wait was over")
	}
	r.run(2 * testTTL)
	if n := r.node("n-peer"); n.State != fleet.NodeFenced || n.Incarnation != 4 {
		t.Fatalf("record %s at %d, want fenced at 4", n.State, n.Incarnation)
	}
}

func TestValidityIsByIncarnationOnly(t *testing.T) {
	r := withPeer(t, testTTL)
	for _, tc := range []struct {
		inc   uint64
		state fleet.NodeState
		want  Claim
	}{
		{3, fleet.NodeFenced, ClaimValid}, // state is not consulted
		{2, fleet.NodeLive, ClaimValid},   // an old view
		{4, fleet.NodeLive, ClaimInvalid}, // re-registered: its old claims have passed
		{3, fleet.NodeLive, ClaimInvalid}, // incarnations never go back
	} {
		rec := peerRecord("n-peer", tc.inc, 50, testTTL)
		rec.State = tc.state
		r.write(peerKey, rec)
		r.step(Hint{Nodes: []string{"n-peer"}})
		r.settle()
		if c := r.m.Name("a").Claim; c != tc.want {
			t.Errorf("record %s at %d: claim %v, want %v", tc.state, tc.inc, c, tc.want)
		}
	}
}

func TestSilentNodeWithoutClaimsIsLeftAlone(t *testing.T) {
	r := newRig(t)
	r.write(peerKey, peerRecord("n-peer", 3, 1, testTTL))
	r.join()
	r.run(5 * testTTL)
	if n := r.node("n-peer"); n.State != fleet.NodeLive {
		t.Error("fenced a node that owns nothing")
	}
}

func TestLostCountsFromTheFenceNotFromTheRecord(t *testing.T) {
	r := withPeer(t, testTTL)
	r.run(testBeat)
	if v := r.m.Name("a"); v.Lost != 0 || v.Claim != ClaimValid {
		t.Fatalf("claim %v, lost at %v before anything was lost", v.Claim, v.Lost)
	}
	fence := peerRecord("n-peer", 4, 1, testTTL)
	fence.State = fleet.NodeFenced
	r.write(peerKey, fence)
	before := r.now
	r.step(Hint{Nodes: []string{"n-peer"}})
	r.run(testBeat)
	if v := r.m.Name("a"); v.Claim != ClaimInvalid || v.Lost < before || v.Seen >= before {
		t.Errorf("claim %v, lost at %v, seen at %v; the fence was at %v", v.Claim, v.Lost, v.Seen, before)
	}
}
