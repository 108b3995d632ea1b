// Package model explores, to the last interleaving within its bounds, what two
// nodes and a bucket can do to one name, on the real lease.Machine.
//
// A state is the bucket, every request and answer on its way, two machines with
// their agents, journals, guards, lease files and workloads, and the faults that
// may still happen. Each action is one thing that happens at one instant. Explore
// visits states by depth, so a violation comes with a shortest trace. README.md
// says which action is which code, and what is left out.
package model
