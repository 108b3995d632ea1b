// Package runtimetest holds what tests of runtimes and of their consumers need:
//
//   - Run, the conformance suite that every driver passes. It is the contract of
//     reconcile.Runtime in a form that runs.
//   - Fake, a runtime in memory: deterministic, scriptable, and at home in a
//     testing/synctest bubble.
//   - workload, a program that does what it is told and writes a history of
//     itself; package history reads and checks it.
//   - Build, which compiles the programs that such tests need.
package runtimetest
