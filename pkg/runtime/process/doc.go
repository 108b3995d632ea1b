// Package process runs workloads as plain processes of the node: no image, no
// namespaces, no isolation. It is what a node uses where no container runtime
// answers, and what demonstrations and tests use.
//
// # What is guaranteed
//
//   - A run outlives the agent. Each has a node-shim beside it (package shim),
//     which keeps its output and its exit. A Driver that is made over the same
//     directory finds every run again, those that ended meanwhile with their
//     exit, with no other record than that directory.
//   - No stranger is ever signalled. A pid is used only together with a start
//     time, a boot id and a pidfd, or as a member of the run's own cgroup.
//   - Stop returns nil only when no process of the run is alive, also where it
//     double-forked, changed its session or refuses SIGTERM.
//   - A paused run executes nothing: no signal thaws it, and Stop kills it as it is.
//   - After a reboot a run is lost, whatever its files say but an exit.
//
// # What is not
//
//   - Without a writable cgroup v2 hierarchy a run's processes are those below
//     its shim and those whose environment names the run. A process that drops
//     its environment and whose shim was killed with SIGKILL is out of reach.
//     There, pausing is SIGSTOP over the tree: SIGCONT from elsewhere undoes it.
//   - The driver sends no signal to a paused run but SIGKILL. When somebody else
//     does, nothing of the run executes, but the kernel may end a process by a
//     signal that the process does not handle.
//   - A workload that runs as the agent's own user can do to the agent whatever
//     that user can. Give the spec a user, or use a container runtime.
//
// # Directory
//
//	runs/<instance>/        0700  one run's state; see package shim
//	logs/<name>/<n>-<instance>/  0700  its output, kept after Remove for the last few runs
//	share/<instance>/             what the workload may read: epoch, payload
//	work/<instance>/        0700  the workload's own: working directory, tmp
//
// Files in runs are replaced whole and never edited. A directory whose name
// begins with a dot is being made or being removed and is cleaned up by the
// next New.
package process
