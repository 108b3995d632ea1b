package localstore_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/barista-fleet/barista/internal/bucket"
	"github.com/barista-fleet/barista/internal/bucket/buckettest"
	"github.com/barista-fleet/barista/internal/localstore"
	"github.com/barista-fleet/barista/pkg/journal"
)

func openJournal(t *testing.T) *journal.Journal {
	t.Helper()
	j, _, err := journal.Open(t.TempDir(), journal.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = j.Close() })
	return j
}

func TestConformance(t *testing.T) {
	var j *journal.Journal
	suite := buckettest.Suite{
		Undated: true,
		Plant: func(t *testing.T, _ bucket.Store, key string, body []byte) {
			if _, err := j.PutObject(t.Context(), key, body, journal.Always()); err != nil {
				t.Fatal(err)
			}
		},
	}
	suite.Run(t, func(t *testing.T) bucket.Store {
		j = openJournal(t)
		return localstore.New(j, nil)
	})
}

func TestChangesAreTold(t *testing.T) {
	var told []string
	s := localstore.New(openJournal(t), func(key string) { told = append(told, key) })
	etag := s.Put(t.Context(), "a", []byte("1"), bucket.IfAbsent()).ETag
	s.Put(t.Context(), "a", []byte("2"), bucket.IfAbsent()) // rejected
	s.Put(t.Context(), "a", []byte("2"), bucket.IfMatch(etag))
	if err := s.Delete(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	if want := []string{"a", "a", "a"}; !slices.Equal(told, want) {
		t.Errorf("told %q, want %q", told, want)
	}
}

// What a closed journal cannot do is certain, so it is not Ambiguous.
func TestClosedJournal(t *testing.T) {
	j := openJournal(t)
	s := localstore.New(j, nil)
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	if r := s.Put(t.Context(), "a", nil, bucket.IfAbsent()); r.Outcome != bucket.Rejected || !errors.Is(r.Err, bucket.ErrUnreachable) {
		t.Errorf("put: %v, %v", r.Outcome, r.Err)
	}
	if _, err := s.Get(t.Context(), "a", ""); !errors.Is(err, bucket.ErrUnreachable) {
		t.Errorf("get: %v", err)
	}
	if err := s.Delete(t.Context(), "a"); !errors.Is(err, bucket.ErrUnreachable) {
		t.Errorf("delete: %v", err)
	}
}

// An ETag of another store, or a forged one, is a condition that does not hold.
func TestForeignETags(t *testing.T) {
	s := localstore.New(openJournal(t), nil)
	if r := s.Put(t.Context(), "a", nil, bucket.IfAbsent()); r.ETag != `"v1"` {
		t.Fatalf("etag %s", r.ETag)
	}
	for _, etag := range []bucket.ETag{`v1`, `"v01"`, `"v+1"`, `"v1`, `"d41d8cd98f00b204e9800998ecf8427e"`, `"v99999999999999999999999"`} {
		if r := s.Put(t.Context(), "a", nil, bucket.IfMatch(etag)); !r.Conflict() {
			t.Errorf("if-match %s: %v, %v", etag, r.Outcome, r.Err)
		}
	}
}
