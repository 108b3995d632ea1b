//go:build linux

package process_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/barista-fleet/barista/pkg/fleet"
	"github.com/barista-fleet/barista/pkg/reconcile"
	"github.com/barista-fleet/barista/pkg/runtime/process"
	"github.com/barista-fleet/barista/test/need"
)

// limited is a machine whose driver keeps one limit.
func limited(t *testing.T, capability string) *machine {
	t.Helper()
	m := newMachine(t, process.Config{})
	m.openDriver()
	if !slices.Contains(m.d.Info().Capabilities, capability) {
		need.Missing(t, "a cgroup controller for %s", capability)
	}
	return m
}

// TestMemoryLimit: what takes more than it may is killed, and the end says why;
// a SIGKILL for another reason is none for memory.
func TestMemoryLimit(t *testing.T) {
	m := limited(t, process.CapLimitMemory)
	spec := workload(t, "-alloc-mb", "256", "-for", "-1s")
	spec.MemoryBytes = 64 << 20
	w := m.ended(m.start(requestSpec("greedy", 0, spec)).Instance)
	if !w.Exit.OOM || w.Exit.Signal != int(syscall.SIGKILL) {
		t.Errorf("exit %+v, want SIGKILL for memory", w.Exit)
	}
	spec = workload(t, "-alloc-mb", "1", "-kill-self", "9")
	spec.MemoryBytes = 64 << 20
	w = m.ended(m.start(requestSpec("frugal", 0, spec)).Instance)
	if w.Exit.OOM || w.Exit.Signal != int(syscall.SIGKILL) {
		t.Errorf("exit %+v, want a SIGKILL that is not for memory", w.Exit)
	}
}

// TestMemoryLimitSurvivesTheAgent: the end is told right by an agent that did not
// see it.
func TestMemoryLimitSurvivesTheAgent(t *testing.T) {
	m := limited(t, process.CapLimitMemory)
	gate := filepath.Join(t.TempDir(), "gate")
	spec := fleet.Spec{Command: []string{"/bin/sh", "-c", "until [ -e " + gate + " ]; do sleep 0.05; done; exec \"$0\" \"$@\""}}
	spec.Command = append(spec.Command, workload(t, "-alloc-mb", "256", "-for", "-1s").Command...)
	spec.MemoryBytes = 64 << 20
	w := m.start(requestSpec("greedy", 0, spec))
	m.closeDriver()
	if err := os.WriteFile(gate, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	m.openDriver()
	if w = m.ended(w.Instance); !w.Exit.OOM {
		t.Errorf("exit %+v, want one for memory", w.Exit)
	}
}

// TestPidsLimit: a fork bomb stays small, and is ended whole.
func TestPidsLimit(t *testing.T) {
	m := limited(t, process.CapLimitPids)
	out, gate := filepath.Join(t.TempDir(), "forked"), filepath.Join(t.TempDir(), "gate")
	spec := fleet.Spec{Pids: 8, Command: []string{
		"/bin/sh", "-c",
		"until [ -e " + gate + " ]; do sleep 0.05; done; for i in 1 2 3 4 5 6 7 8 9 10 11 12; do sleep 600 & echo $i >>" + out + "; done",
	}}
	w := m.start(requestSpec("bomb", 0, spec))
	if err := os.WriteFile(gate, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	w = m.ended(w.Instance)
	b, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(b), "\n"); n >= 8 || w.Exit.Code == 0 {
		t.Errorf("%d forks under a limit of 8, exit %+v", n, w.Exit)
	}
}

// TestCPULimit: a run that may use a tenth of a CPU is throttled. That is counted
// by the kernel; how long it takes says nothing on a busy machine.
func TestCPULimit(t *testing.T) {
	m := limited(t, process.CapLimitCPU)
	spec := workload(t, "-burn", "300", "-for", "-1s", "-echo", "burnt")
	spec.CPUMillis = 100
	w := m.start(requestSpec("hot", 0, spec))
	m.output(w, "burnt")
	stat, err := os.ReadFile(filepath.Join(cpuGroup(t, w.Pid), "cpu.stat"))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(stat), "nr_throttled ") || strings.Contains(string(stat), "nr_throttled 0\n") {
		t.Errorf("not throttled:\n%s", stat)
	}
}

// cpuGroup finds the group that bounds a process's CPU, whichever version it is.
func cpuGroup(t *testing.T, pid int) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cgroup"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		f := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(f) == 3 && slices.Contains(strings.Split(f[1], ","), "cpu") {
			return filepath.Join("/sys/fs/cgroup", f[1], f[2])
		}
		if len(f) == 3 && f[1] == "" {
			if dir := filepath.Join("/sys/fs/cgroup", f[2]); exists(filepath.Join(dir, "cpu.max")) {
				return dir
			}
		}
	}
	t.Fatalf("no cpu group in\n%s", b)
	return ""
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return !errors.Is(err, fs.ErrNotExist)
}

// TestLimitsLeaveNothingBehind: the groups of a run go with it, also when it could
// not start.
func TestLimitsLeaveNothingBehind(t *testing.T) {
	m := limited(t, process.CapLimitMemory)
	groups := func() (found []string) {
		for _, pattern := range []string{"/sys/fs/cgroup/*/barista/*/b-*", "/sys/fs/cgroup/barista/*/b-*"} {
			dirs, _ := filepath.Glob(pattern)
			found = append(found, dirs...)
		}
		return found
	}
	of := func(instance string) bool {
		return slices.ContainsFunc(groups(), func(dir string) bool { return filepath.Base(dir) == instance })
	}
	spec := workload(t, "-for", "-1s")
	spec.MemoryBytes, spec.Pids, spec.CPUMillis = 64<<20, 64, 500
	req := requestSpec("bounded", 0, spec)
	w := m.start(req)
	if !of(w.Instance) {
		t.Fatal("no group was made: this test finds nothing")
	}
	if _, err := m.d.Stop(m.ctx, w.Instance, time.Second); err != nil {
		t.Fatal(err)
	}
	if of(w.Instance) {
		t.Errorf("groups are left behind: %q", groups())
	}
	spec.Command = []string{"/nonexistent"}
	bad := requestSpec("bad", 0, spec)
	if _, err := m.d.Start(m.ctx, bad); !errors.Is(err, reconcile.ErrSpec) {
		t.Fatalf("start of a missing program: %v", err)
	}
	if of(bad.Instance) {
		t.Errorf("groups of a failed start are left behind: %q", groups())
	}
}
