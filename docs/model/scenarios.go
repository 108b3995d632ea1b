package model

// Scenarios are the worlds that `make model` explores. The first few, marked
// quick, are part of every test run.
var Scenarios = []Scenario{
	{
		Name: "late answer", About: "x must stop with the lease; one request or answer takes as long as it likes",
		Stop: true, Budget: Budget{Late: 1}, MaxEpoch: 2, MaxInc: 2, Quick: true,
		Goals: goalTakenOver | goalLost | goalFenced | goalFencedPeer | goalRenewed | goalGuarded | goalStarted | goalLate,
	},
	{
		Name: "agent restarts", About: "x must stop with the lease; either agent dies at any instant, and may come back",
		Stop: true, Budget: Budget{Crash: 1, Boot: 1}, MaxEpoch: 2, MaxInc: 2, Quick: true,
		Goals: goalTakenOver | goalTouched | goalGuarded | goalLanded | goalRestarted,
	},
	{
		Name: "journal lost", About: "the same, and the journal is gone: what runs is adopted by its labels",
		Stop: true, Budget: Budget{Wipe: 1, Boot: 1}, MaxEpoch: 2, MaxInc: 2, Quick: true,
		Goals: goalTakenOver | goalReclaimed | goalGuarded | goalWiped,
	},
	{
		Name: "first claims", About: "an empty bucket, two agents that start and want x",
		Stop: true, Start: fresh, MaxEpoch: 2, MaxInc: 2, Quick: true,
		Goals: goalClaimed | goalStarted,
	},
	{
		Name: "late start", About: "a is fenced while its helper is about to start x, which may happen at any time after",
		Stop: true, Start: startFenced, MaxEpoch: 3, MaxInc: 4, Limit: 60_000, Quick: true,
		Goals: goalTakenOver | goalFenced,
	},
	{
		Name: "claim answered late", About: "a is fenced while the answer to its claim is on its way to it",
		Stop: true, Start: claimFenced, MaxEpoch: 3, MaxInc: 4, Limit: 60_000, Quick: true,
		Goals: goalTakenOver | goalFenced,
	},
	{
		Name: "machine reboots", About: "either machine reboots, with everything that runs there",
		Stop: true, Budget: Budget{Reboot: 1, Boot: 1}, MaxEpoch: 2, MaxInc: 3,
		Goals: goalTakenOver | goalReclaimed | goalRestarted,
	},
	{
		Name: "agent stopped", About: "x must stop with the lease; either agent is stopped for any time and goes on",
		Stop: true, Budget: Budget{Stop: 1}, MaxEpoch: 2, MaxInc: 2,
		Goals: goalTakenOver | goalLost | goalFenced | goalFencedPeer | goalGuarded | goalLate,
	},
	{
		Name: "release and restart", About: "a release is on its way when its agent dies, and the drain may be withdrawn",
		Stop: true, Start: releasing, OnlyA: true, Budget: Budget{Crash: 1, Boot: 1}, MaxEpoch: 2, MaxInc: 2,
		Goals: goalReleased | goalTouched | goalLanded | goalRestarted,
	},
	{
		Name: "owner comes back", About: "b has fenced a and its claim is on its way; a goes on, registers and claims",
		Stop: true, Start: taking, Budget: Budget{Late: 1}, MaxEpoch: 3, MaxInc: 3, Limit: 150_000,
		Goals: goalReclaimed | goalFenced | goalTakenOver,
	},
	{
		Name: "keep: agent restarts, lost reply", About: "x goes on without a lease; an agent dies, and a put's answer is lost",
		Budget: Budget{Crash: 1, Boot: 1, Lost: 1}, MaxEpoch: 2, MaxInc: 2,
		Goals: goalTakenOver | goalTouched | goalLanded | goalRestarted | goalTwoRun,
	},
	{
		Name: "lost first claim", About: "an empty bucket, and the answer to one put is never seen",
		Stop: true, Start: fresh, OnlyA: true, Budget: Budget{Lost: 1}, MaxEpoch: 2, MaxInc: 2,
		Goals: goalClaimed | goalStarted | goalLanded,
	},
	{
		Name: "clock stands still", About: "an agent is stopped, and the clock of either machine misses a tick",
		Stop: true, OnlyA: true, Budget: Budget{Stop: 1, Drift: 1}, MaxEpoch: 2, MaxInc: 2, Limit: 200_000,
		Goals: goalTakenOver | goalFencedPeer | goalGuarded,
	},
	{
		Name: "any pace", About: "no fault at all, and nothing is ever on time",
		Stop: true, AnyPace: true, MaxEpoch: 2, MaxInc: 2, Limit: 100_000,
		Goals: goalTakenOver | goalFencedPeer | goalGuarded,
	},
}
