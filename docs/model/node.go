package model

import (
	"fmt"
	"slices"

	"github.com/barista-fleet/barista/pkg/fleet"
	"github.com/barista-fleet/barista/pkg/lease"
)

// boot begins a life of a node's agent with what its disk holds.
func (w *world) boot(i int) {
	n := &w.nodes[i]
	n.life++
	id := n.journal.id
	writer := id.Writer
	if writer == "" || n.suspect {
		writer = w.newWriter()
	}
	if id == (lease.Identity{}) {
		id.Writer = writer
		n.journal.id = id
	}
	m, err := lease.New(lease.Config{
		NodeID: nodeIDs[i], NodeName: nodeIDs[i], Writer: writer, Life: fmt.Sprintf("%s%d", nodeIDs[i], n.life),
		TTL: ttl, Heartbeat: beat, Retry: unit, Call: unit, KillTime: killTime,
	})
	if err != nil {
		panic(err)
	}
	n.m, n.raiseOK, n.poked, n.before = m, false, false, n.file.confirmed
	maxSeen := n.journal.inc
	for _, r := range n.runs {
		maxSeen = max(maxSeen, r.inc)
		w.send(i, m.Step(n.clock, lease.Seen{Name: theName, Epoch: r.epoch, Owned: true}))
	}
	if n.journal.epoch > 0 {
		w.send(i, m.Step(n.clock, lease.Seen{Name: theName, Epoch: n.journal.epoch, Owned: n.journal.inc != 0}))
	}
	boot := lease.Boot{Identity: id, Suspicious: n.suspect, MaxSeen: maxSeen}
	n.suspect = false
	w.stepOwn(i, lease.Read{Name: theName})
	w.step(i, boot)
}

// step gives a machine an event, and then does what the reconciler does in the
// same step: decide, permit a raise, publish.
func (w *world) step(i int, ev lease.Event) {
	n := &w.nodes[i]
	n.m = n.m.Clone()
	n.poked = false
	w.stepOwn(i, ev)
	for range 8 { // a decision may make room for another
		if n.m == nil || !w.decide(i) {
			break
		}
	}
	if n.m != nil {
		w.permitRaise(i)
	}
	if n.m != nil {
		w.publish(i)
	}
}

// stepOwn steps a machine that is this world's own already.
func (w *world) stepOwn(i int, ev lease.Event) {
	n := &w.nodes[i]
	w.send(i, slices.Clone(n.m.Step(n.clock, ev)))
	if n.m == nil {
		return // halted
	}
	if err := n.m.Validate(); err != nil {
		w.fail("inside the machine of " + nodeIDs[i] + ": " + err.Error())
	}
}

// notice is what the machine tells its reconciler.
func (w *world) notice(i int, e lease.Effect) {
	n := &w.nodes[i]
	if w.note != nil {
		w.say("%s: %T %+v", nodeIDs[i], e, brief(e))
	}
	switch e := e.(type) {
	case lease.Acquired:
		n.journal.epoch, n.journal.inc = max(n.journal.epoch, e.Rec.Epoch), e.Rec.Incarnation
		w.goals |= map[lease.Write]goals{lease.WriteClaim: goalClaimed, lease.WriteReclaim: goalReclaimed, lease.WriteTouch: goalTouched}[e.Kind]
		if e.Kind == lease.WriteClaim && e.Rec.Epoch > 1 {
			w.goals |= goalTakenOver
		}
	case lease.Written:
		if e.Rec.Owner == "" {
			n.journal.inc = 0
			w.goals |= goalReleased
		}
	case lease.NotWritten:
		w.checkNotWritten(i, e)
	case lease.Lost:
		n.journal.inc = 0
		w.goals |= goalLost
	case lease.Fenced:
		w.goals |= goalFenced
	case lease.Renewed:
		w.goals |= goalRenewed
	case lease.Halted:
		w.goals |= goalHalted
		w.stopAgent(i)
	case lease.PeerPassed:
		if e.ByUs {
			w.goals |= goalFencedPeer
		}
	}
}

// brief leaves records out of what is printed of a notice.
func brief(e lease.Effect) any {
	switch e := e.(type) {
	case lease.Acquired:
		return fmt.Sprintf("%v at epoch %d", e.Kind, e.Rec.Epoch)
	case lease.Written:
		return fmt.Sprintf("%v at epoch %d", e.Kind, e.Rec.Epoch)
	}
	return e
}

// decide is what pkg/reconcile.Decide asks, in its order, about one name that is
// always desired. It reports whether it did something that may lead to more.
func (w *world) decide(i int) bool {
	n := &w.nodes[i]
	v := n.m.Name(theName)
	for _, r := range n.runs {
		if r.op || r.stopping {
			return false // an operation is in flight
		}
	}
	if w.endWhatMayNotRun(i, v) {
		return false
	}
	switch {
	case v.Writing != 0:
		return false
	case !v.Held && v.Claim == lease.ClaimOurs && w.sc.bug(BugAdoptByReading):
		return w.tend(i, v)
	case !v.Held && (v.Claim == lease.ClaimOurs || v.Claim == lease.ClaimOursOld) && w.draining(i) && len(n.runs) == 0:
		return w.release(i, v)
	case !v.Held && v.Claim == lease.ClaimOurs:
		return w.submit(i, lease.WriteTouch, v.Rec)
	case !v.Held && v.Claim == lease.ClaimOursOld:
		return w.submit(i, lease.WriteReclaim, v.Rec)
	case v.Held:
		return w.tend(i, v)
	case !v.Claim.Takeable() || w.draining(i):
		return false
	}
	return w.claim(i, v)
}

// endWhatMayNotRun mirrors the function of that name.
func (w *world) endWhatMayNotRun(i int, v lease.NameView) bool {
	n := &w.nodes[i]
	for k := range n.runs {
		r := &n.runs[k]
		foreign := false
		switch v.Claim {
		case lease.ClaimValid, lease.ClaimInvalid, lease.ClaimFree, lease.ClaimSealed:
			foreign = !v.Held && v.Writing == 0
		default: // it may still be this node's
		}
		stale := v.Held && r.inst != v.Rec.Instance
		due := w.sc.Stop && w.stopDue(i)
		if !due && !foreign && !stale {
			continue
		}
		r.stopping = true
		w.say("%s: stops the workload of epoch %d (time is up: %v, not its own: %v, an earlier run: %v)", nodeIDs[i], r.epoch, due, foreign, stale)
		w.checkStop(i, r)
		return true
	}
	return false
}

// stopDue mirrors Machine.lossTimes.
func (w *world) stopDue(i int) bool {
	n := &w.nodes[i]
	if s := n.m.State(); s == "raising" || s == "halted" {
		return true
	}
	return n.clock >= max(n.m.Confirmed(), n.before).Add(ttl/2)
}

// tend mirrors decideHeld: what a drained node owns ends and is released; a re-claimed
// run gets its token; what runs is reported; what ended is counted, and begins
// again.
func (w *world) tend(i int, v lease.NameView) bool {
	n := &w.nodes[i]
	rec := v.Rec
	alive := len(n.runs) > 0
	switch {
	case w.draining(i) && alive:
		n.runs[0].stopping = true
		w.say("%s: stops the workload, because the node is drained", nodeIDs[i])
		return false
	case w.draining(i):
		return w.release(i, v)
	case alive && (n.runs[0].epoch != rec.Epoch || n.runs[0].inc != rec.Incarnation):
		n.runs[0].epoch, n.runs[0].inc = rec.Epoch, rec.Incarnation
		return true
	case alive && rec.Phase != fleet.PhaseRunning && w.sc.Updates:
		c := rec.Clone()
		c.Phase = fleet.PhaseRunning
		return w.submit(i, lease.WriteUpdate, c)
	case alive || !n.m.CanAct():
		return false
	case rec.Phase == fleet.PhaseRunning:
		c := rec.Clone()
		c.Phase, c.Attempt = fleet.PhaseStarting, rec.Attempt+1
		c.Instance = instance(rec.Epoch, c.Attempt)
		return w.submit(i, lease.WriteUpdate, c)
	case w.sc.Stop && w.stopDue(i):
		return false
	}
	n.runs = append(n.runs, run{op: true, epoch: rec.Epoch, inc: rec.Incarnation, inst: rec.Instance})
	w.say("%s: decides to start a workload at epoch %d", nodeIDs[i], rec.Epoch)
	return false
}

// release mirrors giveUp: only what is dead is freed.
func (w *world) release(i int, v lease.NameView) bool {
	c := v.Rec.Clone()
	c.Phase, c.Instance = fleet.PhasePending, ""
	return w.submit(i, lease.WriteRelease, c)
}

func instance(epoch uint64, attempt int) string { return fmt.Sprintf("%d.%d", epoch, attempt) }

// claim mirrors decideFree for a name that is wanted and fits.
func (w *world) claim(i int, v lease.NameView) bool {
	rec := &fleet.Session{UID: "u"}
	if v.Rec != nil {
		rec = v.Rec.Clone()
	}
	rec.Phase, rec.Attempt = fleet.PhaseStarting, 1
	rec.Instance = instance(v.Next, rec.Attempt)
	return w.submit(i, lease.WriteClaim, rec)
}

func (w *world) submit(i int, kind lease.Write, rec *fleet.Session) bool {
	n := &w.nodes[i]
	if kind != lease.WriteUpdate && kind != lease.WriteRelease && !n.m.CanAct() {
		return false
	}
	w.stepOwn(i, lease.Submit{Name: theName, Kind: kind, Record: rec})
	return false
}

// permitRaise mirrors the method of that name: a higher incarnation only when
// nothing that must stop is alive, and no start is in flight.
func (w *world) permitRaise(i int) {
	n := &w.nodes[i]
	state := n.m.State()
	ok := state != "live" && state != "lapsed"
	for _, r := range n.runs {
		if r.op || w.sc.Stop && !w.sc.bug(BugRaiseWhileAlive) {
			ok = false
		}
	}
	if ok != n.raiseOK {
		n.raiseOK = ok
		w.stepOwn(i, lease.AllowRaise{OK: ok})
	}
}

// publish mirrors Machine.publish. The file is written at once here: a file that
// lags behind ends workloads earlier, never later.
func (w *world) publish(i int) {
	n := &w.nodes[i]
	f := leaseFile{confirmed: n.m.Confirmed(), inc: n.m.Incarnation()}
	switch state := n.m.State(); {
	case f.confirmed != 0:
		f.killAt = f.confirmed.Add(ttl * 5 / 6)
	case state == "raising", state == "leaving", state == "left", state == "halted":
	default:
		return
	}
	n.file = f
}

// stopAgent ends an agent without a word: its workloads and its disk stay, what
// it sent stays on its way.
func (w *world) stopAgent(i int) {
	n := &w.nodes[i]
	n.m, n.unsaved, n.poked, n.stopped = nil, nil, false, false
	w.msgs = slices.DeleteFunc(w.msgs, func(m *message) bool {
		return m.node == i && !m.orphan && (m.what != msgPut || m.served)
	})
	for k, m := range w.msgs {
		if m.node == i && !m.orphan {
			w.msgs[k] = m.orphaned()
		}
	}
	n.runs = slices.DeleteFunc(n.runs, func(r run) bool { return r.state == runCommitting })
	for k := range n.runs {
		n.runs[k].op = false
	}
	w.dropDead()
}
