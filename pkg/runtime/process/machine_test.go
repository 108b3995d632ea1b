//go:build linux

package process_test

import (
	"bytes"
	"context"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/barista-fleet/barista/pkg/runtime"
	"github.com/barista-fleet/barista/pkg/runtime/process"
	"github.com/barista-fleet/barista/pkg/runtime/proctree"
	"github.com/barista-fleet/barista/pkg/runtime/runtimetest"
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
