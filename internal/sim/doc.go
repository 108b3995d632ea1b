// Package sim drives whole fleets, single-threaded and from one seed: the real
// reconcile.Machine, and with it the real lease.Machine and the real Decide, on a
// model bucket, model clocks, model journals and model runtimes.
//
// A schedule is everything that follows from a seed: how many machines and names
// there are, which kind of trouble comes (a lost node, an outage, a bad network,
// stopped agents and suspended machines; with ALL=1 also crashes with drains, and
// objects removed, damaged or restored by hand), what operators ask for, and when
// each request is sent, applied and answered. Requests are lost before or after
// they are applied, come late, or are refused; agents die at any effect and find
// their journal as it was durable; clocks differ in rate by up to one percent,
// wall clocks by an hour.
//
// After each event the invariants I1 to I9 of package lease are checked as far as
// they apply, and after the trouble the fleet must come to rest. A failure prints
// the seed, the end of the trace and the command that shows the schedule again.
//
// It does not model: paging and stale listings, the guard's own failure, two
// processes on one data directory, and time-outs of the local disk. A record that
// a hand removed takes its epoch along; what follows for that name is not judged.
package sim
