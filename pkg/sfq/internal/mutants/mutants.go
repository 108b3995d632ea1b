// Package mutants lists deliberate one-line bugs of package sfq, each of which
// its tests must notice. A suite that stays green on a broken scheduler is a
// broken suite.
//
// The list is checked by
//
//	SFQ_MUTANTS=1 go test ./pkg/sfq/internal/mutants
//
// which copies the package to a temporary directory once per mutant, applies
// the edit (the old text must occur there exactly once), and runs the tests
// named for it: they must fail. Without the variable only the edits themselves
// are checked against the current source, in milliseconds.
package mutants

// Mutant is one bug.
type Mutant struct {
	// Name says what the bug is.
	Name string
	// File is the file of package sfq it is in.
	File string
	// Old is replaced by New; it occurs exactly once in File.
	Old, New string
	// Run is the -run pattern of tests of which one must fail. After raceFlag
	// they run under the race detector.
	Run string
}

// raceFlag marks a bug that needs the race detector to be noticed for certain.
const raceFlag = "race:"

// All are the mutants.
var All = []Mutant{
	{
		"charges are truncated instead of rounded up", "weight.go",
		"return u128{q, lo}.plus(u128{lo: 1}) // q < 2⁶³", "return u128{q, lo}",
		"Law|Oracle|Session",
	},
	{
		"charges lose their fraction", "weight.go",
		"lo, rem := bits.Div64(n%weight, 0, weight)", "lo, rem := uint64(0), n%weight*0",
		"CheapJobs|GoldFree|Oracle",
	},
	{
		"the weight may become zero", "weight.go",
		"return max(1, halve(u128{hi: base}, steps).hi)", "return halve(u128{hi: base}, steps).hi",
		"FarAboveNorm|Oracle",
	},
	{
		"usage decays although the clock went back", "weight.go",
		"if s := d.step(now); s > at {", "if s := d.step(now); s != at {",
		"ClockGoesBack|Oracle",
	},
	{
		"a charge moves the decay time without decaying", "scheduler.go",
		"t.usage, t.usageStep = halve(t.usage, at-t.usageStep), at", "t.usageStep = at",
		"Decay|ClockGoesBack",
	},
	{
		"the half-power table is off by one entry", "weight.go",
		"a = a.mulFrac(halfPowerCoarse[c])", "a = a.mulFrac(halfPowerCoarse[c-c>>7])",
		"Decay",
	},
	{
		"one clock for all sizes", "pick.go",
		"s.clock[k] = maxU128(s.clock[k], f.start)", "for i := range s.clock { s.clock[i] = maxU128(s.clock[i], f.start) }",
		"StarvedBySizes|Oracle|IdleRule",
	},
	{
		"a tenant is not lifted when it becomes eligible", "eligible.go",
		"q.lift = s.clock[k]", "q.lift = u128{}",
		"Capped|IdleTenant|Oracle",
	},
	{
		"the clock is set, not raised, on commit", "pick.go",
		"s.clock[k] = maxU128(s.clock[k], f.start)", "s.clock[k] = f.start",
		"Oracle",
	},
	{
		"the idle rule is left out", "scheduler.go",
		"s.clock[k] = maxU128(s.clock[k], s.maxFinish)", "_ = k",
		"IdleRule|Oracle",
	},
	{
		"an abort keeps the provisional tag", "pick.go",
		"	s.rechain(t)\n	s.unchain(t)", "	s.unchain(t)",
		"AbortIsExact|Oracle",
	},
	{
		"an abort keeps the slot", "pick.go",
		"	s.used[f.slotClass]--\n	s.dropLink(t, at)", "	s.dropLink(t, at)",
		"AbortIsExact|Oracle",
	},
	{
		"an aborted older pick leaves later start tags as they were", "eligible.go",
		"f.start = minU128(f.start, t.acct.dispatchStep(f.lift, f.distance, f.remotePay, f.pinned))",
		"t.acct.dispatchStep(f.lift, f.distance, f.remotePay, f.pinned)",
		"Oracle",
	},
	{
		"the running cap ignores reservations", "eligible.go",
		"return q.n > 0 && !t.capped(t.running+t.picked, t.inFlight, q.firstCost)",
		"return q.n > 0 && !t.capped(t.running, t.inFlight, q.firstCost)",
		"Oracle|Capped",
	},
	{
		"the cap lets one more in", "eligible.go",
		"if running >= t.spec.MaxRunning {", "if running > t.spec.MaxRunning {",
		"DoubleRelease|Capped|Oracle",
	},
	{
		"a completed run does not free its cap", "run.go",
		"	t.running--\n", "",
		"DoubleRelease|Capped|Oracle",
	},
	{
		"corrections use the weight of now", "run.go",
		"was, is := charge(f.charged, f.weight), charge(total, f.weight)",
		"w := s.weightAt(t, now); was, is := charge(f.charged, w), charge(total, w)",
		"Correction|Oracle",
	},
	{
		"a refund below the clock is lost", "eligible.go",
		"		a.credit = c\n		return true", "		a.finish = a.finish.monus(amount)\n		return true",
		"RefundIsCarried|Oracle",
	},
	{
		"a retry is refunded", "run.go",
		"if total > f.charged {", "if total != f.charged {",
		"RetryIsNotARefund|Oracle",
	},
	{
		"a run that reports nothing costs nothing", "run.go",
		"return max(actual, minActual), actual >= 0", "return actual, actual >= 0",
		"NoReport|Oracle",
	},
	{
		"ties go to the lower tier", "eligible.go",
		"uint64(TierCount-t.spec.Tier)<<56", "uint64(t.spec.Tier)<<56",
		"GoldFree|TieBreaks|Oracle",
	},
	{
		"Reserve steals at the margin", "pick.go",
		"if over || !bound.less(s.queue(own, slotClass).key) {", "if over || s.queue(own, slotClass).key.less(bound) {",
		"Steal|Oracle",
	},
	{
		"Prefer-Fit takes the smaller job first", "pick.go",
		"if own != none && s.cfg.Steal == PreferFit ||", "if own != none && s.cfg.Steal != PreferFit ||",
		"Steal|Oracle",
	},
	{
		"pinned work waits for remote service", "eligible.go",
		"	base := a.finish\n	if !pinned {\n		base = base.plus(a.remote) // both below tagLimit", "	base := a.finish\n	if true {\n		base = base.plus(a.remote)",
		"Pinned|Oracle",
	},
	{
		"the first sight of a peer is charged", "remote.go",
		"if known && uint64(cumulative) > last {", "if uint64(cumulative) > last {",
		"Observe|Oracle",
	},
	{
		"the published counter follows refunds down", "scheduler.go",
		"t.published = max(t.published, t.charged)", "t.published = t.charged",
		"ServiceNever|Oracle",
	},
	{
		"requeued work goes to the end", "classqueue.go",
		"case !c.pinned && q.lastCreated < c.order.Created || s.cands[q.runTail].before(c):", "case true:",
		"OrderIsKept|Oracle",
	},
	{
		"the side heap keeps its order upside down", "classqueue.go",
		"if !s.cands[at].before(&s.cands[side[p]]) {", "if s.cands[at].before(&s.cands[side[p]]) {",
		"Oracle",
	},
	{
		"a rebase forgets the clocks", "rebase.go",
		"s.clock[k] = s.clock[k].monus(origin)", "_ = k",
		"Rebase|OutOfRange",
	},
	{
		"a rebase moves the origin beyond the clocks", "rebase.go",
		"		if used {\n", "		if false && used {\n",
		"Rebase",
	},
	{
		"averages count from the first sample", "run.go",
		"; a.samples >= averageSamples", "; a.samples >= 1",
		"MovingAverage|Oracle",
	},
	{
		"a queue's cancelled job is refunded under the charging policy", "queue_ops.go",
		"charged := q.cfg.Cancellation == ChargeReservedCost", "charged := false",
		"Cancellation|Oracle",
	},
	{
		"a queue's virtual time survives idleness", "queue.go",
		"		q.virtual = tag{}\n		q.period++", "		q.virtual = tag{}",
		"IdleReset|Oracle",
	},
	{
		"a queue closes flows in debt", "queue.go",
		"if q.virtual.less(q.finishOf(f)) {", "if false {",
		"Outcomes|DebtIsRepaid|Oracle",
	},
	{
		"a queue keeps stale handles", "queue.go",
		"if h.owner != q.owner || q.jobs[h.slot].seq != h.seq {", "if h.owner != q.owner {",
		"Outcomes|Oracle|Linearizable",
	},
	{
		"a queue dispatches beyond its depth", "queue_ops.go",
		"min(k, q.cfg.IssueDepth-q.running, q.queued)", "min(k, q.queued)",
		"Outcomes|Oracle|Linearizable",
	},
	{
		"a queue reads without its lock", "queue_ops.go",
		"func (q *Queue[F, J, P]) Complete(h JobHandle) Outcome {\n	q.mu.Lock()\n	defer q.mu.Unlock()", "func (q *Queue[F, J, P]) Complete(h JobHandle) Outcome {",
		raceFlag + "Linearizable",
	},
	{
		"the tag budget is 64 bits larger", "domain.go",
		"const MaxTagBits = 4096", "const MaxTagBits = 4160",
		"NumericLimitTrace",
	},
	{
		"the tree does not look behind equal leading bits", "tree.go",
		"(e.owner == none || t.before(f.owner, e.owner))", "e.owner == none",
		"Oracle",
	},
	{
		"the tree lets the loser go up", "tree.go",
		"if a.lead < lead {", "if a.lead > lead {",
		"Oracle",
	},
	{
		"the tail's place in the order is not kept", "classqueue.go",
		"q.runTail, q.lastCreated = at, c.order.Created", "q.runTail = at",
		"Oracle",
	},
	{
		"an identifier outlives its job", "idindex.go",
		"	x.pages[cell>>pageBits][cell&pageMask] = 0\n", "",
		"Oracle|IDIndex",
	},
	{
		"a run that lasts loses its ticket", "tickets.go",
		"		x.old.put(id, *c-1)\n", "",
		"TicketIndex",
	},
	{
		"a gap in a queue goes uncounted", "queue_ops.go",
		"	if n.gap.isZero() && !held.isZero() {\n		f.gaps++", "	if false {\n		f.gaps++",
		"Oracle",
	},
	{
		"an empty page of identifiers is kept", "idindex.go",
		"!x.pages[at].empty() ||", "x.pages[at].empty() ||",
		"IDIndex",
	},
	{
		"a zombie's result is accepted", "lifecycle.go",
		"e.Kind != JobStop && e.Attempt != s.Attempt", "e.Kind != JobStop && e.Attempt > s.Attempt",
		"Job",
	},
	{
		"a lost assignment counts as a failure", "lifecycle.go",
		"			next.Phase = Queued\n			if", "			next.Phase = Queued\n			next.Failures++\n			if",
		"Job",
	},
	{
		"the decoder takes numbers with leading zeros", "codec.go",
		"case n > 1 && d.b[d.off+n-1] == 0:", "case false:",
		"Canonical",
	},
	{
		"a checkpoint forgets the credit", "state.go",
		"	e.u128(a.credit)\n", "	e.u128(u128{})\n",
		"Oracle|Replay",
	},
	{
		"Why forgets what goes first", "why.go",
		"total += min(p.cost, ahead(g, p, tagAt))", "total += min(p.cost, ahead(g, p, tagAt)) / 2",
		"Why",
	},
}
