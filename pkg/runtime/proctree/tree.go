//go:build linux

package proctree

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"syscall"
	"time"
)

// maxPasses bounds how often a tree is looked through until it stands still:
// each pass stops every process it finds, so only what was forked during the
// pass is left for the next one.
const maxPasses = 200

// Tree describes the processes of one run where no cgroup holds them together.
type Tree struct {
	// Reaper is the subreaper above the tree; itself not part of it. Whatever
	// the tree forks stays below it while it lives.
	Reaper ID
	// Root is the first process.
	Root ID
	// Tag is an environment entry, KEY=value, that only this run's processes
	// carry. It finds those whose reaper has died.
	Tag string
}

// Members returns the live processes of the tree.
func (t Tree) Members() ([]Stat, error) {
	all, err := All()
	if err != nil {
		return nil, err
	}
	in := make(map[int]bool, 16)
	if st, err := t.Reaper.stat(); err == nil {
		in[st.Pid] = true
	}
	root := 0
	if st, err := t.Root.stat(); err == nil {
		root = st.Pid
		in[root] = true
	}
	for _, st := range all {
		// A session number stays taken while its leader lives, so it proves
		// membership exactly as long as the leader is the recorded process.
		if root != 0 && st.Session == root || t.Tag != "" && hasEnv(st.Pid, t.Tag) {
			in[st.Pid] = true
		}
	}
	for grown := true; grown; {
		grown = false
		for _, st := range all {
			if !in[st.Pid] && in[st.Parent] {
				in[st.Pid] = true
				grown = true
			}
		}
	}
	members := all[:0]
	for _, st := range all {
		if in[st.Pid] && st.Pid != t.Reaper.Pid && !st.Dead() {
			members = append(members, st)
		}
	}
	return members, nil
}

// hasEnv looks for an entry in a process's environment. One that may not be
// read does not have it.
func hasEnv(pid int, tag string) bool {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
	if err != nil {
		return false
	}
	for entry := range bytes.SplitSeq(b, []byte{0}) {
		if string(entry) == tag {
			return true
		}
	}
	return false
}

// Signal sends sig to every process of the tree.
func (t Tree) Signal(sig syscall.Signal) error {
	members, err := t.Members()
	if err != nil {
		return err
	}
	return signalAll(members, sig)
}

func signalAll(members []Stat, sig syscall.Signal) error {
	var errs []error
	for _, st := range members {
		if err := st.ID().Signal(sig); err != nil && !errors.Is(err, ErrGone) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// Stop stops every process with SIGSTOP and returns when a look at the whole
// tree finds all of them stopped.
func (t Tree) Stop(ctx context.Context) error {
	for pass := range maxPasses {
		members, err := t.Members()
		if err != nil {
			return err
		}
		moving := members[:0]
		for _, st := range members {
			if !st.Stopped() {
				moving = append(moving, st)
			}
		}
		if len(moving) == 0 {
			return nil
		}
		if err := signalAll(moving, syscall.SIGSTOP); err != nil {
			return err
		}
		if err := sleep(ctx, backoff(pass)); err != nil {
			return err
		}
	}
	return fmt.Errorf("process tree below %d did not come to a stop", t.Root.Pid)
}

// Continue undoes Stop.
func (t Tree) Continue() error { return t.Signal(syscall.SIGCONT) }

// Kill ends every process of the tree and returns when none is alive. It stops
// the tree first, so that nothing forks away while it is being killed; user
// code that was stopped before does not run again.
func (t Tree) Kill(ctx context.Context) error {
	if err := t.Stop(ctx); err != nil && ctx.Err() != nil {
		return err
	}
	for {
		members, err := t.Members()
		if err != nil || len(members) == 0 {
			return err
		}
		if err := signalAll(members, syscall.SIGKILL); err != nil {
			return err
		}
		for _, st := range members {
			if err := st.ID().Wait(ctx); err != nil {
				return err
			}
		}
	}
}

// Wait returns nil once the process that id names has ended.
func (id ID) Wait(ctx context.Context) error {
	h, err := Open(id)
	if errors.Is(err, ErrGone) {
		return nil
	}
	if err != nil {
		return err
	}
	defer h.Close()
	return h.Wait(ctx)
}

// WaitEmpty returns nil once the tree has no live process.
func (t Tree) WaitEmpty(ctx context.Context) error {
	for {
		members, err := t.Members()
		if err != nil || len(members) == 0 {
			return err
		}
		// The tree can only be empty when this one has ended.
		if err := members[0].ID().Wait(ctx); err != nil {
			return err
		}
	}
}

// CPU returns what the tree has consumed: its live processes and, through the
// reaper, those that have ended.
func (t Tree) CPU() time.Duration {
	var sum time.Duration
	if st, err := t.Reaper.stat(); err == nil {
		sum += st.ChildCPU
	}
	members, err := t.Members()
	if err != nil {
		return sum
	}
	for _, st := range members {
		sum += st.CPU + st.ChildCPU
	}
	return sum
}

// backoff is the pause between two looks at a tree: SIGSTOP takes effect
// when its receiver is next scheduled, of which the kernel tells nobody but
// the parent.
func backoff(pass int) time.Duration {
	return min(time.Duration(pass+1)*time.Millisecond, 20*time.Millisecond)
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}
