package model

import (
	"fmt"
	"math/bits"
	"slices"
	"strings"

	"github.com/barista-fleet/barista/pkg/fleet"
	"github.com/barista-fleet/barista/pkg/lease"
)

// Budget bounds the faults of one scenario. How long anything lasts, and the order
// in which things happen between two ticks, are not bounded by it.
type Budget struct {
	Crash  uint8 // agents that die; workloads go on
	Boot   uint8 // agents that start again
	Wipe   uint8 // agents that die and lose their journal
	Reboot uint8 // machines that reboot
	Lost   uint8 // Puts whose answer is never seen, and which may land late or never
	Late   uint8 // requests or answers that travel for as long as they like
	Stop   uint8 // agents that are stopped, for as long as they like, and go on
	Drift  uint8 // ticks that one machine's clock misses
	Drain  uint8 // wishes that node a gives up what it owns, which may be withdrawn
}

// Bug is a rule of the reconciler or of the guard that a scenario leaves out.
type Bug uint8

// The bugs. Those of the lease itself are made in its source; see mutant.
const (
	NoBug              Bug = iota
	BugAdoptByReading      // a record that names us is held without a touch
	BugRaiseWhileAlive     // a node registers again while a workload that must stop is alive
	BugNoGuard             // nobody but the agent ends an overdue workload
	BugLateStart           // a start is decided and never looked at again
)

// Scenario is one closed world that is explored to its end.
type Scenario struct {
	Name  string
	About string
	Stop  bool // on_bucket_loss: stop; otherwise keep
	Start start
	// AnyPace: time never waits for an agent or the bucket. Otherwise what is due is
	// done, and what is asked is answered, within a tick, but for the faults.
	AnyPace bool
	// OnlyA: what may befall a node befalls a, which owns x at first.
	OnlyA bool
	// Updates: the owner writes that its workload runs.
	Updates bool
	Budget  Budget
	// States are not followed beyond these.
	MaxEpoch, MaxInc uint64
	// Goals must each be reached: a scenario that shows nothing checks nothing.
	Goals goals

	Quick bool // part of every test run
	Limit int  // of states; 0: to the end
	Bug   Bug
}

func (sc *Scenario) bug(b Bug) bool { return sc.Bug == b }

// start is where a scenario begins.
type start uint8

const (
	running     start = iota // x runs on a, and b is live
	fresh                    // the bucket is empty and no agent runs
	releasing                // a was drained: x's workload is dead, its release is on the way
	claiming                 // a's claim of the free x is on its way, and b is off
	claimFenced              // the answer to it is on its way, a is stopped, and b has fenced it
	startFenced              // a's helper is about to start x, a is stopped, and b has fenced it
	taking                   // a is stopped, b has fenced it, and its claim of x is on its way
)

// goals is a set of things that were seen to happen.
type goals uint32

const (
	goalClaimed goals = 1 << iota
	goalTakenOver
	goalReclaimed
	goalTouched
	goalReleased
	goalRewritten
	goalLost
	goalFenced
	goalFencedPeer
	goalRenewed
	goalHalted
	goalGuarded
	goalStarted
	goalTwoRun
	goalLanded
	goalLate
	goalRestarted
	goalWiped
)

var goalNames = [...]string{
	"claimed", "taken over", "re-claimed", "touched", "released", "rewritten", "lost to another",
	"fenced", "fenced a peer", "renewed after a lapse", "halted", "killed by the guard", "started", "two run at once",
	"late put landed", "late answer arrived", "restarted", "journal lost",
}

func (g goals) String() string {
	var out []string
	for ; g != 0; g &= g - 1 {
		out = append(out, goalNames[bits.TrailingZeros32(uint32(g))])
	}
	return strings.Join(out, ", ")
}

// bounded reports a state that is not followed.
func (w *world) bounded() bool {
	if w.ghost.epoch > w.sc.MaxEpoch {
		return true
	}
	for i := range nodeCount {
		if rec := w.objects[i].node; rec != nil && rec.Incarnation > w.sc.MaxInc {
			return true
		}
		if w.nodes[i].journal.id.Intended > w.sc.MaxInc+1 {
			return true
		}
	}
	return false
}

// begin is the first state of a scenario.
func (sc *Scenario) begin() *world {
	w := newWorld(sc)
	if sc.Start == fresh {
		return w
	}
	w.do(action{kind: actBoot, node: 0})
	if sc.Start == claiming || sc.Start == claimFenced {
		w.settle(func() bool { return w.nodes[0].m.Name(theName).Writing == lease.WriteClaim })
		if sc.Start == claimFenced {
			w.nodes[0].stopped = true
			w.do(action{kind: actBoot, node: 1})
			w.settle(func() bool {
				return w.nodes[1].m.CanAct() && w.x() != nil && w.objects[0].node.State == fleet.NodeFenced
			})
		}
		return w
	}
	if sc.Start == startFenced {
		w.settle(func() bool { return len(w.nodes[0].runs) == 1 && w.nodes[0].runs[0].state == runStarting })
		helper := w.nodes[0].runs
		w.nodes[0].stopped, w.nodes[0].runs = true, nil // the helper does not come to it
		w.do(action{kind: actBoot, node: 1})
		w.settle(func() bool { return w.objects[0].node.State == fleet.NodeFenced })
		w.nodes[0].runs = helper
		return w
	}
	w.settle(func() bool { return w.quiet() && len(w.nodes[0].runs) == 1 && w.nodes[0].runs[0].state == runAlive })
	w.do(action{kind: actBoot, node: 1})
	w.settle(func() bool { return w.quiet() && w.nodes[1].m.CanAct() && w.nodes[1].m.Name(theName).Rec != nil })
	switch sc.Start {
	case releasing:
		w.drain = wanted
		w.step(0, lease.Tick{})
		w.do(action{kind: actDie})
		w.step(0, lease.Tick{})
	case taking:
		w.nodes[0].stopped = true
		w.settle(func() bool { return w.nodes[1].m.Name(theName).Writing == lease.WriteClaim })
	default: // it runs
	}
	return w
}

// wellBehaved are the actions of a world without faults.
var wellBehaved = map[actionKind]bool{
	actWake: true, actLook: true, actPersist: true, actCommit: true, actLaunch: true, actAnswer: true, actServe: true, actGuard: true,
}

// quiet reports that nothing is left to happen but that time passes.
func (w *world) quiet() bool {
	return !slices.ContainsFunc(w.actions(nil), w.goesWell)
}

// goesWell: a served answer on its way to a stopped agent is no fault.
func (w *world) goesWell(a action) bool {
	return wellBehaved[a.kind] && (a.kind != actServe || w.nodes[a.node].stopped)
}

// settle lets everything go well until done.
func (w *world) settle(done func() bool) {
	for range 400 {
		if done() {
			return
		}
		next := action{kind: actTick, node: nodeCount}
		acts := w.actions(nil)
		if k := slices.IndexFunc(acts, w.goesWell); k >= 0 {
			next = acts[k]
		}
		w.do(next)
	}
	panic(fmt.Sprintf("%s: the beginning does not settle: %v", w.sc.Name, w))
}
