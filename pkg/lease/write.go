package lease

import (
	"errors"

	"github.com/barista-fleet/barista/internal/bucket"
	"github.com/barista-fleet/barista/pkg/fleet"
)

// write is one intended change of an ownership record, until its fate is known.
// All its attempts are conditioned on one version, so at most one can land.
type write struct {
	kind    Write
	rec     *fleet.Session // what is to be written; the head is new in each attempt
	base    bucket.ETag    // empty: the record must not exist
	basis   *fleet.Session // the contents of base; nil if absent or unreadable
	pending []pending      // attempts of unknown fate
	op      uint64         // the request in flight
	looks   int            // read-backs since the last attempt
	resend  bool           // the next request is an attempt, not a read-back
	gaveUp  bool           // a claim that is no longer wanted: it is being burnt
	next    Instant
}

// submit begins a write. One that cannot be begun is answered with NotWritten.
func (m *Machine) submit(e Submit) {
	n := m.name(e.Name)
	if !m.maySubmit(n, e) {
		m.emit(NotWritten{Name: e.Name, Kind: e.Kind})
		return
	}
	w := &write{kind: e.Kind, rec: e.Record.Clone(), base: n.etag, resend: true, next: m.now}
	w.rec.Name = e.Name
	switch {
	case n.known == knownPresent:
		w.basis = n.rec
	case n.known == knownAbsent:
		w.base = ""
	}
	switch {
	case e.Kind.raisesEpoch():
		w.rec.Epoch = m.nextEpoch(n)
	case n.known == knownPresent:
		w.rec.Epoch = n.rec.Epoch
	}
	if e.Kind == WriteRelease || e.Kind == WriteFinal {
		w.rec.Owner, w.rec.OwnerName, w.rec.Incarnation, w.rec.OwnerTTLMillis, w.rec.Endpoint = "", "", 0, 0, ""
	}
	if e.Kind == WriteUpdate {
		w.rec.Owner, w.rec.Incarnation = n.rec.Owner, n.rec.Incarnation
	}
	if e.Kind == WriteRelease {
		n.held = false // from the sending on, until a later write is confirmed
	}
	n.write = w
	m.busy[n.id] = n
	m.advanceWrite(n)
}

// maySubmit checks that the view allows the write. The store's condition
// decides in the end; this keeps requests that cannot succeed from being sent.
func (m *Machine) maySubmit(n *name, e Submit) bool {
	if n.write != nil || m.self.phase == selfHalted || m.self.phase == selfNone {
		return false
	}
	c := m.claim(n)
	switch e.Kind {
	case WriteClaim, WriteFinal:
		return m.CanAct() && (c.Takeable() || e.Override && c == ClaimBehind)
	case WriteReclaim:
		return m.CanAct() && c == ClaimOursOld
	case WriteTouch:
		return m.CanAct() && c == ClaimOurs && !n.held
	case WriteUpdate:
		return n.held
	case WriteRelease:
		// Also by an owner that was fenced, as long as nobody took the name:
		// this is how a run that ended meanwhile is reported.
		return n.held || c == ClaimOurs || c == ClaimOursOld
	default: // a burn is the machine's own and is not submitted
	}
	return false
}

// advanceWrite sends the next request of a write: an attempt, or a look.
func (m *Machine) advanceWrite(n *name) {
	w := n.write
	if w.op != 0 || m.now < w.next {
		return
	}
	if !w.resend {
		w.op = m.get(opNameSettle, n.id, fleet.PrefixSessions+n.id, 0)
		return
	}
	if w.kind.acquires() && !m.CanAct() {
		if len(w.pending) == 0 {
			m.notWritten(n, false)
			return
		}
		m.burn(n)
	}
	m.attempt(n)
}

// attempt sends the write once, under a new nonce.
func (m *Machine) attempt(n *name) {
	w := n.write
	rec := w.rec.Clone()
	rec.Head = m.head()
	if w.kind.acquires() {
		rec.Owner, rec.OwnerName = m.cfg.NodeID, m.cfg.NodeName
		rec.Incarnation, rec.OwnerTTLMillis = m.self.inc, m.self.ttl.Milliseconds()
		rec.Endpoint = m.desc.Endpoint
	}
	body, err := fleet.Encode(rec)
	if err != nil {
		// Too large, say: nothing was sent, and nothing will be.
		m.notWritten(n, false)
		return
	}
	cond := bucket.IfAbsent()
	if w.base != "" {
		cond = bucket.IfMatch(w.base)
	}
	if len(w.pending) >= maxPending {
		w.pending = w.pending[1:]
	}
	w.pending = append(w.pending, pending{nonce: rec.Nonce, sent: m.now})
	w.rec, w.resend, w.looks = rec, false, 0
	n.gen++
	w.op = m.put(opNamePut, n.id, fleet.PrefixSessions+n.id, body, cond)
}

// burn turns a claim of unknown fate into a write that changes nothing but the
// version, so that no attempt of the claim can land any more.
func (m *Machine) burn(n *name) {
	w := n.write
	if w.gaveUp {
		return
	}
	w.gaveUp, w.kind = true, writeBurn
	if w.basis != nil {
		w.rec = w.basis.Clone()
		return
	}
	// There was no record: leave one that names nobody, at the same epoch.
	w.rec = &fleet.Session{
		Name: n.id, Epoch: w.rec.Epoch, UID: w.rec.UID, Generation: w.rec.Generation, Phase: fleet.PhasePending,
	}
}

// namePut handles the answer to an attempt.
func (m *Machine) namePut(n *name, r bucket.PutResult) {
	w := n.write
	w.op = 0
	switch {
	case r.Outcome == bucket.Applied:
		m.landed(n, w.rec, r.ETag)
	case r.Outcome == bucket.Rejected && !errors.Is(r.Err, bucket.ErrCondition):
		m.refused(n)
	case r.Outcome == bucket.Rejected && len(w.pending) == 1:
		// Someone else wrote first; look who. Nothing of ours can be there.
		w.pending = nil
		w.next = m.now
	case r.Outcome == bucket.Rejected:
		w.pending = dropLast(w.pending)
		w.next = m.now // an earlier attempt may be what we met
	default:
		w.next = m.now
	}
}

// refused handles a store that would not look at the request: throttled, say.
func (m *Machine) refused(n *name) {
	w := n.write
	w.pending = dropLast(w.pending)
	if len(w.pending) == 0 && w.kind.acquires() {
		m.notWritten(n, false) // the reconciler will want it again, or not
		return
	}
	w.resend, w.next = true, m.now.Add(m.jitter(m.cfg.Retry))
}

// nameSettled looks at a record to learn the fate of a write.
func (m *Machine) nameSettled(n *name, obj bucket.Object, err error) {
	w := n.write
	w.op = 0
	if err != nil || obj.Status == bucket.NotModified {
		w.next = m.now.Add(m.jitter(m.cfg.Retry))
		return
	}
	rec, known, _ := m.decode(n.id, obj)
	if known == knownPresent {
		for _, p := range w.pending {
			if p.nonce == rec.Nonce {
				m.landed(n, rec, obj.ETag)
				return
			}
		}
	}
	if m.unchanged(w, rec, known, obj.ETag) {
		w.looks++
		w.resend = w.looks >= maxReadBacks || len(w.pending) == 0
		w.next = m.now.Add(m.jitter(m.cfg.Retry / 4))
		return
	}
	// Another version stands there: everything that was conditioned on ours is void.
	n.gen++
	n.write = nil
	kind := w.kind
	m.look(n, obj)
	if kind == writeBurn {
		kind = WriteClaim
	}
	m.emit(NotWritten{Name: n.id, Kind: kind, Conflict: true})
}

// unchanged reports whether the record still is the version the write was
// conditioned on. The nonce decides where there is one: a store may pair a new
// body with an old ETag for a moment.
func (m *Machine) unchanged(w *write, rec *fleet.Session, k known, etag bucket.ETag) bool {
	switch k {
	case knownAbsent:
		return w.base == ""
	case knownPresent:
		return w.basis != nil && w.basis.Nonce == rec.Nonce
	default:
		return w.base == etag
	}
}

// landed takes an attempt as applied. What it made true is judged by what
// landed and by now, not by what was hoped for when it was sent.
func (m *Machine) landed(n *name, rec *fleet.Session, etag bucket.ETag) {
	w := n.write
	n.gen++
	n.write = nil
	n.known, n.rec, n.etag, n.seenAt, n.present, n.newer = knownPresent, rec, etag, m.now, true, false
	m.noteRecord(n)
	switch {
	case rec.Owner == m.cfg.NodeID && (w.kind.acquires() || w.gaveUp):
		if !m.CanAct() || rec.Incarnation != m.self.inc || w.gaveUp {
			// Fenced and registered again while the reply was on its way, or given
			// up: the claim is ours in name only. The reconciler takes it from here.
			m.emit(NotWritten{Name: n.id, Kind: WriteClaim})
			m.emit(Changed{Name: n.id})
			return
		}
		n.held = true
		m.emit(Acquired{Name: n.id, Kind: w.kind, Rec: rec})
	case w.kind == writeBurn:
		m.emit(NotWritten{Name: n.id, Kind: WriteClaim})
		m.emit(Changed{Name: n.id})
	default:
		if n.rec.Owner == "" {
			m.emit(Ring{Names: []string{n.id}})
		}
		m.emit(Written{Name: n.id, Kind: w.kind, Rec: rec})
	}
}

// notWritten ends a write that certainly did not happen and will not.
func (m *Machine) notWritten(n *name, conflict bool) {
	kind := n.write.kind
	n.write = nil
	n.gen++
	m.emit(NotWritten{Name: n.id, Kind: kind, Conflict: conflict})
}
