package sfq

// Scheduler shares a node's slots among tenants by start-time fair queuing with
// tags taken at dispatch. It is a deterministic machine with one owner: it must
// not be called concurrently, reads no clock (times are arguments), and two
// schedulers that were given the same events are in the same state.
//
// A slot is filled in two phases, because making a job one's own takes a round
// trip: [Scheduler.Pick] reserves, [Scheduler.Commit] charges, and
// [Scheduler.Abort] undoes. Any number of picks may be outstanding.
type Scheduler struct {
	cfg Config

	clock     [MaxClasses]u128    // v of each class: highest committed start tag
	maxFinish u128                // highest committed finish tag, remote debt included
	trees     [MaxClasses]tagTree // eligible tenants of each class by start tag
	slots     [MaxClasses]uint32  // configured slots
	used      [MaxClasses]uint32  // slots taken by picked and running jobs

	tenants    []tenant
	queues     []classQueue // tenant slot × len(cfg.Classes) + class
	tenantByID idIndex
	freeTenant uint32
	tenantN    int

	cands     []cand
	candByID  idIndex
	freeCand  uint32
	liveN     int  // queued, held, picked or running candidates
	remoteDue bool // some tenant may have remote debt

	flights    []flight
	byTicket   ticketIndex
	freeFlight uint32
	lastTicket Ticket

	averages map[typeKey]average
	remotes  map[remoteKey]uint64 // cumulative CPU ms last seen

	// The decay step of all times from stepFrom on, as long as stepSpan; see step.
	stepFrom, stepSpan int64
	stepNo             uint64

	scratch Event // handed to cfg.Record, so that recording allocates nothing
}

// tenant is one tenant's state, four lines of memory. acct includes outstanding
// picks; base does not include the oldest unresolved pick and anything picked
// after it, and is meaningful only while such picks exist.
type tenant struct {
	id        TenantID
	weight    uint64 // undecayed, units of 2⁻¹⁶
	inFlight  int64  // estimated cost of picked and running
	pickedSum int64  // the picked part of it
	queued    int64  // estimated cost of queued and held candidates
	queuedN   uint32 // their number
	running   uint32 // committed, not over
	picked    uint32 // reserved, not resolved
	firstOut  uint32 // outstanding picks in ticket order
	lastOut   uint32
	live      bool
	classes   uint8 // bit k: the tenant has work, or a clock position, in class k

	acct account
	over uint32 // how far running was above the cap when the cap was lowered
	next uint32 // free list
	_    uint64

	base  account
	usage u128 // decayed CPU ms, Q64.64, as of usageStep

	usageStep uint64 // on the decay grid
	charged   int64  // CPU ms charged since registration: estimates, then actuals
	published int64  // highest value of charged so far: what peers may read
	spec      TenantSpec
}

// account is a tenant's position in virtual time, Q64.64.
type account struct {
	finish u128 // local finish tag
	credit u128 // overpaid and not yet given back
	remote u128 // service received elsewhere and not yet counted here
}

// flight is one pick and the run that follows. Until every older pick of its
// tenant is resolved it also stays in the tenant's chain of outstanding picks.
type flight struct {
	ticket     Ticket
	cand       uint32
	tenant     uint32
	prev, next uint32 // chain; next links the free list
	state      flightState
	class      Class // the job's
	slotClass  Class
	pinned     bool
	chained    bool
	est        int64  // CPU ms charged at dispatch
	charged    int64  // CPU ms charged so far
	weight     uint64 // at dispatch, the divisor of every later correction
	lift       u128   // the class's clock when the tenant became eligible
	start      u128   // start tag, revised downwards when an older pick is aborted
	distance   u128   // est/weight
	remotePay  u128   // bound on remote debt paid, pinned only
	_          uint64
}

type flightState uint8

const (
	flightFree    flightState = iota
	flightPicked              // reserved
	flightRunning             // committed
	flightOver                // run over, kept only as a link of the chain
)

// cand is one candidate, queued, held or in flight: one line of memory.
type cand struct {
	id         JobID
	order      Order
	cost       int64 // estimate, CPU ms
	tenant     uint32
	prev, next uint32 // run neighbours; next links the free list
	aux        uint32 // index in the side heap, or the flight's slot
	cell       uint32 // in candByID
	typ        uint32
	state      candState
	class      Class
	pinned     bool
}

type candState uint8

const (
	candFree candState = iota
	candRun            // queued, in its class queue's sorted run
	candSide           // queued, in its class queue's side heap
	candHeld
	candFlight
)

// NewScheduler returns an empty scheduler, or an error wrapping [ErrConfig].
func NewScheduler(cfg Config) (*Scheduler, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg.Classes = append([]ClassConfig(nil), cfg.Classes...)
	if cfg.Decay != nil {
		d := *cfg.Decay
		cfg.Decay = &d
	}
	s := &Scheduler{
		cfg: cfg, freeTenant: none, freeCand: none, freeFlight: none,
		tenantByID: newIDIndex(), candByID: newIDIndex(), byTicket: newTicketIndex(),
		averages: make(map[typeKey]average), remotes: make(map[remoteKey]uint64),
	}
	for k := range cfg.Classes {
		s.slots[k] = uint32(cfg.Classes[k].Slots)
		s.trees[k].before = func(a, b uint32) bool { return s.headBefore(Class(k), a, b) }
	}
	return s, nil
}

// queue is the tenant's queue of a class.
func (s *Scheduler) queue(t uint32, k Class) *classQueue {
	return &s.queues[int(t)*len(s.cfg.Classes)+int(k)]
}

// weightAt is the tenant's weight at a time, units of 2⁻¹⁶, at least 1.
func (s *Scheduler) weightAt(t *tenant, now int64) uint64 {
	d := s.cfg.Decay
	if d == nil {
		return t.weight
	}
	usage := t.usage
	if at := s.step(now); at > t.usageStep {
		usage = halve(usage, at-t.usageStep)
	}
	return effectiveWeight(t.weight, usage, d.norm(t.spec.Tier))
}

// step is the decay step of a time. Neighbouring calls mostly fall in one step,
// so a division is spared.
func (s *Scheduler) step(now int64) uint64 {
	if uint64(now-s.stepFrom) >= uint64(s.stepSpan) {
		s.stepNo, s.stepFrom, s.stepSpan = s.cfg.Decay.span(now)
	}
	return s.stepNo
}

// maxUsage stops the usage memory at 2⁶² CPU ms, where every weight has long
// been the least one.
const maxUsage = 1 << 62

// addUsage brings the usage forward to now by whole grid steps and adds a cost,
// which may be negative; usage never falls below zero.
func (s *Scheduler) addUsage(t *tenant, cost, now int64) {
	d := s.cfg.Decay
	if d == nil {
		return
	}
	if at := s.step(now); at > t.usageStep {
		t.usage, t.usageStep = halve(t.usage, at-t.usageStep), at
	}
	if cost < 0 {
		t.usage = t.usage.monus(u128{hi: uint64(-cost)})
	} else if t.usage.hi < maxUsage {
		t.usage = t.usage.plus(u128{hi: uint64(cost)})
	}
}

// addCharged counts CPU ms charged to the tenant. published is the running
// maximum: a reader that adds up differences must never see it go back, or it
// would count the same service twice.
func (t *tenant) addCharged(cost int64) {
	t.charged += cost
	t.published = max(t.published, t.charged)
}

// settle applies the idle rule when nothing is left alive: every class's clock
// moves to the highest finish tag, so nobody starts the next busy period with
// credit or debt, and remote debt is forgiven with it. Doing this to one class
// while others are busy would push its tenants behind for no reason.
func (s *Scheduler) settle() {
	if s.liveN > 0 {
		return
	}
	for k := range s.cfg.Classes {
		s.clock[k] = maxU128(s.clock[k], s.maxFinish)
	}
	if s.remoteDue {
		for i := range s.tenants {
			s.tenants[i].acct.remote = u128{}
		}
		s.remoteDue = false
	}
}

// record hands an accepted transition to the recorder. Callers ask first whether
// there is one: an Event is three lines of memory to fill in for nobody.
func (s *Scheduler) record(ev Event) {
	s.scratch = ev
	s.cfg.Record(&s.scratch)
}
