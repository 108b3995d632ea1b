package lease

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/barista-fleet/barista/internal/bucket"
	"github.com/barista-fleet/barista/pkg/fleet"
)

// rig drives one machine against a map of objects, one request at a time. What a
// test does not answer stays unanswered.
type rig struct {
	t       *testing.T
	m       *Machine
	now     Instant
	store   map[string]obj
	version int
	open    []Effect // requests without an answer yet
	told    []Effect // notices so far
}

type obj struct {
	body []byte
	etag bucket.ETag
}

const (
	testTTL  = 3 * time.Second
	testBeat = 500 * time.Millisecond
)

func newRig(t *testing.T) *rig {
	t.Helper()
	cfg := Config{NodeID: "n-self", NodeName: "self", Writer: "w1", Life: "life1", TTL: testTTL, Heartbeat: testBeat}.WithDefaults()
	m, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return &rig{t: t, m: m, now: Instant(time.Hour), store: map[string]obj{}}
}

func (r *rig) step(ev Event) {
	r.t.Helper()
	for _, e := range r.m.Step(r.now, ev) {
		switch e.(type) {
		case Get, Put, List, SaveIdentity:
			r.open = append(r.open, e)
		default:
			r.told = append(r.told, e)
		}
	}
	if err := r.m.Validate(); err != nil {
		r.t.Fatalf("after %T: %v", ev, err)
	}
}

// write puts a record into the store, as someone else.
func (r *rig) write(key string, rec any) bucket.ETag {
	r.t.Helper()
	var body []byte
	var err error
	switch v := rec.(type) {
	case *fleet.Node:
		r.version++
		v.Head = fleet.Head{Schema: 1, Nonce: fmt.Sprint("x", r.version)}
		body, err = fleet.Encode(v)
	case *fleet.Session:
		r.version++
		v.Head = fleet.Head{Schema: 1, Nonce: fmt.Sprint("x", r.version)}
		body, err = fleet.Encode(v)
	case string:
		body = []byte(v)
	}
	if err != nil {
		r.t.Fatal(err)
	}
	return r.set(key, body)
}

func (r *rig) set(key string, body []byte) bucket.ETag {
	r.version++
	o := obj{body: body, etag: bucket.ETag(fmt.Sprintf(`"v%d"`, r.version))}
	r.store[key] = o
	return o.etag
}

func (r *rig) apply(p Put) bucket.PutResult {
	cur, ok := r.store[p.Key]
	want, match := p.Cond.WantMatch()
	if p.Cond.WantAbsent() && ok || match && (!ok || cur.etag != want) {
		return bucket.PutResult{Outcome: bucket.Rejected, Err: bucket.ErrCondition}
	}
	return bucket.PutResult{Outcome: bucket.Applied, ETag: r.set(p.Key, p.Body)}
}

func (r *rig) look(key string) bucket.Object {
	o, ok := r.store[key]
	if !ok {
		return bucket.Object{Status: bucket.Absent}
	}
	return bucket.Object{Status: bucket.Found, Body: o.body, ETag: o.etag}
}

// answer answers one open request from the store.
func (r *rig) answer(e Effect) {
	r.t.Helper()
	switch e := e.(type) {
	case Get:
		r.step(GotObject{Op: e.Op, Object: r.look(e.Key)})
	case Put:
		r.step(PutDone{Op: e.Op, Result: r.apply(e)})
	case List:
		var l bucket.Listing
		for k, o := range r.store {
			if len(k) > len(e.Prefix) && k[:len(e.Prefix)] == e.Prefix {
				l.Entries = append(l.Entries, bucket.Entry{Key: k, ETag: o.etag})
			}
		}
		r.step(Listed{Op: e.Op, Listing: l})
	case SaveIdentity:
		if e.Op != 0 {
			r.step(IdentitySaved{Op: e.Op})
		}
	}
}

// settle answers everything that is open, and what that opens.
func (r *rig) settle() {
	r.t.Helper()
	for i := 0; len(r.open) > 0; i++ {
		if i > 200 {
			r.t.Fatalf("requests without end: %v", r.open)
		}
		e := r.open[0]
		r.open = r.open[1:]
		r.answer(e)
	}
}

// run lets time pass in small steps, answering everything.
func (r *rig) run(d time.Duration) {
	r.t.Helper()
	for end := r.now.Add(d); r.now < end; {
		r.now = min(end, r.now.Add(50*time.Millisecond))
		r.step(Tick{})
		r.settle()
	}
}

// takePut removes the open Put of key and returns it.
func (r *rig) takePut(key string) Put {
	r.t.Helper()
	for i, e := range r.open {
		if p, ok := e.(Put); ok && p.Key == key {
			r.open = append(r.open[:i:i], r.open[i+1:]...)
			return p
		}
	}
	r.t.Fatalf("no open put of %s in %v", key, r.open)
	return Put{}
}

func (r *rig) hasOpen(f func(Effect) bool) bool {
	return slices.ContainsFunc(r.open, f)
}

func toldOf[T Effect](r *rig) []T {
	var out []T
	for _, e := range r.told {
		if v, ok := e.(T); ok {
			out = append(out, v)
		}
	}
	return out
}

// join boots the machine and brings it to live.
func (r *rig) join() {
	r.t.Helper()
	r.step(AllowRaise{OK: true})
	r.step(Boot{})
	r.settle()
	if !r.m.CanAct() {
		r.t.Fatalf("not live after joining: %s", r.m.State())
	}
}

func (r *rig) node(id string) *fleet.Node {
	r.t.Helper()
	n, err := fleet.DecodeNode(id, r.store[fleet.PrefixNodes+id].body)
	if err != nil {
		r.t.Fatal(err)
	}
	return n
}

func (r *rig) session(name string) *fleet.Session {
	r.t.Helper()
	s, err := fleet.DecodeSession(name, r.store[fleet.PrefixSessions+name].body)
	if err != nil {
		r.t.Fatal(err)
	}
	return s
}

// know makes a name's record known to the machine.
func (r *rig) know(name string) {
	r.t.Helper()
	r.step(Read{Name: name})
	r.settle()
}

func (r *rig) claim(name string) {
	r.t.Helper()
	r.step(Submit{Name: name, Kind: WriteClaim, Record: &fleet.Session{UID: "u", Phase: fleet.PhaseStarting}})
}

// hold makes the machine own a name.
func (r *rig) hold(name string) {
	r.t.Helper()
	r.know(name)
	r.claim(name)
	r.settle()
	if !r.m.Name(name).Held {
		r.t.Fatalf("%s is not held: %+v", name, r.m.Name(name))
	}
}

func peerRecord(id string, inc, beat uint64, ttl time.Duration) *fleet.Node {
	return &fleet.Node{ID: id, Incarnation: inc, State: fleet.NodeLive, Writer: "wp", Beat: beat, TTLMillis: ttl.Milliseconds()}
}

func ownedBy(name, owner string, inc, epoch uint64) *fleet.Session {
	return &fleet.Session{Name: name, Owner: owner, Incarnation: inc, Epoch: epoch, UID: "u", Phase: fleet.PhaseRunning, OwnerTTLMillis: testTTL.Milliseconds()}
}
