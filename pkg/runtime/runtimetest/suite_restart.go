//go:build linux

package runtimetest

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/barista-fleet/barista/pkg/runtime"
)

func touch(path string) error { return os.WriteFile(path, nil, 0o666) }

// epochFile reads the fencing token file of a run as the workload finds it: by
// the variable in its environment.
func (e *env) epochFile(instance string) string {
	e.Helper()
	w, _ := e.get(instance)
	b := e.environ(w.Pid)
	for entry := range strings.SplitSeq(string(b), "\x00") {
		if path, ok := strings.CutPrefix(entry, "BARISTA_EPOCH_FILE="); ok {
			// Through the process's own root, which may be an image's.
			b, err := os.ReadFile(fmt.Sprintf("/proc/%d/root%s", w.Pid, path))
			if err != nil {
				e.Fatal(err)
			}
			return string(b)
		}
	}
	e.Fatalf("no BARISTA_EPOCH_FILE in the environment of process %d", w.Pid)
	return ""
}

// environ waits until a process that was just started has its environment: for an
// instant of its exec the kernel shows none.
func (e *env) environ(pid int) []byte {
	e.Helper()
	for deadline := time.Now().Add(patience); ; {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
		if err != nil {
			e.Fatal(err)
		}
		if len(b) > 0 || time.Now().After(deadline) {
			return b
		}
		time.Sleep(time.Millisecond)
	}
}

// testAdoption: a new driver object finds what the old one has started.
func testAdoption(e *env) {
	counter := e.path("count")
	old := e.start("adopted", "-for", "-1s", "-exit", "4", "-tick", "5ms", "-counter", counter, "-echo", "begun")
	e.waitCount(counter, 2)
	e.reopen()
	w, ok := e.get(old.Instance)
	if !ok || w.State != runtime.StateRunning || w.Pid != old.Pid || w.Ref != old.Ref || !w.Started.Equal(old.Started) {
		e.Fatalf("adopted run is %+v, want %+v", w, old)
	}
	n := e.count(counter)
	e.waitCount(counter, n+2)
	// It is in the new driver's hands in every way.
	again, err := e.d.Start(e.ctx, runtime.StartRequest{Ref: old.Ref, Spec: e.h.Spec(e.T, e.shared).WithDefaults()})
	if err != nil || again.Pid != old.Pid {
		e.Errorf("start of an adopted run: %+v, %v", again, err)
	}
	e.waitOutput(w, "begun")
	w = e.stop(old.Instance, patience)
	if w.State != runtime.StateExited || w.Exit.Code != 4 {
		e.Errorf("adopted run ended as %s %+v, want code 4", w.State, w.Exit)
	}
	e.noProcesses(old.Instance)
	e.reopen()
	if w, ok := e.get(old.Instance); !ok || w.State != runtime.StateExited || w.Exit.Code != 4 {
		e.Errorf("a dead run after a restart: %+v", w)
	}
}

// testExitUnattended: an exit is kept while there is no driver to hear of it.
func testExitUnattended(e *env) {
	gate := e.path("gate")
	history := e.path("history")
	a := e.start("job-a", "-until-file", gate, "-history", history, "-exit", "42")
	b := e.start("job-b", "-until-file", gate, "-history", history, "-kill-self", strconv.Itoa(int(syscall.SIGKILL)))
	e.close()
	writeFile(e.T, gate)
	e.waitLines(history, 4) // both have started and said that they end
	e.d, e.close = e.h.Open(e.T, e.dir)
	if w := e.ended(a.Instance); w.State != runtime.StateExited || w.Exit.Code != 42 {
		e.Errorf("exit while no driver lived: %s %+v, want code 42", w.State, w.Exit)
	}
	if w := e.ended(b.Instance); w.State != runtime.StateExited || w.Exit.Signal != int(syscall.SIGKILL) {
		e.Errorf("exit while no driver lived: %s %+v, want SIGKILL", w.State, w.Exit)
	}
	if got := e.lines(history); len(got) != 4 {
		e.Errorf("history %q: something was run again", got)
	}
}

// stillness is how long a paused counter is watched: many times its tick.
const stillness = 200 * time.Millisecond

// paused starts a counter and pauses it.
func (e *env) paused(name string, args ...string) (w runtime.Workload, counter string, n int) {
	e.Helper()
	counter = e.path("count-" + name)
	w = e.start(name, append(args, "-for", "-1s", "-tick", "5ms", "-counter", counter)...)
	e.waitCount(counter, 3)
	kind, err := e.d.Pause(e.ctx, w.Instance)
	if err != nil {
		e.Fatalf("pause: %v", err)
	}
	if !slices.Contains(e.h.PauseKinds, kind) {
		e.Errorf("pause says %q, want one of %q", kind, e.h.PauseKinds)
	}
	got, _ := e.get(w.Instance)
	if got.State != runtime.StatePaused || got.PauseKind != kind {
		e.Errorf("paused run is %+v", got)
	}
	return w, counter, e.count(counter)
}

// still fails if the counter moves.
func (e *env) still(counter string, n int) {
	e.Helper()
	time.Sleep(stillness) // that nothing happens has no event
	if now := e.count(counter); now != n {
		e.Errorf("a paused run counted from %d to %d", n, now)
	}
}

func testPauseResume(e *env) {
	w, counter, n := e.paused("sleeper")
	e.still(counter, n)
	if kind, err := e.d.Pause(e.ctx, w.Instance); err != nil || !slices.Contains(e.h.PauseKinds, kind) {
		e.Errorf("pause of a paused run: %q, %v", kind, err)
	}
	e.still(counter, n)
	for range 2 { // the second resumes a running run
		if err := e.d.Resume(e.ctx, w.Instance); err != nil {
			e.Fatalf("resume: %v", err)
		}
	}
	e.waitCount(counter, n+3)
	// The count is in its memory: had it been started again it would begin at 1.
	all := e.lines(counter)
	for i, line := range all {
		if line != strconv.Itoa(i+1) {
			e.Fatalf("count %d is %q: it did not go on from memory", i+1, line)
		}
	}
	if got, _ := e.get(w.Instance); got.State != runtime.StateRunning || got.PauseKind != "" || got.Pid != w.Pid {
		e.Errorf("resumed run is %+v", got)
	}
}

func testSignalPaused(e *env) {
	w, counter, n := e.paused("deaf")
	if err := syscall.Kill(w.Pid, syscall.SIGTERM); err != nil {
		e.Fatal(err)
	}
	e.still(counter, n)
	if got, _ := e.get(w.Instance); got.State != runtime.StatePaused {
		e.Errorf("a signalled paused run is %s", got.State)
	}
	// The signal is not lost either.
	if err := e.d.Resume(e.ctx, w.Instance); err != nil {
		e.Fatal(err)
	}
	if got := e.ended(w.Instance); got.Exit.Code != 0 || got.Exit.Signal != 0 {
		e.Errorf("after the resume it ended with %+v", got.Exit)
	}
}

// testStopPaused: a paused run is not thawed to be told that it must end.
func testStopPaused(e *env) {
	w, counter, n := e.paused("cut", "-grandchild", "-exit", "4", "-history", e.path("history"))
	begin := time.Now()
	w = e.stop(w.Instance, patience)
	if d := time.Since(begin); d > patience/2 {
		e.Errorf("stop took %v: it waited for a grace that a paused run cannot use", d)
	}
	if w.Exit.Signal != int(syscall.SIGKILL) {
		e.Errorf("stopped paused run ended with %+v, want SIGKILL", w.Exit)
	}
	e.noProcesses(w.Instance)
	if now := e.count(counter); now != n {
		e.Errorf("it counted from %d to %d", n, now)
	}
	for _, line := range e.lines(e.path("history")) {
		if strings.Contains(line, " stop ") {
			e.Errorf("its code ran: %q", line)
		}
	}
}

func testPauseSurvives(e *env) {
	w, counter, n := e.paused("kept")
	e.reopen()
	got, ok := e.get(w.Instance)
	if !ok || got.State != runtime.StatePaused || !slices.Contains(e.h.PauseKinds, got.PauseKind) {
		e.Errorf("paused run after a restart: %+v", got)
	}
	e.still(counter, n)
	if err := e.d.Resume(e.ctx, w.Instance); err != nil {
		e.Fatal(err)
	}
	e.waitCount(counter, n+3)
	if got := e.lines(counter); got[len(got)-1] != strconv.Itoa(len(got)) {
		e.Errorf("after the resume the count is %s at line %d", got[len(got)-1], len(got))
	}
}
