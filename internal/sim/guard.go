package sim

import (
	"time"

	"github.com/barista-fleet/barista/pkg/fleet"
	"github.com/barista-fleet/barista/pkg/reconcile"
	"github.com/barista-fleet/barista/pkg/runtime"
)

// The guard is what ends workloads with on_bucket_loss: stop in time when the
// agent cannot. In seeds with a guard it is perfect: a process of its own that is
// always scheduled, reads what the agent published of its lease, kills every such
// run at five sixths of the lease, and refuses a start after that or under another
// incarnation. There I4 is asserted without exception but one: a machine that was
// suspended as a whole.
//
// In seeds without a guard the agent alone ends those runs, and I4 is asserted
// only for runs whose agent was there to do it. A run is excused from the instant
// at which it should have been told to end if the agent was then dead, stopped or
// waiting for a goroutine to be scheduled, or if the run came into being later.

// lossTerm and lossKill are when such a run is told to end, and when it is killed,
// as fractions of the lease.
func lossTerm(ttl time.Duration) time.Duration { return ttl / 2 }
func lossKill(ttl time.Duration) time.Duration { return ttl * 5 / 6 }

// published is the lease file: what the guard reads.
type published struct {
	reconcile.Publish
	boot int
}

// killAt is when the guard kills, in true time.
func (n *node) killAt() time.Duration {
	p := n.published
	if p.boot != n.boots || p.Deadline == 0 {
		return 0
	}
	ttl := p.Deadline.Sub(p.Confirmed)
	return n.clock.when(p.Confirmed.Add(lossKill(ttl)))
}

func (n *node) guardAllows(ref runtime.Ref) bool {
	return n.w.now < n.killAt() && n.published.Incarnation == ref.Incarnation
}

// publish writes the lease file, from a goroutine of the agent. Only the newest
// value is written.
func (a *agent) publish(p reconcile.Publish) {
	a.token = &p
	a.publishing++
	turn := a.publishing
	a.do(a.n.w.between(0, 2*time.Millisecond), func() {
		if turn != a.publishing {
			return
		}
		a.n.published = published{Publish: p, boot: a.n.boots}
		if p.Deadline == 0 { // fenced: whatever must end with the lease ends now
			for _, r := range a.n.runs {
				a.n.watchRun(r)
			}
		}
	})
}

// watchRun looks after a run that must end with the lease: the guard kills it,
// or, without one, it is noted whether the agent could.
func (n *node) watchRun(r *run) {
	if !r.w.StopOnLoss || !r.alive {
		return
	}
	w := n.w
	due := n.killAt()
	if due > w.now {
		if !w.sc.guard {
			due = min(due, n.termAt())
			if due <= w.now {
				due = w.now + n.times.Heartbeat/8
			}
		}
		w.at(due, func() { n.watchRun(r) })
		if !w.sc.guard {
			n.excuse(r)
		}
		return
	}
	if w.sc.guard {
		n.whenAwake(func() {
			if r.alive {
				w.note(n.idx, "guard kills", r.w.Name+" "+r.w.Instance, 0)
				w.check.lossOf(r)
				r.kill(n.times.KillTime/2, &fleet.Exit{Signal: 9})
			}
		})
		return
	}
	n.excuse(r)
	w.after(n.times.Heartbeat/8, func() { n.watchRun(r) })
}

// termAt is when the agent tells such a run to end, in true time.
func (n *node) termAt() time.Duration {
	p := n.published
	if p.boot != n.boots || p.Deadline == 0 {
		return 0
	}
	return n.clock.when(p.Confirmed.Add(lossTerm(p.Deadline.Sub(p.Confirmed))))
}

// excuse notes that nothing on this machine could end the run in time.
func (n *node) excuse(r *run) {
	if n.w.now < n.termAt() {
		return
	}
	if a := n.agent; a == nil || a.dead || a.stopped || n.frozen || r.born >= n.killAt() {
		r.excused = true
	}
}
