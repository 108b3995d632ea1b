//go:build linux

package runtimetest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/barista-fleet/barista/pkg/fleet"
	"github.com/barista-fleet/barista/pkg/runtime"
)

func testEnvironment(e *env) {
	e.Setenv("AWS_SECRET_ACCESS_KEY", "the agent's own")
	e.Setenv("SOME_SETTING_OF_THE_AGENT", "1")
	req := e.request("env", "-print-env")
	req.Spec.Env = map[string]string{"GREETING": "hello world", "EMPTY": ""}
	req.Spec.Payload = []byte("do this\n")
	w, err := e.d.Start(e.ctx, req)
	if err != nil {
		e.Fatal(err)
	}
	e.ended(w.Instance)
	out, _ := e.logs(runtime.LogRequest{Name: "env", Tail: -1})
	env := make(map[string]string)
	for line := range strings.Lines(out) {
		k, v, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
		env[k] = v
	}
	for k, want := range map[string]string{
		"GREETING": "hello world", "EMPTY": "",
		"BARISTA_NAME": "env", "BARISTA_NODE": "n-suite", "BARISTA_EPOCH": "7",
		"BARISTA_UID": req.UID, "BARISTA_INSTANCE": req.Instance,
	} {
		if got, ok := env[k]; !ok || got != want {
			e.Errorf("%s=%q (set: %v), want %q", k, got, ok, want)
		}
	}
	for _, k := range []string{"PATH", "HOME", "TMPDIR", "BARISTA_EPOCH_FILE", "BARISTA_PAYLOAD"} {
		if env[k] == "" {
			e.Errorf("%s is not set", k)
		}
	}
	for _, k := range []string{"AWS_SECRET_ACCESS_KEY", "SOME_SETTING_OF_THE_AGENT"} {
		if v, ok := env[k]; ok {
			e.Errorf("the agent's %s=%q reached the workload", k, v)
		}
	}
	req = e.request("payload", "-print-file", "BARISTA_PAYLOAD")
	req.Spec.Payload = []byte("do this\n")
	if w, err = e.d.Start(e.ctx, req); err != nil {
		e.Fatal(err)
	}
	if got := e.waitOutput(w, "do "); got != "this" {
		e.Errorf("payload read by the workload ends with %q", got)
	}
}

func testSetEpoch(e *env) {
	gate := e.path("gate")
	w := e.start("fenced", "-until-file", gate, "-history", e.path("history"))
	if err := e.d.SetEpoch(e.ctx, w.Instance, 9, 4); err != nil {
		e.Fatal(err)
	}
	check := func(when string) {
		e.Helper()
		got, _ := e.get(w.Instance)
		if got.Epoch != 9 || got.Incarnation != 4 {
			e.Errorf("%s: epoch %d and incarnation %d, want 9 and 4", when, got.Epoch, got.Incarnation)
		}
		if got.Pid != w.Pid {
			e.Errorf("%s: the run was restarted", when)
		}
	}
	check("after SetEpoch")
	if err := e.d.SetEpoch(e.ctx, w.Instance, 8, 5); err == nil {
		e.Error("an epoch went back")
	}
	check("after a lower epoch")
	e.reopen()
	check("after a restart")

	// What the workload reads is the new one.
	reader := e.request("reader", "-for", "-1s")
	if _, err := e.d.Start(e.ctx, reader); err != nil {
		e.Fatal(err)
	}
	if got := e.epochFile(reader.Instance); got != "7\n" {
		e.Errorf("epoch file at the start: %q", got)
	}
	for epoch := uint64(10); epoch < 30; epoch++ {
		if err := e.d.SetEpoch(e.ctx, reader.Instance, epoch, 1); err != nil {
			e.Fatal(err)
		}
		if got := e.epochFile(reader.Instance); got != fmt.Sprintf("%d\n", epoch) {
			e.Errorf("epoch file after SetEpoch to %d: %q", epoch, got)
		}
	}
}

func testNames(e *env) {
	for _, name := range []string{"a", "a.b_c-d", strings.Repeat("x", fleet.MaxName)} {
		w := e.start(name, "-echo", "hello from "+name)
		e.ended(w.Instance)
		if out, _ := e.logs(runtime.LogRequest{Name: name, Tail: -1}); out != "hello from "+name+"\n" {
			e.Errorf("output of %s: %q", name, out)
		}
	}
}

func testQuickRuns(e *env) {
	var wg sync.WaitGroup
	limit := make(chan struct{}, 8)
	for i := range e.h.QuickRuns {
		wg.Go(func() {
			limit <- struct{}{}
			defer func() { <-limit }()
			name := fmt.Sprintf("quick-%d", i)
			w, err := e.d.Start(e.ctx, e.request(name, "-exit", fmt.Sprint(i%100), "-echo", name))
			if err != nil {
				e.Errorf("start %s: %v", name, err)
				return
			}
			// Stop waits for the end, whoever brings it about: with a long
			// grace that is the run itself, unless it was told before it looked.
			_, err = e.d.Stop(e.ctx, w.Instance, patience)
			if err != nil {
				e.Errorf("stop %s: %v", name, err)
			}
		})
	}
	wg.Wait()
	list, err := e.d.List(e.ctx)
	if err != nil {
		e.Fatal(err)
	}
	if len(list) != e.h.QuickRuns {
		e.Errorf("%d runs are listed, want %d", len(list), e.h.QuickRuns)
	}
	for _, w := range list {
		if w.State != runtime.StateExited {
			e.Errorf("%s is %s", w.Name, w.State)
		}
	}
}

func testCPU(e *env) {
	gate := e.path("gate")
	w := e.start("busy", "-burn", "400", "-echo", "burnt", "-until-file", gate)
	e.waitOutput(w, "burnt")
	live, _ := e.get(w.Instance)
	dead := e.stop(w.Instance, patience)
	for _, got := range []int64{live.CPUMillis, dead.CPUMillis, dead.Exit.CPUMsec} {
		if got < 350 || got > 2000 {
			e.Errorf("CPU %d ms while alive, %d and %d after, want about 400", live.CPUMillis, dead.CPUMillis, dead.Exit.CPUMsec)
			break
		}
	}
}

func testWatch(e *env) {
	ctx, cancel := context.WithCancel(e.ctx)
	seen := make(chan runtime.Workload, 64)
	result := make(chan error, 1)
	go func() { result <- e.d.Watch(ctx, func(w runtime.Workload) { seen <- w }) }()
	gate := e.path("gate")
	w := e.start("watched", "-until-file", gate, "-exit", "3")
	select {
	case early := <-seen:
		e.Errorf("told of %+v, which runs", early)
	case <-time.After(50 * time.Millisecond):
	}
	writeFile(e.T, gate)
	select {
	case got := <-seen:
		if got.Instance != w.Instance || got.State != runtime.StateExited || got.Exit.Code != 3 {
			e.Errorf("told of %+v", got)
		}
	case <-time.After(patience):
		e.Error("not told of a run that ended")
	}
	cancel()
	if err := <-result; !errors.Is(err, context.Canceled) {
		e.Errorf("watch returned %v", err)
	}

	// A watch that begins late tells of what ended before it: an agent lists, and
	// watches then.
	ctx, cancel = context.WithCancel(e.ctx)
	defer cancel()
	late := make(chan runtime.Workload, 64)
	go func() { result <- e.d.Watch(ctx, func(w runtime.Workload) { late <- w }) }()
	select {
	case got := <-late:
		if got.Instance != w.Instance || got.Exit == nil || got.Exit.Code != 3 {
			e.Errorf("a late watch told of %+v", got)
		}
	case <-time.After(patience):
		e.Error("a late watch was not told of a run that had ended before it")
	}
	cancel()
	if err := <-result; !errors.Is(err, context.Canceled) {
		e.Errorf("the late watch returned %v", err)
	}
}

func writeFile(t *testing.T, path string) {
	t.Helper()
	if err := touch(path); err != nil {
		t.Fatal(err)
	}
}
