package reconcile

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/barista-fleet/barista/pkg/fleet"
	"github.com/barista-fleet/barista/pkg/lease"
	"github.com/barista-fleet/barista/pkg/runtime"
)

// owner is the part that says who owns what: lease.Machine in a fleet, solo on a
// machine of its own.
type owner interface {
	Step(now lease.Instant, ev lease.Event) []lease.Effect
	Name(name string) lease.NameView
	CanAct() bool
	Confirmed() lease.Instant
	Deadline() lease.Instant
	TTL() time.Duration
	Incarnation() uint64
	State() string
	NextWake() lease.Instant
	Peers() map[string]lease.PeerView
	Describe(fleet.Node)
}

var (
	_ owner = (*lease.Machine)(nil)
	_ owner = (*solo)(nil)
)

// Config is what a node is and how much it does at once.
type Config struct {
	Lease  lease.Config // ignored without a fleet
	Fleet  bool         // false: this machine stands alone, and owns every name
	NodeID string
	Name   string // host name, for people

	Poll   time.Duration // between looks at signals/changed
	Resync time.Duration // between full listings that nothing asked for

	Describe fleet.Node // endpoint, labels, capacity, version of the record
	Labels   map[string]string
	Runtime  string // the driver's name
	Images   bool   // the driver runs container images

	JobSlots    int // jobs running at once
	MaxSessions int // sessions owned at once
	MaxOps      int // operations on runs in flight
	MaxClaims   int // claims in flight
}

// Defaults.
const (
	DefaultPoll        = time.Second
	DefaultResync      = time.Minute
	DefaultMaxSessions = 1000
	// DefaultMaxOps keeps a mass takeover from forking a thousand processes at
	// once; starting is bound by the disk long before this.
	DefaultMaxOps = 32
	// DefaultMaxClaims keeps claims from crowding the heartbeat out of the link.
	DefaultMaxClaims = 32
)

// Validate refuses what cannot work.
func (c Config) Validate() error {
	switch {
	case c.NodeID == "" || c.Name == "":
		return errors.New("node config: id and name are required")
	case c.Poll <= 0 || c.Resync < c.Poll:
		return fmt.Errorf("node config: resync %v must not be shorter than poll %v", c.Resync, c.Poll)
	case c.JobSlots < 0 || c.MaxSessions < 0 || c.MaxOps < 1 || c.MaxClaims < 1:
		return errors.New("node config: bounds must be positive")
	case c.Fleet && c.Poll >= c.Lease.TTL:
		return fmt.Errorf("node config: poll %v must be shorter than the lease ttl %v", c.Poll, c.Lease.TTL)
	}
	return nil
}

// item is everything known of one name.
type item struct {
	name    string
	known   Known
	desired *fleet.Desired
	sync    desiredSync
	runs    []runtime.Workload
	noted   map[string]lease.Instant // when each of runs was last learned of
	op      *operation

	notBefore lease.Instant // no start before
	hold      lease.Instant // no write before: the last one was refused
	opHold    lease.Instant // no operation before: the last one failed
	noPause   bool          // the runtime cannot pause its run
	stopped   string        // the run that was last told to end
	cause     StopCause     // and why
	action    Action        // the last decision, for describe
	event     *Event        // told when the write in flight has landed
	told      EventType     // the last event that a waiting decision told
	orphaned  bool          // it was told that nobody desires it
	fencedAt  uint64        // the epoch whose loss was told
	behind    *uint64       // what the record had seen when it was found to be behind; nil: it is not
	uses      use           // what it takes of this node's capacity
}

// operation is one operation on a run, from its journaled intent to its result.
type operation struct {
	id       uint64
	kind     OpKind
	instance string
	action   Action
	running  bool // handed to the runtime; before that it may still be withdrawn
}

// use is what a name takes of the node's capacity.
type use struct{ jobs, sessions int }

// Machine is a whole node as a pure state machine: the lease, the views of every
// name, and the operations in flight. One goroutine owns it.
type Machine struct {
	cfg  Config
	own  owner
	now  lease.Instant
	wall time.Time
	out  []Effect

	nextOp uint64
	ops    map[uint64]string // operation or commit → name
	items  map[string]*item
	dirty  map[string]bool
	sync   syncState

	candidates map[string]Action
	order      []string        // the candidates, oldest wish first; see inOrder
	ordered    map[string]bool // the names in order
	recovering map[string]bool
	deferred   map[string]bool // wait for one of MaxOps
	running    int             // operations in flight
	claiming   map[string]bool
	used       use

	started   bool
	startedAt lease.Instant
	previous  Publish // what the last life published; see Start
	published Publish
	raiseOK   bool
	draining  bool
	leaving   bool // leave when drained
	guard     Guard
	guardKill lease.Instant // when what ends for want of a guard is killed
	node      Node          // as of the last pass
	batch     Batch
	fatal     bool
}

// opBase keeps this machine's request numbers apart from the lease's.
const opBase = 1 << 62

// New returns a machine that does nothing until Start.
func New(cfg Config) (*Machine, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	m := &Machine{
		cfg: cfg, nextOp: opBase,
		ops: map[uint64]string{}, items: map[string]*item{}, dirty: map[string]bool{},
		candidates: map[string]Action{}, ordered: map[string]bool{}, recovering: map[string]bool{}, deferred: map[string]bool{},
		claiming: map[string]bool{},
	}
	m.sync.ops = map[uint64]syncOp{}
	if !cfg.Fleet {
		m.own = newSolo(cfg)
		return m, nil
	}
	// A full listing shows it, which may be slow, or fail and be repeated.
	cfg.Lease.Look = 2 * cfg.Resync
	l, err := lease.New(cfg.Lease)
	if err != nil {
		return nil, err
	}
	m.own = l
	return m, nil
}

// Step advances the machine by one input. now is the boot-time clock and never
// goes back; wall may jump. The effects are valid until the next call.
func (m *Machine) Step(now lease.Instant, wall time.Time, in Input) []Effect {
	m.now, m.wall = max(m.now, now), wall
	m.out = m.out[:0]
	switch e := in.(type) {
	case Start:
		m.start(e)
	case Tick:
		m.lease(lease.Tick{})
	case lease.GotObject:
		if !m.syncGot(e) {
			m.lease(e)
		}
	case lease.Listed:
		if !m.syncListed(e) {
			m.lease(e)
		}
	case lease.PutDone:
		if !m.syncPut(e) {
			m.lease(e)
		}
	case lease.IdentitySaved:
		m.lease(e)
	case OpDone:
		m.opDone(e)
	case Committed:
		m.committed(e)
	case RunChanged:
		m.runChanged(e.Run)
	case Runs:
		m.setRuns(e)
	case Drain:
		m.draining, m.leaving = e.On, e.On && e.Leave
	case Guard:
		m.guarded(e)
	}
	if m.started && !m.fatal {
		m.advanceSync()
		m.pass()
		m.permitRaise()
		m.leaveWhenEmpty()
		m.describe()
		m.publish()
	}
	m.flush()
	return m.out
}

// start takes over what the last life left.
func (m *Machine) start(e Start) {
	m.started, m.startedAt = true, m.now
	m.previous = Publish{Confirmed: e.Confirmed, KillAt: e.KillAt}
	maxSeen := uint64(0)
	for name, epoch := range e.Epochs {
		m.lease(lease.Seen{Name: name, Epoch: epoch})
	}
	for _, o := range e.Owned {
		it := m.item(o.Name)
		it.desired = o.Desired
		m.recovering[o.Name] = true
		m.lease(lease.Seen{Name: o.Name, Epoch: o.Epoch, Owned: true})
		maxSeen = max(maxSeen, o.Incarnation)
	}
	for _, r := range e.Runs {
		m.item(r.Name).setRun(r, m.now)
		m.recovering[r.Name] = true
		m.lease(lease.Seen{Name: r.Name, Epoch: r.Epoch, Owned: !r.State.Dead()})
		maxSeen = max(maxSeen, r.Incarnation)
	}
	m.own.Describe(m.cfg.Describe)
	m.startSync(e, maxSeen)
}

func (m *Machine) item(name string) *item {
	it := m.items[name]
	if it == nil {
		it = &item{name: name}
		m.items[name] = it
	}
	m.dirty[name] = true
	return it
}

func (m *Machine) emit(e Effect) { m.out = append(m.out, e) }

func (m *Machine) newOp(name string) uint64 {
	m.nextOp++
	if name != "" {
		m.ops[m.nextOp] = name
	}
	return m.nextOp
}

// lease steps the protocol and acts on what it tells.
func (m *Machine) lease(ev lease.Event) {
	for _, e := range slices.Clone(m.own.Step(m.now, ev)) {
		switch e := e.(type) {
		case lease.Get, lease.Put, lease.List, lease.SaveIdentity, lease.Ring:
			m.emit(e)
		default:
			m.notice(e)
		}
	}
}

func (m *Machine) notice(e lease.Effect) {
	switch e := e.(type) {
	case lease.Joined:
		m.tell(Event{Type: EventJoined, Message: m.joined(e)})
	case lease.Lapsed:
		m.tell(Event{Type: EventLapsed, Message: "no renewal was confirmed for a whole ttl: the names of this node may have been taken; nothing was stopped for it unless its spec says on_bucket_loss: stop"})
	case lease.Renewed:
		m.tell(Event{Type: EventRenewed, Message: "the lease is confirmed"})
	case lease.Fenced:
		m.tell(Event{Type: EventFenced, Message: fmt.Sprintf("this node was fenced: incarnation %d has passed", e.Incarnation)})
	case lease.Halted:
		m.fatal = true
		m.emit(Fatal{Reason: e.Reason})
	case lease.Left:
		m.tell(Event{Type: EventLeft, Message: "nothing runs here and no name is held: this node left the fleet"})
		m.flush() // nothing is looked at behind Gone
		m.emit(Gone{})
	case lease.PeerPassed:
		m.peerPassed(e)
	case lease.Acquired:
		m.acquired(e)
	case lease.Written:
		m.written(e)
	case lease.NotWritten:
		it := m.item(e.Name)
		it.event = nil
		delete(m.claiming, e.Name)
		if !e.Conflict {
			it.hold = m.now.Add(m.cfg.Poll)
		}
	case lease.Lost:
		m.lost(e)
	case lease.Changed:
		m.item(e.Name)
	}
}

func (m *Machine) joined(e lease.Joined) string {
	if e.TTL == m.cfg.Lease.TTL {
		return fmt.Sprintf("incarnation %d", e.Incarnation)
	}
	return fmt.Sprintf("incarnation %d, which keeps the ttl of %v that it was registered with: %v takes effect when this node registers anew, which a start after a drain does",
		e.Incarnation, e.TTL, m.cfg.Lease.TTL)
}

func (m *Machine) peerPassed(e lease.PeerPassed) {
	for name := range m.items {
		if rec := m.own.Name(name).Rec; rec != nil && rec.Owner == e.NodeID {
			m.dirty[name] = true
		}
	}
	if e.ByUs {
		m.tell(Event{Type: EventNodeLost, Message: fmt.Sprintf("fenced silent node %s: incarnation %d", e.NodeID, e.Incarnation)})
	}
	m.sync.wanted = true // what it owned may have changed hands meanwhile
}

func (m *Machine) acquired(e lease.Acquired) {
	it := m.item(e.Name)
	delete(m.claiming, e.Name)
	m.batch.Put = append(m.batch.Put, it.owned(e.Rec))
	t := EventClaimed
	if e.Kind == lease.WriteReclaim {
		t = EventReclaimed
	}
	m.tell(Event{Type: t, Name: e.Name, Epoch: e.Rec.Epoch, Message: e.Kind.String()})
	m.tellOf(it)
}

func (m *Machine) written(e lease.Written) {
	it := m.item(e.Name)
	if e.Rec.Owner == "" {
		m.batch.Drop = append(m.batch.Drop, e.Name)
	} else {
		m.batch.Put = append(m.batch.Put, it.owned(e.Rec))
	}
	m.tellOf(it)
}

func (m *Machine) lost(e lease.Lost) {
	it := m.item(e.Name)
	switch m.own.Name(e.Name).Claim {
	case lease.ClaimGone, lease.ClaimMissing:
		m.tell(Event{Type: EventDegraded, Name: e.Name, Epoch: e.Epoch, Message: "its ownership record was removed or overwritten by a hand; it is made again"})
		return
	default: // told below
	}
	it.fencedAt = e.Epoch
	m.batch.Drop = append(m.batch.Drop, e.Name)
	m.tell(Event{Type: EventFenced, Name: e.Name, Epoch: e.Epoch, Message: "lost at this epoch to " + cmp.Or(e.Owner, "nobody")})
}

// tell queues an event for the journal.
func (m *Machine) tell(ev Event) { m.batch.Events = append(m.batch.Events, ev) }

func (m *Machine) tellOf(it *item) {
	if it.event != nil {
		m.tell(*it.event)
		it.event = nil
	}
}

// flush hands the journal what this step has to say, in one transaction.
func (m *Machine) flush() {
	if !m.batch.empty() {
		m.emit(Commit{Batch: m.batch})
		m.batch = Batch{}
	}
}

func (it *item) owned(rec *fleet.Session) Owned {
	return Owned{
		Name: it.name, UID: rec.UID, Epoch: rec.Epoch, Incarnation: rec.Incarnation, Generation: rec.Generation,
		Instance: rec.Instance, Attempt: rec.Attempt, Phase: rec.Phase, Desired: it.desired,
	}
}

// guarded takes note of the guard. What ends for want of one has the time that the
// lease has left now, however often it is renewed meanwhile.
func (m *Machine) guarded(e Guard) {
	if e.End && !m.guard.End {
		_, m.guardKill = m.lossTimes()
		m.tell(Event{Type: EventDegraded, Message: "no guard stands beside the agent: workloads with on_bucket_loss: stop are ended, and start again when one does"})
	}
	m.guard = e
}

// permitRaise tells the lease whether a higher incarnation may be registered.
func (m *Machine) permitRaise() {
	// While the node is live nothing is to be raised, and a fence that is learned
	// of must find the answer no until this was asked again.
	state := m.own.State()
	ok := state != "live" && state != "lapsed"
	for _, it := range m.items {
		if !ok {
			break
		}
		if it.op != nil && it.op.kind == OpStart {
			ok = false
		}
		for _, r := range it.runs {
			ok = ok && !(r.StopOnLoss && !r.State.Dead())
		}
	}
	if ok != m.raiseOK {
		m.raiseOK = ok
		m.lease(lease.AllowRaise{OK: ok})
	}
}

// leaveWhenEmpty takes a drained node out of its fleet. What still runs, or may
// still be written, keeps it in: its claims fall at the instant it leaves.
func (m *Machine) leaveWhenEmpty() {
	if !m.leaving || len(m.recovering) > 0 || !m.own.CanAct() || !m.sync.fresh {
		return
	}
	for name, it := range m.items {
		v := m.own.Name(name)
		if v.Held || v.Writing != 0 || it.op != nil || it.alive() {
			return
		}
	}
	m.leaving = false
	if !m.cfg.Fleet {
		m.emit(Gone{})
		return
	}
	m.lease(lease.Leave{})
}

func (it *item) alive() bool {
	return slices.ContainsFunc(it.runs, func(r runtime.Workload) bool { return !r.State.Dead() })
}

// describe says in the next renewal what this node has to offer and to do.
func (m *Machine) describe() {
	d := m.cfg.Describe
	d.Draining, d.Cordoned = m.node.Draining, m.node.Cordoned
	d.Capacity.Jobs, d.Capacity.Sessions = m.used.jobs, m.used.sessions
	m.own.Describe(d)
}

func (m *Machine) publish() {
	if !m.cfg.Fleet {
		return
	}
	p := Publish{Confirmed: m.own.Confirmed(), Deadline: m.own.Deadline(), Incarnation: m.own.Incarnation()}
	switch state := m.own.State(); {
	case p.Confirmed != 0:
		p.KillAt = p.Confirmed.Add(m.own.TTL() * 5 / 6)
	case state == "raising", state == "leaving", state == "left", state == "halted":
		// Nothing may run that must stop: the claims fall, or have fallen.
	default:
		return // a new life, not confirmed yet: what the last one published stands
	}
	if p != m.published {
		m.published = p
		m.emit(p)
	}
}

// NextWake is the earliest instant at which a Tick would do something.
func (m *Machine) NextWake() lease.Instant {
	if !m.started || m.fatal {
		return lease.Never
	}
	return min(m.own.NextWake(), m.syncWake())
}

// sortedDirty returns the names to look at, and forgets them.
func (m *Machine) sortedDirty() []string {
	names := slices.Sorted(maps.Keys(m.dirty))
	clear(m.dirty)
	return names
}
