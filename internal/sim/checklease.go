package sim

import (
	"strings"
	"time"

	"github.com/barista-fleet/barista/pkg/fleet"
	"github.com/barista-fleet/barista/pkg/lease"
	"github.com/barista-fleet/barista/pkg/reconcile"
)

// The checks of this file look into an agent from where the bucket and the true
// time can be seen: what it believes must follow from what happened.

// covers notes how long a renewal that has landed covers its sender: from the
// instant at which it was sent.
func (c *checker) covers(a *agent, key string, body []byte, sent lease.Instant) {
	if key != fleet.PrefixNodes+a.id {
		return
	}
	if rec, err := fleet.DecodeNode(a.id, body); err == nil && rec.State == fleet.NodeLive {
		a.covered = max(a.covered, sent.Add(rec.TTL()))
	}
}

// stepped judges an agent after each step.
func (c *checker) stepped(a *agent, in reconcile.Input) {
	h := a.m.Head()
	if _, ok := in.(lease.GotObject); ok {
		for _, st := range a.m.Snapshot().Names {
			if st.Held && !a.wrote[st.Name] {
				c.w.fail(invariantI2, "%s holds %s at epoch %d and has only read that it does", a.n.host, st.Name, st.Epoch)
			}
		}
	}
	if h.Deadline > a.covered {
		c.w.fail(invariantLease, "%s believes in its lease for %v longer than any renewal that has landed allows", a.n.host, h.Deadline.Sub(a.covered))
	}
	if a.booted || h.State == "booting" {
		return
	}
	a.booted = true
	rec := c.w.nodeRecord(a.id)
	own := a.n.disk.identity
	if h.State == "watching" && !a.suspicious && c.sane(a) && !c.ghosts[a.id] && rec != nil && (rec.Writer == own.Writer || rec.Writer == own.NewWriter) {
		c.w.fail(invariantI6, "%s waits its own lease out after a restart: its journal does not know its registration %d", a.n.host, rec.Incarnation)
	}
}

// sane reports an agent whose record no hand has touched, and whose data
// directory exists once.
func (c *checker) sane(a *agent) bool {
	if c.rewound != 0 || c.spoiled[a.id] {
		return false
	}
	for _, n := range c.w.nodes {
		if n.clone != nil && (n == a.n || n.clone == a.n) {
			return false
		}
	}
	return true
}

// early checks that a version of a node's record stood for the whole wait before
// it was fenced, by a contender's clock that runs as fast as one may.
func (c *checker) early(a *agent, prev *fleet.Node, stood time.Duration) {
	least := lease.ContenderWait(prev.TTL(), a.n.times.KillTime)
	if least -= least / 100; prev.State == fleet.NodeLive && stood < least {
		c.w.fail(invariantLease, "%s fenced %s %v after its last renewal, which has a ttl of %v: not before %v", a.n.host, prev.ID, stood, prev.TTL(), least)
	}
}

// sending judges a write at the instant at which it is decided: nothing new is
// acquired while names of the life before have no standing.
func (c *checker) sending(a *agent, key string) {
	name, ok := strings.CutPrefix(key, fleet.PrefixSessions)
	if !ok || a.recovers[name] {
		return
	}
	if s := c.w.subject(name); s.lostAt != 0 && s.last != nil && s.last.Owner == a.id {
		return // its own, made again
	}
	if snap := a.m.Snapshot(); snap.Recovering > 0 && writing(snap, name) == lease.WriteClaim {
		c.w.fail(invariantState, "%s claims %s while %d names of its predecessor have no standing yet", a.n.host, name, snap.Recovering)
	}
}

func writing(snap reconcile.Snapshot, name string) lease.Write {
	for _, st := range snap.Names {
		if st.Name == name {
			return st.Writing
		}
	}
	return 0
}

// remembered checks that an agent still waits for the fate of a write of its own
// that lands: one that it took for certain not to happen would land unnoticed.
func (c *checker) remembered(a *agent, name string) {
	if a.dead || a.n.agent != a || c.rewound != 0 { // a restored version lets an old condition hold again
		return
	}
	if writing(a.m.Snapshot(), name) == 0 {
		c.w.fail(invariantI3, "a write of %s by %s landed, which it had given up", name, a.n.host)
	}
}
