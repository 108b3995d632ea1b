package lease

import (
	"testing"
	"time"

	"github.com/barista-fleet/barista/pkg/fleet"
)

func canon(m *Machine, now Instant) string {
	c := Canon{Unit: 50 * time.Millisecond}
	m.Append(&c, now)
	return string(c.Buf)
}

// TestCloneGoesItsOwnWay: whatever is done to a clone, the original does not see it.
func TestCloneGoesItsOwnWay(t *testing.T) {
	states := map[string]func(*rig){
		"joined":      (*rig).join,
		"holding":     func(r *rig) { r.join(); r.hold("x") },
		"claiming":    func(r *rig) { r.join(); r.know("x"); r.claim("x") },
		"with a peer": func(r *rig) { r.write(fleet.PrefixNodes+"n-peer", peerRecord("n-peer", 1, 1, testTTL)); r.join() },
	}
	for name, reach := range states {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			reach(r)
			before, at := canon(r.m, r.now), r.now
			if got := canon(r.m.Clone(), at); got != before {
				t.Fatalf("a clone is another state:\n%x\n%x", got, before)
			}
			whole := r.m
			r.m = whole.Clone()
			r.settle()
			r.run(2 * testTTL)
			r.write(fleet.PrefixSessions+"x", ownedBy("x", "n-peer", 1, 9))
			r.know("x")
			if got := canon(whole, at); got != before {
				t.Errorf("stepping the clone changed the original:\n%x\n%x", got, before)
			}
			if canon(r.m, r.now) == before {
				t.Error("the clone did not move, so this shows nothing")
			}
		})
	}
}

// TestCanonOfEqualFutures: names of nonces and versions, and the hour, do not tell
// states apart; what the protocol acts on does.
func TestCanonOfEqualFutures(t *testing.T) {
	holding := func(shift time.Duration, life string) (*rig, string) {
		r := newRig(t)
		r.m.cfg.Life = life
		r.now, r.version = r.now.Add(shift), len(life)*100
		r.join()
		r.hold("x")
		return r, canon(r.m, r.now)
	}
	r, one := holding(0, "life1")
	if _, other := holding(time.Hour, "another"); other != one {
		t.Errorf("the same state in another hour and life differs:\n%x\n%x", one, other)
	}
	changes := map[string]func(){
		"a tick of a heartbeat": func() { r.now = r.now.Add(testBeat) },
		"a release on its way": func() {
			r.step(Submit{Name: "x", Kind: WriteRelease, Record: &fleet.Session{UID: "u", Phase: fleet.PhasePending}})
		},
	}
	for name, change := range changes {
		was := canon(r.m, r.now)
		if change(); canon(r.m, r.now) == was {
			t.Errorf("%s makes no difference", name)
		}
	}
}
