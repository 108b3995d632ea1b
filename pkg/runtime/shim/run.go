//go:build linux

package shim

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"syscall"
	"time"

	"github.com/barista-fleet/barista/pkg/runtime/leasefile"
	"github.com/barista-fleet/barista/pkg/runtime/proctree"
)

const (
	// flushLimit bounds how long the end of a run waits for its output to be
	// written: a hung disk must not keep an exit from being reported.
	flushLimit = 5 * time.Second
	// oomScore makes the kernel choose the workload before the one process
	// that can tell how it ended.
	oomScore = "-900"
	// gcPercent keeps a shim's heap near 1 MiB: Go's first collection comes at
	// 4 MiB times this percentage.
	gcPercent = 25

	// fdLimit is up to where descriptors are looked for on old kernels.
	fdLimit = 4096

	prSetChildSubreaper = 36
	prSetNoNewPrivs     = 38
)

const usage = `usage: node-shim run DIR | probe | version

node-shim stands beside one workload of a node-agent, which starts it.
It is of no use by itself.
`

// Main is the shim's main function: it returns the exit code.
func Main(args []string) int {
	debug.SetGCPercent(gcPercent)
	switch {
	case len(args) == 3 && args[1] == "run":
		return run(args[2])
	case len(args) == 2 && args[1] == "version":
		fmt.Println(VersionLine())
		return 0
	case len(args) == 2 && args[1] == "probe":
		return probe()
	}
	fmt.Fprint(os.Stderr, usage)
	return 2
}

// VersionLine is what `node-shim version` prints, and probe first of all.
func VersionLine() string { return fmt.Sprintf("node-shim protocol %d", Protocol) }

// probe says the version and then does nothing until its input ends, which it
// does at the latest when its parent dies: a throw-away process on which an
// agent tries what this machine can do.
func probe() int {
	fmt.Println(VersionLine())
	buf := make([]byte, 1)
	for {
		if n, err := os.Stdin.Read(buf); n == 0 || err != nil {
			return 0
		}
	}
}

// run owns one workload from start to end.
func run(dir string) int {
	closeOnExec()
	answer := os.NewFile(fdAnswer, "answer")
	s, err := start(dir)
	if err != nil {
		word := AnswerError
		if se := new(specError); errors.As(err, &se) {
			word = AnswerSpec
		}
		if errors.Is(err, leasefile.ErrOver) {
			word = AnswerOver
		}
		fmt.Fprintf(answer, "%s %v\n", word, err)
		return 1
	}
	fmt.Fprintf(answer, "%s %d\n", AnswerOK, s.state.Child.Pid)
	answer.Close()
	exit := s.reap()
	s.out.finish(flushLimit)
	exit.Dropped = s.out.dropped()
	if err := WriteExit(dir, exit); err != nil {
		// The agent will find a run without an end and call it lost.
		fmt.Fprintf(os.Stderr, "%s: %v; the exit was %+v\n", time.Now().Format(time.RFC3339), err, *exit)
		return 1
	}
	return 0
}

// shim is a started run.
type shim struct {
	launch *Launch
	state  *State
	pid    int // of the first process
	out    *output
	term   chan os.Signal
}

// start does everything up to the workload's first process. When it fails,
// that process does not exist.
func start(dir string) (*shim, error) {
	if err := prepareProcess(); err != nil {
		return nil, err
	}
	l, err := ReadLaunch(dir)
	if err != nil {
		return nil, err
	}
	if l.Protocol < 1 || l.Protocol > Protocol {
		return nil, fmt.Errorf("launch file of protocol %d, this node-shim speaks up to %d: install the node-shim that came with the agent", l.Protocol, Protocol)
	}
	s := &shim{launch: l, term: make(chan os.Signal, 1)}
	// Taken over rather than ignored: what is ignored here would be ignored by
	// the workload as well, for a handler ends at exec and an ignore does not.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGPIPE,
		syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGALRM, syscall.SIGTSTP, syscall.SIGTTIN, syscall.SIGTTOU)
	signal.Notify(s.term, syscall.SIGTERM)

	self, err := proctree.Self()
	if err != nil {
		return nil, err
	}
	if err := preallocate(filepath.Join(dir, fileExitPre)); err != nil {
		return nil, fmt.Errorf("reserve space for the exit: %w", err)
	}
	segs, err := newSegments(l.LogDir, l.LogMaxBytes, l.LogMaxFiles)
	if err != nil {
		return nil, fmt.Errorf("open log: %w", err)
	}
	s.out = newOutput(segs, cmp.Or(l.LogStall, StallLimit))
	s.state = &State{
		Protocol: Protocol, Instance: l.Instance, Shim: self, Started: now(),
		Cgroup: l.Cgroup, Tag: l.Tag, LogDir: l.LogDir, Ref: l.Ref,
	}
	// Before the start: from here on, whoever finds this run without us knows
	// that a process may exist, and where to look for it.
	if err := writeJSON(dir, FileState, s.state); err != nil {
		return nil, fmt.Errorf("record the start: %w", err)
	}
	if err := checkLease(l); err != nil {
		return nil, err
	}
	leave, err := enterLimits(l)
	if err != nil {
		return nil, err
	}
	pid, err := spawn(l, s.out)
	leave()
	if err != nil {
		return nil, err
	}
	s.pid = pid
	s.out.start()
	if l.PidsGroup != "" {
		err = proctree.LimitGroup(l.PidsGroup).LimitPids(l.PidsMax)
	}
	var st proctree.Stat
	if err == nil {
		st, err = proctree.ReadStat(pid) // unreaped, so it is there even if it has ended
	}
	if err == nil {
		s.state.Child = st.ID()
		err = writeJSON(dir, FileState, s.state)
	}
	if err != nil {
		killRest(l, self)
		s.reap()
		return nil, fmt.Errorf("complete the start: %w", err)
	}
	// After the fork, so that the workload does not inherit it. Only root may.
	_ = os.WriteFile("/proc/self/oom_score_adj", []byte(oomScore), 0)
	return s, nil
}

// closeOnExec keeps every descriptor but the standard ones from the workload:
// ours, and those that the agent was itself given by whoever started it.
func closeOnExec() {
	const sysCloseRange, closeRangeCloexec = 436, 1 << 2
	_, _, errno := syscall.Syscall(sysCloseRange, fdAnswer, uintptr(^uint32(0)), closeRangeCloexec)
	if errno == 0 {
		return
	}
	// Before Linux 5.11.
	for fd := fdAnswer; fd < fdLimit; fd++ {
		syscall.CloseOnExec(fd)
	}
}

// now is the wall clock as a file holds it: what is written equals what is read.
func now() time.Time { return time.Now().UTC().Round(0) }

// checkLease is the last look before a start that must not come late: between the
// agent's decision and this instant anything may have been stopped for any time.
func checkLease(l *Launch) error {
	if l.LeaseFile == "" {
		return nil
	}
	lease, err := leasefile.Read(l.LeaseFile)
	if err != nil {
		return fmt.Errorf("%w: %w", leasefile.ErrOver, err)
	}
	return lease.Allows(leasefile.Now(), l.Incarnation)
}

// prepareProcess makes the calling process fit to own a workload.
func prepareProcess() error {
	syscall.Umask(0o022) // the workload's; our files have their modes
	if err := os.Chdir("/"); err != nil {
		return err
	}
	if _, _, errno := syscall.Syscall(syscall.SYS_PRCTL, prSetChildSubreaper, 1, 0); errno != 0 {
		return fmt.Errorf("become subreaper: %w", errno)
	}
	// Inherited by the workload: no set-user-id program gives it more than it has.
	if _, _, errno := syscall.AllThreadsSyscall6(syscall.SYS_PRCTL, prSetNoNewPrivs, 1, 0, 0, 0, 0); errno != 0 {
		return fmt.Errorf("set no_new_privs: %w", errno)
	}
	return nil
}

// reap waits for every process of the run and returns how the first one ended.
func (s *shim) reap() *Exit {
	ended := make(chan struct{})
	defer close(ended)
	go s.forwardTerm(ended)

	exit := &Exit{Instance: s.launch.Instance, Pid: s.pid, Started: s.state.Started}
	var cpu time.Duration
	alive := true // the first process
	for {
		var ws syscall.WaitStatus
		var ru syscall.Rusage
		options := 0
		if !alive {
			options = syscall.WNOHANG
		}
		pid, err := syscall.Wait4(-1, &ws, options, &ru)
		if pid == 0 && err == nil {
			// Something outlived the first process, and only a kill will end
			// it. What it forks meanwhile is met by the next round.
			n := killRest(s.launch, s.state.Shim)
			exit.LeftBehind = max(exit.LeftBehind, n)
			pid, err = syscall.Wait4(-1, &ws, 0, &ru)
		}
		if err == syscall.EINTR {
			continue
		}
		if err != nil { // ECHILD: there is nobody left
			break
		}
		cpu += time.Duration(ru.Utime.Nano() + ru.Stime.Nano())
		exit.MaxRSS = max(exit.MaxRSS, ru.Maxrss<<10)
		if pid != s.pid {
			continue
		}
		alive = false
		exit.Ended = now()
		exit.Code = ws.ExitStatus()
		if ws.Signaled() {
			exit.Signal = int(ws.Signal())
			exit.Code = 128 + exit.Signal
			exit.OOM = ws.Signal() == syscall.SIGKILL && oomKills(s.launch) > 0
		}
	}
	// The group has counted also what was never reaped by anyone.
	exit.CPUMsec = max(cpu, proctree.Group(s.launch.Cgroup).CPU()).Milliseconds()
	return exit
}

// oomKills counts the processes of a run that the kernel has killed for memory.
func oomKills(l *Launch) int64 {
	n := proctree.Group(l.Cgroup).OOMKills()
	for _, g := range l.LimitGroups {
		n += proctree.LimitGroup(g).OOMKills()
	}
	return n
}

// enterLimits moves this process into the v1 groups of a run, so that what is
// forked next begins in them, and returns how to get out again: the helper is not
// to count against its workload's limits, nor to be killed by them.
func enterLimits(l *Launch) (leave func(), err error) {
	leave = func() {
		for _, g := range l.LimitGroups {
			// One that cannot leave stays: its memory counts, and the workload runs.
			_ = proctree.LimitGroup(filepath.Dir(g)).Enter()
		}
	}
	for _, g := range l.LimitGroups {
		if err := proctree.LimitGroup(g).Enter(); err != nil {
			leave()
			return nil, fmt.Errorf("enter the group of a limit: %w", err)
		}
	}
	return leave, nil
}

// forwardTerm passes SIGTERM on to the whole run.
func (s *shim) forwardTerm(ended <-chan struct{}) {
	for {
		select {
		case <-ended:
			return
		case <-s.term:
			for _, st := range rest(s.launch, s.state.Shim) {
				_ = st.ID().Signal(syscall.SIGTERM) // only gone ones cannot be reached
			}
		}
	}
}
