package sim

import (
	"fmt"
	"slices"
	"time"

	"github.com/barista-fleet/barista/pkg/fleet"
	"github.com/barista-fleet/barista/pkg/lease"
	"github.com/barista-fleet/barista/pkg/reconcile"
)

// node is one machine: its clocks, its runs, its disk, and at most one agent.
type node struct {
	w     *world
	idx   int
	host  string
	clock clock
	times lease.Config
	disk  *disk

	powered   bool
	frozen    bool     // suspended: nothing on it runs, its boot-time clock goes on
	wakeup    []func() // what happens when it is no longer
	boots     int
	machine   string
	runs      []*run
	published published
	agent     *agent // nil while none runs

	cutUp, cutDown bool // its requests, or their answers, do not get through
	badStarts      bool
	noPause        bool
	clone          *node // of whose data directory this machine has a copy
	retired        bool  // switched off for good
	fatal          string
	lastStart      time.Duration
}

// agent is one life of the agent's process.
type agent struct {
	n       *node
	m       *reconcile.Machine
	id      string
	dead    bool
	stopped bool     // SIGSTOP
	queue   []func() // what its goroutines do when it goes on
	wake    uint64   // numbers timers: only the newest one counts

	token      *reconcile.Publish
	publishing int
	commits    []*commit
	synced     time.Duration
	rung       fleet.Signal
	ringing    bool
	nextRing   time.Duration
	spins      int
	spinAt     time.Duration
	heardAt    time.Duration
}

// do runs f in the agent, d from now: not if it has died, and not before it runs
// again if it is stopped then.
func (a *agent) do(d time.Duration, f func()) {
	a.n.w.after(d, func() { a.go1(f) })
}

func (a *agent) go1(f func()) {
	switch {
	case a.dead:
	case a.stopped || a.n.frozen:
		a.queue = append(a.queue, f)
	default:
		f()
	}
}

// resume lets a stopped agent go on: what its goroutines were about to do, they do
// now, in an order that nobody can rely on.
func (a *agent) resume() {
	if a.dead || a.stopped || a.n.frozen {
		return
	}
	queue := a.queue
	a.queue = nil
	w := a.n.w
	w.rng.Shuffle(len(queue), func(i, j int) { queue[i], queue[j] = queue[j], queue[i] })
	for _, f := range queue {
		a.do(w.between(0, 2*time.Millisecond), f)
	}
	a.rearm()
}

// whenAwake runs f now, or when the machine is no longer suspended.
func (n *node) whenAwake(f func()) {
	if n.frozen {
		n.wakeup = append(n.wakeup, f)
		return
	}
	if n.powered {
		f()
	}
}

// input steps the machine. The clock is read when the input is handed over.
func (a *agent) input(in reconcile.Input) {
	a.go1(func() { a.step(in) })
}

func (a *agent) step(in reconcile.Input) {
	w := a.n.w
	if a.spinAt != w.now {
		a.spins, a.spinAt = 0, w.now
	}
	if a.spins++; a.spins > 1000 {
		w.fail(invariantSim, "%s steps without end at one instant: %#v", a.n.host, in)
		return
	}
	w.stats.Steps++
	w.note(a.n.idx, "step", stepName(in), uint64(a.n.boottime()))
	effects := a.m.Step(a.n.boottime(), a.n.clock.wallNow(w.now), in)
	if err := a.m.Validate(); err != nil {
		w.fail(invariantState, "%s after %T: %v", a.n.host, in, err)
		return
	}
	for _, e := range effects {
		if !w.calm && w.chance(w.sc.crashAtEffect) {
			w.note(a.n.idx, "crash at", fmt.Sprintf("%T", e), 0)
			a.n.crash()
			a.n.restartLater(w.between(time.Millisecond, 2*w.sc.longestTTL))
			return
		}
		a.perform(e)
		if a.dead {
			return
		}
	}
	a.rearm()
}

func stepName(in reconcile.Input) string {
	switch in.(type) {
	case reconcile.Tick:
		return "tick"
	case reconcile.Start:
		return "start"
	case lease.GotObject:
		return "got"
	case lease.PutDone:
		return "put done"
	case lease.Listed:
		return "listed"
	case reconcile.OpDone:
		return "op done"
	case reconcile.RunChanged:
		return "run changed"
	case reconcile.Runs:
		return "runs"
	case reconcile.Committed, lease.IdentitySaved:
		return "journaled"
	default:
		return "input"
	}
}

func (a *agent) perform(e reconcile.Effect) {
	switch e := e.(type) {
	case lease.Get:
		a.get(e)
	case lease.Put:
		a.put(e)
	case lease.List:
		a.list(e)
	case lease.Ring:
		a.ring(e)
	case lease.SaveIdentity:
		c := &commit{change: func(d *disk) { d.identity = e.Identity }}
		if e.Op != 0 {
			c.reply = func(err error) reconcile.Input { return lease.IdentitySaved{Op: e.Op, Err: err} }
		}
		a.persist(c)
	case reconcile.SaveFleet:
		a.persist(&commit{change: func(d *disk) { d.fleetID = e.FleetID }})
	case reconcile.Commit:
		a.commit(e)
	case reconcile.RunOp:
		a.operate(e)
	case reconcile.Publish:
		a.publish(e)
	case reconcile.Warn:
	case reconcile.Fatal:
		a.n.w.note(a.n.idx, "fatal", e.Reason, 0)
		a.n.fatal = e.Reason
		a.n.w.check.fatal(a, e.Reason)
		a.n.crash()
		a.n.restartLater(a.n.w.between(a.n.times.TTL, 3*a.n.times.TTL)) // its supervisor, with patience
	case reconcile.Gone:
		a.n.w.note(a.n.idx, "left", "", 0)
		a.n.w.check.left(a)
		a.n.crash()
	default:
		a.n.w.fail(invariantSim, "unknown effect %T", e)
	}
}

// rearm sets the timer of the loop: to the machine's next wake, and never longer
// than a second, as the loop does.
func (a *agent) rearm() {
	if a.dead {
		return
	}
	a.wake++
	turn := a.wake
	w := a.n.w
	at := min(a.n.clock.when(a.m.NextWake()), w.now+time.Second)
	w.at(at, func() {
		if turn == a.wake {
			a.go1(func() {
				if turn == a.wake {
					a.step(reconcile.Tick{})
				}
			})
		}
	})
}

// ring writes the signal, at most once a second, with all that was rung meanwhile.
func (a *agent) ring(e lease.Ring) {
	a.rung.Names, a.rung.Nodes = append(a.rung.Names, e.Names...), append(a.rung.Nodes, e.Nodes...)
	if a.ringing {
		return
	}
	a.ringing = true
	w := a.n.w
	a.do(max(a.nextRing-w.now, w.between(0, time.Millisecond)), func() {
		a.ringing, a.nextRing = false, w.now+time.Second
		sig := a.rung
		a.rung = fleet.Signal{}
		if a.n.reaches() && !w.chance(w.weather.dropped+w.weather.throttled) {
			w.after(a.n.latency(), func() { w.signal(sig) })
		}
	})
}

// signal writes signals/changed.
func (w *world) signal(sig fleet.Signal) {
	sig.Head = w.head()
	if body, err := fleet.Encode(&sig); err == nil && w.now >= w.weather.outage {
		w.store.plant(fleet.KeySignal, body)
	}
}

// heard notes an answer that reached a running agent.
func (a *agent) heard() {
	if !a.stopped && !a.n.frozen && !a.dead {
		a.heardAt = a.n.w.now
	}
}

// start begins a life of the agent, as the agent itself does: what runs is listed
// first, and the journal is read.
func (n *node) start() {
	w := n.w
	if n.agent != nil || !n.powered || n.retired || n.frozen {
		return
	}
	n.lastStart, n.fatal = w.now, ""
	start, writer := n.identify()
	life := w.unique("l")
	cfg := n.times
	cfg.NodeID, cfg.NodeName, cfg.Writer, cfg.Life = n.disk.nodeID, n.host, writer, life
	m, err := reconcile.New(reconcile.Config{
		Lease: cfg, Fleet: true, NodeID: n.disk.nodeID, Name: n.host,
		Poll: n.times.Heartbeat, Resync: w.sc.resync, Runtime: "process",
		Describe: fleet.Node{Endpoint: n.host + ":1", Runtime: "process"},
		JobSlots: w.sc.slots, MaxSessions: 1000, MaxOps: 8, MaxClaims: 8,
	})
	if err != nil {
		w.fail(invariantSim, "%s: %v", n.host, err)
		return
	}
	a := &agent{n: n, m: m, id: n.disk.nodeID, heardAt: w.now}
	n.agent = a
	w.stats.Lives++
	w.note(n.idx, "life", life, uint64(n.clock.boot(w.now)))
	start.Runs = n.list()
	a.do(w.between(0, 5*time.Millisecond), func() { a.input(start) })
	a.watchAll()
}

// identify works out who this machine is, from its journal or from the labels of
// what runs on it, as the agent does.
func (n *node) identify() (reconcile.Start, string) {
	w, d := n.w, n.disk
	suspicious := d.nodeID != "" && (d.machine != n.machine || d.boot != n.boots)
	writer := d.identity.Writer
	if d.nodeID == "" {
		d.nodeID = w.unique("n-")
		for _, r := range n.runs {
			d.nodeID, d.fleetID, suspicious = r.w.NodeID, r.w.FleetID, true
		}
		writer = w.unique("w")
		d.identity = lease.Identity{Writer: writer}
	} else if suspicious {
		writer = w.unique("w")
	}
	d.machine, d.boot = n.machine, n.boots
	s := reconcile.Start{
		Identity: d.identity, FleetID: d.fleetID, NewFleetID: w.unique("f-"), Suspicious: suspicious,
		Owned: d.ownedList(), Epochs: d.clone().epochs,
	}
	if n.published.boot == n.boots && n.published.Confirmed <= n.boottime() {
		s.Confirmed, s.KillAt = n.published.Confirmed, n.published.KillAt
	}
	return s, writer
}

// watchAll reads the whole list of runs now and then, as the loop does. The list
// is of one instant; the machine gets it later.
func (a *agent) watchAll() {
	w := a.n.w
	a.do(w.between(w.sc.resync/2, w.sc.resync), func() {
		asked, runs := a.n.boottime(), a.n.list()
		d := w.between(0, 5*time.Millisecond)
		if w.chance(0.2) {
			d = w.between(0, 100*time.Millisecond)
		}
		a.do(d, func() { a.input(reconcile.Runs{Asked: asked, Runs: runs}) })
		a.watchAll()
	})
}

// crash ends the agent at once. Its runs go on.
func (n *node) crash() {
	a := n.agent
	if a == nil {
		return
	}
	a.dead = true
	a.crashDisk()
	n.agent = nil
	n.w.note(n.idx, "agent ends", "", 0)
}

func (n *node) restartLater(d time.Duration) { n.w.after(d, n.start) }

// powerOff ends everything on the machine.
func (n *node) powerOff() {
	n.crash()
	n.powered, n.frozen, n.wakeup = false, false, nil
	for _, r := range slices.Clone(n.runs) {
		r.end(&fleet.Exit{Lost: true, Reason: "the machine went down"})
		if n.w.chance(0.5) {
			n.forget(r) // its state was not on a disk
		}
	}
}

// powerOn boots the machine: another boot, another boot-time clock.
func (n *node) powerOn() {
	if n.powered || n.retired {
		return
	}
	n.powered = true
	n.boots++
	n.clock.from, n.clock.start = n.w.now, lease.Instant(n.w.between(time.Second, time.Minute))
	n.w.note(n.idx, "boot", "", uint64(n.boots))
	n.start()
}

// freeze suspends the machine, thaw wakes it.
func (n *node) freeze() {
	if n.powered {
		n.frozen = true
		n.w.note(n.idx, "suspended", "", 0)
		for _, r := range n.runs {
			r.excused = r.excused || r.alive
		}
	}
}

func (n *node) thaw() {
	if !n.frozen {
		return
	}
	n.frozen = false
	n.w.note(n.idx, "woken", "", 0)
	wakeup := n.wakeup
	n.wakeup = nil
	for _, f := range wakeup {
		n.w.after(n.w.between(0, time.Millisecond), func() { n.whenAwake(f) })
	}
	if n.agent != nil {
		n.agent.resume()
	} else {
		n.start()
	}
}

// pause is SIGSTOP to the agent, unpause SIGCONT.
func (n *node) pause() {
	if n.agent != nil {
		n.agent.stopped = true
		n.w.note(n.idx, "SIGSTOP", "", 0)
	}
}

func (n *node) unpause() {
	if a := n.agent; a != nil && a.stopped {
		a.stopped = false
		n.w.note(n.idx, "SIGCONT", "", 0)
		a.resume()
	}
}
