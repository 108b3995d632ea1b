// Package agent puts a node together: the data directory with its lock and
// journal, the runtime driver, the store, the reconciler's loop and the local
// API. It decides nothing itself; cmd/node-agent gives it a Config and a logger.
//
// The order of a start is part of the protocol: the data directory is locked
// first; then the runtime is asked what runs, and the journal what was owned;
// only then does the loop begin, and it settles what it finds before it
// acquires anything. On its way out the agent writes nothing: workloads
// outlive it, and a restart within the TTL loses none of them.
package agent
