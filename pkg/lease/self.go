package lease

import (
	"errors"
	"fmt"
	"time"

	"github.com/barista-fleet/barista/internal/bucket"
	"github.com/barista-fleet/barista/pkg/fleet"
)

// self is what this node knows of its own record.
type self struct {
	phase   selfPhase
	id      Identity // as journaled
	inc     uint64   // the current incarnation, valid when live
	maxSeen uint64   // the highest incarnation seen anywhere that names us
	raiseOK bool
	suspect bool          // Boot.Suspicious
	idle    bool          // Boot.Idle
	ttl     time.Duration // of this incarnation; see Machine.TTL

	etag     bucket.ETag // the version to renew from; empty: the record is absent
	rec      *fleet.Node // its contents as last read or written; nil if unreadable
	beat     uint64
	pending  []pending // writes from etag whose fate is unknown
	deadline Instant
	lapsed   bool // Lapsed was announced
	verify   bool // the next request is a read, not a renewal

	op       uint64 // the one request in flight
	next     Instant
	rereads  int
	watching bucket.ETag // watched version
	since    Instant     // when it was first seen
	observed Instant     // the last successful look while watching
}

// pending is a write that may have landed, or may yet.
type pending struct {
	nonce string
	sent  Instant
}

type selfPhase uint8

const (
	selfNone     selfPhase = iota
	selfReading            // asks who we are
	selfWatching           // someone else may live under our identity
	selfRaising            // waits for AllowRaise, then registers a higher incarnation
	selfLive
	selfLeaving
	selfLeft
	selfHalted
)

func (p selfPhase) String() string {
	return [...]string{"stopped", "booting", "watching", "raising", "live", "leaving", "left", "halted"}[p]
}

func (m *Machine) selfKey() string { return fleet.PrefixNodes + m.cfg.NodeID }

func (m *Machine) boot(e Boot) {
	if m.self.phase != selfNone {
		return
	}
	m.self = self{
		phase: selfReading, raiseOK: m.self.raiseOK, id: e.Identity, maxSeen: e.MaxSeen,
		suspect: e.Suspicious, idle: e.Idle, ttl: m.cfg.TTL, next: m.now,
	}
	m.nextNodes = m.now
}

// advanceSelf sends the one request that is due for the own record.
func (m *Machine) advanceSelf() {
	s := &m.self
	if s.op != 0 || m.now < s.next {
		return
	}
	switch s.phase {
	case selfReading, selfWatching:
		s.op = m.get(opSelfGet, "", m.selfKey(), 0)
	case selfLive:
		if s.verify {
			s.op = m.get(opSelfGet, "", m.selfKey(), 0)
			return
		}
		m.renew()
	case selfRaising:
		if s.verify {
			s.op = m.get(opSelfGet, "", m.selfKey(), 0)
			return
		}
		if s.raiseOK {
			m.saveIntent()
		}
	case selfLeaving:
		if s.verify {
			s.op = m.get(opSelfGet, "", m.selfKey(), 0)
			return
		}
		m.saveIntent()
	default: // there is no lease to keep
	}
}

func (m *Machine) selfWake() Instant {
	s := &m.self
	wake := Never
	if s.phase == selfLive && !s.lapsed {
		wake = s.deadline
	}
	switch {
	case s.op != 0 || s.phase == selfNone || s.phase == selfHalted || s.phase == selfLeft:
		return wake
	case s.phase == selfRaising && !s.raiseOK && !s.verify:
		return wake
	}
	return min(wake, s.next)
}

// renew sends the heartbeat. Its deadline counts from this instant, which is
// before the request leaves.
func (m *Machine) renew() {
	s := &m.self
	s.beat++
	m.putSelf(fleet.NodeLive, s.inc, m.cfg.Writer)
	s.next = m.now.Add(m.heartbeat())
}

// heartbeat is the time between renewals. The TTL may be that of a life before
// this one, with which the configured heartbeat does not go.
func (m *Machine) heartbeat() time.Duration {
	if ttl := m.self.ttl; m.cfg.Heartbeat*beatsPerTTL > ttl {
		return ttl / (2 * beatsPerTTL)
	}
	return m.cfg.Heartbeat
}

func (m *Machine) putSelf(state fleet.NodeState, inc uint64, writer string) {
	s := &m.self
	rec := m.desc
	if s.rec != nil {
		rec.Unknown = s.rec.Unknown
	}
	rec.Head = m.head()
	rec.ID, rec.Name = m.cfg.NodeID, m.cfg.NodeName
	rec.Incarnation, rec.State, rec.Writer, rec.Beat = inc, state, writer, s.beat
	rec.TTLMillis = s.ttl.Milliseconds()
	body, err := fleet.Encode(&rec)
	if err != nil {
		m.halt("the node's own record cannot be encoded: " + err.Error())
		return
	}
	cond := bucket.IfAbsent()
	if s.etag != "" {
		cond = bucket.IfMatch(s.etag)
	}
	if len(s.pending) >= maxPending {
		s.pending = s.pending[1:]
	}
	s.pending = append(s.pending, pending{nonce: rec.Nonce, sent: m.now})
	s.rec = &rec
	s.op = m.put(opSelfPut, "", m.selfKey(), body, cond)
}

// selfPut handles the answer to a renewal, a registration or a leave.
func (m *Machine) selfPut(o op, r bucket.PutResult) {
	s := &m.self
	s.op = 0
	switch {
	case r.Outcome == bucket.Applied:
		s.etag, s.pending = r.ETag, nil
		m.selfConfirmed(s.rec, o.sent)
	case r.Outcome == bucket.Rejected && !errors.Is(r.Err, bucket.ErrCondition):
		// Certainly not applied, and nothing learned: throttled, say.
		s.pending = dropLast(s.pending)
		s.next = m.now.Add(m.jitter(m.cfg.Retry))
	default:
		s.verify = true
		s.next = m.now // look at once: a lost reply is the common case
	}
}

func dropLast(p []pending) []pending {
	if len(p) == 0 {
		return p
	}
	return p[:len(p)-1]
}

// selfConfirmed takes a write of our own as landed, as of the instant it was sent.
func (m *Machine) selfConfirmed(rec *fleet.Node, sent Instant) {
	s := &m.self
	switch {
	case s.phase == selfLive && rec.Incarnation == s.inc:
		m.extend(sent)
	case s.phase == selfRaising && rec.Incarnation == s.id.Intended && rec.State == fleet.NodeLive:
		s.phase, s.inc = selfLive, rec.Incarnation
		s.id = Identity{Incarnation: rec.Incarnation, Writer: rec.Writer, Intended: rec.Incarnation, NewWriter: rec.Writer}
		s.deadline, s.lapsed = 0, false
		s.next = sent.Add(m.heartbeat())
		m.extend(sent)
		m.emit(SaveIdentity{Identity: s.id})
		m.emit(Ring{Nodes: []string{m.cfg.NodeID}})
		m.emit(Joined{Incarnation: s.inc, TTL: s.ttl})
	case s.phase == selfLeaving && rec.State == fleet.NodeLeft:
		s.phase, s.deadline = selfLeft, 0
		s.id.Incarnation = rec.Incarnation
		m.emit(SaveIdentity{Identity: Identity{Incarnation: rec.Incarnation, Writer: rec.Writer}})
		m.emit(Ring{Nodes: []string{m.cfg.NodeID}})
		m.emit(Left{})
	default:
		// A renewal that landed after this node had decided otherwise: only its
		// version is of use, to write from.
		s.next = m.now
	}
}

func (m *Machine) extend(sent Instant) {
	s := &m.self
	s.deadline = max(s.deadline, sent.Add(s.ttl))
	if s.lapsed && m.now < s.deadline {
		s.lapsed = false
		m.emit(Renewed{})
	}
}

// checkLapse announces a passed deadline once an episode.
func (m *Machine) checkLapse() {
	s := &m.self
	if s.phase == selfLive && !s.lapsed && m.now >= s.deadline {
		s.lapsed = true
		m.emit(Lapsed{})
	}
}

// selfRead handles a look at the own record.
func (m *Machine) selfRead(obj bucket.Object, err error) {
	s := &m.self
	s.op = 0
	if err != nil || obj.Status == bucket.NotModified {
		s.next = m.now.Add(m.jitter(m.cfg.Retry))
		return
	}
	s.verify = false
	var rec *fleet.Node
	if obj.Status == bucket.Found {
		rec, _ = fleet.DecodeNode(m.cfg.NodeID, obj.Body) // nil: present but unreadable
	}
	if obj.ETag != s.etag {
		defer func() { s.pending = nil }() // writes from another version cannot land any more
	}
	if obj.Status == bucket.Absent {
		obj.ETag = ""
	}
	s.etag = obj.ETag
	if rec != nil {
		s.beat = max(s.beat, rec.Beat)
		s.rec = rec
	}
	switch s.phase {
	case selfReading:
		m.selfIdentify(obj, rec)
	case selfWatching:
		m.selfWatch(obj, rec)
	case selfLive:
		m.selfVerify(rec)
	case selfRaising, selfLeaving:
		m.selfRaiseVerify(obj, rec)
	default: // an answer after the end changes nothing
	}
}

// selfIdentify decides, at the start of a process life, whether the record in
// the bucket is still ours to renew.
func (m *Machine) selfIdentify(obj bucket.Object, rec *fleet.Node) {
	s := &m.self
	switch {
	case s.suspect && (rec == nil || rec.State == fleet.NodeLive):
		// Whoever else lives under this identity will renew its record, or make it
		// anew. That holds for a record below the journal's incarnation too.
		m.watch(obj)
	case rec == nil: // absent or unreadable: the same as fenced
		m.raise()
	case rec.Incarnation < s.id.Incarnation && s.rereads < staleRereads:
		s.rereads++
		s.next = m.now.Add(m.jitter(m.cfg.Retry))
	case rec.State != fleet.NodeLive || rec.Incarnation < s.id.Incarnation:
		m.raise()
	case !s.id.owns(rec.Incarnation, rec.Writer):
		m.watch(obj)
	case s.idle && rec.TTL() != m.cfg.TTL, rec.TTL() < minTTL:
		m.raise() // nothing is claimed under the old incarnation: a new one takes the new TTL
	default:
		// Our own registration: renew under the same incarnation. A restart
		// that raised it would free every name while the workloads run. The
		// renewal is a write from this life, so no older one can land after it.
		// The TTL stays that of the registration: whoever watches this record may
		// have read its body before the configuration changed.
		s.phase, s.inc, s.deadline, s.lapsed, s.ttl = selfLive, rec.Incarnation, 0, true, rec.TTL()
		s.id = Identity{Incarnation: rec.Incarnation, Writer: rec.Writer, Intended: rec.Incarnation, NewWriter: rec.Writer}
		m.cfg.Writer = rec.Writer
		s.next = m.now
		m.emit(Joined{Incarnation: s.inc, TTL: s.ttl})
	}
}

// selfWatch looks whether someone else renews our record. A beat means that an
// agent lives under this identity; silence for as long as any contender must
// wait means that it was us, before a reboot.
func (m *Machine) selfWatch(obj bucket.Object, rec *fleet.Node) {
	s := &m.self
	gap := m.now.Sub(s.observed) > 2*m.cfg.Heartbeat
	s.observed = m.now
	ttl := m.cfg.TTL
	if rec != nil {
		ttl = rec.TTL()
	}
	switch {
	case rec != nil && rec.State != fleet.NodeLive:
		m.raise()
	case obj.ETag != s.watching && rec == nil:
		m.watch(obj) // removed or damaged under our eyes: its writer will tell
	case obj.ETag != s.watching:
		m.halt(fmt.Sprintf("another agent is renewing %s as writer %s: this data directory is a copy of one that is in use; "+
			"remove it, or give this machine a data directory of its own", m.selfKey(), rec.Writer))
	case gap:
		s.since = m.now
		s.next = m.now.Add(m.watchEvery(ttl))
	case m.now.Sub(s.since) >= ContenderWait(ttl, m.cfg.KillTime):
		m.raise()
	default:
		s.next = m.now.Add(m.watchEvery(ttl))
	}
}

// watch begins to watch a version of the own record.
func (m *Machine) watch(obj bucket.Object) {
	s := &m.self
	s.phase = selfWatching
	s.watching, s.since, s.observed = obj.ETag, m.now, m.now
	s.next = m.now.Add(m.watchEvery(m.cfg.TTL))
}

// selfVerify settles a renewal that was rejected or whose reply was lost.
func (m *Machine) selfVerify(rec *fleet.Node) {
	s := &m.self
	switch {
	case rec == nil || rec.Incarnation > s.inc || rec.Incarnation == s.inc && rec.State != fleet.NodeLive:
		m.fenced()
	case rec.Incarnation < s.inc:
		if s.rereads++; s.rereads <= staleRereads {
			s.verify, s.next = true, m.now.Add(m.jitter(m.cfg.Retry))
			return
		}
		m.fenced() // the bucket is older than we are: restored from a backup
	case rec.Writer != m.cfg.Writer:
		m.halt(fmt.Sprintf("writer %s renews %s under our incarnation %d: two agents share one identity", rec.Writer, m.selfKey(), s.inc))
	default:
		// Same incarnation and live is never a fence, whatever the nonce.
		s.rereads = 0
		for _, p := range s.pending {
			if p.nonce == rec.Nonce {
				m.extend(p.sent)
			}
		}
		s.next = m.now
	}
}

// watchEvery is how often a watched record is looked at: often enough to see one
// beat of a writer with its TTL.
func (m *Machine) watchEvery(ttl time.Duration) time.Duration { return min(m.cfg.Heartbeat, ttl/6) }

// fenced drops everything that was held. The names are read again: some may be
// taken already, the others are re-claimed after the next registration.
func (m *Machine) fenced() {
	old := m.self.inc
	m.raise()
	for _, n := range m.names {
		if n.held {
			n.held = false
			m.want(n, m.now)
		}
	}
	m.emit(Fenced{Incarnation: old})
}

func (m *Machine) raise() {
	s := &m.self
	s.phase, s.deadline, s.verify, s.rereads, s.ttl = selfRaising, 0, false, 0, m.cfg.TTL
	s.next = m.now
}

// saveIntent journals the incarnation that the next write is to make real. The
// write is sent when the journal has it: a crash in between finds it there.
func (m *Machine) saveIntent() {
	s := &m.self
	inc := max(s.id.highest(), s.maxSeen, s.inc)
	if s.rec != nil {
		inc = max(inc, s.rec.Incarnation)
	}
	s.id.Intended, s.id.NewWriter = inc+1, m.cfg.Writer
	s.op = m.start(op{kind: opSelfSave})
	m.emit(SaveIdentity{Op: s.op, Identity: s.id})
}

func (m *Machine) identitySaved(e IdentitySaved) {
	o, ok := m.take(e.Op)
	if !ok || o.kind != opSelfSave {
		return
	}
	s := &m.self
	s.op = 0
	switch {
	case e.Err != nil:
		s.next = m.now.Add(m.jitter(m.cfg.Retry))
	case s.phase == selfLeaving:
		s.beat++
		m.putSelf(fleet.NodeLeft, s.id.Intended, m.cfg.Writer)
	case s.phase == selfRaising && s.raiseOK:
		s.beat++
		m.putSelf(fleet.NodeLive, s.id.Intended, m.cfg.Writer)
	}
}

// selfRaiseVerify settles a registration or a leave whose fate is unknown. One
// that is not there yet is sent again from the version just read, with a higher
// incarnation, so that at most one of them lands.
func (m *Machine) selfRaiseVerify(obj bucket.Object, rec *fleet.Node) {
	s := &m.self
	s.next = m.now
	if rec == nil {
		return
	}
	for _, p := range s.pending {
		if p.nonce == rec.Nonce {
			m.selfConfirmed(rec, p.sent)
			return
		}
	}
	switch {
	case s.phase == selfLeaving && rec.Incarnation > s.inc:
		// Fenced while leaving: the incarnation has passed, which is what leaving means.
		s.phase = selfLeft
		m.emit(Left{})
	case s.phase == selfRaising && rec.State == fleet.NodeLive:
		// Written by a life before this one, landing late, or by a copy of this
		// data directory. Only watching can tell.
		m.watch(obj)
	}
}

// named notes that some record names this node under inc. One that is above
// ours means that we were registered higher once: our incarnation is not fit.
func (m *Machine) named(inc uint64) {
	s := &m.self
	s.maxSeen = max(s.maxSeen, inc)
	if s.phase == selfLive && inc > s.inc {
		m.fenced()
	}
}

func (m *Machine) leave() {
	s := &m.self
	if s.phase != selfLive {
		return
	}
	s.phase, s.deadline, s.next = selfLeaving, 0, m.now
}

func (m *Machine) halt(reason string) {
	m.self.phase, m.self.deadline = selfHalted, 0
	for _, n := range m.names {
		n.held = false
	}
	m.emit(Halted{Reason: reason})
}
