//go:build linux

package process_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"syscall"
	"testing"
	"time"

	"github.com/barista-fleet/barista/pkg/reconcile"
	"github.com/barista-fleet/barista/pkg/runtime"
	"github.com/barista-fleet/barista/pkg/runtime/process"
	"github.com/barista-fleet/barista/pkg/runtime/runtimetest/history"
)

// TestAgentKilled: what an agent that is killed with SIGKILL leaves behind goes
// on, and the next one has it whole.
func TestAgentKilled(t *testing.T) {
	for _, form := range forms {
		t.Run(form.name, func(t *testing.T) {
			m := newMachine(t, form.cfg)
			gate := filepath.Join(t.TempDir(), "gate")
			hist := filepath.Join(t.TempDir(), "history")
			reqs := []runtime.StartRequest{
				request(t, "runs", 0, "-history", hist, "-until-file", gate+".never", "-echo", "hello"),
				request(t, "ends", 0, "-history", hist, "-until-file", gate, "-exit", "9"),
			}
			a := startAgent(t, agentJob{Config: m.cfg, Requests: reqs})
			first, second := a.answer(), a.answer()
			a.kill()
			if err := os.WriteFile(gate, nil, 0o666); err != nil {
				t.Fatal(err)
			}
			m.wait(m.shimOf(second.Instance)) // it ends with no agent alive
			m.openDriver()
			w := m.get(first.Instance)
			if w.State != runtime.StateRunning || w.Pid != first.Pid || w.Ref != first.Ref {
				t.Errorf("adopted run %+v, was %+v", w, first)
			}
			if got := m.output(w, "hel"); got != "lo" {
				t.Errorf("output of the adopted run: %q", got)
			}
			if w := m.get(second.Instance); w.State != runtime.StateExited || w.Exit.Code != 9 {
				t.Errorf("run that ended unattended: %s %+v", w.State, w.Exit)
			}
		})
	}
}

// TestAgentKilledAnywhere kills agents at random moments while they start jobs.
// Every job that is started again or found again has run exactly once.
func TestAgentKilledAnywhere(t *testing.T) {
	const rounds, jobs = 12, 6
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	m := newMachine(t, process.Config{})
	hist := filepath.Join(t.TempDir(), "history")
	var reqs []runtime.StartRequest
	for round := range rounds {
		var now []runtime.StartRequest
		for i := range jobs {
			now = append(now, request(t, fmt.Sprintf("job-%d-%d", round, i), 0, "-history", hist, "-exit", fmt.Sprint(1+i)))
		}
		a := startAgent(t, agentJob{Config: m.cfg, Requests: now})
		time.Sleep(time.Duration(rng.IntN(120)) * time.Millisecond) // the random moment
		a.kill()
		reqs = append(reqs, now...)
	}
	m.openDriver()
	for _, req := range reqs {
		m.start(req) // finds it, or starts it if it never came to that
	}
	for i, req := range reqs {
		w := m.ended(req.Instance)
		if w.State != runtime.StateExited || w.Exit.Code != 1+i%jobs {
			t.Errorf("%s ended as %s %+v, want code %d", req.Name, w.State, w.Exit, 1+i%jobs)
		}
	}
	lines, err := history.ReadFile(hist)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range history.Check(lines, history.Rules{OncePerName: true}) {
		t.Error(p)
	}
	if got := len(history.Runs(lines)); got != len(reqs) {
		t.Errorf("%d jobs have run, want %d", got, len(reqs))
	}
}

// TestShimKilled: a run outlives even its shim. It is running while a process
// of it lives, can be paused and stopped, and is lost at its end.
func TestShimKilled(t *testing.T) {
	for _, form := range forms {
		t.Run(form.name, func(t *testing.T) {
			m := newMachine(t, form.cfg)
			m.openDriver()
			counter := filepath.Join(t.TempDir(), "count")
			w := m.start(request(t, "orphan", 0, "-for", "-1s", "-grandchild", "-ignore-term", "-tick", "5ms", "-counter", counter))
			m.output(w, "grandchild ")
			id := m.shimOf(w.Instance)
			m.signal(id, syscall.SIGKILL)
			m.wait(id)
			if got := m.get(w.Instance); got.State != runtime.StateRunning {
				t.Errorf("run without its shim is %s", got.State)
			}
			// Also for an agent that knows nothing but the directory.
			m.closeDriver()
			m.openDriver()
			if got := m.get(w.Instance); got.State != runtime.StateRunning || got.Pid != w.Pid {
				t.Errorf("adopted run without its shim is %+v", got)
			}
			if _, err := m.d.Pause(m.ctx, w.Instance); err != nil {
				t.Errorf("pause: %v", err)
			}
			got, err := m.d.Stop(m.ctx, w.Instance, patience)
			if err != nil {
				t.Fatal(err)
			}
			if got.State != runtime.StateLost || !got.Exit.Lost || got.Exit.Reason == "" {
				t.Errorf("its end is %s %+v, want lost", got.State, got.Exit)
			}
			if pids := processesOf(t, w.Instance); len(pids) != 0 {
				t.Errorf("processes %v are alive", pids)
			}
			m.closeDriver()
			m.openDriver()
			if again := m.get(w.Instance); again.State != runtime.StateLost || !reflect.DeepEqual(again.Exit, got.Exit) {
				t.Errorf("lost run after a restart: %s %+v, was %+v", again.State, again.Exit, got.Exit)
			}
		})
	}
}

// TestAgentAndShimKilled: with both gone at once, nothing is stuck.
func TestAgentAndShimKilled(t *testing.T) {
	for _, form := range forms {
		t.Run(form.name, func(t *testing.T) {
			m := newMachine(t, form.cfg)
			a := startAgent(t, agentJob{Config: m.cfg, Requests: []runtime.StartRequest{
				request(t, "both", 0, "-for", "-1s", "-ignore-term"),
			}})
			w := a.answer()
			id := m.shimOf(w.Instance)
			a.kill()
			m.signal(id, syscall.SIGKILL)
			m.wait(id)
			m.openDriver()
			if got := m.get(w.Instance); got.State != runtime.StateRunning {
				t.Errorf("run is %s", got.State)
			}
			got, err := m.d.Stop(m.ctx, w.Instance, 50*time.Millisecond)
			if err != nil || got.State != runtime.StateLost {
				t.Errorf("stopped: %+v, %v", got, err)
			}
			if err := m.d.Remove(m.ctx, w.Instance); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestShimStopped: a shim that somebody has stopped does not keep Stop waiting
// for ever.
func TestShimStopped(t *testing.T) {
	t.Parallel() // with the other test that waits for a shim to be given up
	m := newMachine(t, process.Config{})
	m.openDriver()
	w := m.start(request(t, "hung", 0, "-for", "-1s"))
	m.signal(m.shimOf(w.Instance), syscall.SIGSTOP)
	got, err := m.d.Stop(m.ctx, w.Instance, 0)
	if err != nil || got.State != runtime.StateLost {
		t.Errorf("stop: %+v, %v", got, err)
	}
	if pids := processesOf(t, w.Instance); len(pids) != 0 {
		t.Errorf("processes %v are alive", pids)
	}
}

// TestShimTerminated: SIGTERM to a shim is passed on, and the exit is kept.
func TestShimTerminated(t *testing.T) {
	m := newMachine(t, process.Config{})
	m.openDriver()
	w := m.start(request(t, "told", 0, "-for", "-1s", "-exit", "8", "-echo", "ready"))
	m.output(w, "ready")
	m.signal(m.shimOf(w.Instance), syscall.SIGTERM)
	if got := m.ended(w.Instance); got.State != runtime.StateExited || got.Exit.Code != 8 {
		t.Errorf("ended as %s %+v, want the code it chose", got.State, got.Exit)
	}
}

// TestShimDiesInStart: a start whose shim dies leaves nothing and can be retried.
func TestShimDiesInStart(t *testing.T) {
	m := newMachine(t, process.Config{})
	m.openDriver()
	// A disk error stands for all that can end it: its log directory is a file.
	req := request(t, "unlucky", 0)
	logs := filepath.Join(m.cfg.Dir, "logs", "unlucky")
	if err := os.WriteFile(logs, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := m.d.Start(m.ctx, req); err == nil || errors.Is(err, reconcile.ErrSpec) {
		t.Errorf("start: %v, want an error that is not the spec's", err)
	}
	if list := m.list(); len(list) != 0 {
		t.Errorf("listed: %+v", list)
	}
	if err := os.Remove(logs); err != nil {
		t.Fatal(err)
	}
	m.start(req)
	m.ended(req.Instance)
}
