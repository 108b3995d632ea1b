package runtimetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/barista-fleet/barista/pkg/fleet"
	"github.com/barista-fleet/barista/pkg/reconcile"
	"github.com/barista-fleet/barista/pkg/runtime"
	"github.com/barista-fleet/barista/pkg/runtime/runtimetest/history"
)

func fakeRequest(name string, attempt int) runtime.StartRequest {
	return runtime.StartRequest{Ref: runtime.Ref{
		Instance: runtime.InstanceID(name, "u", 1, attempt), Name: name, UID: "u", Epoch: 1, NodeID: "n-fake",
	}}
}

func TestFakeScript(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		f := NewFake()
		broken := errors.New("disk on fire")
		f.Scripts = func(req runtime.StartRequest) Script {
			switch req.Name {
			case "slow":
				return Script{StartTakes: time.Minute}
			case "broken":
				return Script{StartErr: broken, StartTakes: time.Second}
			case "job":
				return Script{ExitAfter: 10 * time.Second, Exit: fleet.Exit{Code: 3}, CPU: 0.5}
			case "stubborn":
				return Script{StopTakes: time.Hour}
			}
			return Script{}
		}
		var told []string
		watching := make(chan struct{})
		go func() {
			defer close(watching)
			if err := f.Watch(ctx, func(w runtime.Workload) { told = append(told, w.Name) }); !errors.Is(err, context.Canceled) {
				t.Errorf("watch returned %v", err)
			}
		}()

		begin := time.Now()
		if _, err := f.Start(ctx, fakeRequest("broken", 0)); !errors.Is(err, broken) || time.Since(begin) != time.Second {
			t.Errorf("broken start: %v after %v", err, time.Since(begin))
		}
		short, stop := context.WithTimeout(ctx, time.Second)
		defer stop()
		if _, err := f.Start(short, fakeRequest("slow", 0)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("slow start: %v", err)
		}
		if len(f.Alive("slow")) != 0 {
			t.Error("slow run is alive before its time")
		}
		if w, err := f.Start(ctx, fakeRequest("slow", 0)); err != nil || w.State != runtime.StateRunning || time.Since(begin) != time.Second+time.Minute {
			t.Errorf("slow start, waited for: %+v, %v after %v", w, err, time.Since(begin))
		}

		job := fakeRequest("job", 0)
		mustStart(t, f, job)
		time.Sleep(4 * time.Second)
		if _, err := f.Pause(ctx, job.Instance); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Hour)
		if w := f.Alive("job"); len(w) != 1 || w[0].State != runtime.StatePaused || w[0].CPUMillis != 2000 {
			t.Errorf("paused job: %+v", w)
		}
		if err := f.Resume(ctx, job.Instance); err != nil {
			t.Error(err)
		}
		time.Sleep(6*time.Second - 1)
		if len(f.Alive("job")) != 1 {
			t.Error("the job ended too early: its pause was counted")
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		w, err := f.Stop(ctx, job.Instance, time.Second)
		if err != nil || w.Exit == nil || w.Exit.Code != 3 || w.Exit.CPUMsec != 5000 {
			t.Errorf("ended job: %+v %+v, %v", w, w.Exit, err)
		}

		mustStart(t, f, fakeRequest("stubborn", 0))
		begin = time.Now()
		w, err = f.Stop(ctx, fakeRequest("stubborn", 0).Instance, 5*time.Second)
		if err != nil || w.Exit.Signal != 9 || time.Since(begin) != 5*time.Second {
			t.Errorf("stop of a stubborn run: %+v, %v after %v", w.Exit, err, time.Since(begin))
		}
		synctest.Wait()
		cancel()
		<-watching
		if want := []string{"job", "stubborn"}; !slices.Equal(told, want) {
			t.Errorf("watch told of %v, want %v", told, want)
		}
	})
}

func mustStart(t *testing.T, f *Fake, req runtime.StartRequest) {
	t.Helper()
	if _, err := f.Start(t.Context(), req); err != nil {
		t.Fatal(err)
	}
}

func TestFakeIsIdempotentAndFaulty(t *testing.T) {
	f := NewFake()
	req := fakeRequest("a", 0)
	mustStart(t, f, req)
	mustStart(t, f, req)
	if got := len(f.History()); got != 1 {
		t.Errorf("%d history lines after one instance was started twice", got)
	}
	if f.Calls("start") != 2 {
		t.Errorf("%d calls of start", f.Calls("start"))
	}
	if err := f.Remove(t.Context(), req.Instance); err == nil {
		t.Error("a live run was removed")
	}
	f.Fault = func(op, _ string) error {
		if op == "stop" {
			return reconcile.ErrUnsupported
		}
		return nil
	}
	if _, err := f.Stop(t.Context(), req.Instance, 0); !errors.Is(err, reconcile.ErrUnsupported) {
		t.Errorf("faulty stop: %v", err)
	}
	f.Reboot()
	list, err := f.List(t.Context())
	if err != nil || len(list) != 1 || list[0].State != runtime.StateLost || !list[0].Exit.Lost {
		t.Errorf("after a reboot: %+v, %v", list, err)
	}
	if err := f.Remove(t.Context(), req.Instance); err != nil {
		t.Error(err)
	}
	if _, err := f.Pause(t.Context(), req.Instance); !errors.Is(err, reconcile.ErrNoInstance) {
		t.Errorf("pause of a removed run: %v", err)
	}
}

// TestFakeHistory shows that the history of a Fake catches a double run.
func TestFakeHistory(t *testing.T) {
	f := NewFake()
	mustStart(t, f, fakeRequest("a", 0))
	mustStart(t, f, fakeRequest("a", 1))
	f.Exit(fakeRequest("a", 0).Instance, fleet.Exit{})
	f.Exit(fakeRequest("a", 1).Instance, fleet.Exit{})
	problems := history.Check(f.History(), history.Rules{})
	if len(problems) != 1 || problems[0].Kind != history.KindOverlap {
		t.Errorf("double run: %v", problems)
	}
	g := NewFake()
	for i := range 3 {
		mustStart(t, g, fakeRequest("b", i))
		g.Exit(fakeRequest("b", i).Instance, fleet.Exit{})
	}
	if problems := history.Check(g.History(), history.Rules{}); len(problems) != 0 {
		t.Errorf("runs one after the other: %v", problems)
	}
}

func BenchmarkFakeList(b *testing.B) {
	f := NewFake()
	for i := range 10_000 {
		if _, err := f.Start(b.Context(), fakeRequest(fmt.Sprintf("name-%d", i), 0)); err != nil {
			b.Fatal(err)
		}
	}
	for b.Loop() {
		if list, err := f.List(b.Context()); err != nil || len(list) != 10_000 {
			b.Fatal(len(list), err)
		}
	}
}
