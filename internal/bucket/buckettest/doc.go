// Package buckettest is what tests of and over package bucket are made of.
//
//   - Mem is the reference store: the smallest thing that behaves like a real
//     S3 server, down to ETags that are hashes of the body.
//   - Faults stands between several clients and one store and does to their
//     requests what networks and servers do: loses them, loses their answers,
//     delays them, lets them land after their sender gave up.
//   - Suite is the conformance suite that every implementation passes.
//
// Mem and Faults start no goroutine that outlives its call except timers, use
// time only through package time, and so work inside a testing/synctest bubble.
package buckettest
