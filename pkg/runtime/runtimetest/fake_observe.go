package runtimetest

import (
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/barista-fleet/barista/pkg/reconcile"
	"github.com/barista-fleet/barista/pkg/runtime"
)

// Watch implements reconcile.Runtime.
func (f *Fake) Watch(ctx context.Context, changed func(runtime.Workload)) error {
	if err := f.begin(ctx, "watch", ""); err != nil {
		return err
	}
	w := &fakeWatch{ready: make(chan struct{}, 1)}
	f.mu.Lock()
	f.watchers[w] = struct{}{}
	for instance, r := range f.runs {
		if r.w.State.Dead() {
			w.pending = append(w.pending, instance)
		}
	}
	slices.Sort(w.pending)
	if len(w.pending) > 0 {
		w.ready <- struct{}{} // has room: nobody else knows it yet
	}
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.watchers, w)
	}()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-w.ready:
		}
		f.mu.Lock()
		var seen []runtime.Workload
		for _, instance := range w.pending {
			if r := f.runs[instance]; r != nil {
				seen = append(seen, f.seenLocked(r))
			}
		}
		w.pending = nil
		f.mu.Unlock()
		for _, s := range seen {
			changed(s)
		}
	}
}

// Info implements reconcile.Runtime.
func (f *Fake) Info() runtime.Info {
	return runtime.Info{Driver: "fake", Isolation: "complete: nothing runs", Capabilities: []string{"pause:frozen"}}
}

// Logs implements reconcile.LogReader: it shows the script's Output of the
// newest run of the name.
func (f *Fake) Logs(ctx context.Context, req runtime.LogRequest) error {
	if err := f.begin(ctx, "logs", req.Instance); err != nil {
		return err
	}
	f.mu.Lock()
	var newest *fakeRun
	for _, r := range f.runs {
		if r.w.Name == req.Name && (req.Instance == "" || r.w.Instance == req.Instance) &&
			(newest == nil || r.w.Started.After(newest.w.Started)) {
			newest = r
		}
	}
	f.mu.Unlock()
	if newest == nil || req.Previous {
		return fmt.Errorf("logs of %s: %w", req.Name, reconcile.ErrNoInstance)
	}
	if req.Stdout != nil {
		if _, err := io.WriteString(req.Stdout, newest.script.Output); err != nil {
			return err
		}
	}
	if req.Follow {
		select {
		case <-newest.ended:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}
