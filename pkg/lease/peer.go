package lease

import (
	"maps"
	"slices"
	"time"

	"github.com/barista-fleet/barista/internal/bucket"
	"github.com/barista-fleet/barista/pkg/fleet"
)

// peer is what this node has seen of another node's record.
type peer struct {
	id      string
	etag    bucket.ETag // of the newest version seen; empty while missing
	since   Instant     // when the reply that first showed that version arrived
	rec     *fleet.Node // a body; nil while none could be read
	recETag bucket.ETag // the version of that body
	badETag bucket.ETag // the version whose body could not be decoded
	inc     uint64      // the highest incarnation ever read: it never goes back
	incAt   Instant     // when inc was first read
	missing bool        // a GET, not a listing, found no record

	wantRead bool
	op       uint64 // the one request in flight
	next     Instant
	fence    string  // nonce of the fence in flight
	idle     Instant // silent, but nothing claims under it: look again then
}

func (m *Machine) peer(id string) *peer {
	p := m.peers[id]
	if p == nil {
		p = &peer{id: id}
		m.peers[id] = p
	}
	return p
}

// PeerView is what is known of another node, for the reconciler and for people.
type PeerView struct {
	Record      *fleet.Node // may be a version older than the newest one seen
	Incarnation uint64
	Silent      time.Duration // since its last sign of life was seen
}

// Peers returns the nodes seen so far, by id.
func (m *Machine) Peers() map[string]PeerView {
	out := make(map[string]PeerView, len(m.peers))
	for id, p := range m.peers {
		if p.rec != nil {
			out[id] = PeerView{Record: p.rec, Incarnation: p.inc, Silent: m.now.Sub(p.since)}
		}
	}
	return out
}

// advancePeers lists nodes/ when due, reads the records that need reading, and
// fences owners whose silence has lasted long enough.
func (m *Machine) advancePeers() {
	if m.nodesOp == 0 && m.now >= m.nextNodes {
		m.nodesOp = m.start(op{kind: opNodes})
		m.nextNodes = m.now.Add(m.cfg.Heartbeat)
		m.emit(List{Op: m.nodesOp, Prefix: fleet.PrefixNodes})
	}
	for _, id := range slices.Sorted(maps.Keys(m.peers)) {
		p := m.peers[id]
		if p.op != 0 || m.now < p.next {
			continue
		}
		if p.wantRead {
			p.wantRead = false
			p.op = m.get(opPeerGet, p.id, fleet.PrefixNodes+p.id, 0)
			continue
		}
		if m.now >= m.fenceDue(p) && m.now >= p.idle {
			m.tryFence(p)
		}
	}
}

func (m *Machine) peerWake(p *peer) Instant {
	switch {
	case p.op != 0:
		return Never
	case p.wantRead:
		return p.next
	}
	return max(m.fenceDue(p), p.idle, p.next)
}

// nodesListed takes a listing of nodes/. A changed ETag stands for a beat: only
// the node itself and a fencer write there.
func (m *Machine) nodesListed(l bucket.Listing, err error) {
	m.nodesOp = 0
	if err != nil {
		m.nextNodes = min(m.nextNodes, m.now.Add(m.jitter(m.cfg.Retry)))
		return
	}
	m.observed()
	seen := make(map[string]bool, len(l.Entries))
	for _, e := range l.Entries {
		id, ok := trimKey(e.Key, fleet.PrefixNodes)
		if !ok || id == m.cfg.NodeID {
			continue
		}
		seen[id] = true
		p := m.peer(id)
		if e.ETag == p.etag {
			continue
		}
		// The body is read when it is not known, and when a version follows a
		// long silence: then it is more likely a fence or a return than a beat.
		quiet := p.rec != nil && m.now.Sub(p.since) > max(2*m.cfg.Heartbeat, p.rec.TTL()/2)
		if p.rec == nil || quiet || p.rec.State != fleet.NodeLive {
			p.wantRead = true
		}
		p.saw(e.ETag, m.now)
	}
	for id, p := range m.peers {
		if !seen[id] && !p.missing {
			p.wantRead = true // a listing is not enough to say so
		}
	}
}

// saw starts the timer for a version that was not seen before.
func (p *peer) saw(etag bucket.ETag, now Instant) {
	if p.etag != etag {
		p.etag, p.since, p.missing, p.idle = etag, now, false, 0
	}
}

// observed restarts every timer after a gap: silence counts only while watched.
// Otherwise the first node back after an outage would fence all the others.
func (m *Machine) observed() {
	if m.lastNodes == 0 || m.now.Sub(m.lastNodes) > 2*m.cfg.Heartbeat {
		for _, p := range m.peers {
			p.since = m.now
		}
	}
	m.lastNodes = m.now
}

// peerRead takes a look at one record.
func (m *Machine) peerRead(p *peer, obj bucket.Object, err error) {
	p.op = 0
	fence := p.fence
	p.fence = ""
	if err != nil || obj.Status == bucket.NotModified {
		p.wantRead, p.next = true, m.now.Add(m.jitter(m.cfg.Retry))
		p.fence = fence
		return
	}
	if obj.Status == bucket.Absent {
		if !p.missing {
			p.missing, p.etag, p.since, p.idle = true, "", m.now, 0
		}
		return
	}
	p.saw(obj.ETag, m.now)
	rec, err := fleet.DecodeNode(p.id, obj.Body)
	if err != nil {
		p.rec, p.recETag, p.badETag = nil, "", obj.ETag
		return
	}
	p.rec, p.recETag = rec, obj.ETag
	m.passed(p, rec.Incarnation, fence != "" && rec.Nonce == fence)
}

// passed notes an incarnation. One that rises makes older claims invalid.
func (m *Machine) passed(p *peer, inc uint64, byUs bool) {
	if inc <= p.inc {
		return
	}
	p.inc, p.incAt, p.idle = inc, m.now, 0
	m.emit(PeerPassed{NodeID: p.id, Incarnation: inc, ByUs: byUs})
	if byUs {
		m.emit(Ring{Nodes: []string{p.id}})
	}
}

// fenceDue is when a peer has been silent for long enough to be fenced, if
// anything claims under it. The TTL is the record's, never our own.
func (m *Machine) fenceDue(p *peer) Instant {
	if p.etag == "" && !p.missing {
		return Never
	}
	ttl := m.peerTTL(p)
	if ttl == 0 {
		return Never
	}
	// Contenders want the same thing at the same time; one of them is enough.
	spread := time.Duration(0)
	if m.cfg.Stagger > 0 {
		spread = time.Duration(Rank(m.cfg.NodeID, p.id) % uint64(m.cfg.Stagger))
	}
	return p.since.Add(ContenderWait(ttl, m.cfg.KillTime) + spread)
}

// peerTTL is the TTL that the peer, or the claims under it, were written with.
// Zero: nothing claims under a record that cannot be read.
func (m *Machine) peerTTL(p *peer) time.Duration {
	var ttl time.Duration
	if p.rec != nil {
		ttl = p.rec.TTL()
	}
	if p.rec == nil || p.missing {
		_, claims := m.claimsUnder(p)
		ttl = max(ttl, claims)
	}
	return ttl
}

// claimsUnder returns the highest incarnation of the claims that name p and are
// not known to be invalid, and the longest TTL among them; 0 if there are none.
func (m *Machine) claimsUnder(p *peer) (inc uint64, ttl time.Duration) {
	for _, n := range m.names {
		if n.rec != nil && n.rec.Owner == p.id && n.rec.Incarnation >= p.inc {
			inc = max(inc, n.rec.Incarnation)
			ttl = max(ttl, time.Duration(n.rec.OwnerTTLMillis)*time.Millisecond)
		}
	}
	return inc, ttl
}

// tryFence writes the fence of a silent peer, from exactly the version whose
// silence was timed.
func (m *Machine) tryFence(p *peer) {
	claims, claimTTL := m.claimsUnder(p)
	watched := m.lastNodes != 0 && m.now.Sub(m.lastNodes) <= 2*m.cfg.Heartbeat
	switch {
	case claims == 0:
		p.idle = m.now.Add(m.cfg.Heartbeat)
		return
	case !m.CanAct() || !watched:
		// A lapsed node fences nobody, and silence counts only while watched.
		p.next = m.now.Add(m.cfg.Heartbeat)
		return
	case !p.missing && p.recETag != p.etag && p.badETag != p.etag:
		p.op = m.get(opPeerGet, p.id, fleet.PrefixNodes+p.id, 0)
		return
	}
	rec := fleet.Node{ID: p.id, TTLMillis: max(claimTTL.Milliseconds(), 1)}
	if p.rec != nil {
		rec = *p.rec
	}
	rec.Head = m.head()
	rec.State, rec.FencedBy = fleet.NodeFenced, m.cfg.NodeID
	rec.Incarnation = max(p.inc, claims) + 1
	body, err := fleet.Encode(&rec)
	if err != nil {
		p.idle = m.now.Add(m.cfg.TTL)
		return
	}
	cond := bucket.IfAbsent()
	if p.etag != "" {
		cond = bucket.IfMatch(p.etag)
	}
	p.fence = rec.Nonce
	p.op = m.put(opPeerPut, p.id, fleet.PrefixNodes+p.id, body, cond)
}

// peerPut handles the answer to a fence. Whatever it was, the record is read
// again: a fence is helpable, and another's is as good as ours.
func (m *Machine) peerPut(p *peer, _ bucket.PutResult) {
	p.op = m.get(opPeerGet, p.id, fleet.PrefixNodes+p.id, 0)
}

// hint says that a node's record is worth a look: a signal named it.
func (m *Machine) hint(ids []string) {
	for _, id := range ids {
		if id != m.cfg.NodeID && fleet.CheckName(id) == nil {
			m.peer(id).wantRead = true
		}
	}
}
