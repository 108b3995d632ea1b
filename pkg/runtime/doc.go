// Package runtime holds what every driver shares: the identity of a run, its
// states, and the request to start one. The interface that a driver implements
// is declared by its consumer, in pkg/reconcile; the conformance suite that
// every driver runs is in runtimetest. Drivers are sub-packages.
package runtime
