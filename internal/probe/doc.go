// Package probe finds out whether an object store does what the ownership
// protocol rests on. A store whose conditional write is not atomic does not fail:
// it quietly lets two nodes own one name. So a store is tried before it is used,
// and refused by the name of its defect.
//
// A probe writes a few small objects under probe/, races writers for some of
// them, and removes them. It takes well under five seconds on a store that is
// near.
package probe
