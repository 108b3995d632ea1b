package model

// Mutant is a deliberate bug that the model must find. A checker that stays silent
// about a broken protocol is a broken checker.
type Mutant struct {
	Name string
	// File of pkg/lease in which Old, which occurs there once, becomes New; empty
	// for a bug of the reconciler or the guard, which is the scenario's Bug.
	File, Old, New string
	// Scenario is one in which it shows, and Want how the finding begins.
	Scenario Scenario
	Want     string
}

// Scenarios in which the mutants show. Each is as small as the bug allows.
var (
	ownerStopped = Scenario{Stop: true, OnlyA: true, Budget: Budget{Stop: 1}, MaxEpoch: 2, MaxInc: 2}
	ownerSlow    = Scenario{Stop: true, OnlyA: true, Budget: Budget{Late: 1}, MaxEpoch: 2, MaxInc: 2}
	ownerBack    = Scenario{Stop: true, Start: taking, MaxEpoch: 3, MaxInc: 4}
	restart      = Scenario{Stop: true, OnlyA: true, Budget: Budget{Crash: 1, Boot: 1}, MaxEpoch: 2, MaxInc: 3}
)

func with(sc Scenario, change func(*Scenario)) Scenario {
	change(&sc)
	return sc
}

// Mutants are the seeded bugs.
var Mutants = []Mutant{
	{
		Name:     "nobody but the agent ends an overdue workload",
		Scenario: with(ownerStopped, func(sc *Scenario) { sc.Bug = BugNoGuard }), Want: "I4",
	},
	{
		Name:     "a start is not looked at again",
		Scenario: with(restart, func(sc *Scenario) { sc.Start, sc.Bug, sc.Budget = startFenced, BugLateStart, Budget{} }), Want: "I4",
	},
	{
		Name:     "a record that names us is adopted by reading",
		Scenario: with(restart, func(sc *Scenario) { sc.Start, sc.Bug = releasing, BugAdoptByReading }), Want: "I4",
	},
	{
		Name: "a restart raises the incarnation while workloads run",
		File: "self.go",
		Old:  "s.phase, s.inc, s.deadline, s.lapsed, s.ttl = selfLive, rec.Incarnation, 0, true, rec.TTL()\n",
		New:  "m.raise()\n\t\treturn\n",
		Scenario: with(restart, func(sc *Scenario) {
			sc.Bug = BugRaiseWhileAlive
		}), Want: "I4",
	},
	{
		Name: "a fence leaves the incarnation as it was",
		File: "peer.go", Old: "max(p.inc, claims) + 1", New: "max(p.inc, claims)",
		Scenario: ownerStopped, Want: "b fences a without raising",
	},
	{
		Name: "a fence does not wait for the whole lease",
		File: "peer.go", Old: "p.since.Add(ContenderWait(ttl, m.cfg.KillTime) + spread)", New: "p.since.Add(ttl/2 + spread)",
		Scenario: ownerStopped, Want: "I2",
	},
	{
		Name: "a contender's wait has no margin for the clocks",
		File: "peer.go", Old: "p.since.Add(ContenderWait(ttl, m.cfg.KillTime) + spread)", New: "p.since.Add(ttl + spread)",
		Scenario: with(ownerStopped, func(sc *Scenario) { sc.Budget.Drift = 1 }), Want: "I2",
	},
	{
		Name: "a new version does not start the timer again",
		File: "peer.go", Old: "p.etag, p.since, p.missing, p.idle = etag, now, false, 0", New: "p.etag, p.missing, p.idle = etag, false, 0",
		Scenario: ownerSlow, Want: "I2",
	},
	{
		Name: "the deadline counts from the answer",
		File: "self.go", Old: "m.selfConfirmed(s.rec, o.sent)", New: "m.selfConfirmed(s.rec, m.now)",
		Scenario: ownerSlow, Want: "I2",
	},
	{
		Name: "a claim is judged by its owner's state",
		File: "name.go", Old: "case m.peer(n.rec.Owner).inc > n.rec.Incarnation:",
		New:      "case m.peer(n.rec.Owner).rec != nil && m.peer(n.rec.Owner).rec.State == fleet.NodeFenced:",
		Scenario: ownerBack, Want: "I3",
	},
	{
		Name: "a claim's answer counts under whatever incarnation",
		File: "write.go", Old: "if !m.CanAct() || rec.Incarnation != m.self.inc || w.gaveUp {", New: "if !m.CanAct() || w.gaveUp {",
		Scenario: with(ownerBack, func(sc *Scenario) { sc.Start, sc.Budget = claimFenced, Budget{} }), Want: "inside the machine",
	},
	{
		Name: "a claim that is given up is not burnt",
		File: "write.go", Old: "\t\tm.burn(n)\n\t}\n\tm.attempt(n)", New: "\t\tm.notWritten(n, false)\n\t\treturn\n\t}\n\tm.attempt(n)",
		Scenario: with(ownerSlow, func(sc *Scenario) { sc.Start, sc.Budget = claiming, Budget{Late: 1, Lost: 1} }), Want: "burn",
	},
	{
		Name: "a re-claim keeps the epoch",
		File: "event.go", Old: "return w == WriteClaim || w == WriteReclaim || w == WriteFinal", New: "return w == WriteClaim || w == WriteFinal",
		Scenario: Scenario{Stop: true, OnlyA: true, Budget: Budget{Wipe: 1, Boot: 1}, MaxEpoch: 2, MaxInc: 3}, Want: "I1",
	},
	{
		Name: "a foreign write leaves a name held",
		File: "name.go", Old: "n.known, n.etag, n.newer, n.held = known, obj.ETag, newer, false", New: "n.known, n.etag, n.newer = known, obj.ETag, newer",
		Scenario: ownerStopped, Want: "inside the machine",
	},
	{
		Name: "a name is held while its release travels",
		File: "write.go", Old: "\t\tn.held = false // from the sending on, until a later write is confirmed\n", New: "",
		Scenario: with(restart, func(sc *Scenario) { sc.Start, sc.Budget = running, Budget{Drain: 1} }), Want: "inside the machine",
	},
}
