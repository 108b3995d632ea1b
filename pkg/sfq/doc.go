// Package sfq shares slots among tenants by start-time fair queuing: it decides
// which job starts next and runs nothing itself. It does no I/O, starts no
// goroutine, reads no clock (times are arguments), draws no random numbers and
// uses no floating point, so that a history can be journaled and replayed to
// the same state on any machine.
//
// It has two schedulers on one arithmetic core, and a state machine.
//
//   - [Queue] is SFQ(D): a job gets its tags when it is accepted, at most D
//     dispatched jobs are not yet completed. Generic, safe for concurrent use.
//   - [Scheduler] is the tenant scheduler of a node: a tenant has one finish
//     tag, moved when a job is dispatched; tiers, caps, size classes, decay,
//     corrections, service received on other nodes, picks in two phases.
//     One owner, event-sourced.
//   - [Apply] is the life of one job as a pure function.
//
// # Symbols
//
//	f, g      flows (of a Queue) or tenants (of a Scheduler)
//	w(f)      weight: a positive integer; of a tenant tier × multiplier, lowered
//	          by decay, in units of 1/65536, computed at each dispatch
//	c(f)      largest cost of a single job of f
//	S, F      start and finish tag of a job: F = S + cost/w
//	V         virtual time (of a Queue), or the clock of one size class
//	W(f)      cost of f's jobs dispatched, or completed, in an interval
//	D         jobs dispatched and not completed, at most
//
// Costs are integers in one unit throughout, of a Scheduler CPU milliseconds.
// A flow is backlogged while it has queued jobs, eligible while it is
// backlogged and below its caps.
//
// # The algorithm
//
// [Goyal 1996] A job's start tag is the later of V and the flow's previous
// finish tag; the job with the least start tag goes next; V is the start tag of
// what was dispatched last. A flow that was idle starts at V: it has saved up
// nothing. [Jin 2004] lets D jobs be in service at once and keeps V at the start
// of the last dispatch, which needs no knowledge of the device.
//
// A Queue is just that. Ties go to the job accepted first.
//
// In a Scheduler the tag belongs to the tenant and is charged at dispatch, so
// that a wrong estimate is corrected in one place. Each size class has a clock
// of its own: with one clock for all sizes, the tags of tenants on a fast lane
// run ahead and starve those who share a slow one with a heavier tenant. A
// tenant is lifted to a class's clock when it gains a claim on it, that is when
// it becomes backlogged, or falls below its cap again; from then on its start
// tag there is the later of lift and finish tag. Ties go to the higher tier,
// then the larger size, then the earlier submission, then the lower tenant.
// When nothing at all is left alive, every clock moves to the highest finish
// tag; moving one clock alone would push its tenants behind for no reason.
//
// # Bounds
//
// Dispatched work. Let f and g be eligible in one class throughout an interval,
// with fixed weights and no corrections. Then no lift happens, and S(f) moves
// only when f is dispatched, by cost/w(f). f is dispatched only while
// S(f) ≤ S(g), hence S(f) - S(g) ≤ c(f)/w(f) after each of its dispatches, and
// by symmetry ≥ -c(g)/w(g). The difference changes by W(f)/w(f) - W(g)/w(g)
// over any interval, so
//
//	|W(f)·w(g) - W(g)·w(f)| ≤ c(f)·w(g) + c(g)·w(f)
//
// independent of D, of how many slots there are and of when commits arrive.
// Nothing tighter holds: TestLawDispatchedWork uses it as the main oracle.
//
// Completed work. Up to D jobs are dispatched and not completed at either end of
// an interval. [Jin 2004] bounds, for flows that stay backlogged,
//
//	|W(f)/w(f) - W(g)/w(g)| ≤ (D+1)·(c(f)/w(f) + c(g)/w(g))
//
// Changing weights. The argument never used that w is constant, only that a
// dispatch moves the tag by one step cost/w. With the weight of each dispatch,
// Σ cost/w of two tenants differs by at most their two largest steps.
//
// Corrections. A correction moves a tag without a dispatch, so the plain bound
// fails (TestPlainBoundFailsUnderCorrection); add what the interval's
// corrections come to, Σ |actual - estimate|/w.
//
// Starvation. Let a job be next of its tenant with start tag S at clock V. A
// tenant g goes before it only while S(g) ≤ S, starts at V or later, and each of
// its dispatches moves S(g) by cost/w(g). So g is dispatched at most
// w(g)·(S-V) + c(g) before it, whatever g adds meanwhile, and all others
// together at most the sum of that. [Scheduler.Why] reports the bound for what
// is queued now.
//
// # Numbers
//
// A Scheduler's tags are 128-bit, 64 bits of fraction. A charge is cost/w
// rounded up: exact for weights that are powers of two, else too large by less
// than 2⁻⁶⁴, so n charges are off by less than n·2⁻⁶⁴ and never too small;
// a cheap job of a heavy tenant is charged like any other. A Queue's tags are
// exact: 128-bit numerators over a common scale ([DivisorsOf]), or reduced
// fractions of at most [MaxTagBits] bits ([Unrestricted]).
//
// Nothing overflows and nothing saturates, for saturated tags have lost their
// order. A Queue that runs out of range subtracts V from all tags, once, within
// the admission that needs it; if that does not help the admission is refused as
// [NumericLimit]. A Scheduler rebases ([Scheduler.Rebase]) as an event of its
// own. Cancelling, dropping, aborting and completing never fail for numeric
// reasons.
//
// Usage decays on an absolute grid of 65,536 steps per half-life; reading it is
// pure, charging moves it by whole steps, and the tables have 64 bits, so ten
// years of charges at every step are off by less than 10⁻¹¹ of the value.
//
// # Corrections, refunds, retries
//
// The weight of the dispatch is stored with the run, and every correction uses
// it. A later charge moves the finish tag. A refund becomes credit, which first
// lets the tenant's next job start earlier, then pays for it: had it lowered the
// finish tag below the clock, it would be lost. It is never more than was
// overpaid. A retry is charged again and nothing is given back for the lost run.
//
// # Two phases
//
// A claim takes a round trip, so [Scheduler.Pick] reserves: slot, caps and the
// tenant's tag count the job at once, but its class's clock stands still until
// [Scheduler.Commit]. A tenant's unresolved picks form a chain over its last
// settled account; [Scheduler.Abort] takes a link out and recomputes what
// follows. The account is then that of a history without the pick, in whatever
// order the answers came. A start tag that was recomputed may only have become
// earlier; the clock never passes the tag by which a choice was made.
//
// # Other nodes
//
// [Wang & Merchant 2007] Fairness across nodes needs no coordinator if each node
// delays a tenant's work by the service it received elsewhere. A node publishes
// [Scheduler.Service], a counter that never goes back, and its peers pass it to
// [Scheduler.Observe]; the growth stands, weighted, before the tenant's work.
// Work that can run only here (pinned) is not delayed by it, but pays it off
// with each dispatch, at most [Config.Kappa] times what it costs itself.
//
// # Events
//
// Each accepted transition of a Scheduler is an [Event] (bytes: see kindFields
// in codec.go). A journal of them, replayed, gives the same outcomes and the
// same [Scheduler.StateHash]; a pick records what it chose, and a replay that
// would choose otherwise stops with [Diverged]. [Scheduler.AppendState] is a
// checkpoint that [Restore] reads back. Rejected calls are no events: they
// change nothing, except that a Rebase tried on the way stands.
//
// # Invariants
//
// [Scheduler.Check] verifies them over the whole state:
//
//	I1  indexes and slabs agree: every live tenant, job and ticket is found
//	    under its number, and nothing else is
//	I2  counters are the sums of what they count; a published counter is not
//	    below what was charged
//	I3  running + picked ≤ cap, but for jobs in flight when the cap was lowered
//	I4  a tenant's candidates are in order, and the head is the first of them
//	I5  a class's tree holds exactly the eligible tenants, each with the tag of
//	    its head, and each match in it is won by the earlier; no lift is above its
//	    clock
//	I6  a chain starts with an unresolved pick and leads from base to account
//	I7  every tag is in range
//	I8  on an idle node no clock is below the highest finish tag
//
// Besides, clocks never go back, and running never goes below zero: tested after
// each step of random histories against an oracle in big integers.
//
// # Cost
//
// R flows or tenants registered, B of them backlogged (or as many as ever were at
// once: a tree does not shrink), Q jobs queued:
//
//	                                     Queue        Scheduler, K classes
//	register, close, change              O(1)         O(K log B)
//	enqueue or add, flow backlogged      O(1)         O(1) in order, else O(log Q)
//	  flow becomes backlogged            O(log B)     O(log B)
//	cancel or drop, not the head         O(1)         O(1), or O(log Q) out of order
//	  the head                           O(log B)     O(log B)
//	dispatch m; pick                     O(m log B)   O(K log B)
//	complete                             O(1)         O(K log B)
//	snapshot                             O(1)
//	last live job ends                   O(1)         O(1); O(R) if peers were observed
//	normalise, rebase                    O(Q+R)       O(K(R log B + R))
//	Why                                               O(R + own queue)
//
// Memory is O(Q + running + R): nothing is kept of jobs that are over, but a few
// empty pages of identifiers.
//
// With a million jobs a cycle of pick, commit, complete and add is mostly waiting
// for memory, so the layout is about lines of 64 bytes. A candidate is one line, a
// tenant four, its queue of a class two; those say enough of the first and last
// candidate to leave the others alone. Who is next is found by a tournament
// (tagTree) whose groups are a line each, and whose keys are 8 bytes: whole keys
// are compared only where those are equal. Identifiers lead to slots by pages of
// 16 (idIndex), so that those numbered one after another share a line. Slots are
// reused last in, first out. And who comes forward near the top of a tree has its
// lines asked for at once (prefetch.go), some picks before they are needed.
//
// # What is not guaranteed
//
//   - Fairness of admission. A Queue has global limits only, so one flow can
//     fill it. A Scheduler has limits per tenant (MaxQueued, MaxQueuedCost), but
//     does not choose among those who want in.
//   - The bounds for a flow whose jobs are cancelled. Under [ChargeReservedCost]
//     it waits for work it never got, until the Queue is idle; under
//     [RefundCancelledCost] its later tags change after others were decided.
//   - The bounds for a tenant at its cap: it is lifted when it falls below, so
//     what it missed is gone. Nor does the promise of Why hold for it.
//   - A cap on cost is exact in estimates, not in actual cost; and a single job
//     above the whole cap runs alone.
//   - Fairness between size classes. A tenant has one finish tag and K clocks: a
//     job in a class whose clock is ahead lifts the tag to it, and delays the
//     tenant's work in the other classes until their clocks have caught up. The
//     starvation bound covers this wait; the bound on dispatched work is for
//     tenants whose work is in one class.
//   - Preemption, deadlines, or fairness within a job: a job that runs, runs.
//   - Debt of a tenant that is removed: [Scheduler.RemoveTenant] refuses while a
//     tag is ahead of a clock, but usage memory and credit go with the tenant.
//
// # References
//
//   - [Goyal 1996] P. Goyal, H. M. Vin, H. Cheng: Start-time Fair Queuing: A
//     Scheduling Algorithm for Integrated Services Packet Switching Networks.
//     SIGCOMM 1996.
//   - [Jin 2004] W. Jin, J. S. Chase, J. Kaur: Interposed Proportional Sharing
//     for a Storage Service Utility. SIGMETRICS 2004.
//   - [Wang & Merchant 2007] Y. Wang, A. Merchant: Proportional-Share Scheduling
//     for Distributed Storage Systems. FAST 2007.
package sfq
