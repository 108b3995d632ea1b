// Package reconcile decides what a node does about each name, and does it.
//
// Decide is the heart: a pure function from what is known of this node and of one
// name to the one next thing to do, with its reason. It is level-triggered: it is
// asked again whenever something changed, and finds the next step from where
// things are. So an agent that was killed at any point goes on from there.
//
// # The tick
//
// Each step of Machine works in one order:
//
//  1. renew: the lease's own request goes out before anything else;
//  2. fence: a run that has no right to run here is ended;
//  3. release: what is held and no longer wanted is torn down, then freed;
//  4. acquire: names that are free, or whose claim is invalid, are claimed, the
//     oldest wish first, one conditional write each;
//  5. materialise: what is owned is brought to where it should be, with at most
//     one operation in flight for a name: intent journaled, effect, result
//     journaled.
//
// While the bucket does not answer, only what is owned already is looked after:
// an unreachable bucket stops nothing, frees nothing and acquires nothing. After
// a restart nothing is acquired until every name from before has its standing.
//
// # Parts
//
//	view.go               what Decide may know
//	decide.go held.go free.go   the decisions
//	machine.go pass.go    the node as a pure state machine around the lease
//	sync.go               keeping the views of desired/ and sessions/ fresh
//	solo.go               ownership on a machine without a bucket
//	loop.go bell.go       the only clock and I/O
//	runtime.go            what is asked of a driver
package reconcile
