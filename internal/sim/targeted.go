package sim

import (
	"strings"

	"github.com/barista-fleet/barista/pkg/fleet"
	"github.com/barista-fleet/barista/pkg/lease"
)

// Some faults matter at one moment only, which chance alone meets once in ten
// thousand schedules. They are aimed at it here.

// mishap is what happens when a certain write is sent.
type mishap uint8

const (
	noMishap mishap = iota
	// lateRelease: the agent dies right after it has sent a release, which arrives
	// when its successor has read the record.
	lateRelease
	// lostClaim: a claim lands, its answer is lost, and the node is cut off for so
	// long that it is fenced meanwhile.
	lostClaim
	// lateClaim: a claim is long on its way, while the node reads and does not
	// write, lapses, and gives it up.
	lateClaim
)

// aim decides whether a write meets with one.
func (w *world) aim(a *agent, e lease.Put) mishap {
	name, ok := strings.CutPrefix(e.Key, fleet.PrefixSessions)
	if !ok || w.calm {
		return noMishap
	}
	rec, err := fleet.DecodeSession(name, e.Body)
	if err != nil {
		return noMishap
	}
	was := w.session(name)
	switch {
	case rec.Owner == "" && was != nil && was.Owner == a.id && w.chance(w.sc.lateReleases):
		return lateRelease
	case rec.Owner == a.id && (was == nil || was.Epoch < rec.Epoch) && w.chance(w.sc.lostClaims):
		if w.chance(0.5) {
			return lateClaim
		}
		return lostClaim
	}
	return noMishap
}

// strike lets it happen, at the instant at which the request leaves.
func (a *agent) strike(m mishap, f *fate) {
	w, n := a.n.w, a.n
	switch m {
	case noMishap:
	case lateRelease:
		f.arrives, f.answered = true, false
		f.arrive = w.between(n.times.TTL/8, n.times.TTL)
		w.note(n.idx, "dies", "with a release on its way", 0)
		n.crash()
		n.restartLater(w.between(n.times.TTL/100, n.times.TTL/8))
	case lateClaim:
		f.arrives, f.answered = true, false
		f.arrive = w.between(n.times.TTL, 2*n.times.TTL)
		n.mute = true
		w.note(n.idx, "mute", "with a claim on its way", 0)
		w.later(w.between(n.times.TTL/2, 2*n.times.TTL), func() { n.mute = false })
	case lostClaim:
		f.arrives, f.answered = true, false
		w.after(f.arrive, func() {
			n.cutUp, n.cutDown = true, true
			w.note(n.idx, "cut", "with a claim on its way", 0)
			w.later(w.between(w.sc.baseTTL, 3*w.sc.baseTTL), func() { n.cutUp, n.cutDown = false, false })
		})
	}
}
