//go:build linux

package proctree

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// ErrGone: the process has ended, or its number belongs to another one by now.
var ErrGone = errors.New("process is gone")

// tick is the unit of the times in /proc/<pid>/stat: USER_HZ, which the kernel
// fixes at 100 for user space on every architecture Go supports.
const tick = 10 * time.Millisecond

// ID names one process for ever.
type ID struct {
	Pid   int    `json:"pid"`
	Start uint64 `json:"start_ticks"` // after boot, in ticks of 10 ms
	Boot  string `json:"boot_id"`
}

// Alive reports whether this very process still runs. One that has ended and
// only waits to be reaped does not.
func (id ID) Alive() bool {
	st, err := id.stat()
	return err == nil && !st.Dead()
}

// stat reads the process, if it is still this one.
func (id ID) stat() (Stat, error) {
	if id.Pid <= 0 || id.Boot != BootID() {
		return Stat{}, ErrGone
	}
	st, err := ReadStat(id.Pid)
	if err != nil {
		return Stat{}, err
	}
	if st.Start != id.Start {
		return Stat{}, ErrGone
	}
	return st, nil
}

// Stat is the part of /proc/<pid>/stat that this package uses.
type Stat struct {
	Pid, Parent, Session int
	State                byte
	Threads              int
	Start                uint64
	CPU                  time.Duration // its own
	ChildCPU             time.Duration // of the children it has reaped
}

// Dead reports a process that has ended and was not reaped. A leader that
// exited before its other threads looks the same but for their count.
func (s Stat) Dead() bool { return (s.State == 'Z' || s.State == 'X') && s.Threads <= 1 }

// Stopped reports a process that a signal has stopped.
func (s Stat) Stopped() bool { return s.State == 'T' }

// ID returns the lasting name of the process.
func (s Stat) ID() ID { return ID{Pid: s.Pid, Start: s.Start, Boot: BootID()} }

// ReadStat reads /proc/<pid>/stat. It fails with ErrGone when there is no such
// process.
func ReadStat(pid int) (Stat, error) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	switch {
	case errors.Is(err, os.ErrNotExist), errors.Is(err, syscall.ESRCH):
		return Stat{}, ErrGone
	case err != nil:
		return Stat{}, err
	}
	return parseStat(pid, b)
}

func parseStat(pid int, b []byte) (Stat, error) {
	// The second field is the program's name in parentheses, and a name may
	// hold spaces and parentheses itself: the last one ends it.
	i := bytes.LastIndexByte(b, ')')
	if i < 0 {
		return Stat{}, fmt.Errorf("/proc/%d/stat: no program name in %q", pid, b)
	}
	f := bytes.Fields(b[i+1:])
	if len(f) < 20 {
		return Stat{}, fmt.Errorf("/proc/%d/stat: %d fields after the name, want 20", pid, len(f))
	}
	// f[0] is field 3 of proc(5).
	n := func(i int) uint64 {
		v, perr := strconv.ParseUint(string(f[i]), 10, 64)
		if perr != nil {
			return 0 // a negative one, which none of ours can be while it lives
		}
		return v
	}
	return Stat{
		Pid:      pid,
		State:    f[0][0],
		Parent:   int(n(1)),
		Session:  int(n(3)),
		CPU:      time.Duration(n(11)+n(12)) * tick,
		ChildCPU: time.Duration(n(13)+n(14)) * tick,
		Threads:  int(n(17)),
		Start:    n(19),
	}, nil
}

// Self returns the ID of the calling process.
func Self() (ID, error) {
	st, err := ReadStat(os.Getpid())
	if err != nil {
		return ID{}, fmt.Errorf("read own start time: %w", err)
	}
	return st.ID(), nil
}

// BootID returns the kernel's random name of this boot, or "" where /proc
// does not have it: then no recorded process is ever taken for a live one.
var BootID = sync.OnceValue(func() string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return string(bytes.TrimSpace(b))
})

// All reads every process of this pid namespace.
func All() ([]Stat, error) {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	var all []Stat
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		if st, err := ReadStat(pid); err == nil {
			all = append(all, st)
		}
	}
	return all, nil
}
