package sim

import (
	"strings"
	"time"

	"github.com/barista-fleet/barista/pkg/fleet"
	"github.com/barista-fleet/barista/pkg/reconcile"
)

// Invariant names what a violation broke. I1 to I9 are those of pkg/lease's
// package comment; the others are about single steps that would break them.
type Invariant string

// The invariants that are checked.
const (
	invariantI1 Invariant = "I1" // epochs rise with each change of owner
	invariantI2 Invariant = "I2" // one (owner, incarnation) per (name, epoch)
	invariantI3 Invariant = "I3" // no write by a superseded owner, no claim on a valid one
	invariantI4 Invariant = "I4" // stop: never two runs at one instant
	invariantI5 Invariant = "I5" // keep: two runs only until first contact
	invariantI6 Invariant = "I6" // an outage stops, frees and takes nothing
	invariantI7 Invariant = "I7" // a dead node's names run again in time
	invariantI8 Invariant = "I8" // after the faults, everything converges
	invariantI9 Invariant = "I9" // completions are neither lost nor doubled

	invariantLease Invariant = "lease" // nobody is fenced whose lease still runs; incarnations never go back
	invariantState Invariant = "state" // a machine's own consistency between two steps
	invariantSim   Invariant = "simulation"
)

// checker judges what happens, from where everything can be seen.
type checker struct {
	w       *world
	incs    map[string]uint64        // the highest incarnation of each node record ever stored
	rewound time.Duration            // when the bucket was last restored; 0: never
	spoiled map[string]bool          // node records that a hand damaged
	stored  map[string]time.Duration // when the present version of each node record was stored, or went
	ghosts  map[string]bool          // node records whose present version was written by a life that had ended
}

// truth is what the checks know of one name.
type truth struct {
	desired   *fleet.Desired // as the operator has it
	touched   time.Duration  // when an operator, or a hand, last changed something
	maxEpoch  uint64
	movedAt   time.Duration // when maxEpoch was reached
	owners    map[uint64]claimant
	last      *fleet.Session    // the last record that was stored by a node
	lostAt    time.Duration     // when a hand removed or damaged the record; 0: not since a write
	rewound   bool              // a restored bucket moved it back
	doneUID   string            // the uid whose completion was stored
	doneBy    *agent            // who stored it; nil: it has told so
	doneNonce string            // of that version
	doneLost  bool              // and a hand has removed or damaged it since
	orphaned  bool              // a node told that nobody desires it
	exit0     map[string]uint64 // by uid: the epoch at which a job ended well
	nextLetGo time.Duration
}

type claimant struct {
	owner       string
	incarnation uint64
}

// applied judges one write of an agent, at the instant at which it took effect.
func (c *checker) applied(a *agent, key string, before stored, existed bool, body []byte) {
	if name, ok := strings.CutPrefix(key, fleet.PrefixSessions); ok {
		rec, err := fleet.DecodeSession(name, body)
		if err != nil {
			c.w.fail(invariantSim, "%s wrote garbage to %s: %v", a.n.host, key, err)
			return
		}
		var prev *fleet.Session
		if existed {
			prev, _ = fleet.DecodeSession(name, before.body)
		}
		c.session(a, c.w.subject(name), prev, existed, rec)
		return
	}
	if id, ok := strings.CutPrefix(key, fleet.PrefixNodes); ok {
		rec, err := fleet.DecodeNode(id, body)
		if err != nil {
			c.w.fail(invariantSim, "%s wrote garbage to %s: %v", a.n.host, key, err)
			return
		}
		var prev *fleet.Node
		if existed {
			prev, _ = fleet.DecodeNode(id, before.body)
		}
		c.nodeWrite(a, prev, rec)
	}
}

func (c *checker) session(a *agent, s *subject, prev *fleet.Session, existed bool, rec *fleet.Session) {
	w := c.w
	defer func() { s.last, s.lostAt = rec, 0 }()
	c.remembered(a, s.name)
	a.wrote[s.name] = a.wrote[s.name] || rec.Owner == a.id
	if s.owners == nil {
		s.owners = map[uint64]claimant{}
	}
	if prev == nil && s.lostAt != 0 && a.knows[s.name] < s.maxEpoch {
		// An ownership record that a hand removed or damaged takes its epoch along:
		// an agent that never saw that epoch begins anew. That is outside the
		// guarantees, and so is what follows for that name.
		s.rewound = true
	}
	a.knows[s.name] = max(a.knows[s.name], rec.Epoch)
	if !s.rewound {
		c.epochs(a, s, prev, rec)
	}
	if rec.Epoch > s.maxEpoch {
		s.maxEpoch, s.movedAt = rec.Epoch, w.now
	}
	if rec.Owner != "" {
		s.owners[rec.Epoch] = claimant{rec.Owner, rec.Incarnation}
	}
	taken := prev != nil && prev.Owner != "" && prev.Owner != a.id && (rec.Owner != prev.Owner || rec.Epoch != prev.Epoch)
	if taken && c.incs[prev.Owner] <= prev.Incarnation && !s.rewound {
		w.fail(invariantI3, "%s took %s at epoch %d from %s, whose incarnation %d has not passed", a.n.host, s.name, rec.Epoch, prev.Owner, prev.Incarnation)
	}
	if !s.rewound && prev == nil && s.lostAt != 0 && s.last != nil && s.last.Owner != "" && s.last.Owner != a.id && rec.Owner != "" && c.incs[s.last.Owner] <= s.last.Incarnation {
		if ttl := time.Duration(s.last.OwnerTTLMillis) * time.Millisecond; w.now-s.lostAt < ttl {
			w.fail(invariantI3, "%s made %s again %v after its record was lost; its owner %s had a lease of %v", a.n.host, s.name, w.now-s.lostAt, s.last.Owner, ttl)
		}
	}
	if rec.Owner == a.id && (prev == nil || prev.Epoch != rec.Epoch) {
		c.single(a, s)
	}
	c.completion(a, s, prev, rec)
	if prev != nil && prev.Owner == a.id && rec.Owner == "" && !rec.Phase.Done() && !a.drained && !c.unreadable(s) && s.touched <= a.n.sinceOf(s) &&
		s.desired.Intent.Seq <= prev.Seen && s.desired.State == fleet.DesiredPresent && s.desired.UID == prev.UID {
		w.fail(invariantI6, "%s released %s at epoch %d for no reason that anyone gave: %s", a.n.host, s.name, rec.Epoch, rec.Reason)
	}
}

// epochs checks I1 to I3 for one write.
func (c *checker) epochs(a *agent, s *subject, prev, rec *fleet.Session) {
	w := c.w
	was, known := s.owners[rec.Epoch]
	is := claimant{rec.Owner, rec.Incarnation}
	switch {
	case rec.Epoch < s.maxEpoch:
		w.fail(invariantI1, "%s wrote epoch %d of %s after epoch %d", a.n.host, rec.Epoch, s.name, s.maxEpoch)
	case rec.Owner != "" && known && was != is:
		w.fail(invariantI2, "epoch %d of %s belonged to %v and now to %v", rec.Epoch, s.name, was, is)
	case rec.Owner != "" && !known && rec.Epoch <= s.maxEpoch:
		w.fail(invariantI1, "%s became the owner of %s at epoch %d, which is not new", a.n.host, s.name, rec.Epoch)
	case prev != nil && prev.Epoch == rec.Epoch && prev.Owner != a.id && !same(prev, rec):
		w.fail(invariantI3, "%s changed %s at epoch %d, which belongs to %q", a.n.host, s.name, rec.Epoch, prev.Owner)
	}
}

// same reports two records that differ in nothing but their nonce.
func same(a, b *fleet.Session) bool {
	x, y := a.Clone(), b.Clone()
	x.Head, y.Head = fleet.Head{}, fleet.Head{}
	x.Schema, y.Schema = fleet.Schema, fleet.Schema
	p, err := fleet.Encode(x)
	q, err2 := fleet.Encode(y)
	return err == nil && err2 == nil && string(p) == string(q)
}

// single checks that no other agent believes in a claim of the name while it may
// act on it.
func (c *checker) single(a *agent, s *subject) {
	for _, n := range c.w.nodes {
		o := n.agent
		if o == nil || o == a || s.rewound || c.behind(o.id) {
			continue
		}
		snap := o.m.Snapshot()
		if snap.State != "live" || snap.Deadline <= n.boottime() {
			continue
		}
		for _, st := range snap.Names {
			if st.Name == s.name && st.Held && st.Epoch < s.maxEpoch && s.lostAt == 0 {
				c.w.fail(invariantI3, "%s claimed %s at epoch %d while %s holds it at epoch %d and may act on it", a.n.host, s.name, s.maxEpoch, n.host, st.Epoch)
			}
		}
	}
}

// completion checks I9 for one write.
func (c *checker) completion(a *agent, s *subject, prev, rec *fleet.Session) {
	if prev != nil && prev.Phase.Done() && prev.UID == rec.UID && !rec.Phase.Done() && !s.rewound {
		c.w.fail(invariantI9, "%s wrote phase %s of %s, which was %s", a.n.host, rec.Phase, s.name, prev.Phase)
	}
	if rec.Phase != fleet.PhaseCompleted {
		return
	}
	again := prev != nil && prev.Phase == fleet.PhaseCompleted && prev.UID == rec.UID
	if s.doneUID == rec.UID && !again && !s.rewound && !s.doneLost {
		c.w.fail(invariantI9, "%s reported %s complete a second time", a.n.host, s.name)
	}
	if !again {
		s.doneBy, s.doneNonce = a, rec.Nonce
	}
	s.doneUID, s.doneLost = rec.UID, false
}

// nodeWrite judges a write of a liveness record.
func (c *checker) nodeWrite(a *agent, prev, rec *fleet.Node) {
	w := c.w
	since, known := c.stored[rec.ID]
	c.stored[rec.ID], c.ghosts[rec.ID] = w.now, a.dead
	most := c.incs[rec.ID]
	rewound := c.rewound != 0
	if rec.Incarnation < most && !rewound && !c.spoiled[rec.ID] {
		w.fail(invariantLease, "%s wrote incarnation %d of %s after %d", a.n.host, rec.Incarnation, rec.ID, most)
	}
	c.incs[rec.ID] = max(most, rec.Incarnation)
	if rec.ID == a.id {
		if rec.Incarnation > most && most > 0 {
			c.raised(a, prev, rec)
		}
		return
	}
	if known && prev != nil {
		c.early(a, prev, w.now-since)
	}
	if rec.State != fleet.NodeFenced || rec.Incarnation <= most && !rewound && !c.spoiled[rec.ID] {
		w.fail(invariantLease, "%s wrote state %s incarnation %d of %s, which had %d", a.n.host, rec.State, rec.Incarnation, rec.ID, most)
	}
	w.stats.Fences++
	if w.sc.profile == profileOutage {
		w.fail(invariantI6, "%s fenced %s, although the bucket was away for everyone", a.n.host, rec.ID)
	}
	for _, n := range w.nodes {
		o := n.agent
		if o == nil || o.id != rec.ID || rewound {
			continue
		}
		if h := o.m.Head(); h.State == "live" && h.Deadline > n.boottime() {
			w.fail(invariantLease, "%s fenced %s, whose lease runs for another %v", a.n.host, n.host, h.Deadline.Sub(n.boottime()))
		}
	}
}

// raised checks that a node frees its old claims only when nothing runs any more
// that must not run beside its successor.
func (c *checker) raised(a *agent, prev, rec *fleet.Node) {
	if prev != nil && prev.State == fleet.NodeLive && rec.State == fleet.NodeLive && prev.Writer == rec.Writer && prev.TTLMillis == rec.TTLMillis && c.sane(a) && c.claims(rec.ID, prev.Incarnation) {
		c.w.fail(invariantI6, "%s registered incarnation %d over its own live registration %d, which frees all its names", a.n.host, rec.Incarnation, prev.Incarnation)
	}
	for _, r := range a.n.runs {
		if r.alive && r.w.StopOnLoss && !r.excused {
			c.w.fail(invariantI4, "%s registered incarnation %d while %s of epoch %d runs", a.n.host, rec.Incarnation, r.w.Name, r.w.Epoch)
		}
	}
}

// claims reports whether any record names the node under that incarnation.
func (c *checker) claims(id string, incarnation uint64) bool {
	for _, s := range c.w.names {
		if rec := c.w.session(s.name); rec != nil && rec.Owner == id && rec.Incarnation == incarnation {
			return true
		}
	}
	return false
}

// tampered notes that a hand removed or damaged an object.
func (c *checker) tampered(key string) {
	for _, s := range c.w.names {
		if key == fleet.PrefixSessions+s.name {
			s.touched, s.doneLost = c.w.now, s.doneUID != ""
			if s.lostAt == 0 {
				s.lostAt = c.w.now
			}
		}
	}
	if id, ok := strings.CutPrefix(key, fleet.PrefixNodes); ok {
		c.spoiled[id], c.stored[id] = true, c.w.now
	}
}

// restored notes that the bucket is now an older one. Names whose record moved
// back are out of what epochs can protect until an operator has decided.
func (c *checker) restored(before map[string]stored) {
	c.rewound = c.w.now
	for id := range c.stored {
		if key := fleet.PrefixNodes + id; c.w.store.objects[key].etag != before[key].etag {
			c.stored[id] = c.w.now
		}
	}
	for _, s := range c.w.names {
		s.touched = c.w.now
		rec := c.w.session(s.name)
		switch {
		case rec == nil:
			s.rewound = s.rewound || s.maxEpoch > 0
		case rec.Epoch < s.maxEpoch, s.last != nil && rec.Nonce != s.last.Nonce, c.behind(rec.Owner):
			s.rewound = true
		}
	}
}

// behind reports a node whose record is older than it was.
func (c *checker) behind(id string) bool {
	n := c.w.nodeRecord(id)
	return id != "" && (n == nil || n.Incarnation < c.incs[id])
}

func (c *checker) told(a *agent, events []reconcile.Event) {
	for _, e := range events {
		if s := c.w.subject(e.Name); s != nil && e.Type == reconcile.EventCompleted && s.doneBy == a {
			s.doneBy = nil
		}
		if s := c.w.subject(e.Name); s != nil && e.Type == reconcile.EventOrphaned {
			s.orphaned = true
		}
	}
}

// fatal judges an agent that gave up. Only a copy of a data directory, or a bucket
// that is another, is a reason to.
func (c *checker) fatal(a *agent, reason string) {
	if c.rewound != 0 {
		return
	}
	for _, n := range c.w.nodes {
		if n.clone != nil && (n == a.n || n.clone == a.n) {
			return
		}
	}
	c.w.fail(invariantI8, "%s gave up: %s", a.n.host, reason)
}

func (c *checker) left(*agent) {}
