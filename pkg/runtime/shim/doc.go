// Package shim is the small program that stands beside every workload of the
// process driver, and the protocol between it and the agent. It needs the
// standard library only; cmd/node-shim is its main.
//
// A shim owns one run from its start to its end. It outlives the agent: it has
// its own session, reads no terminal and answers to no socket, so killing,
// upgrading or stopping an agent changes nothing for it. It starts the workload,
// reaps everything the workload forks (it is the subreaper), keeps its output,
// and writes down how it ended.
//
// # Protocol, version 1
//
// A shim is started as
//
//	node-shim run DIR
//
// with these descriptors, all others closed:
//
//	0  /dev/null
//	1  /dev/null
//	2  DIR/shim.err: what the shim has to say about itself, normally nothing
//	3  the write end of a pipe, for the one answer to the start
//	4  DIR/lock, open, with an exclusive flock. The shim keeps it open and does
//	   not pass it on, so the lock is held exactly as long as the shim lives:
//	   that, not a pid, is how an agent finds out whether it does.
//
// DIR is the run's state directory, mode 0700. Its files:
//
//	launch   written by the agent, whole, before the shim is started; never changed: Launch
//	ref      the agent's: who the run is; the shim does not read it
//	lock     empty; see descriptor 4
//	state    replaced by the shim just before and just after the workload's
//	         first process is started: State
//	exit.pre one block of zeros, taken by the shim before the start, so that
//	         recording an exit needs no space on a full disk
//	exit     exit.pre, filled, synced and renamed: Exit. It appears whole, when
//	         every process of the run is dead and its output is written, just
//	         before the shim ends. An agent that finds a run without a shim,
//	         without a process and without this file writes it itself, as lost.
//
// launch, state and exit are one JSON object each; unknown fields are ignored.
// The answer on descriptor 3 is one line: "ok PID", or "spec TEXT" when the
// workload can never be started as it is described, or "error TEXT". End of
// file without a line means that the shim died. After "spec" or "error" nothing
// of the run is alive.
//
// An agent may change the following while a shim runs, and no more: signal the
// workload's processes, freeze and kill their cgroup, read every file, replace
// ref. A version of this package reads the files of every earlier version. A
// shim refuses a launch of a later one, which cannot happen where an agent and
// the shim beside it are installed together; `node-shim version` and the probe
// of the process driver tell before any workload is concerned.
//
// # The end of a run
//
// A run ends when its first process ends: what it leaves behind is killed, as in
// a container, whose pid namespace goes with its first process. SIGTERM to the
// shim is passed on to every process of the run, and the shim stays until
// they have ended; it kills nothing of its own accord. SIGKILL to the shim
// costs the run its exit code and its output from then on, never its life.
//
// # Output
//
// Standard output and error are pipes that the shim empties whatever happens to
// the disk. Text goes to numbered segments, LOGDIR/00000001.log and so on; a
// segment that is full is followed by the next number and never touched again,
// and the oldest is removed when there are more than asked for. Nothing is
// renamed, so a reader that follows the numbers misses nothing and sees nothing
// twice. A segment is a sequence of records, each one line:
//
//	2026-01-02T15:04:05.000000000Z stdout F text\n
//
// that is a time (UTC, always nine digits), a stream (stdout, stderr, or shim,
// padded to six bytes), F for the end of a line or P for a piece of one with
// more to come, and the text as it was written. Lines longer than MaxRecord, and
// lines left unfinished for PartialDelay, become pieces.
//
// A write that fails loses the text of that write and no more: the segment is
// cut back to its last whole record, the bytes are counted, and once a write
// succeeds again the stream "shim" says "dropped N bytes of output: REASON".
// The same happens when a disk hangs for longer than StallLimit, or takes less
// than MinRate for good. A disk that is merely slower than the workload slows
// the workload down, and nothing is lost.
package shim
