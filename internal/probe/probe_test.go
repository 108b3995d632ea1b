package probe_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/barista-fleet/barista/internal/bucket"
	"github.com/barista-fleet/barista/internal/bucket/buckettest"
	"github.com/barista-fleet/barista/internal/probe"
)

// broken is a store with one defect that a real server has been seen to have.
type broken struct {
	bucket.Store
	put  func(ctx context.Context, s bucket.Store, key string, body []byte, cond bucket.Condition) bucket.PutResult
	get  func(obj bucket.Object) bucket.Object
	list func(l bucket.Listing) bucket.Listing
}

func (b broken) Put(ctx context.Context, key string, body []byte, cond bucket.Condition) bucket.PutResult {
	if b.put != nil {
		return b.put(ctx, b.Store, key, body, cond)
	}
	return b.Store.Put(ctx, key, body, cond)
}

func (b broken) Get(ctx context.Context, key string, etag bucket.ETag) (bucket.Object, error) {
	obj, err := b.Store.Get(ctx, key, etag)
	if b.get != nil {
		obj = b.get(obj)
	}
	return obj, err
}

func (b broken) List(ctx context.Context, prefix string) (bucket.Listing, error) {
	l, err := b.Store.List(ctx, prefix)
	if b.list != nil {
		l = b.list(l)
	}
	return l, err
}

// checkThenAct is a conditional write whose check and write are two steps: two
// racers pass the check together.
func checkThenAct(create bool) func(context.Context, bucket.Store, string, []byte, bucket.Condition) bucket.PutResult {
	return func(ctx context.Context, s bucket.Store, key string, body []byte, cond bucket.Condition) bucket.PutResult {
		want, match := cond.WantMatch()
		if cond.WantAbsent() != create || !create && !match {
			return s.Put(ctx, key, body, cond)
		}
		obj, err := s.Get(ctx, key, "")
		if err != nil {
			return bucket.PutResult{Err: err}
		}
		holds := create && obj.Status == bucket.Absent || match && obj.Status == bucket.Found && obj.ETag == want
		if !holds {
			return bucket.PutResult{Outcome: bucket.Rejected, Err: bucket.ErrCondition}
		}
		time.Sleep(2 * time.Millisecond)
		return s.Put(ctx, key, body, bucket.Unconditional())
	}
}

func TestDefectsAreNamed(t *testing.T) {
	var once sync.Once
	var hidden bool
	for name, tc := range map[string]struct {
		store  broken
		defect string // the first one named; "": sound
		warns  string
	}{
		"sound": {},
		"ignores if-none-match": {
			store: broken{put: func(ctx context.Context, s bucket.Store, key string, body []byte, cond bucket.Condition) bucket.PutResult {
				if cond.WantAbsent() {
					cond = bucket.Unconditional()
				}
				return s.Put(ctx, key, body, cond)
			}}, defect: "second create is refused",
		},
		"ignores if-match": {
			store: broken{put: func(ctx context.Context, s bucket.Store, key string, body []byte, cond bucket.Condition) bucket.PutResult {
				if _, ok := cond.WantMatch(); ok {
					cond = bucket.Unconditional()
				}
				return s.Put(ctx, key, body, cond)
			}}, defect: "stale update is refused",
		},
		"creates on if-match": {
			store: broken{put: func(ctx context.Context, s bucket.Store, key string, body []byte, cond bucket.Condition) bucket.PutResult {
				r := s.Put(ctx, key, body, cond)
				if _, ok := cond.WantMatch(); ok && r.Conflict() {
					if obj, err := s.Get(ctx, key, ""); err == nil && obj.Status == bucket.Absent {
						return s.Put(ctx, key, body, bucket.IfAbsent())
					}
				}
				return r
			}}, defect: "update of a missing key creates nothing",
		},
		"create is check-then-act": {store: broken{put: checkThenAct(true)}, defect: "create race has one winner"},
		"update is check-then-act": {store: broken{put: checkThenAct(false)}, defect: "update race has one winner"},
		"strips the etag's quotes on reads": {
			store:  broken{get: func(o bucket.Object) bucket.Object { o.ETag = bucket.ETag(strings.Trim(string(o.ETag), `"`)); return o }},
			defect: "etag is given verbatim",
		},
		"lists late": {
			store: broken{list: func(l bucket.Listing) bucket.Listing {
				once.Do(func() { hidden = true })
				if hidden {
					l.Entries = nil
				}
				return l
			}}, defect: "listing shows a write at once",
		},
		"clock hours off": {
			store: broken{get: func(o bucket.Object) bucket.Object { o.Date = time.Now().Add(-3 * time.Hour); return o }},
			warns: "clocks agree",
		},
	} {
		t.Run(name, func(t *testing.T) {
			tc.store.Store = buckettest.NewMem()
			rep, err := probe.Run(t.Context(), tc.store)
			if err != nil {
				t.Fatal(err)
			}
			var got string
			if d := rep.Defects(); len(d) > 0 {
				got = d[0].Name
			}
			if got != tc.defect {
				t.Errorf("defect %q, want %q; checks %+v", got, tc.defect, rep.Checks)
			}
			if tc.warns != "" && (len(rep.Warnings()) == 0 || rep.Warnings()[0].Name != tc.warns) {
				t.Errorf("warnings %+v, want %q", rep.Warnings(), tc.warns)
			}
			if left, err := tc.store.Store.List(t.Context(), "probe/"); err != nil || len(left.Entries) > 0 {
				t.Errorf("left %d objects behind (%v)", len(left.Entries), err)
			}
		})
	}
}

func TestRefusedRequestsAreNoVerdict(t *testing.T) {
	store := broken{Store: buckettest.NewMem(), put: func(context.Context, bucket.Store, string, []byte, bucket.Condition) bucket.PutResult {
		return bucket.PutResult{Outcome: bucket.Rejected, Err: bucket.ErrDenied}
	}}
	if _, err := probe.Run(t.Context(), store); !errors.Is(err, bucket.ErrDenied) {
		t.Errorf("err %v, want access denied", err)
	}
}
