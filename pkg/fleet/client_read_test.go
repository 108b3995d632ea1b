package fleet

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/barista-fleet/barista/internal/bucket"
)

func TestListIsParallelAndBounded(t *testing.T) {
	const n = 300
	s := newFaulty()
	s.get = func(string) error { time.Sleep(time.Millisecond); return nil }
	for i := range n {
		name := fmt.Sprintf("a%03d", i)
		plantRecord(t, s.Mem, PrefixDesired+name, &Desired{Head: head(), Name: name, UID: "u", State: DesiredPresent, Spec: Spec{Kind: KindSession}})
		plantSession(t, s.Mem, name, "u", PhaseRunning, nil)
	}
	plantNode(t, s.Mem, "n1", 1)
	l := NewClient(s, ClientConfig{}).NewLister()
	f, err := l.List(t.Context())
	noError(t, err)
	if len(f.Names) != n || f.Nodes[0].Owned != n {
		t.Fatalf("%d names, of which %d are counted for their node", len(f.Names), f.Nodes[0].Owned)
	}
	for i := range f.Names {
		if f.Names[i].Status() != StatusRunning || f.Names[i].NodeName() != "host-n1" {
			t.Fatalf("%+v", f.Names[i])
		}
	}
	if s.peak < 8 || s.peak > 32 {
		t.Errorf("%d reads were in flight at most, want some and at most 32", s.peak)
	}

	// A second look reads only what changed.
	clear(s.gets)
	plantSession(t, s.Mem, "a007", "u", PhasePaused, nil)
	f, err = l.List(t.Context())
	noError(t, err)
	if diff := cmp.Diff(map[string]int{"sessions/a007": 1}, s.gets); diff != "" {
		t.Errorf("read again (-want +got):\n%s", diff)
	}
	if f.Names[7].Status() != StatusPaused {
		t.Errorf("a007 is %s", f.Names[7].Status())
	}
}

// TestListFailsWhole: a listing with a hole in it would show names as absent.
func TestListFailsWhole(t *testing.T) {
	s := newFaulty()
	plantSession(t, s.Mem, "a", "u", PhaseRunning, nil)
	plantSession(t, s.Mem, "b", "u", PhaseRunning, nil)
	down := &bucket.Error{Op: "get", Key: "sessions/b", Kind: bucket.ErrUnreachable}
	s.get = func(key string) error {
		if key == "sessions/b" {
			return down
		}
		return nil
	}
	if _, err := NewClient(s, ClientConfig{}).List(t.Context()); !errors.Is(err, bucket.ErrUnreachable) {
		t.Errorf("got %v", err)
	}
}

func TestListReportsWhatItCannotUse(t *testing.T) {
	s := newFaulty()
	s.Plant("desired/UPPER", []byte("{}"))
	s.Plant("sessions/a/b", []byte("{}"))
	s.Plant("desired/broken", []byte("garbage"))
	s.Plant("nodes/n9", nil)
	plantRecord(t, s.Mem, "directives/n8", &Directive{Head: head(), Node: "n8"})
	f, err := NewClient(s, ClientConfig{}).List(t.Context())
	noError(t, err)
	var keys []string
	for _, p := range f.Problems {
		keys = append(keys, p.Key)
	}
	if diff := cmp.Diff([]string{"desired/UPPER", "sessions/a/b", "directives/n8"}, keys); diff != "" {
		t.Errorf("problems (-want +got):\n%s", diff)
	}
	if len(f.Names) != 1 || f.Names[0].Status() != StatusUnreadable {
		t.Errorf("names %+v", f.Names)
	}
	if len(f.Nodes) != 1 || f.Nodes[0].Err == nil || f.Nodes[0].Takes() {
		t.Errorf("nodes %+v", f.Nodes)
	}
}

func TestResolve(t *testing.T) {
	s := newFaulty()
	c := NewClient(s, ClientConfig{})
	put := func(name string, change func(*Spec)) string {
		a, err := c.Apply(t.Context(), session(name, change), ApplyOptions{})
		noError(t, err)
		return a.UID
	}
	plantNode(t, s.Mem, "n1", 1)
	plantNode(t, s.Mem, "n2", 9)
	onN2 := func(s *Session) { s.Owner = "n2" }
	plantSession(t, s.Mem, "up", put("up", nil), PhaseRunning, func(s *Session) { s.Endpoint = "10.0.0.1:7070" })
	put("new", nil)
	plantSession(t, s.Mem, "lost", put("lost", nil), PhaseRunning, onN2)
	plantSession(t, s.Mem, "held", put("held", func(s *Spec) { s.OnOwnerLoss = OwnerLossHold }), PhaseRunning, onN2)
	plantSession(t, s.Mem, "orphan", "u", PhaseRunning, nil)
	put("again", nil)
	plantSession(t, s.Mem, "again", "u-before", PhaseRunning, nil)
	plantSession(t, s.Mem, "silent", put("silent", nil), PhaseRunning, func(s *Session) { s.Owner, s.OwnerName = "n3", "host-n3" })
	s.Plant("sessions/broken", []byte("x"))

	r, err := c.Resolve(t.Context(), "up")
	noError(t, err)
	if r.Node != "host-n1" || r.NodeID != "n1" || r.Endpoint != "10.0.0.1:7070" || r.Epoch != 5 || r.Claim != ClaimHolds {
		t.Errorf("up is %+v", r)
	}
	r, err = c.Resolve(t.Context(), "orphan")
	noError(t, err)
	if r.Status != StatusOrphaned {
		t.Errorf("orphan is %+v", r)
	}
	// A missing liveness record is silence, which one look cannot judge.
	r, err = c.Resolve(t.Context(), "silent")
	noError(t, err)
	if r.Claim != ClaimUnknown || r.Node != "host-n3" {
		t.Errorf("silent is %+v", r)
	}
	for name, want := range map[string]string{
		"new": "no node has claimed it yet", "lost": "host-n2 is lost", "again": "an earlier again is still being torn down",
	} {
		var unowned *NotOwnedError
		if _, err := c.Resolve(t.Context(), name); !asError(err, &unowned) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", name, err, want)
		}
	}
	var refused *RefusedError
	if _, err := c.Resolve(t.Context(), "held"); !asError(err, &refused) || !refused.Held {
		t.Errorf("held: %v", err)
	}
	var missing *NotFoundError
	if _, err := c.Resolve(t.Context(), "nosuch"); !asError(err, &missing) {
		t.Errorf("nosuch: %v", err)
	}
	var bad *UnreadableError
	if _, err := c.Resolve(t.Context(), "broken"); !asError(err, &bad) {
		t.Errorf("broken: %v", err)
	}
}

func TestAlarms(t *testing.T) {
	s := newFaulty()
	c := NewClient(s, ClientConfig{})
	a, err := c.Apply(t.Context(), session("a1", nil), ApplyOptions{})
	noError(t, err)
	set := func(at time.Time, want bool, seq uint64) {
		t.Helper()
		changed, err := c.SetAlarm(t.Context(), "a1", at)
		noError(t, err)
		if d := desired(t, s, "a1"); changed != want || d.WakeAt.Seq != seq || !d.WakeAt.At.Equal(at) {
			t.Errorf("changed %v, alarm %+v; want %v, number %d", changed, d.WakeAt, want, seq)
		}
	}
	set(time.Time{}, false, 0)
	set(day, true, 1)
	set(day, false, 1)
	set(time.Time{}, true, 2)
	set(day, true, 3)
	// It rang: the same instant arms it again, above what the owner has seen.
	plantSession(t, s.Mem, "a1", a.UID, PhaseRunning, func(s *Session) { s.WakeSeen = 8 })
	set(day, true, 9)
	_, err = c.Apply(t.Context(), job("j"), ApplyOptions{})
	noError(t, err)
	var refused *RefusedError
	if _, err := c.SetAlarm(t.Context(), "j", day); !asError(err, &refused) {
		t.Errorf("an alarm for a job: %v", err)
	}
}

func TestDirectives(t *testing.T) {
	s := newFaulty()
	c := NewClient(s, ClientConfig{})
	yes, no := true, false
	d, changed, err := c.Direct(t.Context(), "n1", "drain", DirectiveChange{Cordon: &yes, Drain: &yes, Deadline: time.Hour, Reason: "kernel"})
	noError(t, err)
	left := time.Until(d.Deadline)
	if !changed || !d.Cordon || !d.Drain || d.Seq != 1 || left < 59*time.Minute || left > 61*time.Minute {
		t.Errorf("drain: %v, %+v", changed, d)
	}
	d, changed, err = c.Direct(t.Context(), "n1", "uncordon", DirectiveChange{Cordon: &no, Drain: &no})
	noError(t, err)
	if !changed || d.Cordon || d.Drain || !d.Deadline.IsZero() || d.Seq != 2 {
		t.Errorf("uncordon: %v, %+v", changed, d)
	}
	d, changed, err = c.Direct(t.Context(), "n1", "uncordon", DirectiveChange{Cordon: &no, Drain: &no})
	noError(t, err)
	if changed || d.Seq != 2 {
		t.Errorf("uncordon again: %v, %+v", changed, d)
	}
	sig, err := DecodeSignal(s.Snapshot()[KeySignal])
	noError(t, err)
	if diff := cmp.Diff([]string{"n1"}, sig.Nodes); diff != "" {
		t.Error(diff)
	}
}

func TestTenants(t *testing.T) {
	s := newFaulty()
	c := NewClient(s, ClientConfig{})
	set := func(want Outcome, change func(*Tenant)) *Tenant {
		t.Helper()
		got, outcome, err := c.SetTenant(t.Context(), "acme", change)
		noError(t, err)
		if outcome != want {
			t.Errorf("%s, want %s", outcome, want)
		}
		return got
	}
	set(OutcomeCreated, func(t *Tenant) { t.Tier, t.Cap = TierGold, 10 })
	if got := set(OutcomeConfigured, func(t *Tenant) { t.CapPerNode = 3 }); got.Tier != TierGold || got.Cap != 10 {
		t.Errorf("what was not given changed: %+v", got)
	}
	set(OutcomeUnchanged, func(t *Tenant) { t.Multiplier = 1 })
	var bad *SpecError
	if _, _, err := c.SetTenant(t.Context(), "acme", func(t *Tenant) { t.Cap = 1 }); !asError(err, &bad) {
		t.Errorf("a cap below the node's: %v", err)
	}
	s.Plant("tenants/broken", []byte("x"))
	list, problems, err := c.Tenants(t.Context())
	noError(t, err)
	if len(list) != 1 || list[0].CapPerNode != 3 || len(problems) != 1 || problems[0].Key != "tenants/broken" {
		t.Errorf("%+v, %+v", list, problems)
	}
	noError(t, c.RemoveTenant(t.Context(), "acme"))
	noError(t, c.RemoveTenant(t.Context(), "broken"))
	var missing *NotFoundError
	if err := c.RemoveTenant(t.Context(), "acme"); !asError(err, &missing) {
		t.Errorf("removed twice: %v", err)
	}
}

func TestEvents(t *testing.T) {
	s := newFaulty()
	c := NewClient(s, ClientConfig{})
	batch := func(node string, inc, seq uint64, events ...Event) {
		plantRecord(t, s.Mem, EventKey(node, inc, seq), &EventBatch{Head: head(), Node: node, Incarnation: inc, Seq: seq, Events: events})
	}
	ev := func(id, node, name string, sec int) Event {
		return Event{ID: id, Node: node, Name: name, Time: day.Add(time.Duration(sec) * time.Second), Type: EventStarted}
	}
	batch("n1", 1, 1, ev("1", "n1", "a", 5), ev("2", "n1", "b", 6))
	batch("n1", 1, 2, ev("2", "n1", "b", 6), ev("3", "n1", "a", 7)) // 2 was sent twice
	batch("n2", 4, 1, ev("4", "n2", "a", 1))
	s.Plant("events/n2/what", []byte("{}"))
	s.Plant(EventKey("n2", 4, 2), []byte("garbage"))
	ids := func(events []Event) (ids []string) {
		for _, e := range events {
			ids = append(ids, e.ID)
		}
		return ids
	}
	r := c.NewEventReader(EventQuery{})
	events, problems, err := r.Next(t.Context())
	noError(t, err)
	if diff := cmp.Diff([]string{"4", "1", "2", "3"}, ids(events)); diff != "" || len(problems) != 2 {
		t.Errorf("%s\n%+v", diff, problems)
	}
	clear(s.gets)
	batch("n1", 1, 3, ev("3", "n1", "a", 7), ev("5", "n1", "a", 8))
	events, problems, err = r.Next(t.Context())
	noError(t, err)
	if diff := cmp.Diff([]string{"5"}, ids(events)); diff != "" || len(problems) != 0 || len(s.gets) != 1 {
		t.Errorf("%s\n%+v\nread %v", diff, problems, s.gets)
	}
	events, _, err = c.NewEventReader(EventQuery{Name: "a", Node: "n1"}).Next(t.Context())
	noError(t, err)
	if diff := cmp.Diff([]string{"1", "3", "5"}, ids(events)); diff != "" {
		t.Error(diff)
	}
	newest := c.NewEventReader(EventQuery{Node: "n1", Batches: 1})
	events, _, err = newest.Next(t.Context())
	noError(t, err)
	if diff := cmp.Diff([]string{"3", "5"}, ids(events)); diff != "" || newest.Skipped != 2 {
		t.Errorf("%s, skipped %d", diff, newest.Skipped)
	}
}
