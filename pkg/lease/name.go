package lease

import (
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/barista-fleet/barista/internal/bucket"
	"github.com/barista-fleet/barista/pkg/fleet"
)

// name is what this node knows of one ownership record, and whether it holds it.
type name struct {
	id       string
	known    known
	rec      *fleet.Session // the newest version read or written; nil unless present
	etag     bucket.ETag
	seenAt   Instant // when that version was first seen
	readAt   Instant // when the last read was answered
	present  bool    // a record was seen in this life
	mine     bool    // the journal says that this node owned it
	newer    bool    // unreadable because it is of a later schema
	maxEpoch uint64  // the highest epoch ever seen, by the journal too
	lowReads int     // consecutive reads below maxEpoch

	held  bool
	write *write // in flight, or of unknown fate

	gen      uint64 // changes with every write sent and every write settled
	op       uint64 // a read in flight
	wantRead bool
	next     Instant // no read before
}

type known uint8

const (
	knownNothing known = iota
	knownAbsent
	knownPresent
	knownUnreadable
)

// Claim is what a node may conclude from its view of a name. docs/fencing.md
// has the argument.
type Claim uint8

// The conclusions. Only ClaimFree, ClaimInvalid and ClaimGone may be taken.
const (
	ClaimUnknown    Claim = iota // not read yet
	ClaimFree                    // the record names no owner, or there never was one
	ClaimOurs                    // names us under our current incarnation
	ClaimOursOld                 // names us under an older one
	ClaimValid                   // names another node whose incarnation has not passed
	ClaimInvalid                 // names another node whose incarnation has passed
	ClaimGone                    // was there, and has been absent or garbage for a whole TTL
	ClaimMissing                 // was there, and is absent or garbage, not yet for long enough
	ClaimUnreadable              // of a schema this program does not know
	ClaimBehind                  // older than what the journal has seen: a restored bucket
	ClaimSealed                  // finished for good; nobody writes from it
)

// Takeable reports a name that a node other than its owner may take.
func (c Claim) Takeable() bool { return c == ClaimFree || c == ClaimInvalid || c == ClaimGone }

func (c Claim) String() string {
	return [...]string{
		"unknown", "free", "ours", "ours of an older incarnation", "valid", "invalid",
		"gone", "missing", "unreadable", "behind", "sealed",
	}[c]
}

// NameView is what the reconciler decides by.
type NameView struct {
	Claim   Claim
	Held    bool
	Rec     *fleet.Session // nil unless a readable record is there
	Seen    Instant        // when this version was first seen
	Lost    Instant        // when its owner was first seen to have passed; 0 unless ClaimInvalid
	Read    Instant        // when it was last looked at by itself
	Writing Write          // a write that is in flight or of unknown fate; 0: none
	Epoch   uint64         // the highest epoch ever seen
	Next    uint64         // the epoch that a claim would get
}

// Name returns the view of a name; the zero view if nothing is known.
func (m *Machine) Name(id string) NameView {
	n := m.names[id]
	if n == nil {
		return NameView{}
	}
	v := NameView{Claim: m.claim(n), Held: n.held, Rec: n.rec, Seen: n.seenAt, Read: n.readAt, Epoch: n.maxEpoch, Next: m.nextEpoch(n)}
	if n.write != nil {
		v.Writing = n.write.kind
	}
	if v.Claim == ClaimInvalid {
		v.Lost = max(n.seenAt, m.peer(n.rec.Owner).incAt)
	}
	return v
}

// nextEpoch is above every epoch that the name was ever seen with and, where
// there is no record, above those that retention has forgotten.
func (m *Machine) nextEpoch(n *name) uint64 {
	if n.known != knownPresent {
		return max(n.maxEpoch, m.floor) + 1
	}
	return max(n.maxEpoch, n.rec.Epoch) + 1
}

func (m *Machine) name(id string) *name {
	n := m.names[id]
	if n == nil {
		n = &name{id: id}
		m.names[id] = n
	}
	return n
}

// claim judges the view of a name. A claim of another node is invalid if and
// only if a read showed that node under a higher incarnation: incarnations never
// go back, so an old view can only make us too patient.
func (m *Machine) claim(n *name) Claim {
	switch {
	case n.known == knownNothing:
		return ClaimUnknown
	case n.known == knownUnreadable && n.newer:
		return ClaimUnreadable
	case n.known != knownPresent:
		return m.claimMissing(n)
	case n.rec.Epoch < n.maxEpoch:
		return ClaimBehind
	case n.rec.Sealed:
		return ClaimSealed
	case n.rec.Owner == "":
		return ClaimFree
	case n.rec.Owner == m.cfg.NodeID && n.rec.Incarnation == m.self.inc && m.self.phase == selfLive:
		return ClaimOurs
	case n.rec.Owner == m.cfg.NodeID:
		return ClaimOursOld
	case m.peer(n.rec.Owner).inc > n.rec.Incarnation:
		return ClaimInvalid
	}
	return ClaimValid
}

// claimMissing judges a record that is not there, or is garbage. One that never
// was there is free. One that was, was deleted by a hand or a rule: its owner
// makes it again at once, anyone else only after a TTL of confirmed absence.
func (m *Machine) claimMissing(n *name) Claim {
	ttl := m.cfg.TTL
	switch {
	case n.known == knownAbsent && !n.present && n.maxEpoch == 0:
		return ClaimFree
	case n.rec != nil && n.rec.Owner == m.cfg.NodeID, n.rec == nil && n.mine:
		return ClaimGone
	case n.rec != nil:
		ttl = max(ttl, time.Duration(n.rec.OwnerTTLMillis)*time.Millisecond)
	}
	if m.now.Sub(n.seenAt) >= ContenderWait(ttl, m.cfg.KillTime) {
		return ClaimGone
	}
	return ClaimMissing
}

// want asks for a look at a name.
func (m *Machine) want(n *name, at Instant) {
	n.wantRead, n.next = true, at
	m.busy[n.id] = n
}

// advanceNames reads what needs reading, and settles writes of unknown fate.
// Only the names with something to do are visited.
func (m *Machine) advanceNames() {
	for _, id := range slices.Sorted(maps.Keys(m.busy)) {
		n := m.busy[id]
		switch {
		case n.write != nil:
			m.advanceWrite(n)
		case n.wantRead && n.op == 0 && m.now >= n.next:
			n.wantRead = false
			n.op = m.get(opNameGet, id, fleet.PrefixSessions+id, n.gen)
		}
		if n.write == nil && !n.wantRead {
			delete(m.busy, id)
		}
	}
}

func (m *Machine) nameWake(n *name) Instant {
	switch {
	case n.write != nil && n.write.op == 0:
		return n.write.next
	case n.write == nil && n.wantRead && n.op == 0:
		return n.next
	}
	return Never
}

// sessionsListed compares a whole listing with the views. What differs is read:
// a listing says that something changed, never what.
func (m *Machine) sessionsListed(e SessionsListed) {
	seen := make(map[string]bool, len(e.Entries))
	for _, entry := range e.Entries {
		id, ok := trimKey(entry.Key, fleet.PrefixSessions)
		if !ok {
			continue
		}
		seen[id] = true
		if n := m.name(id); n.known == knownNothing || n.known == knownAbsent || n.etag != entry.ETag {
			m.want(n, n.next)
		}
	}
	for _, id := range e.Names {
		// The listing is the first word about it, and nothing of ours is on its way.
		n := m.name(id)
		if !seen[id] && n.known == knownNothing && n.write == nil && n.op == 0 {
			n.known, n.seenAt = knownAbsent, m.now
			m.emit(Changed{Name: id})
		}
	}
	for _, id := range m.Names() {
		if n := m.names[id]; !seen[id] && n.known != knownNothing && n.known != knownAbsent {
			m.want(n, n.next) // only a read of the key itself says that it is gone
		}
	}
}

// nameRead takes a look at one record. A look that began before a write of ours
// was settled says nothing about the time after it.
func (m *Machine) nameRead(n *name, o op, obj bucket.Object, err error) {
	n.op = 0
	switch {
	case err != nil || obj.Status == bucket.NotModified:
		m.want(n, m.now.Add(m.jitter(m.cfg.Retry)))
	case n.gen != o.gen || n.write != nil:
		m.want(n, m.now)
	default:
		n.readAt = m.now
		m.look(n, obj)
		m.emit(Changed{Name: n.id})
	}
}

// look makes obj the view of a name and says what that means for a held one.
func (m *Machine) look(n *name, obj bucket.Object) {
	was, wasEpoch := n.held, uint64(0)
	if n.rec != nil {
		wasEpoch = n.rec.Epoch
	}
	rec, known, newer := m.decode(n.id, obj)
	switch {
	case known == knownPresent && n.held && n.rec.Nonce == rec.Nonce:
		n.etag = obj.ETag // our own version
		return
	case known == knownPresent && rec.Epoch < n.maxEpoch && n.lowReads < staleRereads:
		n.lowReads++
		m.want(n, m.now.Add(m.jitter(m.cfg.Retry)))
		return
	case known == n.known && obj.ETag == n.etag && !n.held:
		return
	}
	n.lowReads = 0
	if known != n.known || obj.ETag != n.etag {
		n.seenAt = m.now
	}
	n.known, n.etag, n.newer, n.held = known, obj.ETag, newer, false
	if known == knownPresent {
		n.rec, n.present = rec, true
		m.noteRecord(n)
	}
	if was {
		// Any foreign write on a name that was held is a fence. A record that
		// vanished or turned to garbage names nobody: see claimMissing.
		owner := ""
		if known == knownPresent {
			owner = rec.Owner
		}
		m.emit(Lost{Name: n.id, Epoch: wasEpoch, Owner: owner})
	}
	m.emit(Changed{Name: n.id})
}

func (m *Machine) decode(id string, obj bucket.Object) (rec *fleet.Session, k known, newer bool) {
	if obj.Status == bucket.Absent {
		return nil, knownAbsent, false
	}
	rec, err := fleet.DecodeSession(id, obj.Body)
	if err != nil {
		return nil, knownUnreadable, errors.Is(err, fleet.ErrNewerSchema)
	}
	return rec, knownPresent, false
}

// noteRecord draws what a record says beyond itself: epochs and incarnations
// never go back, and a record's owner must be known to be judged.
func (m *Machine) noteRecord(n *name) {
	n.maxEpoch = max(n.maxEpoch, n.rec.Epoch)
	switch owner := n.rec.Owner; owner {
	case "":
	case m.cfg.NodeID:
		m.named(n.rec.Incarnation)
	default:
		p := m.peer(owner)
		if p.idle != 0 {
			p.idle = m.now
		}
		if p.etag == "" && !p.missing {
			p.wantRead = true
		}
	}
}
