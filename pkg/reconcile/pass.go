package reconcile

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/barista-fleet/barista/pkg/fleet"
	"github.com/barista-fleet/barista/pkg/lease"
	"github.com/barista-fleet/barista/pkg/runtime"
)

// passesPerStep bounds how often one step looks again at what its own actions
// changed. More would mean that two decisions undo each other.
const passesPerStep = 8

// pass decides about every name whose view changed, acts, and then fills what is
// free with candidates. The lease has renewed before this, in the same step.
func (m *Machine) pass() {
	node := m.view()
	if node.CanAct != m.node.CanAct || node.Fresh != m.node.Fresh || node.StopDue != m.node.StopDue ||
		node.Recovering != m.node.Recovering || node.Draining != m.node.Draining ||
		node.DrainNow != m.node.DrainNow || node.Cordoned != m.node.Cordoned || node.Unguarded != m.node.Unguarded {
		m.allDirty()
	}
	if node.Cordoned && !m.node.Cordoned {
		m.tell(Event{Type: EventCordoned, Message: "this node claims nothing" + m.directed()})
	}
	for range passesPerStep {
		m.node = node
		for _, name := range m.sortedDirty() {
			m.decide(node, m.items[name])
		}
		m.acquire(node)
		node = m.view()
		if node.Recovering != m.node.Recovering {
			m.allDirty()
		}
		if len(m.dirty) == 0 {
			return
		}
	}
}

// directed says, for people, what operators asked of this node and why.
func (m *Machine) directed() string {
	d := m.sync.directive
	switch {
	case d == nil:
		return ""
	case d.Drain && d.Reason != "":
		return ": it is drained: " + d.Reason
	case d.Drain:
		return ": it is drained"
	case d.Reason != "":
		return ": " + d.Reason
	}
	return ""
}

func (m *Machine) allDirty() {
	for name := range m.items {
		m.dirty[name] = true
	}
}

// view is what Decide may know of this machine.
func (m *Machine) view() Node {
	n := Node{
		ID: m.cfg.NodeID, Name: m.cfg.Name, Now: m.now, Wall: m.wall,
		CanAct: m.own.CanAct(), Fresh: m.sync.fresh, Recovering: len(m.recovering) > 0,
		Draining: m.draining, DrainNow: m.draining, Labels: m.cfg.Labels, Runtime: m.cfg.Runtime, Images: m.cfg.Images,
	}
	if d := m.sync.directive; d != nil {
		n.Draining, n.Cordoned = n.Draining || d.Drain, d.Cordon || d.Drain
		n.DrainNow = n.DrainNow || d.Drain && !d.Deadline.IsZero() && !m.wall.Before(d.Deadline)
	}
	if !m.cfg.Fleet {
		return n
	}
	n.StopDue, n.KillAt = m.lossTimes()
	n.Unguarded = m.guard.Missing
	if m.guard.End {
		n.StopDue, n.KillAt = true, min(n.KillAt, m.guardKill)
	}
	for _, p := range m.own.Peers() {
		if p.Record.State == fleet.NodeLive {
			n.Peers++
		}
	}
	return n
}

// lossTimes says when workloads with on_bucket_loss: stop must end: SIGTERM at
// half the TTL without a confirmed renewal, SIGKILL at five sixths. A node that
// must raise its incarnation has no time left: its claims fall at that instant.
//
// A process life that has confirmed nothing yet goes by what the last one
// published. It has a sixth of the TTL to confirm its first renewal before
// anything is told to end, as long as another sixth is left for ending it.
func (m *Machine) lossTimes() (due bool, killAt lease.Instant) {
	if m.own.State() == "raising" || m.own.State() == "halted" {
		return true, m.now
	}
	ttl := m.own.TTL()
	if confirmed := m.own.Confirmed(); confirmed != 0 {
		return m.now >= confirmed.Add(ttl/2), confirmed.Add(ttl * 5 / 6)
	}
	old := m.previous
	ttl = old.KillAt.Sub(old.Confirmed) * 6 / 5
	term := max(old.Confirmed.Add(ttl/2), min(m.startedAt.Add(ttl/6), old.KillAt.Add(-ttl/6)))
	return m.now >= term, old.KillAt
}

// decide looks at one name and does what Decide says, unless it is a candidate:
// those wait for their turn.
func (m *Machine) decide(node Node, it *item) {
	n := m.nameOf(it)
	if it.op != nil {
		n.Op = it.op.kind
	}
	switch {
	case n.View.Claim != lease.ClaimBehind:
		it.behind = nil
	case it.behind == nil:
		seen := n.record().Seen
		it.behind = &seen
	}
	if it.behind != nil {
		n.BehindSeen = *it.behind
	}
	a := Decide(node, n)
	it.action = a
	m.account(it, n)
	m.settled(it, n)
	m.forget(it, n)
	delete(m.candidates, it.name)
	if a.Kind != Wait {
		it.told = ""
	}
	switch a.Kind {
	case Wait:
		if a.Look && !it.sync.reading(n.View.Seen) {
			m.readDesired(it)
		}
		if a.Event != nil && a.Event.Type != it.told {
			it.told = a.Event.Type
			m.tell(*a.Event)
		}
		m.orphan(it, n)
	case Fence, Operate:
		m.operate(it, n, a)
	case Write:
		m.submit(it, a)
	case Acquire:
		m.candidates[it.name] = a
	}
}

// nameOf is what Decide may know of a name, but for an operation in flight and a
// bucket that went back.
func (m *Machine) nameOf(it *item) Name {
	n := Name{
		Name: it.name, Known: it.known, Desired: it.desired, DesiredAt: it.sync.at, View: m.own.Name(it.name),
		Runs: it.runs, NotBefore: it.notBefore, NoPause: it.noPause,
	}
	n.Stopped = it.stoppedFor(n.record().Instance)
	return n
}

// orphan tells, once, of a name that is owned here and that nobody desires.
func (m *Machine) orphan(it *item, n Name) {
	if n.Known != Absent || !n.View.Held {
		it.orphaned = false
	} else if !it.orphaned {
		it.orphaned = true
		m.tell(*n.event(EventOrphaned, "its desired record is gone; it goes on running until it is deleted by name"))
	}
}

// settled notes that a name from before the restart has found its standing.
func (m *Machine) settled(it *item, n Name) {
	if !m.recovering[it.name] || n.Op != 0 || n.View.Writing != 0 {
		return
	}
	switch n.View.Claim {
	case lease.ClaimUnknown, lease.ClaimOurs, lease.ClaimOursOld:
		if !n.View.Held {
			return
		}
	case lease.ClaimBehind, lease.ClaimUnreadable, lease.ClaimMissing:
	default:
		if it.alive() && !n.View.Held {
			return
		}
	}
	delete(m.recovering, it.name)
	if !n.View.Held {
		m.batch.Drop = append(m.batch.Drop, it.name)
	}
}

// forget drops what nobody wants, nobody owns and nothing here runs.
func (m *Machine) forget(it *item, n Name) {
	if n.Known == Absent && !n.View.Held && len(it.runs) == 0 && it.op == nil && n.View.Writing == 0 && !m.recovering[it.name] && n.View.Rec == nil {
		delete(m.items, it.name)
	}
}

// account keeps the node's use up to date.
func (m *Machine) account(it *item, n Name) {
	var u use
	if n.View.Held || m.claiming[it.name] {
		switch {
		case n.spec().Kind == fleet.KindJob:
			u.jobs = 1
		case n.record().Phase != fleet.PhaseStopped:
			u.sessions = 1
		}
	}
	m.used.jobs += u.jobs - it.uses.jobs
	m.used.sessions += u.sessions - it.uses.sessions
	it.uses = u
}

func (m *Machine) submit(it *item, a Action) {
	if m.now < it.hold {
		it.action = waitUntil(it.hold, "the last write was refused by the bucket")
		return
	}
	it.event = a.Event
	m.lease(lease.Submit{Name: it.name, Kind: a.Write, Record: a.Record, Override: a.Override})
}

// acquire claims candidates while there is room for them, the oldest wish first.
func (m *Machine) acquire(node Node) {
	if len(m.candidates) == 0 || !node.CanAct || len(m.claiming) >= m.cfg.MaxClaims {
		return
	}
	rivals := m.rivals()
	for _, name := range m.inOrder() {
		if len(m.claiming) >= m.cfg.MaxClaims {
			return
		}
		a, ok := m.candidates[name]
		if !ok {
			continue // no longer one
		}
		it := m.items[name]
		if why := m.noRoom(it); why != "" {
			it.action = wait(why)
			continue
		}
		if at := m.turn(it, rivals); m.now < at {
			it.action = waitUntil(at, "another node is first in line for it")
			continue
		} else if at > 0 && m.own.Name(name).Read < at {
			// Whoever was first in line has probably taken it: a read finds out for
			// less than a conditional write that is lost.
			it.action = wait("looks whether the node that was first in line took it")
			delete(m.candidates, name)
			m.lease(lease.Read{Name: name})
			continue
		}
		delete(m.candidates, name)
		m.claiming[name] = true
		m.submit(it, a)
		if m.own.Name(name).Writing == 0 {
			delete(m.claiming, name)
		}
		m.dirty[name] = true
		m.account(it, Name{Name: name, Desired: it.desired, View: m.own.Name(name)})
	}
}

// inOrder returns the candidates in the order of their wishes. It is sorted again
// only when a name has become one; names that no longer are stay in it until then.
func (m *Machine) inOrder() []string {
	for name := range m.candidates {
		if !m.ordered[name] {
			m.order = slices.SortedFunc(maps.Keys(m.candidates), m.older)
			clear(m.ordered)
			for _, n := range m.order {
				m.ordered[n] = true
			}
			break
		}
	}
	return m.order
}

// rivals returns the other nodes that are alive as far as this one knows.
func (m *Machine) rivals() []string {
	if !m.cfg.Fleet {
		return nil
	}
	var out []string
	for id, p := range m.own.Peers() {
		if p.Record.State == fleet.NodeLive && p.Silent < p.Record.TTL()/2 {
			out = append(out, id)
		}
	}
	return out
}

// older orders candidates by when they were first desired, by the store's clock.
func (m *Machine) older(a, b string) int {
	da, db := m.items[a].desired, m.items[b].desired
	return cmp.Or(da.Created.Compare(db.Created), cmp.Compare(da.UID, db.UID), cmp.Compare(a, b))
}

func (m *Machine) noRoom(it *item) string {
	if it.desired.Spec.WithDefaults().Kind == fleet.KindJob {
		if m.used.jobs >= m.cfg.JobSlots {
			return fmt.Sprintf("this node runs %d jobs, as many as it may", m.used.jobs)
		}
		return ""
	}
	if m.used.sessions >= m.cfg.MaxSessions {
		return fmt.Sprintf("this node owns %d sessions, as many as it may", m.used.sessions)
	}
	return ""
}

// turn says when this node may try for a name. All nodes compute the same order
// for each name; the first tries at once, the others a little later, so that most
// names are claimed by one conditional write and not by one a node.
func (m *Machine) turn(it *item, rivals []string) lease.Instant {
	mine, before := lease.Rank(m.cfg.NodeID, it.name), 0
	for _, id := range rivals {
		if lease.Rank(id, it.name) < mine {
			before++
		}
	}
	if before == 0 {
		return 0
	}
	// From when it could be taken: every node learns of that at about the same time.
	v := m.own.Name(it.name)
	return max(v.Seen, v.Lost).Add(min(time.Duration(before), 4) * m.cfg.Poll / 2)
}

// operate begins an operation on a run. What must be found again after a crash is
// journaled before it is done.
func (m *Machine) operate(it *item, n Name, a Action) {
	if m.now < it.opHold {
		it.action = waitUntil(it.opHold, "%s; the last try failed", a.Reason)
		return
	}
	if m.running >= m.cfg.MaxOps && a.Op != OpStop {
		m.deferred[it.name] = true
		it.action = wait("waits for other operations of this node")
		return
	}
	m.running++
	id := m.newOp(it.name)
	it.op = &operation{id: id, kind: a.Op, instance: a.Instance, action: a}
	if a.Op == OpStop {
		it.stopped, it.cause = a.Instance, a.Cause
	}
	if a.Op == OpStop || a.Op == OpRemove {
		// Both are found to be due again by looking, and must work on a full disk.
		m.perform(it, n)
		return
	}
	rec := n.record()
	m.flush()
	m.emit(Commit{Op: id, Batch: Batch{
		Put: []Owned{it.owned(rec)},
		PutOp: []Pending{{
			Name: it.name, UID: rec.UID, Instance: a.Instance, Kind: a.Op,
			Epoch: rec.Epoch, Incarnation: rec.Incarnation, Attempt: rec.Attempt,
		}},
	}})
}

// perform hands the operation to the runtime.
func (m *Machine) perform(it *item, n Name) {
	it.op.running = true
	rec := n.record()
	op := RunOp{Op: it.op.id, Kind: it.op.kind, Name: it.name, Instance: it.op.instance, Grace: it.op.action.Grace, Epoch: rec.Epoch, Inc: rec.Incarnation}
	op.Keep = op.Kind == OpRemove && n.outlived(op.Instance)
	if op.Kind == OpStart {
		spec := n.spec()
		op.Start = runtime.StartRequest{Spec: spec, Ref: runtime.Ref{
			Instance: it.op.instance, FleetID: m.sync.fleetID, NodeID: m.cfg.NodeID, NodeName: m.cfg.Name,
			Name: it.name, UID: rec.UID, Generation: rec.Generation, Epoch: rec.Epoch, Incarnation: rec.Incarnation,
			Attempt: rec.Attempt, StopOnLoss: spec.OnBucketLoss == fleet.BucketLossStop && m.cfg.Fleet,
			KeepLogs: spec.KeepLogs && m.cfg.Fleet,
		}}
		m.tell(*n.event(EventStarting, "attempt %d starts", rec.Attempt))
	}
	m.emit(op)
}

// committed answers a journaled intent: what was right when it was journaled must
// still be right now. Otherwise the operation is withdrawn, never having begun.
func (m *Machine) committed(e Committed) {
	name, ok := m.ops[e.Op]
	it := m.items[name]
	if !ok || it == nil || it.op == nil || it.op.id != e.Op || it.op.running {
		return
	}
	n := m.nameOf(it)
	again := Decide(m.view(), n)
	if e.Err == nil && again.Kind == it.op.action.Kind && again.Op == it.op.kind && again.Instance == it.op.instance {
		m.perform(it, n)
		return
	}
	if e.Err != nil {
		it.notBefore = m.now.Add(m.cfg.Poll)
	} else {
		m.batch.DropOp = append(m.batch.DropOp, name)
	}
	m.endOp(it)
}

func (m *Machine) endOp(it *item) {
	delete(m.ops, it.op.id)
	it.op = nil
	m.running--
	m.dirty[it.name] = true
	for name := range m.deferred {
		m.dirty[name] = true
	}
	clear(m.deferred)
}

// opDone takes the result of an operation.
func (m *Machine) opDone(e OpDone) {
	name, ok := m.ops[e.Op]
	it := m.items[name]
	if !ok || it == nil || it.op == nil || it.op.id != e.Op {
		return
	}
	op := it.op
	switch {
	case e.Withdrawn:
	case op.kind == OpRemove && e.Err == nil:
		it.dropRun(op.instance)
	case e.Err == nil:
		it.setRun(e.Run, m.now)
	case op.kind == OpStart:
		m.startFailed(it, op, e)
	default:
		m.opFailed(it, op, e)
	}
	if e.Err == nil && !e.Withdrawn && op.action.Event != nil {
		ev := *op.action.Event
		if ev.Type != EventFenced || it.fencedAt != ev.Epoch {
			m.tell(ev)
		}
	}
	m.batch.DropOp = append(m.batch.DropOp, name)
	m.endOp(it)
}

// startFailed makes a failed start the end of a run, so that it is counted,
// reported and backed off from like any other.
func (m *Machine) startFailed(it *item, op *operation, e OpDone) {
	rec := m.own.Name(it.name).Rec
	if rec == nil || rec.Instance != op.instance {
		return
	}
	ref := runtime.Ref{Instance: op.instance, Name: it.name, UID: rec.UID, Epoch: rec.Epoch, Incarnation: rec.Incarnation, Attempt: rec.Attempt}
	code := 126
	if e.Refused {
		code = 127
	}
	it.setRun(runtime.Workload{Ref: ref, State: runtime.StateExited, Exit: &fleet.Exit{
		Code: code, Reason: "could not start: " + e.Err.Error(), At: m.wall,
	}}, m.now)
}

// opFailed handles an operation that the runtime could not do. A pause that is
// not possible becomes a stop, loudly; anything else is tried again.
func (m *Machine) opFailed(it *item, op *operation, e OpDone) {
	m.tell(Event{Type: EventDegraded, Name: it.name, Epoch: m.own.Name(it.name).Epoch, Message: fmt.Sprintf("%v failed: %v", op.kind, e.Err)})
	it.opHold = m.now.Add(m.cfg.Poll)
	it.noPause = it.noPause || op.kind == OpPause && e.Refused
}

func (m *Machine) runChanged(r runtime.Workload) {
	m.item(r.Name).setRun(r, m.now)
}

// setRuns makes a whole list of the runtime's the view of what runs here, except
// where something newer was learned while the list was on its way: a run that was
// started since is not gone because an older list does not have it.
func (m *Machine) setRuns(e Runs) {
	seen := map[string]bool{}
	for _, r := range e.Runs {
		seen[r.Instance] = true
		if it := m.item(r.Name); it.noted[r.Instance] < e.Asked {
			it.setRun(r, m.now)
		}
	}
	for _, it := range m.items {
		for _, r := range slices.Clone(it.runs) {
			if !seen[r.Instance] && it.op == nil && it.noted[r.Instance] < e.Asked {
				it.dropRun(r.Instance)
				m.dirty[it.name] = true
			}
		}
	}
}

// setRun notes a run. What is dead stays dead: news may come out of order.
func (it *item) setRun(r runtime.Workload, now lease.Instant) {
	if it.noted == nil {
		it.noted = map[string]lease.Instant{}
	}
	it.noted[r.Instance] = now
	if r.Exit != nil {
		// It goes into records, which do not take every text.
		exit := *r.Exit
		exit.Reason = fleet.Sentence(exit.Reason)
		r.Exit = &exit
	}
	for i, old := range it.runs {
		if old.Instance == r.Instance {
			if !old.State.Dead() || r.State.Dead() {
				it.runs[i] = r
			}
			return
		}
	}
	it.runs = append(it.runs, r)
}

// stoppedFor returns why this process life told a run to end.
func (it *item) stoppedFor(instance string) StopCause {
	if instance == "" || it.stopped != instance {
		return 0
	}
	return it.cause
}

func (it *item) dropRun(instance string) {
	delete(it.noted, instance)
	it.runs = slices.DeleteFunc(it.runs, func(r runtime.Workload) bool { return r.Instance == instance })
}
