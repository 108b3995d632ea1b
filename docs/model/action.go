package model

import (
	"slices"

	"github.com/barista-fleet/barista/internal/bucket"
	"github.com/barista-fleet/barista/pkg/lease"
)

// action is one thing that may happen next. Everything that the checker explores
// is a sequence of these.
type action struct {
	kind actionKind
	node uint8 // or which clock stands still
	arg  uint8 // a message, a run, a variant
}

type actionKind uint8

const (
	actTick    actionKind = iota // time passes on every machine
	actWake                      // an agent looks at its clock and at what happened
	actLook                      // an agent reads x, because a listing or a signal said so
	actPersist                   // an identity that nobody waits for becomes durable
	actCommit                    // the intent of a start is durable: it is decided again
	actLaunch                    // a helper looks at the lease and starts the workload, or not
	actDie                       // a workload that was told to end is dead
	actGuard                     // the guard kills what is overdue
	actAnswer                    // a request is served, and the answer arrives
	actServe                     // a request is served, and the answer is late
	actHang                      // a request is late
	actStop                      // an agent is stopped
	actCont                      // it goes on
	actDeliver                   // a late answer arrives
	actForget                    // the agent gives up waiting for a Put, which may still land
	actLand                      // such a Put arrives at the store
	actCrash                     // an agent dies
	actWipe                      // an agent dies and its journal is lost
	actReboot                    // a machine reboots
	actBoot                      // an agent starts
	actDrain                     // an operator drains a
	actUndrain                   // and thinks better of it
)

// actions lists what may happen in w, always in the same order.
func (w *world) actions(out []action) []action {
	out = out[:0]
	if w.sc.AnyPace || !w.urgent() {
		out = append(out, action{kind: actTick, node: nodeCount})
		for i := range w.nodes {
			if w.left.Drift > 0 {
				out = append(out, action{kind: actTick, node: uint8(i)})
			}
		}
	}
	for i := range w.nodes {
		out = w.nodeActions(out, i)
	}
	for k := range w.msgs {
		out = w.messageActions(out, k)
	}
	switch {
	case w.left.Drain > 0:
		out = append(out, action{kind: actDrain})
	case w.drain == wanted:
		out = append(out, action{kind: actUndrain})
	}
	return out
}

func (w *world) nodeActions(out []action, i int) []action {
	n := &w.nodes[i]
	add := func(kind actionKind, arg int) { out = append(out, action{kind, uint8(i), uint8(arg)}) }
	for k, r := range n.runs {
		switch {
		case r.state == runCommitting:
			add(actCommit, k)
		case r.state == runStarting && !r.stopping:
			add(actLaunch, k)
		case r.stopping:
			add(actDie, k)
		}
	}
	if w.overdue(i) {
		add(actGuard, 0)
	}
	if n.m == nil {
		if n.life == 0 && w.sc.Start == fresh || n.life > 0 && w.left.Boot > 0 {
			add(actBoot, 0)
		}
		return out
	}
	if n.unsaved != nil {
		add(actPersist, 0)
	}
	switch {
	case n.stopped:
		add(actCont, 0)
	case w.left.Stop > 0 && w.mayBefall(i):
		add(actStop, 0)
	}
	if w.mustWake(i) {
		add(actWake, 0)
	}
	if !n.stopped && w.mayLook(i) {
		add(actLook, 0)
	}
	if !w.mayBefall(i) {
		return out
	}
	if w.left.Crash > 0 {
		add(actCrash, 0)
		if slices.ContainsFunc(n.runs, func(r run) bool { return r.op && r.state == runStarting }) {
			add(actCrash, 1)
		}
	}
	if w.left.Wipe > 0 && len(n.runs) > 0 {
		add(actWipe, 0)
	}
	if w.left.Reboot > 0 {
		add(actReboot, 0)
	}
	return out
}

func (w *world) messageActions(out []action, k int) []action {
	m := w.msgs[k]
	add := func(kind actionKind) { out = append(out, action{kind, uint8(m.node), uint8(k)}) }
	switch {
	case m.orphan:
		add(actLand)
	case m.served && !w.nodes[m.node].stopped:
		add(actDeliver)
	case m.served:
	default:
		if !w.nodes[m.node].stopped {
			add(actAnswer)
		}
		if w.left.Late > 0 && w.mayBefall(m.node) || w.nodes[m.node].stopped {
			add(actServe)
		}
		if w.left.Late > 0 && w.mayBefall(m.node) && !m.slow && !w.sc.AnyPace {
			add(actHang)
		}
		if w.left.Lost > 0 && w.mayBefall(m.node) && m.what == msgPut && !w.nodes[m.node].stopped {
			add(actForget)
		}
	}
	return out
}

func (w *world) mayBefall(i int) bool { return i == 0 || !w.sc.OnlyA }

// urgent reports that something must happen before time passes.
func (w *world) urgent() bool {
	for i := range w.nodes {
		if w.mustWake(i) {
			return true
		}
	}
	return slices.ContainsFunc(w.msgs, func(m *message) bool {
		return !m.orphan && !m.slow && !w.nodes[m.node].stopped
	})
}

// mustWake reports that an agent has something to do.
func (w *world) mustWake(i int) bool {
	n := &w.nodes[i]
	return n.m != nil && !n.stopped && (n.poked || n.m.NextWake() <= n.clock || w.mustStop(i))
}

// mayLook reports that x is another than this node's view of it, and that no look
// is on its way. A look at the version that is known already changes nothing.
func (w *world) mayLook(i int) bool {
	v := w.nodes[i].m.Name(theName)
	if v.Writing != 0 || v.Claim != lease.ClaimUnknown && w.nodes[i].m.Version(theName) == w.objects[keyX].etag {
		return false
	}
	return !slices.ContainsFunc(w.msgs, func(m *message) bool {
		return m.node == i && !m.orphan && m.what == msgGet && m.key == keyX
	})
}

func (w *world) mustStop(i int) bool {
	return w.sc.Stop && w.stopDue(i) && slices.ContainsFunc(w.nodes[i].runs, func(r run) bool { return !r.op && !r.stopping })
}

// overdue reports that the guard of a machine has something to kill.
func (w *world) overdue(i int) bool {
	n := &w.nodes[i]
	return w.sc.Stop && !w.sc.bug(BugNoGuard) && n.clock >= n.file.killAt &&
		slices.ContainsFunc(n.runs, func(r run) bool { return r.state == runAlive })
}

// do makes a happen in w.
func (w *world) do(a action) {
	i := int(a.node)
	switch a.kind {
	case actTick:
		w.tick(i)
	case actWake:
		w.step(i, lease.Tick{})
	case actLook:
		w.step(i, lease.Read{Name: theName})
	case actPersist:
		w.nodes[i].journal.id, w.nodes[i].unsaved = *w.nodes[i].unsaved, nil
	case actCommit, actLaunch, actDie, actGuard:
		w.doRun(a)
	case actAnswer, actServe, actHang, actDeliver, actForget, actLand:
		w.doMessage(a)
	case actStop:
		w.left.Stop--
		w.nodes[i].stopped = true
	case actCont:
		w.nodes[i].stopped, w.nodes[i].poked = false, true
	case actCrash, actWipe, actReboot, actBoot:
		w.doLife(a)
	case actDrain:
		w.left.Drain--
		w.drain, w.nodes[0].poked = wanted, w.nodes[0].m != nil
	case actUndrain:
		w.drain, w.nodes[0].poked = withdrawn, w.nodes[0].m != nil
	}
	w.checkState()
}

// tick lets one unit of time pass, but for one clock that stands still. The guards
// are scheduled in time: no tick ends with an overdue workload alive.
func (w *world) tick(still int) {
	if still < nodeCount {
		w.left.Drift--
	}
	for i := range w.nodes {
		if i != still {
			w.nodes[i].clock = w.nodes[i].clock.Add(unit)
		}
		if w.overdue(i) {
			w.guard(i)
		}
	}
}

func (w *world) guard(i int) {
	n := &w.nodes[i]
	n.runs = slices.DeleteFunc(n.runs, func(r run) bool { return r.state == runAlive })
	n.poked = n.m != nil
	w.goals |= goalGuarded
	w.say("%s: the guard kills the workload", nodeIDs[i])
}

func (w *world) doRun(a action) {
	n, k := &w.nodes[a.node], int(a.arg)
	if a.kind == actGuard {
		w.guard(int(a.node))
		return
	}
	r := &n.runs[k]
	n.poked = n.m != nil
	gone := a.kind == actDie
	switch a.kind {
	case actCommit:
		// What was right when the intent was journaled must still be right.
		v := n.m.Name(theName)
		held := v.Held || v.Claim == lease.ClaimOurs && w.sc.bug(BugAdoptByReading)
		gone = !held || v.Rec.Epoch != r.epoch || !n.m.CanAct() || w.sc.Stop && w.stopDue(int(a.node))
		r.state = runStarting
	case actLaunch:
		if gone = !w.mayLaunch(int(a.node), *r); !gone {
			r.state, r.op = runAlive, false
			w.checkStart(int(a.node), *r)
		}
	default: // it is dead
	}
	if gone {
		n.runs = slices.Delete(n.runs, k, k+1)
	}
	w.say("%s: workloads here: %v", nodeIDs[a.node], n.runs)
}

// mayLaunch is the last look before a workload starts: the agent's goroutine
// compares its token, and a helper of a workload that must stop the lease file.
func (w *world) mayLaunch(i int, r run) bool {
	n := &w.nodes[i]
	if w.sc.bug(BugLateStart) {
		return true
	}
	if r.op && (n.clock >= n.m.Deadline() || n.m.Incarnation() != r.inc) {
		return false
	}
	return !w.sc.Stop || n.clock < n.file.killAt && n.file.inc == r.inc
}

func (w *world) doMessage(a action) {
	k := int(a.arg)
	was := w.msgs[k]
	w.say("%s: %s", nodeIDs[was.node], was)
	m := *was
	switch a.kind {
	case actHang:
		w.left.Late--
		m.slow = true
		w.msgs[k] = &m
	case actServe:
		if !w.nodes[m.node].stopped {
			w.left.Late--
			m.slow = true
		}
		w.serve(&m)
		w.msgs[slices.Index(w.msgs, was)] = &m
	case actAnswer:
		w.drop(was)
		w.serve(&m)
		w.step(m.node, m.answer())
	case actDeliver:
		w.goals |= goalLate
		w.drop(was)
		w.step(m.node, m.answer())
	case actForget:
		w.left.Lost--
		w.msgs[k] = was.orphaned()
		w.dropDead()
		m.result = bucket.PutResult{Outcome: bucket.Ambiguous, Err: bucket.ErrUnreachable}
		w.step(m.node, m.answer())
	default: // it lands late
		w.goals |= goalLanded
		w.drop(was)
		w.serve(&m)
	}
}

func (w *world) drop(m *message) {
	if k := slices.Index(w.msgs, m); k >= 0 {
		w.msgs = slices.Delete(w.msgs, k, k+1)
	}
}

// orphaned is the same Put after its agent stopped waiting for it.
func (m *message) orphaned() *message {
	o := *m
	o.orphan, o.op = true, 0
	return &o
}

func (w *world) doLife(a action) {
	i := int(a.node)
	n := &w.nodes[i]
	switch a.kind {
	case actBoot:
		if n.life > 0 {
			w.left.Boot--
			w.goals |= goalRestarted
		}
		w.boot(i)
		return
	case actCrash:
		w.left.Crash--
		if a.arg == 1 { // before the helper was on its own
			n.runs = slices.DeleteFunc(n.runs, func(r run) bool { return r.op && r.state == runStarting })
		}
	case actWipe:
		w.left.Wipe--
		n.journal, n.suspect = journal{}, true
		w.goals |= goalWiped
	case actReboot:
		w.left.Reboot--
		n.runs, n.file, n.suspect = nil, leaseFile{}, true
	default: // the others are no ends
	}
	w.stopAgent(i)
}
