package buckettest

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/barista-fleet/barista/internal/bucket"
)

// Race lets many writers try one conditional Put at once, fails the test unless
// exactly one of them won, and returns the ETag that is stored then. A server
// may answer a loser with "unclear" (409), so the truth is the stored body.
func Race(t *testing.T, store bucket.Store, racers int, key string, cond bucket.Condition) bucket.ETag {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), caseTimeout)
	defer cancel()
	// A body that the object had before would bring back its ETag, and another
	// racer could match that and win, too.
	nonce := rand.Text()
	results := make([]bucket.PutResult, racers)
	start := make(chan struct{})
	var wg sync.WaitGroup
	for i := range results {
		wg.Go(func() {
			<-start
			results[i] = store.Put(ctx, key, fmt.Appendf(nil, "%s by %d", nonce, i), cond)
		})
	}
	close(start)
	wg.Wait()

	winner := -1
	for i, r := range results {
		switch {
		case r.Outcome == bucket.Applied && winner >= 0:
			t.Fatalf("%s %v: both %d and %d won", key, cond, winner, i)
		case r.Outcome == bucket.Applied:
			winner = i
		case r.Outcome == bucket.Rejected && !r.Conflict():
			t.Fatalf("%s %v: racer %d: %v", key, cond, i, r.Err)
		}
	}
	obj := mustGet(t, store, key)
	var by int
	if _, err := fmt.Sscanf(string(obj.Body), nonce+" by %d", &by); err != nil {
		t.Fatalf("%s holds %q after the race", key, obj.Body)
	}
	if winner >= 0 && (by != winner || obj.ETag != results[winner].ETag) {
		t.Fatalf("%s %v: %d was told that it won, and the object is %d's", key, cond, winner, by)
	}
	if winner < 0 && results[by].Outcome != bucket.Ambiguous {
		t.Fatalf("%s %v: %d was told %v, and the object is its", key, cond, by, results[by].Outcome)
	}
	return obj.ETag
}

func (s Suite) testCreateRace(t *testing.T, store bucket.Store) {
	for i := range s.Rounds {
		Race(t, store, s.Racers, fmt.Sprintf("race/k%d", i), bucket.IfAbsent())
	}
}

func (s Suite) testUpdateRace(t *testing.T, store bucket.Store) {
	etag := mustApply(t, store, "race/k", "start", bucket.IfAbsent())
	for range s.Rounds {
		etag = Race(t, store, s.Racers, "race/k", bucket.IfMatch(etag))
	}
}

// The counter is the classic of compare-and-swap: many writers add one, and no
// addition is lost.
func (s Suite) testCounter(t *testing.T, store bucket.Store) {
	const writers = 8
	adds := 5 * s.Rounds
	etag := mustApply(t, store, "counter", "0", bucket.IfAbsent())
	var wg sync.WaitGroup
	var failed atomic.Pointer[string]
	for w := range writers {
		wg.Go(func() {
			for range adds {
				if err := increment(t.Context(), store, "counter"); err != nil {
					msg := fmt.Sprintf("writer %d: %v", w, err)
					failed.CompareAndSwap(nil, &msg)
					return
				}
			}
		})
	}
	wg.Wait()
	if msg := failed.Load(); msg != nil {
		t.Fatal(*msg)
	}
	obj := mustGet(t, store, "counter")
	if got, want := string(obj.Body), strconv.Itoa(writers*adds); got != want {
		t.Fatalf("counted %s, want %s", got, want)
	}
	mustConflict(t, store, "counter", "x", bucket.IfMatch(etag))
}

// increment adds one to a decimal object by compare-and-swap, however often it
// loses. An unclear outcome is an error here: nothing in the suite breaks a
// connection.
func increment(ctx context.Context, s bucket.Store, key string) error {
	for {
		ctx, cancel := context.WithTimeout(ctx, caseTimeout)
		obj, err := s.Get(ctx, key, "")
		if err != nil {
			cancel()
			return err
		}
		n, err := strconv.Atoi(string(obj.Body))
		if err != nil {
			cancel()
			return err
		}
		r := s.Put(ctx, key, []byte(strconv.Itoa(n+1)), bucket.IfMatch(obj.ETag))
		cancel()
		switch {
		case r.Outcome == bucket.Applied:
			return nil
		case r.Conflict():
		default:
			return fmt.Errorf("%v: %w", r.Outcome, r.Err)
		}
	}
}

func testList(t *testing.T, s bucket.Store) {
	if got := mustList(t, s, ""); len(got) != 0 {
		t.Fatalf("an empty store lists %v", got)
	}
	for _, key := range []string{"b/2", "a/1", "b/10", "b/1", "ba/1", "b-c/1", "B/1"} {
		mustApply(t, s, key, "body of "+key, bucket.IfAbsent())
	}
	for prefix, want := range map[string][]string{
		"":      {"B/1", "a/1", "b-c/1", "b/1", "b/10", "b/2", "ba/1"},
		"b":     {"b-c/1", "b/1", "b/10", "b/2", "ba/1"},
		"b/":    {"b/1", "b/10", "b/2"},
		"b/1":   {"b/1", "b/10"},
		"b/1/":  {},
		"c":     {},
		"b//":   {},
		"b/1.x": {},
	} {
		got := mustList(t, s, prefix)
		if keys := keysOf(got); !slices.Equal(keys, want) {
			t.Errorf("list %q: %q, want %q", prefix, keys, want)
		}
		for _, e := range got {
			if e.Size != int64(len("body of "+e.Key)) {
				t.Errorf("list %q: %s has %d bytes", prefix, e.Key, e.Size)
			}
		}
	}
}

func testListAfterWrite(t *testing.T, s bucket.Store) {
	for i := range 30 {
		key := fmt.Sprintf("w/%02d", i)
		etag := mustApply(t, s, key, "one "+key, bucket.IfAbsent())
		if got := mustList(t, s, "w/"); len(got) != i+1 || got[i].Key != key || got[i].ETag != etag {
			t.Fatalf("after the create of %s the list is %+v", key, got)
		}
		etag = mustApply(t, s, key, "two "+key, bucket.IfMatch(etag))
		if got := mustList(t, s, "w/"); got[i].ETag != etag {
			t.Fatalf("after the update of %s to %s the list is %+v", key, etag, got)
		}
	}
}

func (s Suite) testLongList(t *testing.T, store bucket.Store) {
	want := make([]string, s.Keys)
	for i := range want {
		want[i] = fmt.Sprintf("long/%05d", i)
	}
	mustApply(t, store, "lonf", "before", bucket.IfAbsent())
	mustApply(t, store, "lonh", "after", bucket.IfAbsent())
	FillKeys(t, store, want)
	if got := keysOf(mustList(t, store, "long/")); !slices.Equal(got, want) {
		t.Fatalf("listed %d keys, want %d", len(got), len(want))
	}
}

// FillKeys creates an object for each key, many at a time.
func FillKeys(t *testing.T, s bucket.Store, keys []string) {
	t.Helper()
	const writers = 16
	var next atomic.Int64
	var failed atomic.Pointer[string]
	var wg sync.WaitGroup
	for range writers {
		wg.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= len(keys) || failed.Load() != nil {
					return
				}
				if r := s.Put(t.Context(), keys[i], []byte(keys[i]), bucket.IfAbsent()); r.Outcome != bucket.Applied {
					msg := fmt.Sprintf("create %s: %v %v", keys[i], r.Outcome, r.Err)
					failed.CompareAndSwap(nil, &msg)
				}
			}
		})
	}
	wg.Wait()
	if msg := failed.Load(); msg != nil {
		t.Fatal(*msg)
	}
}

// An object that exists throughout is in every listing, also while it and its
// neighbours are overwritten.
func testListUnderOverwrite(t *testing.T, s bucket.Store) {
	const keys, lists = 20, 60
	var names []string
	for i := range keys {
		names = append(names, fmt.Sprintf("o/%02d", i))
	}
	FillKeys(t, s, names)
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				s.Put(ctx, names[(5*w+i)%keys], fmt.Appendf(nil, "%d %d", w, i), bucket.Unconditional())
			}
		})
	}
	defer wg.Wait()
	defer stop()
	for range lists {
		// versitygw lists its temporary files, too; they are no keys of ours.
		got := keysOf(mustList(t, s, "o/"))
		if got = slices.DeleteFunc(got, func(key string) bool { return !slices.Contains(names, key) }); !slices.Equal(got, names) {
			t.Fatalf("listed %q, want all %d", got, keys)
		}
	}
}
