//go:build linux

package proctree

import (
	"bufio"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/barista-fleet/barista/test/need"
)

func TestParseStat(t *testing.T) {
	// A program may call itself anything.
	line := "12 (a) b (c) Z 1 2 3 0 -1 4194560 1 2 3 4 50 60 7 8 20 0 2 0 9999 1 2"
	st, err := parseStat(12, []byte(line))
	want := Stat{
		Pid: 12, Parent: 1, Session: 3, State: 'Z', Threads: 2, Start: 9999,
		CPU: 1100 * time.Millisecond, ChildCPU: 150 * time.Millisecond,
	}
	if err != nil || st != want {
		t.Errorf("%+v, %v; want %+v", st, err, want)
	}
	if st.Dead() {
		t.Error("a leader that ended before its other thread counts as dead")
	}
	for _, bad := range []string{"", "12 a S 1", "12 (a) S 1 2 3"} {
		if st, err := parseStat(12, []byte(bad)); err == nil {
			t.Errorf("%q parsed as %+v", bad, st)
		}
	}
}

// sleeper starts a shell that says something and then waits for its input to
// end, which it does at the latest with the test binary.
func sleeper(t *testing.T, script string, env ...string) (cmd *exec.Cmd, first string) {
	t.Helper()
	cmd = exec.Command("/bin/sh", "-c", script)
	cmd.Env = append([]string{"PATH=/usr/bin:/bin"}, env...)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		_ = cmd.Process.Kill() // fails only if it has ended
		_ = cmd.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return cmd, strings.TrimSpace(line)
}

func idOf(t *testing.T, pid int) ID {
	t.Helper()
	st, err := ReadStat(pid)
	if err != nil {
		t.Fatal(err)
	}
	return st.ID()
}

func bounded(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// TestIDNamesOneProcess: another start time or another boot is another process,
// and is neither alive nor signalled.
func TestIDNamesOneProcess(t *testing.T) {
	cmd, _ := sleeper(t, "echo ready; read x")
	id := idOf(t, cmd.Process.Pid)
	if !id.Alive() {
		t.Error("a live process is not alive")
	}
	start, boot := id, id
	start.Start++
	boot.Boot = "another"
	for _, wrong := range []ID{start, boot, {}, {Pid: -1, Boot: id.Boot}} {
		if wrong.Alive() {
			t.Errorf("%+v is alive", wrong)
		}
		if err := wrong.Signal(syscall.SIGKILL); !errors.Is(err, ErrGone) {
			t.Errorf("signal to %+v: %v", wrong, err)
		}
		if err := wrong.Wait(bounded(t)); err != nil {
			t.Errorf("wait for %+v: %v", wrong, err)
		}
	}
	if !id.Alive() {
		t.Fatal("a process was killed under another's name")
	}
}

// TestWait ends with the process, also one that nobody reaps, and with ctx.
func TestWait(t *testing.T) {
	cmd, _ := sleeper(t, "echo ready; read x")
	id := idOf(t, cmd.Process.Pid)
	short, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := id.Wait(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("wait with an ended context: %v", err)
	}
	h, err := Open(id)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	done := make(chan error, 1)
	go func() { done <- h.Wait(bounded(t)) }()
	if err := h.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Errorf("wait: %v", err)
	}
	if id.Alive() {
		t.Error("a process that was not reaped counts as alive")
	}
	_ = cmd.Wait() // killed: never a success
	if err := h.Signal(syscall.SIGKILL); !errors.Is(err, ErrGone) {
		t.Errorf("signal to a reaped process: %v", err)
	}
}

// TestTree finds children, and orphans by their tag, and ends all.
func TestTree(t *testing.T) {
	const tag = "PROCTREE_TEST=one"
	cmd, orphan := sleeper(t, "sleep 60 & setsid sh -c 'setsid sleep 60 >/dev/null & echo $!'; read x", tag)
	pid, err := strconv.Atoi(orphan)
	if err != nil {
		t.Fatal(err)
	}
	tree := Tree{Root: idOf(t, cmd.Process.Pid), Tag: tag}
	ctx := bounded(t)
	if err := tree.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	members, err := tree.Members()
	if err != nil {
		t.Fatal(err)
	}
	found := false
	for _, st := range members {
		found = found || st.Pid == pid
		if !st.Stopped() {
			t.Errorf("%+v is not stopped", st)
		}
	}
	if !found || len(members) < 3 {
		t.Errorf("members %+v, want the shell, its child and orphan %d", members, pid)
	}
	if err := tree.Continue(); err != nil {
		t.Error(err)
	}
	if err := tree.Kill(ctx); err != nil {
		t.Fatal(err)
	}
	if members, err := tree.Members(); err != nil || len(members) != 0 {
		t.Errorf("after Kill: %+v, %v", members, err)
	}
	if err := tree.WaitEmpty(ctx); err != nil {
		t.Error(err)
	}
}

// TestKillForkingTree: a tree that forks all the time is caught.
func TestKillForkingTree(t *testing.T) {
	const tag = "PROCTREE_TEST=forks"
	cmd, _ := sleeper(t, "echo ready; while :; do sleep 0.01 & sleep 0.001; done", tag)
	tree := Tree{Root: idOf(t, cmd.Process.Pid), Tag: tag}
	if err := tree.Kill(bounded(t)); err != nil {
		t.Fatal(err)
	}
	if members, err := tree.Members(); err != nil || len(members) != 0 {
		t.Errorf("after Kill: %+v, %v", members, err)
	}
}

// testGroup makes a group, or says why this machine has none.
func testGroup(t *testing.T) Group {
	t.Helper()
	mount, _, err := FindHierarchy()
	g := Group(filepath.Join(mount, "proctree-test-"+strconv.Itoa(os.Getpid())))
	if err == nil {
		err = g.Create()
	}
	if err != nil {
		need.Missing(t, "no writable cgroup v2 hierarchy: %v", err)
	}
	t.Cleanup(func() {
		_ = g.Kill() // of whatever a failed test has left
		if err := g.Remove(); err != nil {
			t.Error(err)
		}
	})
	return g
}

func TestGroup(t *testing.T) {
	g := testGroup(t)
	cmd, _ := sleeper(t, "trap 'echo told' TERM; echo ready; read x")
	if err := g.Write("cgroup.procs", strconv.Itoa(cmd.Process.Pid)); err != nil {
		t.Fatal(err)
	}
	if ev, err := g.Events(); err != nil || !ev.Populated || ev.Frozen {
		t.Errorf("events %+v, %v", ev, err)
	}
	members, err := g.Members()
	if err != nil || len(members) != 1 || members[0].Pid != cmd.Process.Pid {
		t.Errorf("members %+v, %v", members, err)
	}
	if g.FreezeAsked() {
		t.Error("a running group says it was told to freeze")
	}
	if err := g.SetFrozen(true); err != nil {
		t.Fatal(err)
	}
	if !g.FreezeAsked() {
		t.Error("a group that was told to freeze does not say so")
	}
	// It takes effect when the processes are next scheduled. Whoever must know
	// watches EventsFile; here a look now and then will do.
	for ctx := bounded(t); ; time.Sleep(time.Millisecond) {
		if ev, err := g.Events(); err != nil || ctx.Err() != nil {
			t.Fatalf("not frozen: %+v, %v", ev, err)
		} else if ev.Frozen {
			break
		}
	}
	if err := g.Remove(); err == nil {
		t.Error("a group with a process was removed")
	}
	id := members[0].ID()
	// A process that is not in the group is not signalled through it.
	stranger, _ := sleeper(t, "echo ready; read x")
	if err := g.signalMember(idOf(t, stranger.Process.Pid), syscall.SIGKILL); !errors.Is(err, ErrGone) {
		t.Errorf("signal to a stranger: %v", err)
	}
	if !idOf(t, stranger.Process.Pid).Alive() {
		t.Error("a stranger was killed")
	}
	if err := g.Signal(syscall.SIGTERM); err != nil {
		t.Error(err)
	}
	if !id.Alive() {
		t.Error("SIGTERM ended a frozen process")
	}
	if err := g.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := id.Wait(bounded(t)); err != nil {
		t.Errorf("a frozen process did not die: %v", err)
	}
	_ = cmd.Wait()
	none := Group(filepath.Join(string(g), "none"))
	if ev, err := none.Events(); err != nil || ev.Populated || none.Exists() || none.CPU() != 0 || none.OOMKills() != 0 {
		t.Errorf("a group that is not there: %+v, %v", ev, err)
	}
	if Group("").Exists() || Group("").CPU() != 0 {
		t.Error("no group has something")
	}
}

func TestUnescapeMount(t *testing.T) {
	for in, want := range map[string]string{`/a\040b`: "/a b", `/plain`: "/plain", `/x\`: `/x\`, `/x\0`: `/x\0`, `/x\999`: `/x\999`} {
		if got := unescapeMount(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}
