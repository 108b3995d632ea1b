package agent

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/barista-fleet/barista/internal/bucket"
	"github.com/barista-fleet/barista/internal/bucket/buckettest"
	"github.com/barista-fleet/barista/pkg/fleet"
	"github.com/barista-fleet/barista/pkg/reconcile"
	"github.com/barista-fleet/barista/pkg/runtime"
)

// talker is a runtime whose runs have all ended, each with the same output.
type talker struct {
	reconcile.Runtime
	runs   []runtime.Workload
	output string
}

func (t *talker) Watch(_ context.Context, changed func(runtime.Workload)) error {
	for _, r := range t.runs {
		changed(r)
	}
	return errors.New("that was all")
}

func (t *talker) Logs(_ context.Context, req runtime.LogRequest) error {
	_, err := req.Stdout.Write([]byte(t.output))
	return err
}

// away is a store that does not answer while it is away.
type away struct {
	bucket.Store
	gone bool
}

func (a *away) Put(ctx context.Context, key string, body []byte, cond bucket.Condition) bucket.PutResult {
	if a.gone {
		return bucket.PutResult{Err: bucket.ErrUnreachable}
	}
	return a.Store.Put(ctx, key, body, cond)
}

func TestEndOfOutputIsKeptOnRequest(t *testing.T) {
	run := func(name string, keep bool, state runtime.State) runtime.Workload {
		return runtime.Workload{
			Ref:   runtime.Ref{Name: name, Instance: "b-" + name, Epoch: 3, Attempt: 2, KeepLogs: keep},
			State: state, Exit: &fleet.Exit{Code: 1, Reason: "bad \xff byte"},
		}
	}
	long := strings.Repeat("0123456789abcde\n", fleet.MaxRunLog/16) + "the end\n"
	rt := &talker{output: long, runs: []runtime.Workload{
		run("asked", true, runtime.StateExited), run("lost", true, runtime.StateLost),
		run("silent", false, runtime.StateExited), run("alive", true, runtime.StateRunning),
	}}
	store := &away{Store: buckettest.NewMem(), gone: true}
	k := newKeptLogs(rt, rt, store, "ada", func(string, ...any) {})
	seen := 0
	for range 2 { // a watch that breaks and begins again tells all of it again
		_ = k.Watch(t.Context(), func(runtime.Workload) { seen++ })
	}
	if seen != 8 {
		t.Errorf("the reconciler was told %d times, want 8", seen)
	}
	if err := k.flush(t.Context()); !errors.Is(err, bucket.ErrUnreachable) {
		t.Errorf("with the bucket away: %v", err)
	}
	store.gone = false
	if err := k.flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	listing, err := store.List(t.Context(), fleet.PrefixLogs)
	if err != nil || len(listing.Entries) != 2 {
		t.Fatalf("kept %+v, %v; want asked and lost", listing.Entries, err)
	}
	l, err := fleet.NewClient(store, fleet.ClientConfig{}).KeptLog(t.Context(), "asked", false)
	if err != nil {
		t.Fatal(err)
	}
	want := []byte(long[len(long)-fleet.MaxRunLog:])
	if !bytes.Equal(l.Output, want) || l.Dropped != int64(len(long)-fleet.MaxRunLog) || l.NodeName != "ada" || l.Epoch != 3 || l.Exit.Code != 1 {
		t.Errorf("kept %d bytes, %d dropped: %+v", len(l.Output), l.Dropped, l.Exit)
	}
	if err := k.flush(t.Context()); err != nil || len(k.waiting) != 0 {
		t.Errorf("%d wait after all were kept, %v", len(k.waiting), err)
	}
}
