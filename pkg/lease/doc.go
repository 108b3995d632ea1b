// Package lease is the ownership protocol of a fleet: which node may run a name,
// decided through nothing but conditional writes on an object store.
//
// # Objects
//
// Each node keeps one liveness record, nodes/<id>, and renews it by
// compare-and-swap once a heartbeat. Each name has one ownership record,
// sessions/<name>, that names its owner and the owner's incarnation. Renewing the
// one record renews every name the node owns, so the number of requests does not
// depend on the number of names. (CockroachDB's epoch-based leases and Chubby's
// session keep-alives have the same shape; Gray & Cheriton 1989 is where leases
// come from.)
//
// # Symbols
//
//	ttl    how long a node may be silent, from its record
//	ρ      how far a machine's clock rate may be off: 1 %
//	inc    a node's incarnation: raised by every fence, leave and registration
//	epoch  a name's fencing token: raised by every change of owner and re-claim
//
// # Rules
//
// An owner counts its deadline from just before a renewal was sent, and only if
// that renewal was confirmed: deadline = send + ttl, on its boot-time clock. A
// contender counts silence from when the reply arrived that first showed a
// version, on its own boot-time clock, and waits ttl·(1+ρ)/(1−ρ) plus a margin.
// So when a contender's wait is over the owner's deadline has passed, whatever
// both clocks show: wall clocks play no part.
//
// Silence alone frees nothing. The contender fences the node first: it raises the
// incarnation in nodes/<id>, conditioned on exactly the version whose silence it
// timed. A claim is invalid if and only if a read showed its owner under a higher
// incarnation than the claim's. Incarnations never go back, so an old view can
// make a node too patient, never too bold.
//
// A write has three outcomes. One whose fate is unknown is looked for by its
// nonce and, if it is not there, followed by another from the same version, so
// that of all attempts at most one lands. Ownership is never concluded from
// reading alone: after an uncertain write and in a new process life it takes a
// write that changes the version, or an older write could still land after it.
//
// # Invariants
//
//	I1  per name, epoch rises strictly with each change of owner
//	I2  per (name, epoch) there is at most one (owner, incarnation)
//	I3  once the epoch has moved, no write by a superseded owner is accepted
//	I4  with on_bucket_loss: stop, no two workloads of a name run at one instant
//	I5  with keep, two run only between a takeover and the old owner's first
//	    contact with the bucket
//	I6  with keep, an outage alone stops, releases and takes nothing
//	I7  a name that is wanted, fits a live node and is not held runs again within
//	    ttl·1.0203 + margin + a listing + two polls + a start of its owner's death
//	I8  after faults cease there is one valid owner and one workload per wanted name
//	I9  no acknowledged completion is lost or reported as two
//
// I4 presumes that what ends overdue workloads is scheduled within the margin. A
// machine that is paused as a whole, a process that cannot be killed, and an agent
// that dies together with what should have ended its workloads are outside it:
// there only the epoch, checked by whatever the workload writes to, protects.
//
// # Shape
//
// Machine is pure: Step takes an event with the time and returns effects. It
// reads no clock, does no I/O and uses no randomness, so the same events give the
// same effects in production, in a test and in a simulation. Whoever runs it
// stamps each event with the boot-time clock when it hands it over: later than the
// reply arrived, which only makes a contender more patient, and earlier than the
// request leaves, which only makes an owner more careful.
package lease
