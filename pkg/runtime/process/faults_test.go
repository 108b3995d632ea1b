//go:build linux

package process_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/barista-fleet/barista/pkg/reconcile"
	"github.com/barista-fleet/barista/pkg/runtime"
	"github.com/barista-fleet/barista/pkg/runtime/process"
	"github.com/barista-fleet/barista/pkg/runtime/proctree"
	"github.com/barista-fleet/barista/pkg/runtime/runtimetest"
	"github.com/barista-fleet/barista/pkg/runtime/runtimetest/history"
	"github.com/barista-fleet/barista/pkg/runtime/shim"
)

// forms are the two forms in which the driver keeps a run together.
var forms = []struct {
	name string
	cfg  process.Config
}{
	{"cgroup", process.Config{}},
	{"plain", process.Config{CgroupParent: process.CgroupNone}},
}

// machine is a driver whose runs are ended with the test.
type machine struct {
	*testing.T
	ctx context.Context
	cfg process.Config
	d   *process.Driver
}

func newMachine(t *testing.T, cfg process.Config) *machine {
	t.Helper()
	if cfg.Dir == "" {
		cfg.Dir = filepath.Join(t.TempDir(), "state")
	}
	cfg.ShimPath = runtimetest.Build(t, runtimetest.ShimPackage)
	m := &machine{T: t, ctx: deadline(t), cfg: cfg}
	t.Cleanup(func() {
		if m.d == nil {
			m.d = open(t, m.cfg)
		}
		m.endAll()
		m.closeDriver()
	})
	return m
}

func (m *machine) openDriver() { m.d = open(m.T, m.cfg) }

func (m *machine) closeDriver() {
	m.Helper()
	if err := m.d.Close(); err != nil {
		m.Error(err)
	}
	m.d = nil
}

func (m *machine) endAll() {
	for _, w := range m.list() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		if _, err := m.d.Stop(ctx, w.Instance, 0); err != nil {
			m.Errorf("clean up: %v", err)
		}
		if err := m.d.Remove(ctx, w.Instance); err != nil {
			m.Errorf("clean up: %v", err)
		}
		cancel()
	}
}

func (m *machine) list() []runtime.Workload {
	m.Helper()
	list, err := m.d.List(context.Background())
	if err != nil {
		m.Fatal(err)
	}
	return list
}

func (m *machine) get(instance string) runtime.Workload {
	m.Helper()
	for _, w := range m.list() {
		if w.Instance == instance {
			return w
		}
	}
	m.Fatalf("run %s is not listed", instance)
	return runtime.Workload{}
}

func (m *machine) start(req runtime.StartRequest) runtime.Workload {
	m.Helper()
	w, err := m.d.Start(m.ctx, req)
	if err != nil {
		m.Fatal(err)
	}
	return w
}

// ended waits for the end of a run. It is for runs that end by themselves.
func (m *machine) ended(instance string) runtime.Workload {
	m.Helper()
	ctx, cancel := context.WithTimeout(m.ctx, patience)
	defer cancel()
	for {
		watch, stop := context.WithCancel(ctx)
		if w := m.get(instance); w.State.Dead() {
			stop()
			return w
		}
		time.AfterFunc(100*time.Millisecond, stop) // in case it ended between the two
		_ = m.d.Watch(watch, func(w runtime.Workload) {
			if w.Instance == instance {
				stop()
			}
		})
		stop()
		if ctx.Err() != nil {
			m.Fatalf("run %s did not end: %+v", instance, m.get(instance))
		}
	}
}

// output follows a run until a line of its output begins with prefix.
func (m *machine) output(w runtime.Workload, prefix string) string {
	m.Helper()
	ctx, cancel := context.WithTimeout(m.ctx, patience)
	defer cancel()
	var b bytes.Buffer
	err := m.d.Logs(ctx, runtime.LogRequest{Name: w.Name, Instance: w.Instance, Tail: -1, Follow: true, Stdout: writerFunc(func(p []byte) (int, error) {
		b.Write(p)
		for line := range strings.Lines(b.String()) {
			if strings.HasPrefix(line, prefix) && strings.HasSuffix(line, "\n") {
				cancel()
			}
		}
		return len(p), nil
	})})
	for line := range strings.Lines(b.String()) {
		if rest, ok := strings.CutPrefix(line, prefix); ok {
			return strings.TrimSuffix(rest, "\n")
		}
	}
	m.Fatalf("no line %q in %q (%v)", prefix, b.String(), err)
	return ""
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

func (m *machine) logs(name string) (stdout, stderr string) {
	m.Helper()
	var o, e bytes.Buffer
	if err := m.d.Logs(m.ctx, runtime.LogRequest{Name: name, Tail: -1, Stdout: &o, Stderr: &e}); err != nil {
		m.Fatal(err)
	}
	return o.String(), e.String()
}

// shimOf returns the shim of a run.
func (m *machine) shimOf(instance string) proctree.ID {
	m.Helper()
	st, err := shim.ReadState(filepath.Join(m.cfg.Dir, "runs", instance))
	if err != nil {
		m.Fatal(err)
	}
	return st.Shim
}

func (m *machine) signal(id proctree.ID, sig syscall.Signal) {
	m.Helper()
	if err := id.Signal(sig); err != nil {
		m.Fatal(err)
	}
}

func (m *machine) wait(id proctree.ID) {
	m.Helper()
	ctx, cancel := context.WithTimeout(m.ctx, patience)
	defer cancel()
	if err := id.Wait(ctx); err != nil {
		m.Fatalf("process %d did not end: %v", id.Pid, err)
	}
}

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
			if again := m.get(w.Instance); again.State != runtime.StateLost || *again.Exit != *got.Exit {
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

// TestPidReuse forges state files that name a stranger's pid, as they would
// after the kernel has handed a number out again. The stranger lives.
func TestPidReuse(t *testing.T) {
	stranger := startAgent(t, agentJob{Config: process.Config{
		Dir: filepath.Join(t.TempDir(), "elsewhere"), ShimPath: runtimetest.Build(t, runtimetest.ShimPackage),
	}})
	st, err := proctree.ReadStat(stranger.cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	alive := st.ID()
	older, rebooted := alive, alive
	older.Start -= 100
	rebooted.Boot = "00000000-0000-0000-0000-000000000000"
	for _, c := range []struct {
		name string
		id   proctree.ID
	}{{"reused", older}, {"reused after a reboot", rebooted}} {
		t.Run(c.name, func(t *testing.T) {
			m := newMachine(t, process.Config{CgroupParent: process.CgroupNone})
			req := request(t, "victim", 0)
			dir := filepath.Join(m.cfg.Dir, "runs", req.Instance)
			forge(t, dir, req, c.id)
			m.openDriver()
			w := m.ended(req.Instance)
			if w.State != runtime.StateLost || w.Ref != req.Ref {
				t.Errorf("forged run is %+v", w)
			}
			for range 2 {
				if _, err := m.d.Stop(m.ctx, req.Instance, time.Millisecond); err != nil {
					t.Error(err)
				}
			}
			if _, err := m.d.Pause(m.ctx, req.Instance); !errors.Is(err, process.ErrEnded) {
				t.Errorf("pause of a lost run: %v", err)
			}
			now, err := proctree.ReadStat(alive.Pid)
			if err != nil || !alive.Alive() || now.Stopped() {
				t.Fatalf("the stranger was harmed: %+v, %v", now, err)
			}
		})
	}
}

// forge writes the directory of a run whose shim and first process were id.
func forge(t *testing.T, dir string, req runtime.StartRequest, id proctree.ID) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	ref, err := json.Marshal(req.Ref)
	if err != nil {
		t.Fatal(err)
	}
	state, err := json.Marshal(shim.State{
		Protocol: shim.Protocol, Instance: req.Instance, Shim: id, Child: id, Started: time.Now(),
		Tag: "BARISTA_INSTANCE=" + req.Instance, Ref: ref,
	})
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{shim.FileState: state, shim.FileRef: ref, shim.FileLock: nil} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// TestReboot: after a reboot a run is lost, and a recorded exit still counts.
func TestReboot(t *testing.T) {
	m := newMachine(t, process.Config{})
	lost, done := request(t, "lost", 0), request(t, "done", 0)
	before := proctree.ID{Pid: 1, Start: 1, Boot: "an-earlier-boot"}
	for _, req := range []runtime.StartRequest{lost, done} {
		forge(t, filepath.Join(m.cfg.Dir, "runs", req.Instance), req, before)
	}
	err := shim.WriteExit(filepath.Join(m.cfg.Dir, "runs", done.Instance), &shim.Exit{Instance: done.Instance, Code: 3})
	if err != nil {
		t.Fatal(err)
	}
	m.openDriver()
	if w := m.ended(lost.Instance); w.State != runtime.StateLost || !w.Exit.Lost || !strings.Contains(w.Exit.Reason, "restarted") {
		t.Errorf("run of an earlier boot: %s %+v", w.State, w.Exit)
	}
	if w := m.get(done.Instance); w.State != runtime.StateExited || w.Exit.Code != 3 || w.Exit.Lost {
		t.Errorf("run that ended before the reboot: %s %+v", w.State, w.Exit)
	}
}

// TestDamagedState: whatever becomes of the files of a run, an agent starts,
// finds the run while it lives, and can stop and remove it.
func TestDamagedState(t *testing.T) {
	damages := map[string]func(path string) error{
		"missing": os.Remove,
		"empty":   func(path string) error { return os.Truncate(path, 0) },
		"garbage": func(path string) error { return os.WriteFile(path, []byte("\x00\x01{"), 0o600) },
	}
	for _, form := range forms {
		for kind, damage := range damages {
			t.Run(form.name+"/"+kind, func(t *testing.T) {
				m := newMachine(t, form.cfg)
				m.openDriver()
				for i, files := range [][]string{{shim.FileRef}, {shim.FileState}, {shim.FileLaunch}, {shim.FileRef, shim.FileState, shim.FileLaunch}} {
					w := m.start(request(t, fmt.Sprintf("run-%d", i), 0, "-for", "-1s"))
					for _, f := range files {
						if err := damage(filepath.Join(m.cfg.Dir, "runs", w.Instance, f)); err != nil {
							t.Fatal(err)
						}
					}
				}
				m.closeDriver()
				m.openDriver()
				list := m.list()
				if len(list) != 4 {
					t.Fatalf("%d runs are listed, want 4: %+v", len(list), list)
				}
				for _, w := range list {
					if w.State.Dead() {
						t.Errorf("%s %s is %s though it lives", w.Name, w.Instance, w.State)
					}
					got, err := m.d.Stop(m.ctx, w.Instance, 0)
					if err != nil || !got.State.Dead() {
						t.Errorf("stop %s: %+v, %v", w.Instance, got, err)
					}
					if pids := processesOf(t, w.Instance); len(pids) != 0 {
						t.Errorf("processes %v of %s are alive", pids, w.Name)
					}
					if err := m.d.Remove(m.ctx, w.Instance); err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
}
