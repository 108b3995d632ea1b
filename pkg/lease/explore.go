package lease

import (
	"maps"
	"slices"
	"time"

	"github.com/barista-fleet/barista/internal/bucket"
	"github.com/barista-fleet/barista/pkg/fleet"
)

// Clone returns a machine that goes its own way from here. The two share records,
// which are never changed in place. It is for exploring what may happen next.
func (m *Machine) Clone() *Machine {
	c := *m
	c.out = nil
	c.ops = maps.Clone(m.ops)
	c.self.pending = slices.Clone(m.self.pending)
	c.peers = make(map[string]*peer, len(m.peers))
	for id, p := range m.peers {
		q := *p
		c.peers[id] = &q
	}
	c.names = make(map[string]*name, len(m.names))
	c.busy = make(map[string]*name, len(m.busy))
	for id, n := range m.names {
		q := *n
		if n.write != nil {
			w := *n.write
			w.pending = slices.Clone(w.pending)
			q.write = &w
		}
		c.names[id] = &q
		if m.busy[id] != nil {
			c.busy[id] = &q
		}
	}
	return &c
}

// Canon collects an encoding under which two states are equal if nothing that may
// happen from now on can tell them apart. Nonces, versions and writers are only
// ever compared with each other, so they are numbered in the order in which they
// are met. Times are relative and counted in units, rounded up: between two units
// nothing is stepped. A Canon may run over several machines and what lies between
// them, as long as it does so in the same order each time.
type Canon struct {
	Buf  []byte
	Unit time.Duration

	ids  []string
	keys []string // scratch
}

// Reset empties the canon for another state.
func (c *Canon) Reset() { c.Buf, c.ids = c.Buf[:0], c.ids[:0] }

// ID appends the number of a nonce, a version or a writer.
func (c *Canon) ID(s string) {
	if s == "" {
		c.Buf = append(c.Buf, 0)
		return
	}
	at := slices.Index(c.ids, s)
	if at < 0 {
		at = len(c.ids)
		c.ids = append(c.ids, s)
	}
	c.Byte(uint64(at) + 1)
}

// Byte appends a small number.
func (c *Canon) Byte(v uint64) {
	if v > 254 {
		panic("lease: a number that does not fit the canon")
	}
	c.Buf = append(c.Buf, byte(v))
}

// Bool appends a truth value.
func (c *Canon) Bool(v bool) {
	if v {
		c.Buf = append(c.Buf, 1)
	} else {
		c.Buf = append(c.Buf, 0)
	}
}

// Time appends t relative to now in units; what lies more than least before it
// counts as least before it.
func (c *Canon) Time(t, now Instant, least time.Duration) {
	if t == Never {
		c.Buf = append(c.Buf, 255)
		return
	}
	d := max(t.Sub(now), -least)
	units := d / c.Unit
	if d > 0 && d%c.Unit != 0 {
		units++
	}
	c.Byte(uint64(units + 100))
}

// Text appends a short text as it is.
func (c *Canon) Text(s string) {
	c.Byte(uint64(len(s)))
	c.Buf = append(c.Buf, s...)
}

// Node appends what a liveness record says to the protocol. The beat is left out:
// it tells versions apart for people, and the nonce does so for the machine.
func (c *Canon) Node(r *fleet.Node) {
	if r == nil {
		c.Byte(0)
		return
	}
	c.Byte(1)
	c.ID(r.Nonce)
	c.ID(r.Writer)
	c.Byte(r.Incarnation)
	c.Text(string(r.State))
	c.Byte(uint64(r.TTL() / c.Unit))
}

// Session appends what an ownership record says to the protocol and to whoever
// decides by its phase, attempt, instance and seen intent.
func (c *Canon) Session(r *fleet.Session) {
	if r == nil {
		c.Byte(0)
		return
	}
	c.Byte(1)
	c.ID(r.Nonce)
	c.Text(r.Owner)
	c.Byte(r.Incarnation)
	c.Byte(r.Epoch)
	c.Text(string(r.Phase))
	c.Text(r.Instance)
	c.Byte(uint64(r.Attempt))
	c.Byte(r.Seen)
	c.Bool(r.Sealed)
}

// Append adds the machine, as seen at now of its clock. Left out is what no later
// step reads: counters of nonces, requests and jitter, and the times of views that
// only people and the order of claims look at.
func (m *Machine) Append(c *Canon, now Instant) {
	m.appendSelf(c, now)
	c.Bool(m.nodesOp != 0)
	c.Time(m.nextNodes, now, 0)
	c.Time(m.lastNodes, now, 2*m.cfg.Heartbeat+c.Unit)
	c.Byte(m.floor)
	c.Byte(uint64(len(m.peers)))
	c.keys = slices.AppendSeq(c.keys[:0], maps.Keys(m.peers))
	slices.Sort(c.keys)
	for _, id := range c.keys {
		m.appendPeer(c, now, m.peers[id])
	}
	c.Byte(uint64(len(m.names)))
	c.keys = slices.AppendSeq(c.keys[:0], maps.Keys(m.names))
	slices.Sort(c.keys)
	for _, id := range c.keys {
		m.appendName(c, now, m.names[id])
	}
}

func (m *Machine) appendSelf(c *Canon, now Instant) {
	s := &m.self
	c.ID(m.cfg.Writer)
	c.Byte(uint64(s.phase))
	c.Identity(s.id)
	c.Byte(s.inc)
	c.Byte(s.maxSeen)
	c.Bool(s.raiseOK)
	c.Bool(s.suspect)
	c.Bool(s.idle)
	c.Byte(uint64(s.ttl / c.Unit))
	c.Bool(s.lapsed)
	c.Bool(s.verify)
	c.ID(string(s.etag))
	c.Node(s.rec)
	c.pending(s.pending, now, m.cfg.TTL)
	c.Bool(s.deadline == 0)
	c.Time(s.deadline, now, 0)
	if c.Bool(s.op != 0); s.op != 0 {
		o := m.ops[s.op]
		c.Byte(uint64(o.kind))
		c.Time(o.sent, now, m.cfg.TTL)
	}
	c.Time(s.next, now, 0)
	c.Byte(uint64(s.rereads))
	if s.phase == selfWatching {
		wait := 2 * ContenderWait(m.cfg.TTL, m.cfg.KillTime)
		c.ID(string(s.watching))
		c.Time(s.since, now, wait)
		c.Time(s.observed, now, 2*m.cfg.Heartbeat+c.Unit)
	}
}

// Identity appends a journaled identity.
func (c *Canon) Identity(id Identity) {
	c.Byte(id.Incarnation)
	c.ID(id.Writer)
	c.Byte(id.Intended)
	c.ID(id.NewWriter)
}

// pending appends writes of unknown fate. When they were sent matters up to ttl
// ago, and not at all where ttl is 0.
func (c *Canon) pending(ps []pending, now Instant, ttl time.Duration) {
	c.Byte(uint64(len(ps)))
	for _, p := range ps {
		c.ID(p.nonce)
		if ttl > 0 {
			c.Time(p.sent, now, ttl)
		}
	}
}

func (m *Machine) appendPeer(c *Canon, now Instant, p *peer) {
	wait := 2 * ContenderWait(m.cfg.TTL, m.cfg.KillTime)
	c.Text(p.id)
	c.ID(string(p.etag))
	c.Time(p.since, now, wait)
	c.Node(p.rec)
	c.ID(string(p.recETag))
	c.ID(string(p.badETag))
	c.Byte(p.inc)
	c.Bool(p.missing)
	c.Bool(p.wantRead)
	if c.Bool(p.op != 0); p.op != 0 {
		c.Byte(uint64(m.ops[p.op].kind))
	}
	c.Time(p.next, now, 0)
	c.ID(p.fence)
	c.Bool(p.idle == 0)
	c.Time(p.idle, now, 0)
}

func (m *Machine) appendName(c *Canon, now Instant, n *name) {
	c.Text(n.id)
	c.Byte(uint64(n.known))
	c.Session(n.rec)
	c.ID(string(n.etag))
	if n.known != knownPresent {
		c.Time(n.seenAt, now, 2*ContenderWait(m.cfg.TTL, m.cfg.KillTime))
	}
	c.Bool(n.present)
	c.Bool(n.mine)
	c.Bool(n.newer)
	c.Byte(n.maxEpoch)
	c.Byte(uint64(n.lowReads))
	c.Bool(n.held)
	c.Bool(n.wantRead)
	c.Time(n.next, now, 0)
	if c.Bool(n.op != 0); n.op != 0 {
		c.Bool(m.ops[n.op].gen == n.gen)
	}
	w := n.write
	if c.Bool(w != nil); w == nil {
		return
	}
	c.Byte(uint64(w.kind))
	c.Session(w.rec)
	c.ID(string(w.base))
	c.Session(w.basis)
	c.pending(w.pending, now, 0)
	if c.Bool(w.op != 0); w.op != 0 {
		c.Byte(uint64(m.ops[w.op].kind))
	}
	c.Byte(uint64(w.looks))
	c.Bool(w.resend)
	c.Bool(w.gaveUp)
	c.Time(w.next, now, 0)
}

// Slot names what waits for the answer to a request, the same in two machines
// that Append cannot tell apart; ok is false for an answer that nobody awaits.
func (m *Machine) Slot(request uint64) (slot string, ok bool) {
	o, ok := m.ops[request]
	return string('a'+rune(o.kind)) + o.id, ok
}

// Version is the version of a name's record that the view is of.
func (m *Machine) Version(name string) bucket.ETag {
	if n := m.names[name]; n != nil {
		return n.etag
	}
	return ""
}
