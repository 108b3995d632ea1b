package reconcile

import (
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/barista-fleet/barista/internal/bucket"
	"github.com/barista-fleet/barista/pkg/fleet"
	"github.com/barista-fleet/barista/pkg/lease"
)

func dur(n uint64) time.Duration { return time.Duration(n) }

// solo says who owns what on a machine without a bucket: this machine does. The
// records are the same ones, kept in the local store, so every verb reads and
// writes what it would in a fleet. There is no liveness record, no deadline and
// no one to contend with, and none of their code runs.
type solo struct {
	id, name, endpoint string
	now                lease.Instant
	life               string // makes nonces of this process life unique
	nextOp             uint64
	ops                map[uint64]soloOp
	names              map[string]*soloName
	out                []lease.Effect
}

type soloOp struct {
	name string
	put  *fleet.Session // nil: a read
	kind lease.Write
}

type soloName struct {
	known  bool
	rec    *fleet.Session
	etag   bucket.ETag
	seen   lease.Instant
	epoch  uint64
	write  lease.Write // in flight
	reread bool
}

// soloIncarnation is the incarnation of every claim on a single machine: nothing
// can pass it.
const soloIncarnation = 1

func newSolo(cfg Config) *solo {
	return &solo{
		life: cfg.Lease.Life, id: cfg.NodeID, name: cfg.Name, endpoint: cfg.Describe.Endpoint,
		ops: map[uint64]soloOp{}, names: map[string]*soloName{},
	}
}

func (s *solo) CanAct() bool                     { return true }
func (s *solo) Confirmed() lease.Instant         { return 0 }
func (s *solo) Deadline() lease.Instant          { return lease.Never }
func (s *solo) TTL() time.Duration               { return 0 }
func (s *solo) Incarnation() uint64              { return soloIncarnation }
func (s *solo) State() string                    { return "single machine" }
func (s *solo) NextWake() lease.Instant          { return lease.Never }
func (s *solo) Peers() map[string]lease.PeerView { return nil }
func (s *solo) Describe(fleet.Node)              {}

func (s *solo) of(name string) *soloName {
	n := s.names[name]
	if n == nil {
		n = &soloName{}
		s.names[name] = n
	}
	return n
}

func (s *solo) Name(name string) lease.NameView {
	n := s.names[name]
	if n == nil || !n.known {
		return lease.NameView{}
	}
	v := lease.NameView{Claim: lease.ClaimFree, Rec: n.rec, Seen: n.seen, Writing: n.write, Epoch: n.epoch, Next: n.epoch + 1}
	switch {
	case n.rec == nil:
	case n.rec.Sealed:
		v.Claim = lease.ClaimSealed
	case n.rec.Owner == s.id:
		v.Claim, v.Held = lease.ClaimOurs, n.write != lease.WriteRelease
	}
	return v
}

// Step answers the commands and replies that concern records.
func (s *solo) Step(now lease.Instant, ev lease.Event) []lease.Effect {
	s.now, s.out = max(s.now, now), s.out[:0]
	switch e := ev.(type) {
	case lease.Seen:
		n := s.of(e.Name)
		n.epoch = max(n.epoch, e.Epoch)
	case lease.Read:
		s.read(e.Name)
	case lease.SessionsListed:
		s.listed(e)
	case lease.Submit:
		s.submit(e)
	case lease.GotObject:
		s.got(e)
	case lease.PutDone:
		s.put(e)
	}
	return s.out
}

func (s *solo) nonce() string {
	s.nextOp++
	return s.life + "-" + strconv.FormatUint(s.nextOp, 36)
}

func (s *solo) op(o soloOp) uint64 {
	s.nextOp++
	s.ops[s.nextOp] = o
	return s.nextOp
}

func (s *solo) read(name string) {
	s.out = append(s.out, lease.Get{Op: s.op(soloOp{name: name}), Key: fleet.PrefixSessions + name})
}

func (s *solo) listed(e lease.SessionsListed) {
	seen := map[string]bool{}
	for _, entry := range e.Entries {
		name := entry.Key[len(fleet.PrefixSessions):]
		seen[name] = true
		if n := s.of(name); n.write == 0 && n.etag != entry.ETag {
			s.read(name)
		}
	}
	for _, name := range e.Names {
		if n := s.of(name); !seen[name] && !n.known {
			n.known, n.seen = true, s.now
			s.out = append(s.out, lease.Changed{Name: name})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.names)) {
		if n := s.names[name]; !seen[name] && n.rec != nil && n.write == 0 {
			s.read(name)
		}
	}
}

func (s *solo) got(e lease.GotObject) {
	o, ok := s.ops[e.Op]
	if !ok {
		return
	}
	delete(s.ops, e.Op)
	n := s.of(o.name)
	if n.write != 0 && !n.reread {
		return // our own write is newer than this look
	}
	if e.Err != nil {
		s.read(o.name)
		return
	}
	kind := n.write
	n.write, n.reread = 0, false
	n.known, n.rec, n.etag, n.seen = true, nil, e.Object.ETag, s.now
	if e.Object.Status == bucket.Found {
		if rec, err := fleet.DecodeSession(o.name, e.Object.Body); err == nil {
			n.rec = rec
			n.epoch = max(n.epoch, rec.Epoch)
		}
	}
	if kind != 0 {
		s.out = append(s.out, lease.NotWritten{Name: o.name, Kind: kind})
	}
	s.out = append(s.out, lease.Changed{Name: o.name})
}

func (s *solo) submit(e lease.Submit) {
	n := s.of(e.Name)
	if n.write != 0 {
		s.out = append(s.out, lease.NotWritten{Name: e.Name, Kind: e.Kind})
		return
	}
	rec := e.Record.Clone()
	rec.Head = fleet.Head{Schema: fleet.Schema, Nonce: s.nonce()}
	rec.Name, rec.Epoch = e.Name, n.epoch
	switch e.Kind {
	case lease.WriteClaim, lease.WriteReclaim, lease.WriteTouch:
		rec.Owner, rec.OwnerName, rec.Endpoint, rec.Incarnation = s.id, s.name, s.endpoint, soloIncarnation
		rec.Epoch = n.epoch + 1
	case lease.WriteRelease, lease.WriteFinal:
		rec.Owner, rec.OwnerName, rec.Endpoint, rec.Incarnation = "", "", "", 0
		rec.Epoch = max(n.epoch, 1)
	default: // an update leaves the owner as it is
	}
	body, err := fleet.Encode(rec)
	if err != nil {
		s.out = append(s.out, lease.NotWritten{Name: e.Name, Kind: e.Kind})
		return
	}
	cond := bucket.IfAbsent()
	if n.etag != "" {
		cond = bucket.IfMatch(n.etag)
	}
	n.write = e.Kind
	s.out = append(s.out, lease.Put{Op: s.op(soloOp{name: e.Name, put: rec, kind: e.Kind}), Key: fleet.PrefixSessions + e.Name, Body: body, Cond: cond})
}

func (s *solo) put(e lease.PutDone) {
	o, ok := s.ops[e.Op]
	if !ok {
		return
	}
	delete(s.ops, e.Op)
	n := s.of(o.name)
	if e.Result.Outcome != bucket.Applied {
		n.reread = true
		s.read(o.name)
		return
	}
	n.known, n.write, n.rec, n.etag, n.seen = true, 0, o.put, e.Result.ETag, s.now
	n.epoch = max(n.epoch, o.put.Epoch)
	if o.put.Owner != "" && o.kind != lease.WriteUpdate {
		s.out = append(s.out, lease.Acquired{Name: o.name, Kind: o.kind, Rec: o.put})
		return
	}
	s.out = append(s.out, lease.Written{Name: o.name, Kind: o.kind, Rec: o.put})
}
