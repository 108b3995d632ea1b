// Package sim drives whole fleets, single-threaded and from one seed: the real
// reconcile.Machine, and with it the real lease.Machine and the real Decide, on a
// model bucket, model clocks, model journals and model runtimes.
//
// A schedule is everything that follows from a seed: how many machines and names
// there are, which kind of trouble comes (a lost node; an outage, of everything or
// of writes; a bad network; crashes, wiped journals, drains and changed TTLs;
// stopped agents and suspended machines; hands that remove, damage and restore
// records and copy data directories; all of it), what operators ask for, and when
// each request is sent, applied and answered. Requests are lost before or after
// they are applied, come late, or are refused; agents die at any effect and find
// their journal as it was durable; clocks differ in rate by up to one percent,
// wall clocks by an hour. Some faults are aimed at the one moment at which they
// matter: see targeted.go.
//
// After each event the invariants I1 to I9 of package lease are checked as far as
// they apply, and after the trouble the fleet must come to rest. What a person did
// excuses a node only from when the node has read it. A failure prints the seed,
// the end of the trace and the command that shows the schedule again. What the
// checks are worth is shown by package mutants.
//
// It does not model: paging and stale listings, the guard's own failure, two
// processes on one data directory, and time-outs of the local disk. A record that
// a hand removed takes its epoch along: if who makes it again never saw that epoch,
// or if a restored bucket took it back, I1 to I5 and I9 are not judged for that
// name from there on, and people decide in the end (I8).
package sim
