// Package mutants lists deliberate bugs of the ownership protocol and of what
// carries it out, each of which the simulation must notice: a simulation that stays
// green on a broken protocol shows nothing.
//
// A mutant is a replacement of text in one file or a few. Each text must occur
// exactly once, or the test fails: the list cannot rot unnoticed. The replaced files
// are laid over the source for one build of the simulation, which then runs seed
// after seed until an invariant is violated. The seed that caught a mutant is run on
// the unchanged source as well, where it must hold.
//
//	make sim-mutants
//
// prints which invariant caught which mutant, and after how many seeds. Some edit
// the model (internal/sim), where what they break is outside the state machines:
// the guard, the store, the journal's order.
package mutants

// Mutant is one bug.
type Mutant struct {
	Name  string // what the bug is
	Edits []Edit
	// Quick: it is caught within a few seeds, and is part of every test run.
	Quick bool
}

// Edit replaces Old, which occurs exactly once in File, by New.
type Edit struct{ File, Old, New string }

const (
	self      = "pkg/lease/self.go"
	peer      = "pkg/lease/peer.go"
	name      = "pkg/lease/name.go"
	write     = "pkg/lease/write.go"
	machine   = "pkg/lease/machine.go"
	event     = "pkg/lease/event.go"
	config    = "pkg/lease/config.go"
	decide    = "pkg/reconcile/decide.go"
	held      = "pkg/reconcile/held.go"
	free      = "pkg/reconcile/free.go"
	view      = "pkg/reconcile/view.go"
	pass      = "pkg/reconcile/pass.go"
	node      = "pkg/reconcile/machine.go"
	simRuns   = "internal/sim/runs.go"
	simGuard  = "internal/sim/guard.go"
	simNet    = "internal/sim/network.go"
	simNode   = "internal/sim/node.go"
	passed    = "case m.peer(n.rec.Owner).inc > n.rec.Incarnation:"
	landed    = "if !m.CanAct() || rec.Incarnation != m.self.inc || w.gaveUp {"
	landedAny = "if !m.CanAct() || w.gaveUp {"
)

// All are the mutants.
var All = []Mutant{
	{Name: "the deadline counts from the answer of a renewal", Quick: true, Edits: []Edit{
		{self, "m.selfConfirmed(s.rec, o.sent)", "m.selfConfirmed(s.rec, m.now)"},
	}},
	{Name: "the deadline counts from the read that found a renewal", Edits: []Edit{
		{self, "m.extend(p.sent)", "m.extend(m.now)"},
	}},
	{Name: "a contender's timer starts when the listing is sent", Edits: []Edit{
		{peer, "p.saw(e.ETag, m.now)", "p.saw(e.ETag, m.nextNodes.Add(-m.cfg.Heartbeat))"},
	}},
	{Name: "a contender waits its own TTL", Quick: true, Edits: []Edit{
		{peer, "ttl := m.peerTTL(p)", "ttl := min(m.peerTTL(p), 1) * m.cfg.TTL"},
	}},
	{Name: "a contender waits without a margin for clocks and kills", Edits: []Edit{
		{config, "return ttl*(100+rhoPercent)/(100-rhoPercent) + max(ttl/10, killTime)", "return ttl + 0*killTime"},
	}},
	{Name: "a fence does not raise the incarnation", Quick: true, Edits: []Edit{
		{peer, "rec.Incarnation = max(p.inc, claims) + 1", "rec.Incarnation = max(p.inc, claims)"},
	}},
	{Name: "a lapsed node fences others", Edits: []Edit{
		{peer, "case !m.CanAct() || !watched || !renews:", "case !watched:"},
		{peer, "renews := m.now.Sub(m.Confirmed()) <= 2*m.heartbeat()\n", ""},
	}},
	{Name: "timers go on while own renewals do not get through", Edits: []Edit{
		{self, "\t\tm.restartTimers()\n", ""},
	}},
	{Name: "validity by node alone: a fenced node's claims are invalid, whatever their incarnation", Edits: []Edit{
		{name, passed, "case m.peer(n.rec.Owner).rec != nil && m.peer(n.rec.Owner).rec.State != fleet.NodeLive:"},
	}},
	{Name: "validity by node alone: a claim that names this node is current", Edits: []Edit{
		{name, "n.rec.Incarnation == m.self.inc && m.self.phase == selfLive:\n\t\treturn ClaimOurs", "m.self.phase == selfLive:\n\t\treturn ClaimOurs"},
	}},
	{Name: "validity by state and equality", Edits: []Edit{
		{name, passed, "case m.peer(n.rec.Owner).rec != nil && (m.peer(n.rec.Owner).rec.State != fleet.NodeLive || m.peer(n.rec.Owner).rec.Incarnation != n.rec.Incarnation):"},
	}},
	{Name: "the fence is conditioned on a version read again, without comparing the beat", Edits: []Edit{
		{peer, "\tp.saw(obj.ETag, m.now)\n", "\tp.etag, p.missing = obj.ETag, false\n"},
	}},
	{Name: "a missing node record is taken as invalid", Edits: []Edit{
		{name, passed, "case m.peer(n.rec.Owner).inc > n.rec.Incarnation || m.peer(n.rec.Owner).missing:"},
	}},
	{Name: "a restart raises the incarnation", Edits: []Edit{
		{self, "s.phase, s.inc, s.deadline, s.lapsed, s.ttl = selfLive, rec.Incarnation, 0, true, rec.TTL()", "m.raise()\n\t\treturn"},
	}},
	{Name: "the incarnation is raised while stop workloads live", Edits: []Edit{
		{node, "ok = ok && !(r.StopOnLoss && !r.State.Dead())", "_ = r"},
	}},
	{Name: "the incarnation is raised while a start is pending", Edits: []Edit{
		{node, "if it.op != nil && it.op.kind == OpStart {\n\t\t\tok = false", "if false {\n\t\t\tok = false"},
	}},
	{Name: "ownership is adopted by a read", Edits: []Edit{
		{name, "\t\tm.noteRecord(n)\n\t}\n\tif known", "\t\tm.noteRecord(n)\n\t\tif rec.Owner == m.cfg.NodeID && rec.Incarnation == m.self.inc && m.self.phase == selfLive {\n\t\t\tn.held, was = true, false\n\t\t\tm.emit(Acquired{Name: n.id, Kind: WriteTouch, Rec: rec})\n\t\t}\n\t}\n\tif known"},
	}},
	{Name: "no look at the incarnation when a claim is answered", Edits: []Edit{{write, landed, landedAny}}},
	{Name: "no look at the incarnation when a claim is answered, nor at the start, nor by the guard", Edits: []Edit{
		{write, landed, landedAny},
		{machine, "case n.held && n.rec.Incarnation != m.self.inc:", "case false:"},
		{simRuns, "|| a.token.Incarnation != op.Inc", ""},
		{simGuard, "n.w.now < n.killAt() && n.published.Incarnation == ref.Incarnation", "n.w.now < n.killAt() && ref.Incarnation > 0"},
	}},
	{Name: "a touch is sent under another incarnation than it was decided under", Edits: []Edit{
		{write, "if stale := (w.kind == WriteTouch || len(w.pending) > 0) && w.rec.Incarnation != m.self.inc;", "if stale := false;"},
	}},
	{Name: "a start does not go through the guard", Edits: []Edit{
		{simRuns, "if op.Start.StopOnLoss && w.sc.guard && !n.guardAllows(op.Start.Ref) {", "if false {"},
	}},
	{Name: "a release is sent before the workload is dead", Edits: []Edit{
		{held, "\tif alive {\n\t\treturn n.stop(run, cause, why)", "\tif alive && n.Name == \"\" {\n\t\treturn n.stop(run, cause, why)"},
	}},
	{Name: "the uid is ignored by the owner", Edits: []Edit{
		{view, "(n.Desired.State == fleet.DesiredDeleted || n.Desired.UID != n.record().UID)", "n.Desired.State == fleet.DesiredDeleted"},
	}},
	{Name: "the uid is ignored by a taker", Edits: []Edit{
		{free, "if rec.UID != d.UID {", "if false {"},
	}},
	{Name: "a name that is done can be acquired", Quick: true, Edits: []Edit{
		{free, "case rec.Phase.Done():", "case rec.Phase.Done() && rec.Sealed:"},
	}},
	{Name: "the incarnation is journaled after the write", Edits: []Edit{
		{self, "\ts.op = m.start(op{kind: opSelfSave})\n\tm.emit(SaveIdentity{Op: s.op, Identity: s.id})", "\ts.op = m.start(op{kind: opSelfSave})\n\tm.identitySaved(IdentitySaved{Op: s.op})"},
	}},
	{Name: "a conditional write is sent again after an error", Edits: []Edit{
		{simNet, "if f.broken {\n\t\t\t\t\tin = x.broken(bucket.ErrUnreachable)", "if f.broken {\n\t\t\t\t\tin = x.apply()"},
	}},
	{Name: "a write of unknown fate is sent again from whatever stands there", Edits: []Edit{
		{write, "\t// Another version stands there:", "\tif known == knownPresent {\n\t\tw.base, w.basis, w.resend, w.next = obj.ETag, rec, true, m.now\n\t\treturn\n\t}\n\t// Another version stands there:"},
	}},
	{Name: "a claim that is given up is not burnt", Edits: []Edit{
		{write, "\t\tm.burn(n)\n\t}\n\tm.attempt(n)", "\t\tm.notWritten(n, false)\n\t\treturn\n\t}\n\tm.attempt(n)"},
	}},
	{Name: "a release removes the record", Edits: []Edit{
		{simNet, "\tw.check.covers(a, key, body, sent)\n", "\tw.check.covers(a, key, body, sent)\n\tif len(key) > 9 && key[:9] == \"sessions/\" {\n\t\tif rec := w.session(key[9:]); rec != nil && rec.Owner == \"\" && !rec.Phase.Done() {\n\t\t\tw.store.remove(key)\n\t\t}\n\t}\n"},
	}},
	{Name: "an outage ends every workload", Quick: true, Edits: []Edit{
		{decide, "if r.StopOnLoss && node.StopDue {", "if node.StopDue {"},
	}},
	{Name: "timers go on over an outage", Edits: []Edit{
		{peer, "\t\tm.restartTimers()\n", ""},
		{self, "\t\tm.restartTimers()\n", ""},
	}},
	{Name: "names are acquired before those from before the restart have their standing", Edits: []Edit{
		{free, "case node.Recovering:", "case node.Recovering && node.Cordoned:"},
	}},
	{Name: "the epoch begins again with each owner", Quick: true, Edits: []Edit{
		{name, "return max(n.maxEpoch, n.rec.Epoch) + 1", "return 1"},
	}},
	{Name: "records carry no nonce of their own", Edits: []Edit{
		{machine, `Nonce: m.cfg.Life + "-" + strconv.FormatUint(m.nonces, 36)`, `Nonce: m.cfg.Life + strconv.FormatUint(0, 36)`},
	}},
	{Name: "a re-claim keeps the epoch", Edits: []Edit{
		{event, "return w == WriteClaim || w == WriteReclaim || w == WriteFinal", "return w == WriteClaim || w == WriteFinal"},
	}},
	{Name: "an intent is a level", Edits: []Edit{
		{view, "return n.Desired.Intent, n.Desired.Intent.Seq > n.record().Seen", "return n.Desired.Intent, n.Desired.Intent.Seq > 0"},
	}},
	{Name: "absence is taken for deletion", Edits: []Edit{
		{view, "\treturn n.Known == Present && n.Desired != nil &&\n\t\t(n.Desired", "\treturn n.Known == Absent && n.Desired != nil || n.Known == Present && n.Desired != nil &&\n\t\t(n.Desired"},
	}},
	{Name: "a name is claimed without a look at a wish that is older than its record", Edits: []Edit{
		{free, "n.View.Rec != nil && n.DesiredAt < n.View.Seen", "n.View.Rec != nil && n.DesiredAt < 0"},
	}},
	{Name: "a foreign write is no fence", Edits: []Edit{
		{name, "n.known, n.etag, n.newer, n.held = known, obj.ETag, newer, false", "n.known, n.etag, n.newer = known, obj.ETag, newer"},
	}},
	{Name: "a released name is held until the answer", Edits: []Edit{
		{write, "n.held = false // from the sending on", "n.held = n.held && e.Kind == WriteRelease // from the sending on"},
	}},
	{Name: "an older list of runs replaces what was learned since", Edits: []Edit{
		{pass, "if it := m.item(r.Name); it.noted[r.Instance] < e.Asked {", "if it := m.item(r.Name); it != nil {"},
		{pass, "if !seen[r.Instance] && it.op == nil && it.noted[r.Instance] < e.Asked {", "if !seen[r.Instance] && it.op == nil {"},
	}},
	{Name: "a removed record may be taken at once", Edits: []Edit{
		{name, "if m.now.Sub(n.seenAt) >= ContenderWait(ttl, m.cfg.KillTime)+m.cfg.Look {", "if m.now >= n.seenAt {"},
	}},
	{Name: "a removed record may be taken before its owner has looked", Edits: []Edit{
		{name, "+m.cfg.Look {", " {"},
		{name, "m.emit(Ring{Names: []string{n.id}}) // its owner", "_ = n // its owner"},
	}},
	{Name: "an owner that was fenced makes a removed record again at once", Edits: []Edit{
		{name, "case n.rec != nil && n.rec.Owner == m.cfg.NodeID && n.rec.Incarnation == m.self.inc && m.self.phase == selfLive, n.rec", "case n.rec != nil && n.rec.Owner == m.cfg.NodeID, n.rec"},
		{self, "n.mine = false", "n.mine = n.mine || false"},
	}},
	{Name: "a removed record waits for the operation in flight", Edits: []Edit{
		{decide, "if a, ok := remake(node, n); ok {", "if a, ok := remake(node, n); ok && a.Kind == Wait {"},
	}},
	{Name: "two copies of a data directory fence each other", Edits: []Edit{
		{self, "case rec != nil && rec.Incarnation > s.inc && rec.State == fleet.NodeLive && rec.Writer != m.cfg.Writer:", "case false:"},
	}},
	{Name: "a copy takes itself for the original at its second start", Edits: []Edit{
		{simNode, "if !suspicious {\n\t\td.machine", "if true {\n\t\td.machine"},
	}},
	{Name: "the end of a run is not recorded before the next one starts", Edits: []Edit{
		{held, "case has && run.State.Dead() && rec.Phase != fleet.PhaseBackoff && !rec.Phase.Parked():\n\t\treturn recordExit(node, n, run)", "case has && run.State.Dead() && rec.Phase != fleet.PhaseBackoff && !rec.Phase.Parked():\n\t\treturn operate(OpRemove, run, \"\", nil)"},
	}},
}
