package buckettest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/barista-fleet/barista/internal/bucket"
)

// Suite is the conformance suite with its sizes. The zero value is the form for
// every `go test`.
type Suite struct {
	Racers int // writers in a race; default 64
	Rounds int // keys raced for, one after the other; default 5
	Keys   int // objects in the long listing; default 1,100, more than a page
	// NoSiblings: the server refuses a key that is the "directory" of another.
	// Nothing of ours needs such keys.
	NoSiblings bool
	// Undated: its listings do not say when an object was written.
	Undated bool
	// Plant stores an object past the store's checks, to have one that is too
	// large. Without it that case is not run.
	Plant func(t *testing.T, s bucket.Store, key string, body []byte)
}

// Run runs the suite in its default form. Open is called once per case and
// returns an empty store.
func Run(t *testing.T, open func(t *testing.T) bucket.Store) { Suite{}.Run(t, open) }

// Run runs the suite.
func (s Suite) Run(t *testing.T, open func(t *testing.T) bucket.Store) {
	s.Racers = cmpOr(s.Racers, 64)
	s.Rounds = cmpOr(s.Rounds, 5)
	s.Keys = cmpOr(s.Keys, 1100)
	cases := []struct {
		name string
		run  func(*testing.T, bucket.Store)
	}{
		{"create", testCreate},
		{"update", testUpdate},
		{"update of absent", testUpdateAbsent},
		{"unconditional", testUnconditional},
		{"conditions refused", testBadConditions},
		{"etag", testETag},
		{"get", testGet},
		{"bodies", testBodies},
		{"names", s.testNames},
		{"bad keys", testBadKeys},
		{"delete", testDelete},
		{"list", testList},
		{"list after write", testListAfterWrite},
		{"long list", s.testLongList},
		{"list under overwrite", testListUnderOverwrite},
		{"context", testContext},
		{"dates", s.testDates},
		{"create race", s.testCreateRace},
		{"update race", s.testUpdateRace},
		{"counter", s.testCounter},
	}
	if s.Plant != nil {
		cases = append(cases, struct {
			name string
			run  func(*testing.T, bucket.Store)
		}{"oversize", s.testOversize})
	}
	for _, c := range cases {
		t.Run(strings.ReplaceAll(c.name, " ", "_"), func(t *testing.T) { c.run(t, open(t)) })
	}
}

func cmpOr(n, otherwise int) int {
	if n == 0 {
		return otherwise
	}
	return n
}

// caseTimeout bounds each call of the suite: far above what a store takes, so
// that a hanging one fails with a name.
const caseTimeout = 30 * time.Second

func mustApply(t *testing.T, s bucket.Store, key, body string, cond bucket.Condition) bucket.ETag {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), caseTimeout)
	defer cancel()
	r := s.Put(ctx, key, []byte(body), cond)
	if r.Outcome != bucket.Applied || r.Err != nil || r.ETag == "" {
		t.Fatalf("put %s %v: %v, etag %s, error %v; want applied", key, cond, r.Outcome, r.ETag, r.Err)
	}
	return r.ETag
}

func mustConflict(t *testing.T, s bucket.Store, key, body string, cond bucket.Condition) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), caseTimeout)
	defer cancel()
	if r := s.Put(ctx, key, []byte(body), cond); !r.Conflict() {
		t.Fatalf("put %s %v: %v, error %v; want a conflict", key, cond, r.Outcome, r.Err)
	}
}

func mustGet(t *testing.T, s bucket.Store, key string) bucket.Object {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), caseTimeout)
	defer cancel()
	obj, err := s.Get(ctx, key, "")
	if err != nil {
		t.Fatalf("get %s: %v", key, err)
	}
	return obj
}

func wantBody(t *testing.T, s bucket.Store, key, body string, etag bucket.ETag) {
	t.Helper()
	obj := mustGet(t, s, key)
	if obj.Status != bucket.Found || string(obj.Body) != body || obj.ETag != etag {
		t.Fatalf("get %s: %v %q etag %s; want %q etag %s", key, obj.Status, obj.Body, obj.ETag, body, etag)
	}
}

func mustList(t *testing.T, s bucket.Store, prefix string) []bucket.Entry {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), caseTimeout)
	defer cancel()
	l, err := s.List(ctx, prefix)
	if err != nil {
		t.Fatalf("list %q: %v", prefix, err)
	}
	return l.Entries
}

func keysOf(entries []bucket.Entry) []string {
	keys := make([]string, len(entries))
	for i, e := range entries {
		keys[i] = e.Key
	}
	return keys
}

func testCreate(t *testing.T, s bucket.Store) {
	etag := mustApply(t, s, "a/k", "one", bucket.IfAbsent())
	wantBody(t, s, "a/k", "one", etag)
	mustConflict(t, s, "a/k", "two", bucket.IfAbsent())
	wantBody(t, s, "a/k", "one", etag)
}

func testUpdate(t *testing.T, s bucket.Store) {
	first := mustApply(t, s, "a/k", "one", bucket.IfAbsent())
	second := mustApply(t, s, "a/k", "two", bucket.IfMatch(first))
	mustConflict(t, s, "a/k", "three", bucket.IfMatch(first))
	wantBody(t, s, "a/k", "two", second)
	third := mustApply(t, s, "a/k", "three", bucket.IfMatch(second))
	wantBody(t, s, "a/k", "three", third)
}

// A conditional update must not create, whatever the ETag says: not one that
// the key never had, and not the one it had before it was deleted.
func testUpdateAbsent(t *testing.T, s bucket.Store) {
	etag := mustApply(t, s, "a/other", "x", bucket.IfAbsent())
	mustConflict(t, s, "a/k", "one", bucket.IfMatch(etag))
	if obj := mustGet(t, s, "a/k"); obj.Status != bucket.Absent {
		t.Fatalf("an update of an absent key left it %v", obj.Status)
	}
	gone := mustApply(t, s, "a/gone", "x", bucket.IfAbsent())
	if err := s.Delete(t.Context(), "a/gone"); err != nil {
		t.Fatal(err)
	}
	mustConflict(t, s, "a/gone", "y", bucket.IfMatch(gone))
}

func testUnconditional(t *testing.T, s bucket.Store) {
	mustApply(t, s, "a/k", "one", bucket.Unconditional())
	etag := mustApply(t, s, "a/k", "two", bucket.Unconditional())
	wantBody(t, s, "a/k", "two", etag)
}

func testBadConditions(t *testing.T, s bucket.Store) {
	etag := mustApply(t, s, "a/k", "one", bucket.IfAbsent())
	for name, cond := range map[string]bucket.Condition{
		"zero": {}, "empty etag": bucket.IfMatch(""),
	} {
		r := s.Put(t.Context(), "a/k", []byte("two"), cond)
		if r.Outcome != bucket.Rejected || !errors.Is(r.Err, bucket.ErrInvalid) || r.Conflict() {
			t.Errorf("%s condition: %v, error %v; want it refused as invalid", name, r.Outcome, r.Err)
		}
	}
	wantBody(t, s, "a/k", "one", etag)
}

// The ETag of a Put, of a Get and of a listing is one and the same string, and
// another body has another.
func testETag(t *testing.T, s bucket.Store) {
	seen := map[bucket.ETag]string{}
	etag := mustApply(t, s, "a/k", "body 0", bucket.IfAbsent())
	for i := 1; ; i++ {
		wantBody(t, s, "a/k", fmt.Sprintf("body %d", i-1), etag)
		entries := mustList(t, s, "a/")
		if len(entries) != 1 || entries[0].ETag != etag {
			t.Fatalf("listed %+v, want the one etag %s", entries, etag)
		}
		if body, ok := seen[etag]; ok {
			t.Fatalf("etag %s stood for %q already", etag, body)
		}
		seen[etag] = fmt.Sprintf("body %d", i-1)
		if i == 10 {
			return
		}
		etag = mustApply(t, s, "a/k", fmt.Sprintf("body %d", i), bucket.IfMatch(etag))
	}
}

func testGet(t *testing.T, s bucket.Store) {
	if obj := mustGet(t, s, "a/k"); obj.Status != bucket.Absent || obj.Body != nil || obj.ETag != "" {
		t.Fatalf("a key never written is %+v", obj)
	}
	etag := mustApply(t, s, "a/k", "one", bucket.IfAbsent())
	obj, err := s.Get(t.Context(), "a/k", etag)
	if err != nil || obj.Status != bucket.NotModified || obj.Body != nil {
		t.Fatalf("get with the etag it has: %v %q, error %v; want not modified", obj.Status, obj.Body, err)
	}
	mustApply(t, s, "a/k", "two", bucket.IfMatch(etag))
	obj, err = s.Get(t.Context(), "a/k", etag)
	if err != nil || obj.Status != bucket.Found || string(obj.Body) != "two" {
		t.Fatalf("get with an old etag: %v %q, error %v; want the new body", obj.Status, obj.Body, err)
	}
	if obj, err = s.Get(t.Context(), "a/none", etag); err != nil || obj.Status != bucket.Absent {
		t.Fatalf("get of an absent key with an etag: %v, error %v", obj.Status, err)
	}
}

func testBodies(t *testing.T, s bucket.Store) {
	for name, body := range map[string]string{
		"empty": "", "newline": "\n", "binary": "\x00\xff\r\n\x00", "full": strings.Repeat("x", bucket.MaxBody),
	} {
		etag := mustApply(t, s, "a/"+name, body, bucket.IfAbsent())
		obj := mustGet(t, s, "a/"+name)
		if obj.Status != bucket.Found || string(obj.Body) != body || obj.Oversize || obj.Body == nil {
			t.Errorf("%s: %v with %d bytes (oversize %v), want %d", name, obj.Status, len(obj.Body), obj.Oversize, len(body))
		}
		mustApply(t, s, "a/"+name, "next", bucket.IfMatch(etag))
	}
	tooLarge := bytes.Repeat([]byte("x"), bucket.MaxBody+1)
	r := s.Put(t.Context(), "a/large", tooLarge, bucket.IfAbsent())
	if r.Outcome != bucket.Rejected || !errors.Is(r.Err, bucket.ErrInvalid) {
		t.Errorf("a body over the limit: %v, error %v; want it refused as invalid", r.Outcome, r.Err)
	}

	// The body belongs to the caller, before and after.
	mine := []byte("mine")
	r = s.Put(t.Context(), "a/own", mine, bucket.IfAbsent())
	copy(mine, "XXXX")
	got := mustGet(t, s, "a/own")
	if string(got.Body) != "mine" {
		t.Errorf("the stored body changed with the caller's slice: %q", got.Body)
	}
	copy(got.Body, "YYYY")
	wantBody(t, s, "a/own", "mine", r.ETag)
}

func (s Suite) testNames(t *testing.T, store bucket.Store) {
	keys := []string{
		"top", "n/lower", "n/UPPER", "n/upper", "n/Upper", "n/uPPER", "N/lower", "n/a.b", "n/.hidden", "n/a..b", "n/...",
		"n/-dash", "n/_under", "n/k=v", "n/tmp", "n/con", "n/x-lock", "objects/a", "tmp/a", "deep/a/b/c/d/e/f",
		"n/" + strings.Repeat("l", bucket.MaxKey-2), "N/" + strings.Repeat("aB", bucket.MaxKey/2-1),
		strings.Repeat("Q", bucket.MaxKey), strings.Repeat("d/", bucket.MaxKey/2-1) + "xy",
	}
	if !s.NoSiblings {
		keys = append(keys, "n/x", "n/x/y", "n/x/y/z", "objects", "deep/a")
	}
	etags := map[string]bucket.ETag{}
	for _, key := range keys {
		etags[key] = mustApply(t, store, key, "body of "+key, bucket.IfAbsent())
	}
	for _, key := range keys {
		wantBody(t, store, key, "body of "+key, etags[key])
	}
	slices.Sort(keys)
	if got := keysOf(mustList(t, store, "")); !slices.Equal(got, keys) {
		t.Errorf("listed\n%q, want\n%q", got, keys)
	}
	for _, key := range keys {
		if got := keysOf(mustList(t, store, key)); !slices.Contains(got, key) {
			t.Errorf("list %q: %q", key, got)
		}
	}
}

func testBadKeys(t *testing.T, s bucket.Store) {
	bad := []string{
		"", "/", "/a", "a/", "a//b", ".", "..", "a/.", "a/../b", "a b", "a\x00b", "a\nb", "a+b", "a%2fb", `a\b`, "ä", "a?b", "a#b",
		"a:b", "a*b", strings.Repeat("k", bucket.MaxKey+1),
	}
	for _, key := range bad {
		if _, err := s.Get(t.Context(), key, ""); !errors.Is(err, bucket.ErrInvalid) {
			t.Errorf("get %q: %v", key, err)
		}
		if r := s.Put(t.Context(), key, nil, bucket.IfAbsent()); r.Outcome != bucket.Rejected || !errors.Is(r.Err, bucket.ErrInvalid) {
			t.Errorf("put %q: %v %v", key, r.Outcome, r.Err)
		}
		if err := s.Delete(t.Context(), key); !errors.Is(err, bucket.ErrInvalid) {
			t.Errorf("delete %q: %v", key, err)
		}
	}
	for _, prefix := range []string{"/", "/a", "a b", "a\x00", strings.Repeat("k", bucket.MaxKey+1)} {
		if _, err := s.List(t.Context(), prefix); !errors.Is(err, bucket.ErrInvalid) {
			t.Errorf("list %q: %v", prefix, err)
		}
	}
	if got := mustList(t, s, ""); len(got) != 0 {
		t.Errorf("bad keys left %v behind", got)
	}
}

func testDelete(t *testing.T, s bucket.Store) {
	if err := s.Delete(t.Context(), "a/never"); err != nil {
		t.Errorf("delete of an absent key: %v", err)
	}
	mustApply(t, s, "a/k", "one", bucket.IfAbsent())
	mustApply(t, s, "a/k2", "two", bucket.IfAbsent())
	for range 2 {
		if err := s.Delete(t.Context(), "a/k"); err != nil {
			t.Fatal(err)
		}
		if obj := mustGet(t, s, "a/k"); obj.Status != bucket.Absent {
			t.Fatalf("a deleted key is %v", obj.Status)
		}
	}
	if got := keysOf(mustList(t, s, "")); !slices.Equal(got, []string{"a/k2"}) {
		t.Errorf("listed %q", got)
	}
	mustApply(t, s, "a/k", "again", bucket.IfAbsent())
}

func (s Suite) testOversize(t *testing.T, store bucket.Store) {
	s.Plant(t, store, "a/large", bytes.Repeat([]byte("x"), bucket.MaxBody+1))
	obj := mustGet(t, store, "a/large")
	if obj.Status != bucket.Found || !obj.Oversize || obj.Body != nil || obj.ETag == "" {
		t.Fatalf("an object over the limit: %v, oversize %v, %d bytes, etag %s", obj.Status, obj.Oversize, len(obj.Body), obj.ETag)
	}
	if got := mustList(t, store, ""); len(got) != 1 || got[0].Size != bucket.MaxBody+1 || got[0].ETag != obj.ETag {
		t.Fatalf("listed %+v, want %d bytes and etag %s", got, bucket.MaxBody+1, obj.ETag)
	}
	mustConflict(t, store, "a/large", "small", bucket.IfAbsent())
	etag := mustApply(t, store, "a/large", "small", bucket.IfMatch(obj.ETag))
	wantBody(t, store, "a/large", "small", etag)
}

func testContext(t *testing.T, s bucket.Store) {
	etag := mustApply(t, s, "a/k", "one", bucket.IfAbsent())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Get(ctx, "a/k", ""); !errors.Is(err, context.Canceled) {
		t.Errorf("get: %v", err)
	}
	if _, err := s.Get(ctx, "a/none", ""); !errors.Is(err, context.Canceled) {
		t.Errorf("get of an absent key: %v", err)
	}
	if _, err := s.List(ctx, ""); !errors.Is(err, context.Canceled) {
		t.Errorf("list: %v", err)
	}
	if err := s.Delete(ctx, "a/k"); !errors.Is(err, context.Canceled) {
		t.Errorf("delete: %v", err)
	}
	r := s.Put(ctx, "a/k", []byte("two"), bucket.IfMatch(etag))
	if r.Outcome != bucket.Rejected || !errors.Is(r.Err, context.Canceled) || r.Conflict() {
		t.Errorf("put that was never sent: %v, error %v", r.Outcome, r.Err)
	}
	wantBody(t, s, "a/k", "one", etag)
}

// maxSkew is what a store's clock may be off in the suite: a Date header has
// whole seconds, and everything runs on one machine.
const maxSkew = 5 * time.Second

func (s Suite) testDates(t *testing.T, store bucket.Store) {
	check := func(what string, date time.Time) {
		t.Helper()
		if off := time.Since(date); off < -maxSkew || off > maxSkew {
			t.Errorf("%s: the store's date is %v, off by %v", what, date, off)
		}
	}
	r := store.Put(t.Context(), "a/k", []byte("one"), bucket.IfAbsent())
	check("put", r.Date)
	check("conflict", store.Put(t.Context(), "a/k", []byte("two"), bucket.IfAbsent()).Date)
	check("get", mustGet(t, store, "a/k").Date)
	check("absent", mustGet(t, store, "a/none").Date)
	obj, err := store.Get(t.Context(), "a/k", r.ETag)
	if err != nil {
		t.Fatal(err)
	}
	check("not modified", obj.Date)
	l, err := store.List(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	check("list", l.Date)
	if len(l.Entries) != 1 {
		t.Fatalf("listed %+v", l.Entries)
	}
	if !s.Undated {
		check("modified", l.Entries[0].Modified)
	}
}
