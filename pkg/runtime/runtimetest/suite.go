//go:build linux

package runtimetest

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/barista-fleet/barista/pkg/fleet"
	"github.com/barista-fleet/barista/pkg/reconcile"
	"github.com/barista-fleet/barista/pkg/runtime"
)

// patience bounds every wait of the suite. Waits end with their event; this is
// only for a driver that is broken.
const patience = 20 * time.Second

// Driver is what the suite tests.
type Driver interface {
	reconcile.Runtime
	reconcile.LogReader
}

// Harness is how the suite gets at a driver.
type Harness struct {
	// Open returns a driver over the state in dir, which survives the driver:
	// opened again it finds its runs. The suite calls close when it is done
	// with the driver, as an agent that ends.
	Open func(t *testing.T, dir string) (d Driver, close func())
	// Spec returns a spec that runs the workload program with args. Paths
	// below the directory given to Shared mean the same to the workload.
	Spec func(t *testing.T, shared string, args ...string) fleet.Spec
	// MissingProgram returns a spec that can never start.
	MissingProgram func(t *testing.T) fleet.Spec
	// Processes lists the pids of a run that are alive, on this machine.
	Processes func(t *testing.T, d Driver, instance string) []int
	// PauseKinds are what Pause may say; empty if the driver cannot pause.
	PauseKinds []string
	// QuickRuns is how many short runs the suite starts in a row; default 200.
	QuickRuns int
}

// Run tests a driver against the contract of reconcile.Runtime.
func Run(t *testing.T, h Harness) {
	if h.QuickRuns == 0 {
		h.QuickRuns = 200
	}
	for _, test := range []struct {
		name string
		run  func(*env)
	}{
		{"StartAndExit", testStartAndExit},
		{"ExitCodes", testExitCodes},
		{"StartIsIdempotent", testStartIdempotent},
		{"StartFails", testStartFails},
		{"UnknownInstance", testUnknown},
		{"StopWithGrace", testStopGrace},
		{"StopKillsAfterGrace", testStopKills},
		{"StopEndsTheWholeTree", testStopTree},
		{"StopIsIdempotent", testStopIdempotent},
		{"ConcurrentStopAndRemove", testConcurrentStop},
		{"TreeEndsWithItsFirstProcess", testTreeEnds},
		{"Environment", testEnvironment},
		{"SetEpoch", testSetEpoch},
		{"CPU", testCPU},
		{"Output", testOutput},
		{"ChattyOutput", testChatty},
		{"PreviousOutput", testPrevious},
		{"Watch", testWatch},
		{"RemoveNeedsADeadRun", testRemoveAlive},
		{"Adoption", testAdoption},
		{"ExitWhileNoDriverLived", testExitUnattended},
		{"QuickRuns", testQuickRuns},
		{"Names", testNames},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(newEnv(t, h)) })
	}
	if len(h.PauseKinds) == 0 {
		return
	}
	for _, test := range []struct {
		name string
		run  func(*env)
	}{
		{"PauseAndResume", testPauseResume},
		{"SignalDoesNotThaw", testSignalPaused},
		{"StopOfAPausedRun", testStopPaused},
		{"PauseSurvivesTheDriver", testPauseSurvives},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(newEnv(t, h)) })
	}
}

// env is what one test works with.
type env struct {
	*testing.T
	h      Harness
	ctx    context.Context
	dir    string // the driver's
	shared string // where workloads write
	d      Driver
	close  func()
}

func newEnv(t *testing.T, h Harness) *env {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 3*patience) // cancelled after the clean-up
	e := &env{T: t, h: h, ctx: ctx, dir: t.TempDir(), shared: t.TempDir()}
	e.d, e.close = h.Open(t, e.dir)
	t.Cleanup(func() {
		defer cancel()
		e.endAll()
		e.close()
	})
	return e
}

// endAll leaves nothing behind, whatever the test did.
func (e *env) endAll() {
	list, err := e.d.List(context.Background())
	if err != nil {
		e.Errorf("list: %v", err)
	}
	for _, w := range list {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		if _, err := e.d.Stop(ctx, w.Instance, 0); err != nil {
			e.Errorf("clean up: %v", err)
		}
		if err := e.d.Remove(ctx, w.Instance); err != nil {
			e.Errorf("clean up: %v", err)
		}
		cancel()
	}
}

// reopen replaces the driver by a new one over the same state, as a restarted
// agent has it.
func (e *env) reopen() {
	e.close()
	e.d, e.close = e.h.Open(e.T, e.dir)
}

var uids atomic.Int64

// request makes a request for a run of name with the workload's args.
func (e *env) request(name string, args ...string) runtime.StartRequest {
	return e.requestSpec(name, e.h.Spec(e.T, e.shared, args...))
}

func (e *env) requestSpec(name string, spec fleet.Spec) runtime.StartRequest {
	uid := fmt.Sprintf("uid-%d", uids.Add(1))
	return runtime.StartRequest{
		Ref: runtime.Ref{
			Instance: runtime.InstanceID(name, uid, 7, 0), NodeID: "n-suite", NodeName: "suite",
			Name: name, UID: uid, Generation: 3, Epoch: 7, Incarnation: 2, StopOnLoss: true,
		},
		Spec: spec.WithDefaults(),
	}
}

func (e *env) start(name string, args ...string) runtime.Workload {
	e.Helper()
	w, err := e.d.Start(e.ctx, e.request(name, args...))
	if err != nil {
		e.Fatalf("start %s: %v", name, err)
	}
	return w
}

// get returns a run from the list.
func (e *env) get(instance string) (runtime.Workload, bool) {
	e.Helper()
	list, err := e.d.List(e.ctx)
	if err != nil {
		e.Fatalf("list: %v", err)
	}
	for _, w := range list {
		if w.Instance == instance {
			return w, true
		}
	}
	return runtime.Workload{}, false
}

// ended waits until a run is dead.
func (e *env) ended(instance string) runtime.Workload {
	e.Helper()
	ctx, cancel := context.WithTimeout(e.ctx, patience)
	defer cancel()
	done := make(chan struct{}, 1)
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		// Its error is ctx's.
		_ = e.d.Watch(ctx, func(w runtime.Workload) {
			if w.Instance == instance {
				select {
				case done <- struct{}{}:
				default:
				}
			}
		})
	}()
	defer func() { cancel(); <-stopped }()
	// The watch may have begun after the end: look as well, and again, for
	// calls may be lost.
	for {
		if w, ok := e.get(instance); !ok {
			e.Fatalf("run %s is not listed", instance)
		} else if w.State.Dead() {
			return w
		}
		select {
		case <-done:
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			w, _ := e.get(instance)
			e.Fatalf("run %s did not end: %+v", instance, w)
		}
	}
}

func (e *env) stop(instance string, grace time.Duration) runtime.Workload {
	e.Helper()
	w, err := e.d.Stop(e.ctx, instance, grace)
	if err != nil {
		e.Fatalf("stop: %v", err)
	}
	if !w.State.Dead() || w.Exit == nil {
		e.Fatalf("stopped run is %s with exit %v", w.State, w.Exit)
	}
	return w
}

// logs returns the output of a run, as it is now.
func (e *env) logs(req runtime.LogRequest) (stdout, stderr string) {
	e.Helper()
	var o, s bytes.Buffer
	req.Stdout, req.Stderr = &o, &s
	if err := e.d.Logs(e.ctx, req); err != nil {
		e.Fatalf("logs: %v", err)
	}
	return o.String(), s.String()
}

// waitOutput follows a run's output until a line begins with prefix, and
// returns the rest of that line.
func (e *env) waitOutput(w runtime.Workload, prefix string) string {
	e.Helper()
	ctx, cancel := context.WithTimeout(e.ctx, patience)
	defer cancel()
	out := &lineWriter{prefix: prefix, found: cancel}
	err := e.d.Logs(ctx, runtime.LogRequest{Name: w.Name, Instance: w.Instance, Tail: -1, Follow: true, Stdout: out})
	if out.rest == nil {
		e.Fatalf("run %s: no line %q in its output (%v)", w.Instance, prefix, err)
	}
	return *out.rest
}

// lineWriter looks for a line.
type lineWriter struct {
	prefix string
	found  func()
	buf    []byte
	rest   *string
}

func (l *lineWriter) Write(p []byte) (int, error) {
	l.buf = append(l.buf, p...)
	for l.rest == nil {
		line, rest, ok := bytes.Cut(l.buf, []byte{'\n'})
		if !ok {
			break
		}
		l.buf = rest
		if s, ok := strings.CutPrefix(string(line), l.prefix); ok {
			l.rest = &s
			l.found()
		}
	}
	return len(p), nil
}

// lines reads the whole lines of a file that a workload writes.
func (e *env) lines(path string) []string {
	b, err := os.ReadFile(path)
	if err != nil && !os.IsNotExist(err) {
		e.Fatal(err)
	}
	return strings.Split(strings.TrimSuffix(string(b), "\n"), "\n")
}

// waitCount waits until the counter in path has reached n.
func (e *env) waitCount(path string, n int) int {
	e.Helper()
	deadline := time.Now().Add(patience)
	for {
		if c := e.count(path); c >= n {
			return c
		}
		if time.Now().After(deadline) {
			e.Fatalf("counter %s stands at %d, want %d", filepath.Base(path), e.count(path), n)
		}
		time.Sleep(5 * time.Millisecond) // a file on any file system, also inside an image
	}
}

// count returns the last number that a counting workload wrote.
func (e *env) count(path string) int {
	all := e.lines(path)
	n, err := strconv.Atoi(all[len(all)-1])
	if err != nil {
		return 0
	}
	return n
}

func (e *env) path(name string) string { return filepath.Join(e.shared, name) }

// noProcesses fails unless a run has none.
func (e *env) noProcesses(instance string) {
	e.Helper()
	if pids := e.h.Processes(e.T, e.d, instance); len(pids) > 0 {
		e.Errorf("processes %v of run %s are alive", pids, instance)
	}
}
