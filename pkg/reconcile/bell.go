package reconcile

import (
	"context"
	"time"

	"github.com/barista-fleet/barista/internal/bucket"
	"github.com/barista-fleet/barista/pkg/fleet"
	"github.com/barista-fleet/barista/pkg/lease"
)

// latest hands the newest of a series of values to a slow reader: what was not
// read yet is replaced.
type latest[T any] struct{ ch chan T }

// set is called by one goroutine only.
func (l *latest[T]) set(v T) {
	select {
	case l.ch <- v:
	default:
		select {
		case <-l.ch:
		default:
		}
		l.ch <- v
	}
}

func (l *latest[T]) run(ctx context.Context, f func(T)) {
	for {
		select {
		case <-ctx.Done():
			return
		case v := <-l.ch:
			f(v)
		}
	}
}

// bell writes signals/changed, at most once in ringEvery, with everything that
// was rung meanwhile. A ring that is lost costs others a resync, nothing else.
type bell struct{ ch chan lease.Ring }

// maxRung bounds the names in one signal; more would only make it larger.
const maxRung = 64

func (b *bell) ring(r lease.Ring) {
	select {
	case b.ch <- r:
	default: // a full queue rings anyway
	}
}

func (b *bell) run(ctx context.Context, store bucket.Store, call time.Duration) {
	for {
		var sig fleet.Signal
		select {
		case <-ctx.Done():
			return
		case r := <-b.ch:
			sig.Names, sig.Nodes = add(sig.Names, r.Names), add(sig.Nodes, r.Nodes)
		}
		for drained := false; !drained; {
			select {
			case r := <-b.ch:
				sig.Names, sig.Nodes = add(sig.Names, r.Names), add(sig.Nodes, r.Nodes)
			default:
				drained = true
			}
		}
		sig.Head = fleet.Head{Schema: fleet.Schema, Nonce: fleet.NewNonce()}
		if body, err := fleet.Encode(&sig); err == nil {
			cctx, cancel := context.WithTimeout(ctx, call)
			store.Put(cctx, fleet.KeySignal, body, bucket.Unconditional())
			cancel()
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(ringEvery):
		}
	}
}

func add(to, from []string) []string {
	return append(to, from[:min(len(from), max(maxRung-len(to), 0))]...)
}
