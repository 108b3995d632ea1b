package journal_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/barista-fleet/barista/pkg/journal"
)

// open opens the journal in dir and closes it with the test.
func open(t testing.TB, dir string) (*journal.Journal, journal.Opened) {
	t.Helper()
	j, opened, err := journal.Open(dir, journal.Options{})
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	t.Cleanup(func() {
		if err := j.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return j, opened
}

func commit(t testing.TB, j *journal.Journal, b journal.Batch) {
	t.Helper()
	if err := j.Commit(t.Context(), b); err != nil {
		t.Fatalf("commit: %v", err)
	}
}

func load(t testing.TB, j *journal.Journal) journal.State {
	t.Helper()
	s, err := j.Load()
	if err != nil {
		t.Fatalf("load: %v", err)
	}
	return s
}

func TestStateSurvivesReopen(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	id := journal.Identity{
		FleetID: "f-1", Bucket: "s3://b/p", NodeID: "n-1", Incarnation: 3, Intended: 4, Writer: "w",
		MachineID: "m", BootID: "b", DirID: "1:2", Driver: "process",
	}
	owned := []journal.Owned{
		{Name: "a", UID: "u1", Epoch: 7, Incarnation: 3, Generation: 2, Instance: "b-1", Attempt: 1, Phase: "running", Data: []byte("\x00raw\xff")},
		{Name: "b", UID: "u2", Epoch: 9, Phase: "paused"},
	}
	op := journal.Op{Name: "a", Kind: "stop", Instance: "b-1", UID: "u1", Epoch: 7, Incarnation: 3, Attempt: 1, Data: []byte("{}")}

	j, opened := open(t, dir)
	if !opened.Created || opened.Quarantined != nil {
		t.Errorf("first open: %+v", opened)
	}
	commit(t, j, journal.Batch{
		Identity: &id, PutOwned: owned, PutOps: []journal.Op{op},
		Seen: map[string]uint64{"c": 12, "a": 1}, SeenIncarnation: 2,
		Events: [][]byte{[]byte("one"), []byte("two")},
	})
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}

	j, opened = open(t, dir)
	if !reflect.DeepEqual(opened, journal.Opened{}) {
		t.Errorf("second open: %+v", opened)
	}
	want := journal.State{
		Identity: &id, Owned: owned, Ops: []journal.Op{op},
		Seen:            map[string]uint64{"a": 7, "b": 9, "c": 12},
		SeenIncarnation: 4, // of the intent: it may have been written
		Events:          2,
	}
	if got := load(t, j); !reflect.DeepEqual(got, want) {
		t.Errorf("loaded\n%+v\nwant\n%+v", got, want)
	}
}

// A result is one batch: the operation ends, the name moves on, the event is
// queued. None of it is visible without the rest.
func TestOperationLifecycle(t *testing.T) {
	j, _ := open(t, t.TempDir())
	start := journal.Op{Name: "a", Kind: "start", Epoch: 1}
	commit(t, j, journal.Batch{PutOps: []journal.Op{start}})

	err := j.Commit(t.Context(), journal.Batch{
		PutOps: []journal.Op{{Name: "a", Kind: "stop"}},
		Events: [][]byte{[]byte("must not appear")},
		Seen:   map[string]uint64{"z": 1},
	})
	if !errors.Is(err, journal.ErrOpInFlight) {
		t.Fatalf("second operation of one name: %v", err)
	}
	if s := load(t, j); s.Events != 0 || len(s.Seen) != 0 || s.Ops[0].Kind != "start" {
		t.Errorf("a refused batch left traces: %+v", s)
	}

	commit(t, j, journal.Batch{
		Class:    journal.Essential,
		DelOps:   []string{"a"},
		PutOps:   []journal.Op{{Name: "a", Kind: "stop"}}, // the next one may follow at once
		PutOwned: []journal.Owned{{Name: "a", Epoch: 1, Phase: "running"}},
		Events:   [][]byte{[]byte("STARTED")},
	})
	s := load(t, j)
	if len(s.Ops) != 1 || s.Ops[0].Kind != "stop" || s.Owned[0].Phase != "running" || s.Events != 1 {
		t.Errorf("after the result: %+v", s)
	}
	commit(t, j, journal.Batch{DelOps: []string{"a"}, DelOwned: []string{"a"}})
	s = load(t, j)
	if len(s.Ops) != 0 || len(s.Owned) != 0 || s.Seen["a"] != 1 {
		t.Errorf("after deletion (the epoch must stay known): %+v", s)
	}
	commit(t, j, journal.Batch{Forget: []string{"a"}})
	if s = load(t, j); len(s.Seen) != 0 {
		t.Errorf("after forget: %+v", s.Seen)
	}
}

func TestSeenNeverGoesBack(t *testing.T) {
	j, _ := open(t, t.TempDir())
	for _, epoch := range []uint64{5, 3, 5, 0} {
		commit(t, j, journal.Batch{Seen: map[string]uint64{"a": epoch}, SeenIncarnation: epoch})
	}
	commit(t, j, journal.Batch{PutOwned: []journal.Owned{{Name: "a", Epoch: 4}}})
	if s := load(t, j); s.Seen["a"] != 5 || s.SeenIncarnation != 5 {
		t.Errorf("seen %v, incarnation %d; want 5 and 5", s.Seen, s.SeenIncarnation)
	}
}

func TestIdentityNeverGoesBack(t *testing.T) {
	j, _ := open(t, t.TempDir())
	put := func(id journal.Identity) error { return j.Commit(t.Context(), journal.Batch{Identity: &id}) }
	for _, step := range []struct {
		id   journal.Identity
		want error
	}{
		{journal.Identity{NodeID: "n", Incarnation: 2}, nil},
		{journal.Identity{NodeID: "n", Incarnation: 2, FleetID: "f"}, nil},
		{journal.Identity{NodeID: "n", Incarnation: 1, FleetID: "f"}, journal.ErrRegress},
		{journal.Identity{NodeID: "n", Incarnation: 3, FleetID: "g"}, journal.ErrRegress},
		{journal.Identity{NodeID: "n", Incarnation: 3}, nil}, // left
		{journal.Identity{NodeID: "m", Incarnation: 1, FleetID: "g"}, nil},
	} {
		if err := put(step.id); !errors.Is(err, step.want) {
			t.Errorf("%+v: %v, want %v", step.id, err, step.want)
		}
	}
}

func TestOutbox(t *testing.T) {
	dir := t.TempDir()
	j, _, err := journal.Open(dir, journal.Options{MaxEvents: 10})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 4 {
		r, err := j.Submit(journal.Batch{Events: [][]byte{fmt.Append(nil, 2*i+1), fmt.Append(nil, 2*i+2)}}).Wait(t.Context())
		if err != nil || r.FirstEvent != uint64(2*i+1) {
			t.Fatalf("batch %d: first event %d, %v", i, r.FirstEvent, err)
		}
	}
	commit(t, j, journal.Batch{DropEvents: 3})
	if got := eventNumbers(t, j, 0, 3); got != "4 5 6" {
		t.Errorf("first three after dropping through 3: %s", got)
	}
	if got := eventNumbers(t, j, 7, 100); got != "7 8" {
		t.Errorf("from 7: %s", got)
	}
	commit(t, j, journal.Batch{DropEvents: 100})
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}

	// An empty outbox goes on where it was, also in the next life.
	if j, _, err = journal.Open(dir, journal.Options{MaxEvents: 10}); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = j.Close() }()
	var many [][]byte
	for i := range 25 {
		many = append(many, fmt.Append(nil, 9+i))
	}
	commit(t, j, journal.Batch{Events: many})
	if got := eventNumbers(t, j, 0, 100); got != "24 25 26 27 28 29 30 31 32 33" {
		t.Errorf("bounded outbox: %s", got)
	}
	if s := load(t, j); s.Events != 10 || s.EventsDropped != 15 {
		t.Errorf("%d events, %d dropped; want 10 and 15", s.Events, s.EventsDropped)
	}
}

// eventNumbers lists events; each one's data is its number.
func eventNumbers(t *testing.T, j *journal.Journal, from uint64, limit int) string {
	t.Helper()
	events, err := j.Events(from, limit)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, e := range events {
		if fmt.Sprint(e.Seq) != string(e.Data) {
			t.Errorf("event %d carries %q", e.Seq, e.Data)
		}
		out = append(out, string(e.Data))
	}
	return strings.Join(out, " ")
}

func TestSchedulerLog(t *testing.T) {
	dir := t.TempDir()
	j, _ := open(t, dir)
	event := func(seq uint64) journal.SchedEvent {
		return journal.SchedEvent{Seq: seq, Data: fmt.Append(nil, "event ", seq)}
	}
	appendTo := func(seqs ...uint64) error {
		var b journal.Batch
		for _, seq := range seqs {
			b.SchedAppend = append(b.SchedAppend, event(seq))
		}
		return j.Commit(t.Context(), b)
	}
	for _, step := range []struct {
		seqs []uint64
		want error
	}{
		{[]uint64{2}, journal.ErrGap},
		{[]uint64{1, 2, 3}, nil},
		{[]uint64{3}, journal.ErrGap},
		{[]uint64{4, 6}, journal.ErrGap},
		{[]uint64{4}, nil},
	} {
		if err := appendTo(step.seqs...); !errors.Is(err, step.want) {
			t.Errorf("append %v: %v, want %v", step.seqs, err, step.want)
		}
	}
	commit(t, j, journal.Batch{
		SchedSnapshot: &journal.SchedSnapshot{Through: 3, Data: []byte("state")},
		SchedAppend:   []journal.SchedEvent{event(5)},
	})
	back := journal.Batch{SchedSnapshot: &journal.SchedSnapshot{Through: 2}}
	if err := j.Commit(t.Context(), back); !errors.Is(err, journal.ErrGap) {
		t.Errorf("a snapshot older than the stored one: %v", err)
	}
	snap, log, err := j.Sched()
	if err != nil {
		t.Fatal(err)
	}
	if snap == nil || snap.Through != 3 || string(snap.Data) != "state" ||
		!reflect.DeepEqual(log, []journal.SchedEvent{event(4), event(5)}) {
		t.Errorf("snapshot %+v, log %+v", snap, log)
	}
	// A snapshot from ahead of the log (after a batch was lost) restarts it.
	commit(t, j, journal.Batch{SchedSnapshot: &journal.SchedSnapshot{Through: 9}})
	if err := appendTo(10); err != nil {
		t.Error(err)
	}
}

func TestObjects(t *testing.T) {
	j, _ := open(t, t.TempDir())
	ctx := t.Context()
	v1, err := j.PutObject(ctx, "desired/a", []byte("one"), journal.IfAbsent())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := j.PutObject(ctx, "desired/a", nil, journal.IfAbsent()); !errors.Is(err, journal.ErrConflict) {
		t.Errorf("second create: %v", err)
	}
	v2, err := j.PutObject(ctx, "desired/a", []byte("two"), journal.IfVersion(v1))
	if err != nil || v2 == v1 {
		t.Fatalf("update: version %d after %d, %v", v2, v1, err)
	}
	if _, err := j.PutObject(ctx, "desired/a", nil, journal.IfVersion(v1)); !errors.Is(err, journal.ErrConflict) {
		t.Errorf("stale update: %v", err)
	}
	if _, err := j.PutObject(ctx, "desired/none", nil, journal.IfVersion(v2)); !errors.Is(err, journal.ErrConflict) {
		t.Errorf("conditional update of a missing key: %v", err)
	}
	if _, err := j.PutObject(ctx, "desired/b", nil, journal.ObjectCond{}); !errors.Is(err, journal.ErrInvalid) {
		t.Errorf("put without a condition: %v", err)
	}
	if _, err := j.PutObject(ctx, "desirez", []byte{}, journal.Always()); err != nil {
		t.Fatal(err)
	}
	list, err := j.ListObjects("desired/")
	want := []journal.Object{{Key: "desired/a", Version: v2, Size: 3}}
	if err != nil || !reflect.DeepEqual(list, want) {
		t.Errorf("list: %+v, %v", list, err)
	}
	commit(t, j, journal.Batch{DelObjects: []string{"desired/a", "desired/a", "desired/none"}})
	if _, found, err := j.GetObject("desired/a"); found || err != nil {
		t.Errorf("after delete: %v, %v", found, err)
	}
	v3, err := j.PutObject(ctx, "desired/a", []byte("one"), journal.IfAbsent())
	if err != nil || v3 <= v2 {
		t.Errorf("re-created at version %d after %d: a version may not come back; %v", v3, v2, err)
	}
}

func TestInvalidBatches(t *testing.T) {
	j, _ := open(t, t.TempDir())
	big := make([]byte, journal.MaxData+1)
	full := make([]byte, journal.MaxData)
	var events [][]byte
	for range journal.MaxBatch/journal.MaxData + 1 {
		events = append(events, full)
	}
	for name, b := range map[string]journal.Batch{
		"empty name":         {PutOwned: []journal.Owned{{}}},
		"long name":          {DelOps: []string{strings.Repeat("x", journal.MaxKey+1)}},
		"big record":         {PutOps: []journal.Op{{Name: "a", Data: big}}},
		"big batch":          {Events: events},
		"one name twice":     {PutOps: []journal.Op{{Name: "a"}, {Name: "a"}}},
		"one object twice":   {PutObjects: []journal.ObjectPut{{Key: "k", Cond: journal.IfAbsent()}, {Key: "k", Cond: journal.IfAbsent()}}},
		"empty seen name":    {Seen: map[string]uint64{"": 1}},
		"big scheduler data": {SchedSnapshot: &journal.SchedSnapshot{Data: big}},
	} {
		if err := j.Commit(t.Context(), b); !errors.Is(err, journal.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if n := j.Stats().Transactions; n != 0 {
		t.Errorf("invalid batches reached the disk in %d transactions", n)
	}
}

func TestFilesArePrivate(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	open(t, dir)
	for path, want := range map[string]os.FileMode{"": 0o700, journal.DBFile: 0o600, journal.LockFile: 0o600} {
		st, err := os.Stat(filepath.Join(dir, path))
		if err != nil || st.Mode().Perm() != want {
			t.Errorf("%q: %v, %v; want %v", path, st.Mode(), err, want)
		}
	}
}
