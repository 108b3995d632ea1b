package lease

import (
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/barista-fleet/barista/internal/bucket"
	"github.com/barista-fleet/barista/pkg/fleet"
)

// Machine is one node's side of the protocol as a pure state machine: no clock,
// no I/O, no randomness. Step takes what happened and returns what is to be done.
// It is not safe for concurrent use; one goroutine owns it.
type Machine struct {
	cfg  Config
	desc fleet.Node // what the node says of itself in its record

	now     Instant
	out     []Effect
	nextOp  uint64
	nonces  uint64
	jitters uint64
	ops     map[uint64]op

	self  self
	peers map[string]*peer
	names map[string]*name
	busy  map[string]*name // the names with a write or a read to do

	nodesOp   uint64  // a List of nodes/ in flight
	nextNodes Instant // when the next one is due
	lastNodes Instant // when the last one succeeded; 0: never
	floor     uint64
}

// op is what an outstanding request is about.
type op struct {
	kind opKind
	id   string // peer id or name
	gen  uint64 // of the name when the request was made
	sent Instant
}

type opKind uint8

const (
	opSelfGet opKind = iota
	opSelfPut
	opSelfSave
	opNodes
	opPeerGet
	opPeerPut
	opNameGet
	opNamePut
	opNameSettle
)

// New returns a machine that does nothing until Boot.
func New(cfg Config) (*Machine, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	return &Machine{
		cfg:   cfg,
		ops:   make(map[uint64]op),
		peers: make(map[string]*peer),
		names: make(map[string]*name),
		busy:  make(map[string]*name),
	}, nil
}

// Describe sets what the next renewal says of this node: endpoint, labels,
// capacity and the like. The fields of the protocol itself are ignored.
func (m *Machine) Describe(n fleet.Node) { m.desc = n }

// Step advances the machine to now, which never goes back, by one event. The
// effects are valid until the next call.
//
// A renewal is the first effect of any step in which it is due.
func (m *Machine) Step(now Instant, ev Event) []Effect {
	m.now = max(now, m.now)
	m.out = m.out[:0]
	m.checkLapse()
	switch e := ev.(type) {
	case Tick:
	case Boot:
		m.boot(e)
	case AllowRaise:
		m.self.raiseOK = e.OK
	case Leave:
		m.leave()
	case Floor:
		m.floor = max(m.floor, e.Floor)
	case Seen:
		n := m.name(e.Name)
		n.maxEpoch = max(n.maxEpoch, e.Epoch)
		n.mine = n.mine || e.Owned
	case Read:
		m.want(m.name(e.Name), m.now)
	case SessionsListed:
		m.sessionsListed(e)
	case Hint:
		m.hint(e.Nodes)
	case Submit:
		m.submit(e)
	case GotObject:
		m.gotObject(e)
	case PutDone:
		m.putDone(e)
	case Listed:
		m.listed(e)
	case IdentitySaved:
		m.identitySaved(e)
	}
	m.advance()
	return m.out
}

// advance does whatever is due now, in the protocol's order: the own record
// before anything else, then the peers, then the names.
func (m *Machine) advance() {
	m.advanceSelf()
	if m.self.phase == selfHalted || m.self.phase == selfNone {
		return
	}
	m.advancePeers()
	m.advanceNames()
}

func (m *Machine) gotObject(e GotObject) {
	o, ok := m.take(e.Op)
	if !ok {
		return
	}
	switch o.kind {
	case opSelfGet:
		m.selfRead(e.Object, e.Err)
	case opPeerGet:
		m.peerRead(m.peer(o.id), e.Object, e.Err)
	case opNameGet:
		m.nameRead(m.name(o.id), o, e.Object, e.Err)
	case opNameSettle:
		m.nameSettled(m.name(o.id), e.Object, e.Err)
	default: // the other operations are no gets
	}
}

func (m *Machine) putDone(e PutDone) {
	o, ok := m.take(e.Op)
	if !ok {
		return
	}
	switch o.kind {
	case opSelfPut:
		m.selfPut(o, e.Result)
	case opPeerPut:
		m.peerPut(m.peer(o.id), e.Result)
	case opNamePut:
		m.namePut(m.name(o.id), e.Result)
	default: // the other operations are no puts
	}
}

func (m *Machine) listed(e Listed) {
	if o, ok := m.take(e.Op); ok && o.kind == opNodes {
		m.nodesListed(e.Listing, e.Err)
	}
}

func (m *Machine) take(id uint64) (op, bool) {
	o, ok := m.ops[id]
	delete(m.ops, id)
	return o, ok
}

func (m *Machine) emit(e Effect) { m.out = append(m.out, e) }

func (m *Machine) start(o op) uint64 {
	m.nextOp++
	o.sent = m.now
	m.ops[m.nextOp] = o
	return m.nextOp
}

func (m *Machine) get(kind opKind, id, key string, gen uint64) uint64 {
	n := m.start(op{kind: kind, id: id, gen: gen})
	m.emit(Get{Op: n, Key: key})
	return n
}

func (m *Machine) put(kind opKind, id, key string, body []byte, cond bucket.Condition) uint64 {
	n := m.start(op{kind: kind, id: id})
	m.emit(Put{Op: n, Key: key, Body: body, Cond: cond})
	return n
}

// head returns a record head with a nonce that no one else, and no other life of
// this node, can produce: the life is random and the counter never repeats in it.
func (m *Machine) head() fleet.Head {
	m.nonces++
	return fleet.Head{Schema: fleet.Schema, Nonce: m.cfg.Life + "-" + strconv.FormatUint(m.nonces, 36)}
}

// jitter returns a time in [d/2, d), different at each call and on each node,
// the same in each replay.
func (m *Machine) jitter(d time.Duration) time.Duration {
	if d <= 1 {
		return d
	}
	m.jitters++
	h := fnv.New64a()
	fmt.Fprintf(h, "%s %d", m.cfg.Life, m.jitters)
	return d/2 + time.Duration(h.Sum64()%uint64(d/2))
}

// Rank orders contenders for a key: the rendezvous hash of (node, key). Every
// node computes the same order without talking.
func Rank(nodeID, key string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(nodeID))
	h.Write([]byte{0})
	h.Write([]byte(key))
	// FNV's high bits are weak for inputs that differ in the last bytes only.
	x := h.Sum64()
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	return x
}

// CanAct reports whether this node may claim and start things: it is live and
// its deadline is ahead.
func (m *Machine) CanAct() bool {
	return m.self.phase == selfLive && m.now < m.self.deadline
}

// Deadline is when this node's ownership must be taken for lost, on its own
// clock; 0 if it holds nothing.
func (m *Machine) Deadline() Instant { return m.self.deadline }

// Confirmed is when the renewal that set the deadline was sent.
func (m *Machine) Confirmed() Instant {
	if m.self.deadline == 0 {
		return 0
	}
	return m.self.deadline.Add(-m.self.ttl)
}

// TTL is the one in force. It is constant within an incarnation: a node that
// keeps its incarnation over a restart keeps the TTL it registered with.
func (m *Machine) TTL() time.Duration { return m.self.ttl }

// Incarnation is the current one; 0 before the first registration.
func (m *Machine) Incarnation() uint64 { return m.self.inc }

// State is one word for people: booting, watching, raising, live, lapsed,
// leaving, left, halted.
func (m *Machine) State() string {
	if m.self.phase == selfLive && m.now >= m.self.deadline {
		return "lapsed"
	}
	return m.self.phase.String()
}

// NextWake is the earliest instant at which a Tick would do something.
func (m *Machine) NextWake() Instant {
	w := min(m.selfWake(), m.nextNodesWake())
	for _, p := range m.peers {
		w = min(w, m.peerWake(p))
	}
	for _, n := range m.busy {
		w = min(w, m.nameWake(n))
	}
	return w
}

func (m *Machine) nextNodesWake() Instant {
	if m.nodesOp != 0 || m.self.phase == selfNone || m.self.phase == selfHalted {
		return Never
	}
	return m.nextNodes
}

// Names returns every name that this machine has a view of, sorted.
func (m *Machine) Names() []string {
	out := make([]string, 0, len(m.names))
	for k := range m.names {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}

// Validate checks what must hold between any two steps. It is for tests.
func (m *Machine) Validate() error {
	for id, n := range m.names {
		switch {
		case n.held && m.self.phase != selfLive:
			return fmt.Errorf("%s is held while %s", id, m.State())
		case n.held && (n.rec == nil || n.rec.Owner != m.cfg.NodeID):
			return fmt.Errorf("%s is held but its record does not name us", id)
		case n.held && n.rec.Incarnation != m.self.inc:
			return fmt.Errorf("%s is held under incarnation %d, ours is %d", id, n.rec.Incarnation, m.self.inc)
		case n.held && n.write != nil && n.write.kind != WriteUpdate:
			return fmt.Errorf("%s is held during a %v", id, n.write.kind)
		case n.rec != nil && n.rec.Epoch > n.maxEpoch:
			return fmt.Errorf("%s: epoch %d above the highest seen %d", id, n.rec.Epoch, n.maxEpoch)
		}
	}
	if m.self.phase == selfLive && m.self.inc < m.self.id.Incarnation {
		return fmt.Errorf("incarnation %d below the journal's %d", m.self.inc, m.self.id.Incarnation)
	}
	return nil
}

func trimKey(key, prefix string) (string, bool) {
	id, ok := strings.CutPrefix(key, prefix)
	return id, ok && fleet.CheckName(id) == nil
}
