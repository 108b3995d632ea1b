//go:build linux

package runtimetest

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"syscall"
	"time"

	"github.com/barista-fleet/barista/pkg/reconcile"
	"github.com/barista-fleet/barista/pkg/runtime"
)

func testStartAndExit(e *env) {
	req := e.request("web", "-for", "-1s", "-echo", "ready")
	w, err := e.d.Start(e.ctx, req)
	if err != nil {
		e.Fatal(err)
	}
	if w.State != runtime.StateRunning || w.Pid == 0 || w.Started.IsZero() || w.Exit != nil {
		e.Errorf("started run: %+v", w)
	}
	if w.Ref != req.Ref {
		e.Errorf("ref is %+v, want %+v", w.Ref, req.Ref)
	}
	if listed, ok := e.get(w.Instance); !ok || listed.Ref != req.Ref || listed.State != runtime.StateRunning {
		e.Errorf("listed run: %+v", listed)
	}
	e.waitOutput(w, "ready") // before that, SIGTERM ends it as any program
	w = e.stop(w.Instance, patience)
	if w.State != runtime.StateExited || w.Exit.Code != 0 || w.Exit.Signal != 0 {
		e.Errorf("a run that obeys SIGTERM ended with %+v", w.Exit)
	}
	if w.Exit.At.Before(w.Started) || time.Since(w.Exit.At) > patience {
		e.Errorf("ended at %v, started at %v", w.Exit.At, w.Started)
	}
	if err := e.d.Remove(e.ctx, w.Instance); err != nil {
		e.Error(err)
	}
	if w, ok := e.get(w.Instance); ok {
		e.Errorf("removed run is listed: %+v", w)
	}
}

func testExitCodes(e *env) {
	for _, code := range []int{0, 1, 7, 255} {
		w := e.start(fmt.Sprintf("exit-%d", code), "-exit", fmt.Sprint(code))
		w = e.ended(w.Instance)
		if w.State != runtime.StateExited || w.Exit.Code != code || w.Exit.Signal != 0 || w.Exit.Lost || w.Exit.OOM {
			e.Errorf("exit code %d is reported as %s %+v", code, w.State, w.Exit)
		}
	}
	for _, sig := range []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM} {
		w := e.start(fmt.Sprintf("signal-%d", sig), "-kill-self", fmt.Sprint(int(sig)))
		w = e.ended(w.Instance)
		if w.State != runtime.StateExited || w.Exit.Signal != int(sig) || w.Exit.Code != 128+int(sig) || w.Exit.OOM {
			e.Errorf("end by %v is reported as %s %+v", sig, w.State, w.Exit)
		}
	}
}

func testStartIdempotent(e *env) {
	history := e.path("history")
	req := e.request("once", "-history", history, "-for", "-1s")
	const callers = 8
	var wg sync.WaitGroup
	pids := make([]int, callers)
	for i := range callers {
		wg.Go(func() {
			w, err := e.d.Start(e.ctx, req)
			if err != nil {
				e.Errorf("start %d: %v", i, err)
			}
			pids[i] = w.Pid
		})
	}
	wg.Wait()
	for _, pid := range pids {
		if pid != pids[0] || pid == 0 {
			e.Fatalf("one instance has several first processes: %v", pids)
		}
	}
	e.waitLines(history, 1)
	first := e.stop(req.Instance, patience)
	// Also a dead run is not started again, and says how it ended.
	again, err := e.d.Start(e.ctx, req)
	if err != nil || again.State != first.State || again.Exit == nil || !reflect.DeepEqual(again.Exit, first.Exit) {
		e.Errorf("start of a dead run: %+v, %v; want %+v", again, err, first)
	}
	if got := e.lines(history); len(got) != 2 {
		e.Errorf("history of one start and one stop: %q", got)
	}
}

// waitLines waits for a number of lines in a file.
func (e *env) waitLines(path string, n int) {
	e.Helper()
	deadline := time.Now().Add(patience)
	for len(e.lines(path)) < n || e.lines(path)[0] == "" {
		if time.Now().After(deadline) {
			e.Fatalf("%s: %q, want %d lines", path, e.lines(path), n)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func testStartFails(e *env) {
	req := e.requestSpec("ghost", e.h.MissingProgram(e.T))
	_, err := e.d.Start(e.ctx, req)
	if !errors.Is(err, reconcile.ErrSpec) {
		e.Fatalf("start of a missing program: %v, want ErrSpec", err)
	}
	if w, ok := e.get(req.Instance); ok {
		e.Errorf("a run that failed to start is listed: %+v", w)
	}
	e.noProcesses(req.Instance)
	// The same instance may be tried again, and with a good spec it runs.
	req.Spec = e.h.Spec(e.T, e.shared, "-exit", "3").WithDefaults()
	if _, err := e.d.Start(e.ctx, req); err != nil {
		e.Fatal(err)
	}
	if w := e.ended(req.Instance); w.Exit.Code != 3 {
		e.Errorf("exit %+v, want code 3", w.Exit)
	}
	ctx, cancel := context.WithCancel(e.ctx)
	cancel()
	if _, err := e.d.Start(ctx, e.request("late")); !errors.Is(err, context.Canceled) {
		e.Errorf("start with an ended context: %v", err)
	}
}

func testUnknown(e *env) {
	id := runtime.InstanceID("nobody", "u", 1, 0)
	_, err := e.d.Stop(e.ctx, id, time.Second)
	checkIs(e, "stop", err, reconcile.ErrNoInstance)
	_, err = e.d.Pause(e.ctx, id)
	checkIs(e, "pause", err, reconcile.ErrNoInstance)
	checkIs(e, "resume", e.d.Resume(e.ctx, id), reconcile.ErrNoInstance)
	checkIs(e, "set epoch", e.d.SetEpoch(e.ctx, id, 9, 9), reconcile.ErrNoInstance)
	checkIs(e, "logs", e.d.Logs(e.ctx, runtime.LogRequest{Name: "nobody"}), reconcile.ErrNoInstance)
	if err := e.d.Remove(e.ctx, id); err != nil {
		e.Errorf("remove of an unknown run: %v", err)
	}
}

func checkIs(e *env, what string, err, want error) {
	e.Helper()
	if !errors.Is(err, want) {
		e.Errorf("%s: %v, want %v", what, err, want)
	}
}

func testStopGrace(e *env) {
	counter := e.path("count")
	w := e.start("polite", "-for", "-1s", "-exit", "4", "-tick", "5ms", "-counter", counter)
	e.waitCount(counter, 1)
	begin := time.Now()
	w = e.stop(w.Instance, patience)
	if w.Exit.Code != 4 || w.Exit.Signal != 0 {
		e.Errorf("exit %+v, want the code it chose on SIGTERM", w.Exit)
	}
	if d := time.Since(begin); d > patience/2 {
		e.Errorf("stop took %v of its grace of %v though the run had ended", d, patience)
	}
}

func testStopKills(e *env) {
	counter := e.path("count")
	w := e.start("stubborn", "-for", "-1s", "-ignore-term", "-tick", "5ms", "-counter", counter)
	e.waitCount(counter, 1)
	const grace = 300 * time.Millisecond
	begin := time.Now()
	w = e.stop(w.Instance, grace)
	if d := time.Since(begin); d < grace {
		e.Errorf("killed after %v, before its grace of %v", d, grace)
	}
	if w.Exit.Signal != int(syscall.SIGKILL) || w.Exit.Code != 137 || w.Exit.OOM {
		e.Errorf("exit %+v, want SIGKILL", w.Exit)
	}
	e.noProcesses(w.Instance)
}

func testStopTree(e *env) {
	for _, grace := range []time.Duration{0, 100 * time.Millisecond} {
		counter := e.path(fmt.Sprintf("count-%v", grace))
		w := e.start("family", "-grandchild", "-ignore-term", "-for", "-1s", "-tick", "5ms", "-counter", counter)
		e.waitOutput(w, "grandchild ")
		e.waitCount(counter, 3)
		// The process between them has said its word before it is quite gone.
		pids := e.h.Processes(e.T, e.d, w.Instance)
		for deadline := time.Now().Add(patience); len(pids) != 2 && time.Now().Before(deadline); {
			time.Sleep(5 * time.Millisecond)
			pids = e.h.Processes(e.T, e.d, w.Instance)
		}
		if len(pids) != 2 {
			e.Errorf("run has processes %v, want itself and its grandchild", pids)
		}
		e.stop(w.Instance, grace)
		e.noProcesses(w.Instance)
		n := len(e.lines(counter))
		time.Sleep(50 * time.Millisecond) // ten ticks of one that survived
		if now := len(e.lines(counter)); now != n {
			e.Errorf("something of the stopped run still writes: %d lines, then %d", n, now)
		}
	}
}

// testTreeEnds: a run ends with its first process, and what that has left
// behind ends with it.
func testTreeEnds(e *env) {
	w := e.start("daemon", "-grandchild", "-exit", "5")
	w = e.ended(w.Instance)
	if w.Exit.Code != 5 {
		e.Errorf("exit %+v, want code 5", w.Exit)
	}
	e.noProcesses(w.Instance)
}

func testStopIdempotent(e *env) {
	w := e.start("twice", "-exit", "6")
	w = e.ended(w.Instance)
	for range 2 {
		if again := e.stop(w.Instance, time.Second); !reflect.DeepEqual(again.Exit, w.Exit) {
			e.Errorf("stop of a dead run changed its exit from %+v to %+v", w.Exit, again.Exit)
		}
	}
}

func testConcurrentStop(e *env) {
	w := e.start("crowd", "-for", "-1s", "-ignore-term")
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			_, err := e.d.Stop(e.ctx, w.Instance, time.Duration(i)*50*time.Millisecond)
			if err != nil && !errors.Is(err, reconcile.ErrNoInstance) {
				e.Errorf("stop: %v", err)
			}
			if err := e.d.Remove(e.ctx, w.Instance); err != nil {
				e.Errorf("remove of a stopped run: %v", err)
			}
		})
	}
	wg.Wait()
	if w, ok := e.get(w.Instance); ok {
		e.Errorf("removed run is listed: %+v", w)
	}
	e.noProcesses(w.Instance)
}

func testRemoveAlive(e *env) {
	w := e.start("alive", "-for", "-1s")
	if err := e.d.Remove(e.ctx, w.Instance); err == nil {
		e.Error("a running run was removed")
	}
	if w, ok := e.get(w.Instance); !ok || w.State != runtime.StateRunning {
		e.Errorf("after a refused removal the run is %+v", w)
	}
}
