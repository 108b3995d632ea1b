//go:build linux

package process

import (
	"context"
	"sync"

	"github.com/barista-fleet/barista/pkg/runtime"
)

// watcher collects the runs that ended for one Watch.
type watcher struct {
	mu      sync.Mutex
	pending []*run        // guarded by mu
	ready   chan struct{} // receives after pending has grown
}

// Watch calls changed with each run that has ended when it begins, and then with
// each that ends until ctx does: whoever lists first and watches then misses none.
// The calls come from one goroutine, one after the other; a slow one delays
// nothing but those after it.
func (d *Driver) Watch(ctx context.Context, changed func(runtime.Workload)) error {
	w := &watcher{ready: make(chan struct{}, 1)}
	d.mu.Lock()
	if d.closed {
		d.mu.Unlock()
		return ErrClosed
	}
	d.watchers[w] = struct{}{}
	for _, r := range d.runs {
		if r.hasEnded() {
			w.pending = append(w.pending, r)
		}
	}
	if len(w.pending) > 0 {
		w.ready <- struct{}{} // has room: nobody else knows it yet
	}
	d.mu.Unlock()
	defer func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		delete(d.watchers, w)
	}()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-d.ctx.Done():
			return ErrClosed
		case <-w.ready:
		}
		w.mu.Lock()
		runs := w.pending
		w.pending = nil
		w.mu.Unlock()
		for _, r := range runs {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			changed(d.workload(r))
		}
	}
}

// announce tells every watcher that a run has ended.
func (d *Driver) announce(r *run) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for w := range d.watchers {
		w.mu.Lock()
		w.pending = append(w.pending, r)
		w.mu.Unlock()
		select {
		case w.ready <- struct{}{}:
		default:
		}
	}
}
