// Package proctree finds, signals, freezes and ends trees of Linux processes
// without ever touching a stranger. It needs the standard library only, because
// the helper that stands beside each workload is built from it.
//
// A pid alone names nobody: the kernel hands numbers out again. A process is
// named by an ID, its pid together with its start time and the boot it belongs
// to, and every signal goes through a pidfd that was opened before the start
// time was compared. Between that comparison and the signal the number cannot
// pass to another process, because the pidfd does not follow the number.
//
// A tree is either a cgroup (Group), which nothing can leave by forking or by
// starting a new session, or, where no cgroup v2 hierarchy is writable, the
// descendants of a subreaper together with the processes whose environment
// carries a tag.
package proctree
