package reconcile

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/barista-fleet/barista/internal/bucket"
	"github.com/barista-fleet/barista/pkg/fleet"
	"github.com/barista-fleet/barista/pkg/lease"
	"github.com/barista-fleet/barista/pkg/runtime"
)

// maxBadKeys bounds how many keys that break the naming rule are remembered, so
// that each is complained about once.
const maxBadKeys = 1000

// syncState keeps the views of desired/ and sessions/ up to date: a look at
// signals/changed each poll, full listings when it changed and now and then
// anyway, and bodies only where the listed ETag is another than the known one.
type syncState struct {
	ops map[uint64]syncOp

	ready      bool // the bucket is the fleet's own: the lease has booted
	boot       lease.Boot
	fleetID    string
	newFleetID string
	metaOp     uint64
	nextMeta   lease.Instant

	floorKnown bool
	floorOp    uint64

	signal   bucket.ETag
	pollOp   uint64
	nextPoll lease.Instant

	wanted     bool // a full listing is due
	stage      stage
	notBefore  lease.Instant // of the next listing, after a failure
	nextResync lease.Instant

	directive *fleet.Directive // what operators ask of this node; nil: nothing

	listed  bool // both prefixes were listed at least once
	fresh   bool // and the last look succeeded
	badKeys map[string]bool
}

type stage uint8

const (
	stageIdle stage = iota
	stageDesired
	stageSessions
)

type syncKind uint8

const (
	syncMetaGet syncKind = iota
	syncMetaPut
	syncFloor
	syncPoll
	syncDesired
	syncSessions
	syncBody
	syncDirective
)

type syncOp struct {
	kind syncKind
	name string
}

// desiredSync is what is known of one desired record's version.
type desiredSync struct {
	etag bucket.ETag
	op   uint64        // a read in flight
	sent lease.Instant // when it was sent
	at   lease.Instant // when the read that gave the current view was sent
	want bool          // another is due after it
}

// reading reports a read on its way that was sent at t or later.
func (d *desiredSync) reading(t lease.Instant) bool { return d.op != 0 && (d.sent >= t || d.want) }

// Warn is an effect: something a person should see in the log.
type Warn struct{ Message string }

func (m *Machine) startSync(e Start, maxSeen uint64) {
	s := &m.sync
	s.badKeys = map[string]bool{}
	idle := len(e.Owned) == 0 && !slices.ContainsFunc(e.Runs, func(r runtime.Workload) bool { return !r.State.Dead() })
	s.boot = lease.Boot{Identity: e.Identity, Suspicious: e.Suspicious, Idle: idle, MaxSeen: maxSeen}
	s.fleetID, s.newFleetID = e.FleetID, e.NewFleetID
	s.nextMeta, s.nextPoll, s.nextResync = m.now, m.now, m.now
	if !m.cfg.Fleet {
		s.ready, s.floorKnown = true, true
	}
}

// advanceSync sends the looks that are due.
func (m *Machine) advanceSync() {
	s := &m.sync
	if !s.ready {
		if s.metaOp == 0 && m.now >= s.nextMeta {
			s.metaOp = m.syncGet(syncMetaGet, "", fleet.KeyMeta, "")
		}
		return
	}
	if !s.floorKnown && s.floorOp == 0 && m.now >= s.notBefore {
		s.floorOp = m.syncGet(syncFloor, "", fleet.KeyEpochFloor, "")
	}
	if s.pollOp == 0 && m.now >= s.nextPoll {
		s.nextPoll = m.now.Add(m.cfg.Poll)
		s.pollOp = m.syncGet(syncPoll, "", fleet.KeySignal, s.signal)
		m.allDirty() // time has passed: alarms, time-outs and back-offs come due
	}
	if m.now >= s.nextResync {
		s.wanted = true
		// Spread over a quarter, so that a fleet that started together does not list together.
		spread := lease.Rank(m.cfg.NodeID, fmt.Sprint(m.now)) % uint64(m.cfg.Resync/4)
		s.nextResync = m.now.Add(m.cfg.Resync - m.cfg.Resync/8).Add(dur(spread))
	}
	if s.wanted && s.stage == stageIdle && m.now >= s.notBefore {
		s.wanted, s.stage = false, stageDesired
		m.syncGet(syncDirective, "", fleet.PrefixDirectives+m.cfg.NodeID, "")
		m.syncList(syncDesired, fleet.PrefixDesired)
	}
}

func (m *Machine) syncWake() lease.Instant {
	s := &m.sync
	if !s.ready {
		if s.metaOp != 0 {
			return lease.Never
		}
		return s.nextMeta
	}
	wake := s.nextResync
	if s.pollOp == 0 {
		wake = min(wake, s.nextPoll)
	}
	if s.wanted && s.stage == stageIdle || !s.floorKnown && s.floorOp == 0 {
		wake = min(wake, s.notBefore)
	}
	return wake
}

func (m *Machine) syncGet(k syncKind, name, key string, etag bucket.ETag) uint64 {
	id := m.newOp("")
	m.sync.ops[id] = syncOp{kind: k, name: name}
	m.emit(lease.Get{Op: id, Key: key, IfNoneMatch: etag})
	return id
}

func (m *Machine) syncList(k syncKind, prefix string) {
	id := m.newOp("")
	m.sync.ops[id] = syncOp{kind: k}
	m.emit(lease.List{Op: id, Prefix: prefix})
}

// syncGot takes the answer to a read of ours, and says whether it was one.
func (m *Machine) syncGot(e lease.GotObject) bool {
	op, ok := m.sync.ops[e.Op]
	if !ok {
		return false
	}
	delete(m.sync.ops, e.Op)
	switch op.kind {
	case syncMetaGet:
		m.gotMeta(e.Object, e.Err)
	case syncFloor:
		m.gotFloor(e.Object, e.Err)
	case syncPoll:
		m.gotSignal(e.Object, e.Err)
	case syncBody:
		m.gotDesired(op.name, e.Object, e.Err)
	case syncDirective:
		m.gotDirective(e.Object, e.Err)
	default: // the other requests are no gets of one object
	}
	return true
}

// gotMeta makes sure that this bucket, under this prefix, is the fleet that the
// journal belongs to, before anything else is read or written.
func (m *Machine) gotMeta(obj bucket.Object, err error) {
	s := &m.sync
	s.metaOp = 0
	if err != nil {
		s.nextMeta = m.now.Add(m.cfg.Lease.Retry)
		return
	}
	if obj.Status == bucket.Absent {
		if s.fleetID != "" {
			m.refuse(fmt.Sprintf("this data directory belongs to fleet %s, and the bucket holds no fleet (%s is missing): wrong bucket or prefix, or its contents were removed. "+
				"Give the right --fleet-bucket; `node-agent leave` gives the data directory up", s.fleetID, fleet.KeyMeta))
			return
		}
		rec := fleet.Meta{Head: fleet.Head{Schema: fleet.Schema, Nonce: s.newFleetID}, FleetID: s.newFleetID, Created: m.wall.UTC()}
		body, err := fleet.Encode(&rec)
		if err != nil {
			m.refuse(err.Error())
			return
		}
		s.metaOp = m.newOp("")
		s.ops[s.metaOp] = syncOp{kind: syncMetaPut}
		m.emit(lease.Put{Op: s.metaOp, Key: fleet.KeyMeta, Body: body, Cond: bucket.IfAbsent()})
		return
	}
	rec, err := fleet.DecodeMeta(obj.Body)
	switch {
	case err != nil:
		m.refuse(err.Error())
	case s.fleetID != "" && rec.FleetID != s.fleetID:
		m.refuse(fmt.Sprintf("this data directory belongs to fleet %s, and the bucket holds fleet %s. "+
			"Give the right --fleet-bucket; `node-agent leave` gives the data directory up", s.fleetID, rec.FleetID))
	default:
		if s.fleetID == "" {
			m.emit(SaveFleet{FleetID: rec.FleetID})
		}
		s.fleetID, s.ready = rec.FleetID, true
		s.nextPoll, s.nextResync = m.now, m.now
		m.lease(s.boot)
		m.lease(lease.AllowRaise{OK: m.raiseOK})
	}
}

func (m *Machine) refuse(reason string) {
	m.fatal = true
	m.emit(Fatal{Reason: reason})
}

func (m *Machine) syncPut(e lease.PutDone) bool {
	op, ok := m.sync.ops[e.Op]
	if !ok || op.kind != syncMetaPut {
		return false
	}
	delete(m.sync.ops, e.Op)
	// Whatever became of it: what stands there now decides.
	m.sync.metaOp, m.sync.nextMeta = 0, m.now
	if e.Result.Outcome != bucket.Applied {
		m.sync.nextMeta = m.now.Add(m.cfg.Lease.Retry)
	}
	return true
}

func (m *Machine) gotFloor(obj bucket.Object, err error) {
	s := &m.sync
	s.floorOp = 0
	if err == nil && obj.Status == bucket.Found {
		var f *fleet.EpochFloor
		if f, err = fleet.DecodeEpochFloor(obj.Body); err == nil {
			m.lease(lease.Floor{Floor: f.Floor})
		}
	}
	if err != nil {
		s.notBefore = m.now.Add(m.cfg.Poll)
		return
	}
	s.floorKnown = true
	s.fresh = s.listed
}

func (m *Machine) gotSignal(obj bucket.Object, err error) {
	s := &m.sync
	s.pollOp = 0
	s.fresh = err == nil && s.listed && s.floorKnown
	if err != nil || obj.Status != bucket.Found || obj.ETag == s.signal {
		return
	}
	s.signal, s.wanted = obj.ETag, true
	if sig, err := fleet.DecodeSignal(obj.Body); err == nil {
		m.lease(lease.Hint{Nodes: sig.Nodes})
	}
}

// gotDirective takes what operators ask of this node. What cannot be read changes
// nothing: a drain does not end because the bucket blinked.
func (m *Machine) gotDirective(obj bucket.Object, err error) {
	switch {
	case err != nil:
	case obj.Status == bucket.Absent:
		m.sync.directive = nil
	default:
		d, err := fleet.DecodeDirective(m.cfg.NodeID, obj.Body)
		if err != nil {
			m.emit(Warn{Message: err.Error()})
			return
		}
		m.sync.directive = d
	}
}

// syncListed takes the answer to a listing of ours, and says whether it was one.
func (m *Machine) syncListed(e lease.Listed) bool {
	s := &m.sync
	op, ok := s.ops[e.Op]
	if !ok {
		return false
	}
	delete(s.ops, e.Op)
	if e.Err != nil {
		s.stage, s.wanted, s.fresh = stageIdle, true, false
		s.notBefore = m.now.Add(m.cfg.Poll)
		return true
	}
	if op.kind == syncDesired {
		m.listedDesired(e.Listing)
		s.stage = stageSessions
		m.syncList(syncSessions, fleet.PrefixSessions)
		return true
	}
	m.listedSessions(e.Listing)
	s.stage, s.listed, s.fresh = stageIdle, true, s.floorKnown
	return true
}

func (m *Machine) listedDesired(l bucket.Listing) {
	seen := make(map[string]bool, len(l.Entries))
	for _, e := range l.Entries {
		name, ok := strings.CutPrefix(e.Key, fleet.PrefixDesired)
		if !ok || !m.goodName(e.Key, name) {
			continue
		}
		seen[name] = true
		if it := m.item(name); it.known == Unknown || it.sync.etag != e.ETag {
			m.readDesired(it)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(m.items)) {
		it := m.items[name]
		switch {
		case seen[name] || it.known == Absent:
		case it.known == Unknown && it.desired == nil && it.sync.op == 0:
			it.known = Absent // never seen, and the listing does not have it
			m.dirty[name] = true
		default:
			m.readDesired(it) // a listing is not enough to say that it is gone
		}
	}
}

func (m *Machine) listedSessions(l bucket.Listing) {
	entries := make([]bucket.Entry, 0, len(l.Entries))
	for _, e := range l.Entries {
		if name, ok := strings.CutPrefix(e.Key, fleet.PrefixSessions); ok && m.goodName(e.Key, name) {
			entries = append(entries, e)
			if m.items[name] == nil {
				m.item(name).known = Absent // owned by someone, desired by nobody
			}
		}
	}
	m.lease(lease.SessionsListed{Entries: entries, Names: slices.Sorted(maps.Keys(m.items))})
}

// goodName reports a key that names something; any other is told of once.
func (m *Machine) goodName(key, name string) bool {
	err := fleet.CheckName(name)
	switch {
	case err == nil:
		return true
	case strings.HasPrefix(name, "."):
		return false // a server's own temporary file
	}
	if !m.sync.badKeys[key] && len(m.sync.badKeys) < maxBadKeys {
		m.sync.badKeys[key] = true
		m.emit(Warn{Message: fmt.Sprintf("skipped key %q: %v", key, err)})
	}
	return false
}

func (m *Machine) readDesired(it *item) {
	if it.sync.op != 0 {
		it.sync.want = true
		return
	}
	it.sync.op, it.sync.sent = m.syncGet(syncBody, it.name, fleet.PrefixDesired+it.name, ""), m.now
}

func (m *Machine) gotDesired(name string, obj bucket.Object, err error) {
	it := m.items[name]
	if it == nil {
		return
	}
	it.sync.op = 0
	m.dirty[name] = true
	switch {
	case err != nil:
		m.sync.wanted, m.sync.notBefore = true, m.now.Add(m.cfg.Poll)
		it.sync.etag = "" // read it at the next listing
	case obj.Status == bucket.Absent:
		it.known, it.sync.etag, it.sync.at = Absent, "", it.sync.sent
	default:
		it.sync.etag, it.sync.at = obj.ETag, it.sync.sent
		d, err := fleet.DecodeDesired(name, obj.Body)
		if err != nil {
			it.known = Unreadable
			m.emit(Warn{Message: err.Error()})
			break
		}
		it.known, it.desired = Present, d
	}
	if it.sync.want {
		it.sync.want = false
		m.readDesired(it)
	}
}
