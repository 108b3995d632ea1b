package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/barista-fleet/barista/internal/bucket"
	"github.com/barista-fleet/barista/pkg/fleet"
	"github.com/barista-fleet/barista/pkg/lease"
	"github.com/barista-fleet/barista/pkg/reconcile"
	"github.com/barista-fleet/barista/pkg/runtime"
)

const (
	// keepLines bounds how much of a run's output is looked at for its end.
	keepLines = 10_000
	// keepRetry is the wait after an upload that failed.
	keepRetry = 5 * time.Second
	// keepWaiting bounds the runs whose output waits for a bucket that does not
	// answer. Beyond it the oldest are left where they are, on this node.
	keepWaiting = 256
)

// keptLogs is a runtime that puts the end of the output of each run that asks for it
// into the bucket when the run has ended. It is best effort: nothing waits for it.
type keptLogs struct {
	reconcile.Runtime
	logs  reconcile.LogReader
	store bucket.Store
	node  string
	warn  func(msg string, args ...any)

	ready chan struct{} // holds one element when something waits

	mu      sync.Mutex
	waiting []runtime.Workload // guarded by mu
	done    map[string]bool    // by instance; guarded by mu
}

func newKeptLogs(rt reconcile.Runtime, logs reconcile.LogReader, store bucket.Store, node string, warn func(string, ...any)) *keptLogs {
	return &keptLogs{Runtime: rt, logs: logs, store: store, node: node, warn: warn, ready: make(chan struct{}, 1), done: map[string]bool{}}
}

// Watch implements reconcile.Runtime.
func (k *keptLogs) Watch(ctx context.Context, changed func(runtime.Workload)) error {
	return k.Runtime.Watch(ctx, func(w runtime.Workload) {
		changed(w)
		k.ended(w)
	})
}

// Remove implements reconcile.Runtime.
func (k *keptLogs) Remove(ctx context.Context, instance string) error {
	return k.forget(instance, k.Runtime.Remove(ctx, instance))
}

// Keep implements reconcile.Keeper.
func (k *keptLogs) Keep(ctx context.Context, instance string) error {
	keeper, ok := k.Runtime.(reconcile.Keeper)
	if !ok {
		return k.Remove(ctx, instance)
	}
	return k.forget(instance, keeper.Keep(ctx, instance))
}

// forget is told of the removal of a run: if it succeeded the run is not watched any
// more.
func (k *keptLogs) forget(instance string, err error) error {
	if err == nil {
		k.mu.Lock()
		delete(k.done, instance)
		k.mu.Unlock()
	}
	return err
}

func (k *keptLogs) ended(w runtime.Workload) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !w.KeepLogs || !w.State.Dead() || k.done[w.Instance] {
		return
	}
	k.done[w.Instance] = true
	k.waiting = append(k.waiting, w)
	if len(k.waiting) > keepWaiting {
		k.waiting = k.waiting[1:]
	}
	select {
	case k.ready <- struct{}{}:
	default: // it is awake
	}
}

// run uploads until ctx ends.
func (k *keptLogs) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-k.ready:
		}
		for ctx.Err() == nil {
			err := k.flush(ctx)
			if err == nil {
				break
			}
			k.warn("the output of a run waits to be kept in the bucket", "err", err)
			select {
			case <-ctx.Done():
			case <-time.After(keepRetry):
			}
		}
	}
}

// flush uploads what waits, until something cannot be.
func (k *keptLogs) flush(ctx context.Context) error {
	for {
		k.mu.Lock()
		if len(k.waiting) == 0 {
			k.mu.Unlock()
			return nil
		}
		w := k.waiting[0]
		k.mu.Unlock()
		if err := k.upload(ctx, w); err != nil {
			return err
		}
		k.mu.Lock()
		if len(k.waiting) > 0 && k.waiting[0].Instance == w.Instance {
			k.waiting = k.waiting[1:]
		}
		k.mu.Unlock()
	}
}

func (k *keptLogs) upload(ctx context.Context, w runtime.Workload) error {
	tail := &tailWriter{most: fleet.MaxRunLog}
	err := k.logs.Logs(ctx, runtime.LogRequest{Name: w.Name, Instance: w.Instance, Tail: keepLines, Stdout: tail, Stderr: tail})
	if errors.Is(err, reconcile.ErrNoInstance) {
		return nil // nothing of it is kept here any more
	}
	if err != nil {
		return fmt.Errorf("read the output of %s: %w", w.Name, err)
	}
	rec := fleet.RunLog{
		Head: fleet.Head{Schema: fleet.Schema, Nonce: fleet.NewNonce()},
		Name: w.Name, Epoch: w.Epoch, Attempt: w.Attempt, Instance: w.Instance, NodeName: k.node, Exit: w.Exit,
		Dropped: tail.dropped, Output: tail.kept,
	}
	if w.Exit != nil {
		exit := *w.Exit
		exit.Reason = fleet.Sentence(exit.Reason)
		rec.Exit, rec.Ended = &exit, exit.At
	}
	body, err := fleet.Encode(&rec)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, lease.DefaultCall)
	defer cancel()
	// Nobody decides by it, and nobody else writes it: the epoch was this node's.
	r := k.store.Put(ctx, fleet.RunLogKey(w.Name, w.Epoch), body, bucket.Unconditional())
	if r.Outcome != bucket.Applied {
		return fmt.Errorf("keep the output of %s: %w", w.Name, r.Err)
	}
	return nil
}

// tailWriter keeps the last bytes that were written to it.
type tailWriter struct {
	most    int
	kept    []byte
	dropped int64
}

var _ io.Writer = (*tailWriter)(nil)

func (t *tailWriter) Write(p []byte) (int, error) {
	t.kept = append(t.kept, p...)
	if over := len(t.kept) - t.most; over > 0 {
		t.dropped += int64(over)
		t.kept = append(t.kept[:0], t.kept[over:]...)
	}
	return len(p), nil
}
