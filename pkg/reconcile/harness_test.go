package reconcile

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/barista-fleet/barista/internal/bucket"
	"github.com/barista-fleet/barista/internal/bucket/buckettest"
	"github.com/barista-fleet/barista/pkg/fleet"
	"github.com/barista-fleet/barista/pkg/lease"
	"github.com/barista-fleet/barista/pkg/runtime"
)

// world is a store and a clock that several rigs share.
type world struct {
	t     testing.TB
	now   lease.Instant
	store *bucket.Meter
	seq   int
}

// rig drives one machine against the world, answering each effect at once.
type rig struct {
	*world
	m      *Machine
	runs   map[string]runtime.Workload
	inbox  []Input
	events []Event
	kept   Start // what a restart would find
	down   bool  // the bucket does not answer this node
	deaf   bool  // its requests arrive and the answers do not
	starts int
	keeps  int // runs of which something was to be kept
}

const (
	testTTL  = 3 * time.Second
	testBeat = 500 * time.Millisecond
	testPoll = 200 * time.Millisecond
)

func newWorld(t testing.TB) *world {
	return &world{t: t, now: lease.Instant(time.Hour), store: bucket.NewMeter(buckettest.NewMem())}
}

func (w *world) config(id, life string) Config {
	return Config{
		Lease: lease.Config{NodeID: id, NodeName: id, Writer: "w-" + id, Life: life, TTL: testTTL, Heartbeat: testBeat}.WithDefaults(),
		Fleet: true, NodeID: id, Name: id, Poll: testPoll, Resync: time.Minute, Runtime: "process",
		JobSlots: 4, MaxSessions: 5000, MaxOps: 32, MaxClaims: 32,
	}
}

func (w *world) node(id string) *rig {
	w.t.Helper()
	r := &rig{world: w, runs: map[string]runtime.Workload{}, kept: Start{NewFleetID: "f-test", Epochs: map[string]uint64{}}}
	r.boot(w.config(id, id+"-life"))
	return r
}

// boot makes a new machine from what is kept and what runs.
func (r *rig) boot(cfg Config) {
	r.t.Helper()
	m, err := New(cfg)
	if err != nil {
		r.t.Fatal(err)
	}
	start := r.kept
	for _, w := range r.runs {
		start.Runs = append(start.Runs, w)
	}
	r.m, r.inbox = m, []Input{start}
	r.settle()
}

func (r *rig) wall() time.Time { return time.Unix(1_800_000_000, int64(r.now)) }

func (r *rig) settle() {
	r.t.Helper()
	for i := 0; len(r.inbox) > 0; i++ {
		if i > 100_000 {
			r.t.Fatal("inputs without end")
		}
		in := r.inbox[0]
		r.inbox = r.inbox[1:]
		for _, e := range slices.Clone(r.m.Step(r.now, r.wall(), in)) {
			r.perform(e)
		}
	}
}

func (r *rig) perform(e Effect) {
	ctx := context.Background()
	reply := func(in Input) { r.inbox = append(r.inbox, in) }
	switch e := e.(type) {
	case lease.Get:
		if r.down || r.deaf {
			reply(lease.GotObject{Op: e.Op, Err: bucket.ErrUnreachable})
			return
		}
		obj, err := r.store.Get(ctx, e.Key, e.IfNoneMatch)
		reply(lease.GotObject{Op: e.Op, Object: obj, Err: err})
	case lease.Put:
		if r.down {
			reply(lease.PutDone{Op: e.Op, Result: bucket.PutResult{Err: bucket.ErrUnreachable}})
			return
		}
		res := r.store.Put(ctx, e.Key, e.Body, e.Cond)
		if r.deaf {
			res = bucket.PutResult{Err: bucket.ErrUnreachable}
		}
		reply(lease.PutDone{Op: e.Op, Result: res})
	case lease.List:
		if r.down || r.deaf {
			reply(lease.Listed{Op: e.Op, Err: bucket.ErrUnreachable})
			return
		}
		l, err := r.store.List(ctx, e.Prefix)
		reply(lease.Listed{Op: e.Op, Listing: l, Err: err})
	case lease.SaveIdentity:
		r.kept.Identity = e.Identity
		if e.Op != 0 {
			reply(lease.IdentitySaved{Op: e.Op})
		}
	case lease.Ring:
		if !r.down {
			r.ring(e.Names, e.Nodes)
		}
	case SaveFleet:
		r.kept.FleetID = e.FleetID
	case Commit:
		r.commit(e.Batch)
		if e.Op != 0 {
			reply(Committed{Op: e.Op})
		}
	case RunOp:
		reply(r.operate(e))
	case Publish:
		r.kept.Confirmed, r.kept.KillAt = e.Confirmed, e.KillAt
	case Fatal:
		r.t.Fatalf("%s: fatal: %s", r.m.cfg.NodeID, e.Reason)
	}
}

func (w *world) ring(names, nodes []string) {
	w.seq++
	body, err := fleet.Encode(&fleet.Signal{Head: fleet.Head{Schema: 1, Nonce: fmt.Sprint("s", w.seq)}, Names: names, Nodes: nodes})
	if err != nil {
		w.t.Fatal(err)
	}
	w.store.Store.Put(context.Background(), fleet.KeySignal, body, bucket.Unconditional())
}

func (r *rig) commit(b Batch) {
	r.events = append(r.events, b.Events...)
	for _, o := range b.Put {
		r.kept.Owned = slices.DeleteFunc(r.kept.Owned, func(x Owned) bool { return x.Name == o.Name })
		r.kept.Owned = append(r.kept.Owned, o)
		r.kept.Epochs[o.Name] = max(r.kept.Epochs[o.Name], o.Epoch)
	}
	for _, name := range b.Drop {
		r.kept.Owned = slices.DeleteFunc(r.kept.Owned, func(x Owned) bool { return x.Name == name })
	}
}

func (r *rig) operate(e RunOp) OpDone {
	w := r.runs[e.Instance]
	switch e.Kind {
	case OpStart:
		r.starts++
		w = runtime.Workload{Ref: e.Start.Ref, State: runtime.StateRunning}
	case OpStop:
		if !w.State.Dead() {
			w.State, w.Exit = runtime.StateExited, &fleet.Exit{Code: 143, Signal: 15}
		}
	case OpPause:
		w.State, w.PauseKind = runtime.StatePaused, "frozen"
	case OpResume:
		w.State = runtime.StateRunning
	case OpSetEpoch:
		w.Epoch, w.Incarnation = e.Epoch, e.Inc
	case OpRemove:
		if e.Keep {
			r.keeps++
		}
		delete(r.runs, e.Instance)
		return OpDone{Op: e.Op}
	}
	r.runs[e.Instance] = w
	return OpDone{Op: e.Op, Run: w}
}

// exit ends a run with a code, as the runtime would tell it.
func (r *rig) exit(name string, code int) {
	r.t.Helper()
	for i, w := range r.runs {
		if w.Name == name && !w.State.Dead() {
			w.State, w.Exit = runtime.StateExited, &fleet.Exit{Code: code}
			r.runs[i] = w
			r.inbox = append(r.inbox, RunChanged{Run: w})
		}
	}
	r.settle()
}

// run lets time pass for all rigs together.
func run2(d time.Duration, rigs ...*rig) {
	w := rigs[0].world
	for end := w.now.Add(d); w.now < end; {
		w.now = min(end, w.now.Add(50*time.Millisecond))
		for _, r := range rigs {
			r.inbox = append(r.inbox, Tick{})
			r.settle()
		}
	}
}

// want writes a desired record.
func (w *world) want(name string, kind fleet.Kind, change ...func(*fleet.Desired)) {
	w.t.Helper()
	w.seq++
	ctx := context.Background()
	d := &fleet.Desired{Name: name, UID: "u-" + name, Generation: 1, State: fleet.DesiredPresent, Spec: fleet.Spec{Kind: kind, Command: []string{"x"}}}
	key := fleet.PrefixDesired + name
	obj, err := w.store.Store.Get(ctx, key, "")
	if err != nil {
		w.t.Fatal(err)
	}
	cond := bucket.IfAbsent()
	if obj.Status == bucket.Found {
		cond = bucket.IfMatch(obj.ETag)
		if d, err = fleet.DecodeDesired(name, obj.Body); err != nil {
			w.t.Fatal(err)
		}
	}
	for _, f := range change {
		f(d)
	}
	d.Head = fleet.Head{Schema: 1, Nonce: fmt.Sprint("d", w.seq)}
	body, err := fleet.Encode(d)
	if err != nil {
		w.t.Fatal(err)
	}
	if res := w.store.Store.Put(ctx, key, body, cond); res.Outcome != bucket.Applied {
		w.t.Fatal(res.Err)
	}
}

func (w *world) session(name string) *fleet.Session {
	w.t.Helper()
	obj, err := w.store.Store.Get(context.Background(), fleet.PrefixSessions+name, "")
	if err != nil || obj.Status != bucket.Found {
		w.t.Fatalf("no ownership record of %s (%v)", name, err)
	}
	s, err := fleet.DecodeSession(name, obj.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	return s
}

func (r *rig) alive(name string) int {
	n := 0
	for _, w := range r.runs {
		if w.Name == name && !w.State.Dead() {
			n++
		}
	}
	return n
}

func (r *rig) told(t EventType, name string) int {
	n := 0
	for _, e := range r.events {
		if e.Type == t && strings.HasPrefix(e.Name, name) {
			n++
		}
	}
	return n
}
