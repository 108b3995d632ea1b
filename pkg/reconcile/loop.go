package reconcile

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/barista-fleet/barista/internal/bucket"
	"github.com/barista-fleet/barista/pkg/fleet"
	"github.com/barista-fleet/barista/pkg/lease"
	"github.com/barista-fleet/barista/pkg/runtime"
)

// Bounds of what the loop has in flight.
const (
	// maxRequests bounds requests other than the node's own heartbeat and its
	// listing of nodes/, which never wait behind anything.
	maxRequests = 64
	// opTimeout bounds one operation on a run beyond its grace: a driver that
	// does not answer for this long is asked what it knows instead.
	opTimeout = 30 * time.Second
	// listFactor is how much longer than a single request a full listing may
	// take: it pages through every name.
	listFactor = 10
	// ringEvery is the least time between two writes of the signal.
	ringEvery = time.Second
	inboxSize = 256
)

// Journal makes things durable, in the order in which it is asked. Each call
// returns at once; wait blocks until the change is on disk or failed.
type Journal interface {
	Commit(b Batch) (wait func() error)
	SaveIdentity(id lease.Identity) (wait func() error)
	SaveFleet(fleetID string) (wait func() error)
}

// Loop runs a Machine: it is the only place in this package that has a clock and
// does I/O. One goroutine steps the machine; requests and operations run beside
// it and come back as inputs.
type Loop struct {
	Machine *Machine
	Store   bucket.Store
	Runtime Runtime
	Journal Journal
	Log     *slog.Logger
	Call    time.Duration // bound of one request
	// Now is the boot-time clock, Wall the wall clock.
	Now  func() lease.Instant
	Wall func() time.Time
	// Published is told of the lease as it is extended; nil: nobody.
	Published func(Publish)
	// Told is told of every event; nil: nobody.
	Told func(Event)

	inbox   chan Input
	calls   chan func(*Machine)
	slots   chan struct{}
	wg      sync.WaitGroup
	token   atomic.Pointer[Publish]
	publish latest[Publish]
	bell    bell
}

// ErrLeft is returned by Run after the node has left its fleet.
var ErrLeft = errors.New("left the fleet")

// FatalError ends the loop with a reason that an operator must act on.
type FatalError struct{ Reason string }

func (e *FatalError) Error() string { return e.Reason }

// Run drives the machine until ctx ends, the node has left, or something is
// wrong that trying again cannot mend. It writes nothing on its way out: a
// restart finds everything as it was. It returns when all it started has ended.
func (l *Loop) Run(ctx context.Context, start Start) error {
	l.init()
	ctx, cancel := context.WithCancel(ctx)
	defer l.wg.Wait()
	defer cancel()
	l.goDo(func() { l.watch(ctx) })
	l.goDo(func() { l.bell.run(ctx, l.Store, l.Call) })
	l.goDo(func() {
		l.publish.run(ctx, func(p Publish) {
			if l.Published != nil {
				l.Published(p)
			}
		})
	})
	timer := time.NewTimer(0)
	defer timer.Stop()
	var in Input = start
	for {
		if in != nil {
			for _, e := range l.Machine.Step(l.Now(), l.Wall(), in) {
				if err := l.perform(ctx, e); err != nil {
					return err
				}
			}
		}
		timer.Reset(l.untilWake())
		in = nil
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case in = <-l.inbox:
		case f := <-l.calls:
			f(l.Machine)
		case <-timer.C:
			in = Tick{}
		}
	}
}

func (l *Loop) init() {
	if l.calls == nil {
		l.Prepare()
	}
	l.slots = make(chan struct{}, maxRequests)
	l.publish.ch = make(chan Publish, 1)
	l.bell.ch = make(chan lease.Ring, inboxSize)
}

// Prepare must be called before Run where Do and Input are called from other
// goroutines.
func (l *Loop) Prepare() {
	l.calls, l.inbox = make(chan func(*Machine)), make(chan Input, inboxSize)
}

// Do calls f with the machine, between two steps.
func (l *Loop) Do(ctx context.Context, f func(*Machine)) error {
	done := make(chan struct{})
	select {
	case l.calls <- func(m *Machine) { f(m); close(done) }:
	case <-ctx.Done():
		return ctx.Err()
	}
	<-done
	return nil
}

// Input gives the machine something that happened elsewhere.
func (l *Loop) Input(ctx context.Context, in Input) { l.send(ctx, in) }

func (l *Loop) untilWake() time.Duration {
	// Never longer than this, so that a clock that jumped is noticed.
	const longest = time.Second
	wake := l.Machine.NextWake()
	if wake == lease.Never {
		return longest
	}
	return min(max(wake.Sub(l.Now()), 0), longest)
}

func (l *Loop) goDo(f func()) { l.wg.Go(f) }

func (l *Loop) send(ctx context.Context, in Input) {
	select {
	case l.inbox <- in:
	case <-ctx.Done():
	}
}

// perform starts one effect. It never blocks.
func (l *Loop) perform(ctx context.Context, e Effect) error {
	switch e := e.(type) {
	case lease.Get:
		l.request(ctx, e.Key, l.Call, func(ctx context.Context) Input {
			obj, err := l.Store.Get(ctx, e.Key, e.IfNoneMatch)
			return lease.GotObject{Op: e.Op, Object: obj, Err: err}
		})
	case lease.Put:
		l.request(ctx, e.Key, l.Call, func(ctx context.Context) Input {
			return lease.PutDone{Op: e.Op, Result: l.Store.Put(ctx, e.Key, e.Body, e.Cond)}
		})
	case lease.List:
		l.request(ctx, e.Prefix, listFactor*l.Call, func(ctx context.Context) Input {
			listing, err := l.Store.List(ctx, e.Prefix)
			return lease.Listed{Op: e.Op, Listing: listing, Err: err}
		})
	case lease.Ring:
		l.bell.ring(e)
	case lease.SaveIdentity:
		l.journal(ctx, l.Journal.SaveIdentity(e.Identity), func(err error) Input {
			if e.Op == 0 {
				return nil
			}
			return lease.IdentitySaved{Op: e.Op, Err: err}
		})
	case SaveFleet:
		l.journal(ctx, l.Journal.SaveFleet(e.FleetID), func(error) Input { return nil })
	case Commit:
		l.tell(ctx, e.Batch.Events)
		l.journal(ctx, l.Journal.Commit(e.Batch), func(err error) Input {
			if e.Op == 0 {
				return nil
			}
			return Committed{Op: e.Op, Err: err}
		})
	case RunOp:
		l.goDo(func() { l.send(ctx, l.operate(ctx, e)) })
	case Publish:
		l.token.Store(&e)
		l.publish.set(e)
	case Warn:
		l.Log.Warn("unreadable object in the bucket", slog.String(KeyMessage, e.Message))
	case Fatal:
		return &FatalError{Reason: e.Reason}
	case Gone:
		return ErrLeft
	default:
		return fmt.Errorf("reconcile: unknown effect %T", e)
	}
	return nil
}

func (l *Loop) tell(ctx context.Context, events []Event) {
	for _, e := range events {
		level := slog.LevelInfo
		switch e.Type {
		case EventFenced, EventDegraded, EventLapsed, EventOrphaned, EventHeld, EventBehind, EventNodeLost, EventFailed:
			level = slog.LevelWarn
		default: // Info
		}
		attrs := []slog.Attr{slog.String(KeyMessage, e.Message)}
		if e.Name != "" {
			attrs = append(attrs, slog.String(KeyName, e.Name), slog.Uint64(KeyEpoch, e.Epoch))
		}
		l.Log.LogAttrs(ctx, level, strings.ToLower(string(e.Type)), attrs...) //nolint:sloglint // the types of events are constants
		if l.Told != nil {
			l.Told(e)
		}
	}
}

// Attribute keys of this package's log lines.
const (
	KeyName    = "name"
	KeyEpoch   = "epoch"
	KeyMessage = "detail"
	KeyError   = "err"
)

// request sends one request to the store and brings the answer back. What keeps
// the lease alive does not wait for a slot.
func (l *Loop) request(ctx context.Context, key string, bound time.Duration, do func(context.Context) Input) {
	l.goDo(func() {
		if !strings.HasPrefix(key, fleet.PrefixNodes) {
			select {
			case l.slots <- struct{}{}:
				defer func() { <-l.slots }()
			case <-ctx.Done():
				return
			}
		}
		cctx, cancel := context.WithTimeout(ctx, bound)
		defer cancel()
		in := do(cctx)
		if ctx.Err() == nil {
			l.send(ctx, in)
		}
	})
}

func (l *Loop) journal(ctx context.Context, waitFor func() error, then func(error) Input) {
	l.goDo(func() {
		err := waitFor()
		if err != nil {
			l.Log.Error("journal write failed", KeyError, err)
		}
		if in := then(err); in != nil {
			l.send(ctx, in)
		}
	})
}

// operate does one operation on a run.
func (l *Loop) operate(ctx context.Context, op RunOp) OpDone {
	octx, cancel := context.WithTimeout(ctx, opTimeout+op.Grace)
	defer cancel()
	done := OpDone{Op: op.Op}
	if op.Kind.Needs() && !l.holds(op) {
		done.Withdrawn = true
		return done
	}
	switch op.Kind {
	case OpStart:
		done.Run, done.Err = l.Runtime.Start(octx, op.Start)
		if errors.Is(done.Err, ErrLapsed) {
			return OpDone{Op: op.Op, Withdrawn: true}
		}
	case OpStop:
		done.Run, done.Err = l.Runtime.Stop(octx, op.Instance, op.Grace)
	case OpPause:
		_, done.Err = l.Runtime.Pause(octx, op.Instance)
	case OpResume:
		done.Err = l.Runtime.Resume(octx, op.Instance)
	case OpSetEpoch:
		done.Err = l.Runtime.SetEpoch(octx, op.Instance, op.Epoch, op.Inc)
	case OpRemove:
		if keeper, ok := l.Runtime.(Keeper); ok && op.Keep {
			done.Err = keeper.Keep(octx, op.Instance)
			return done
		}
		done.Err = l.Runtime.Remove(octx, op.Instance)
		return done
	}
	done.Refused = errors.Is(done.Err, ErrSpec) || errors.Is(done.Err, ErrUnsupported)
	if done.Err == nil && done.Run.Instance == "" || errors.Is(done.Err, context.DeadlineExceeded) || errors.Is(done.Err, ErrNoInstance) {
		l.ask(ctx, op, &done)
	}
	return done
}

// holds looks at the token once more, right before the effect: the machine may
// have decided before a pause that this goroutine has just woken from. A machine
// that stands alone has none.
func (l *Loop) holds(op RunOp) bool {
	if !l.Machine.cfg.Fleet {
		return true
	}
	p := l.token.Load()
	return p != nil && l.Now() < p.Deadline && p.Incarnation == op.Inc
}

// ask looks up what the runtime knows of a run, where an operation did not say.
func (l *Loop) ask(ctx context.Context, op RunOp, done *OpDone) {
	runs, err := l.Runtime.List(ctx)
	if err != nil {
		done.Err = errors.Join(done.Err, err)
		return
	}
	for _, r := range runs {
		if r.Instance == op.Instance {
			done.Run, done.Err = r, nil
			return
		}
	}
	if op.Kind != OpStart {
		// Nothing of it exists: it is as dead as it can be.
		done.Run = runtime.Workload{Ref: runtime.Ref{Instance: op.Instance, Name: op.Name}, State: runtime.StateLost}
		done.Err = nil
	}
}

// watch passes on the ends of runs. Whenever the watch breaks, and now and then
// anyway, the whole list is read: it is the truth, events are hints.
func (l *Loop) watch(ctx context.Context) {
	l.goDo(func() {
		t := time.NewTicker(DefaultResync)
		defer t.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-t.C:
				l.list(ctx)
			}
		}
	})
	for ctx.Err() == nil {
		err := l.Runtime.Watch(ctx, func(w runtime.Workload) { l.send(ctx, RunChanged{Run: w}) })
		if ctx.Err() != nil {
			return
		}
		l.Log.Warn("watch of the runtime broke", KeyError, err)
		l.list(ctx)
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
}

func (l *Loop) list(ctx context.Context) {
	asked := l.Now()
	runs, err := l.Runtime.List(ctx)
	if err != nil {
		l.Log.Warn("list of the runtime failed", KeyError, err)
		return
	}
	l.send(ctx, Runs{Asked: asked, Runs: runs})
}
