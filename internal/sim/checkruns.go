package sim

import (
	"time"

	"github.com/barista-fleet/barista/pkg/fleet"
)

// started judges a run at the instant at which it came to be.
func (c *checker) started(r *run) {
	w := c.w
	s := w.subject(r.w.Name)
	for _, n := range w.nodes {
		for _, o := range n.runs {
			if o == r || !o.alive || o.w.Name != r.w.Name {
				continue
			}
			c.beside(s, o, r)
		}
	}
	if r.w.StopOnLoss && w.sc.guard && w.now >= r.node.killAt() {
		w.fail(invariantI4, "%s started %s at epoch %d after the instant by which it must have ended", r.node.host, s.name, r.w.Epoch)
	}
	// Where a hand took the completion away, only who has read it knows of it.
	if r.w.UID == s.doneUID && !s.rewound && (!s.doneLost || r.by.knowsDone[r.w.UID]) {
		w.fail(invariantI9, "%s started %s again, which is complete", r.node.host, s.name)
	}
	if end, ok := s.exit0[r.w.UID]; ok && r.w.Epoch <= end && !s.rewound {
		w.fail(invariantI9, "%s started %s again at epoch %d, at which it had ended well", r.node.host, s.name, r.w.Epoch)
	}
	c.superseded(s, r)
}

// beside judges two runs of a name at one instant.
func (c *checker) beside(s *subject, old, young *run) {
	stop := old.w.StopOnLoss // the old one decides: what it was promised is what may overlap
	if stop && !old.excused && (c.w.sc.guard || young.born < young.node.killAt()) && !s.rewound {
		c.w.fail(invariantI4, "%s runs on %s (epoch %d) while it runs on %s (epoch %d)",
			s.name, young.node.host, young.w.Epoch, old.node.host, old.w.Epoch)
	}
	if old.node == young.node && !s.rewound {
		c.w.fail(invariantI5, "two runs of %s on %s: epochs %d and %d", s.name, old.node.host, old.w.Epoch, young.w.Epoch)
	}
}

// superseded checks that a run does not begin on a node that could have known,
// for long, that its claim has passed.
func (c *checker) superseded(s *subject, r *run) {
	a := r.node.agent
	if s.rewound || a == nil || r.w.Epoch >= s.maxEpoch {
		return
	}
	if known := c.w.now - s.movedAt; known > c.patience(r) && a.heardAt > s.movedAt+c.patience(r) && !c.w.rough() {
		c.w.fail(invariantI5, "%s started %s at epoch %d, %v after epoch %d was written", r.node.host, s.name, r.w.Epoch, known, s.maxEpoch)
	}
}

// patience is how long a node in contact with the bucket may take to see that a
// claim of its own has passed and to end the run.
func (c *checker) patience(r *run) time.Duration {
	t := r.node.times
	return 3*t.TTL + c.w.sc.resync + c.w.graceOf(r.w.Name) + 2*c.w.sc.longestTTL
}

func (w *world) graceOf(name string) time.Duration {
	return time.Duration(w.subject(name).desired.Spec.WithDefaults().StopGraceMs) * time.Millisecond
}

// rough reports weather in which nothing can be said about how long things take.
func (w *world) rough() bool {
	x := w.weather
	return x.dropped+x.lost+x.zombie+x.after5xx+x.before5xx+x.throttled+x.slow > 0 || w.now < max(x.outage, x.noWrites)
}

// ended notes how a run ended.
func (c *checker) ended(r *run) {
	s := c.w.subject(r.w.Name)
	if r.kind == fleet.KindJob && r.w.Exit.Code == 0 && r.w.Exit.Signal == 0 && !r.w.Exit.Lost {
		if s.exit0 == nil {
			s.exit0 = map[string]uint64{}
		}
		s.exit0[r.w.UID] = max(s.exit0[r.w.UID], r.w.Epoch)
	}
}

// sinceOf is since when this machine's runs of a name are judged: from the oldest
// one that is alive, or from now.
func (n *node) sinceOf(s *subject) time.Duration {
	since := n.w.now
	for _, r := range n.runs {
		if r.w.Name == s.name {
			since = min(since, r.born)
		}
	}
	return since
}

// stopping judges an order to end a run: with keep there must be a reason other
// than that the bucket was away.
func (c *checker) stopping(a *agent, r *run) {
	w := c.w
	s := w.subject(r.w.Name)
	if !r.alive {
		return
	}
	if r.w.StopOnLoss {
		return
	}
	rec := w.session(s.name)
	spec := s.desired.Spec.WithDefaults()
	switch {
	case s.touched > 0 && s.touched+time.Nanosecond > r.born, s.rewound, a.drained:
	case rec == nil || rec.Owner != a.id || rec.Epoch > r.w.Epoch:
	case s.desired.Intent.Seq > rec.Seen || s.desired.State == fleet.DesiredDeleted: // asked for, and not carried out yet
	case s.desired.UID != r.w.UID || s.desired.Generation > r.w.Generation:
	case s.kind == fleet.KindJob && spec.TimeoutMs > 0:
	case s.kind == fleet.KindSession && spec.TTLSeconds > 0:
	default:
		w.fail(invariantI6, "%s stops %s of epoch %d, which is its own, wanted, and allowed to outlive an outage", a.n.host, s.name, r.w.Epoch)
	}
}

// lossOf notes that the guard had to end a run.
func (c *checker) lossOf(*run) { c.w.stats.GuardKills++ }

// auditRuns looks, now and then, at runs whose name has moved on: a node that is
// in contact with the bucket ends them soon.
func (c *checker) auditRuns(dt time.Duration) {
	w := c.w
	for _, n := range w.nodes {
		a := n.agent
		sound := a != nil && !a.stopped && !n.frozen && n.powered && !n.cutUp && !n.cutDown && !n.mute && n.fatal == "" && !w.rough()
		for _, r := range n.runs {
			s := w.subject(r.w.Name)
			switch {
			case !r.alive || s.rewound || r.w.Epoch >= s.maxEpoch || s.last == nil || s.last.Owner == n.disk.nodeID || s.lostAt != 0:
				r.lapsed = 0
			case !sound:
				r.lapsed = 0
			default:
				if r.lapsed += dt; r.lapsed > c.patience(r) {
					w.fail(invariantI5, "%s still runs %s of epoch %d; it has been in contact with the bucket for %v, which says epoch %d", n.host, s.name, r.w.Epoch, r.lapsed, s.maxEpoch)
					return
				}
			}
		}
	}
}
