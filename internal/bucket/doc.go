// Package bucket is the compare-and-swap object store that a fleet coordinates
// through: the interface its consumers use, the outcomes a write can have, and
// a store that keeps its objects in a directory (see FileStore).
//
// The package promises exactly what the protocol needs and nothing more:
//
//   - a conditional Put is atomic: of any number of writers that hold the same
//     ETag (or that create the same key), at most one is Applied;
//   - a Get or List sent after a Put was acknowledged sees that Put or a later one;
//   - an ETag is an opaque string that changes when the body changes. Two writes
//     of equal bytes may share an ETag, so every record carries a random nonce.
//
// # Outcomes
//
// A Put is never answered with a bare error. It is Applied, it is Rejected
// (certainly not applied: the condition did not hold, or the store refused the
// request before looking at it), or it is Ambiguous: it may have been applied,
// may be applied later, or never. Only a read, or another conditional write
// from the same ETag, can turn Ambiguous into knowledge. A Put is sent once; no
// layer below this interface repeats it, because a repeated conditional write
// that meets its own first success looks like a lost race.
//
// # Reads
//
// A read has three answers and an error. Found and Absent are facts about the
// store at some instant between the call and its return. An error is the
// absence of knowledge: it says nothing about the object. "Forbidden",
// "no such bucket" and "unreachable" are errors, never Absent.
package bucket
