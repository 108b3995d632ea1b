package minio

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/barista-fleet/barista/internal/bucket"
	"github.com/barista-fleet/barista/internal/bucket/buckettest"
	"github.com/barista-fleet/barista/internal/s3bucket"
	"github.com/barista-fleet/barista/test/minio/s3server"
)

// The conformance suite of the interface, through the adapter, in the sizes
// that a real server is to be tried with.
func TestConformance(t *testing.T) {
	srv := s3server.Start(t)
	var name string
	buckettest.Suite{
		Racers: 64, Rounds: 10, Keys: 2500,
		NoSiblings: srv.Kind == s3server.VersityGW, // its keys are paths of a file system
		Plant: func(t *testing.T, _ bucket.Store, key string, body []byte) {
			r, err := srv.Raw.Do(t.Context(), http.MethodPut, "/"+name+"/"+key, body, nil)
			if err != nil || r.Status != http.StatusOK {
				t.Fatalf("plant %s: %d %s, error %v", key, r.Status, r.Code(), err)
			}
		},
	}.Run(t, func(t *testing.T) bucket.Store {
		name = srv.NewBucket(t)
		return srv.Open(t, srv.URL(name, ""))
	})
}

func TestConformanceBelowPrefix(t *testing.T) {
	srv := s3server.Start(t)
	buckettest.Suite{Racers: 16, Rounds: 2, Keys: 1001, NoSiblings: srv.Kind == s3server.VersityGW}.Run(t, func(t *testing.T) bucket.Store {
		name := srv.NewBucket(t)
		other := srv.Open(t, srv.URL(name, ""))
		if r := other.Put(t.Context(), "elsewhere/k", []byte("not ours"), bucket.IfAbsent()); r.Outcome != bucket.Applied {
			t.Fatal(r.Err)
		}
		url := "s3://" + name + "/team/one?endpoint=" + srv.Endpoint
		return srv.Open(t, url)
	})
}

// A create or an update that 64 clients try at once has one winner, each of 200 times.
func TestRaces(t *testing.T) {
	srv := s3server.Start(t)
	store := srv.NewStore(t)
	const racers, keys = 64, 200
	t.Run("create and update", func(t *testing.T) {
		for i := range keys {
			key := fmt.Sprintf("race/%03d", i)
			etag := buckettest.Race(t, store, racers, key, bucket.IfAbsent())
			buckettest.Race(t, store, racers, key, bucket.IfMatch(etag))
		}
	})
}

// A bucket that does not exist, or keys that are not ours, are errors of their
// own kind and never an absent object.
func TestErrors(t *testing.T) {
	srv := s3server.Start(t)
	t.Run("no bucket", func(t *testing.T) {
		s := srv.Open(t, srv.URL("no-such-bucket", ""))
		checkErrors(t, s, bucket.ErrUnreachable)
	})
	t.Run("unknown key", func(t *testing.T) {
		name := srv.NewBucket(t)
		checkErrors(t, srv.Open(t, srv.URL(name, ""), s3bucket.WithCredentials("nobody", "secret")), bucket.ErrCredentials)
	})
	t.Run("wrong secret", func(t *testing.T) {
		name := srv.NewBucket(t)
		checkErrors(t, srv.Open(t, srv.URL(name, ""), s3bucket.WithCredentials(srv.AccessKey, "wrong")), bucket.ErrDenied)
	})
}

func checkErrors(t *testing.T, s bucket.Store, kind error) {
	t.Helper()
	obj, gerr := s.Get(t.Context(), "a/k", "")
	l, lerr := s.List(t.Context(), "")
	create := s.Put(t.Context(), "a/k", nil, bucket.IfAbsent())
	update := s.Put(t.Context(), "a/k", nil, bucket.IfMatch(`"0123456789abcdef0123456789abcdef"`))
	if obj.Status != 0 || l.Entries != nil || create.Outcome != bucket.Rejected || update.Outcome != bucket.Rejected {
		t.Errorf("get %v, list %v, create %v, update %v", obj.Status, l.Entries, create.Outcome, update.Outcome)
	}
	for _, err := range []error{gerr, lerr, create.Err, update.Err} {
		var typed *bucket.Error
		if !errors.Is(err, kind) || !errors.As(err, &typed) || typed.Hint == "" {
			t.Errorf("error %v, want kind %v and a hint", err, kind)
		}
	}
}

// Keys that we never write but anyone may put into the bucket must not make a
// listing fail, and come as they are.
func TestForeignKeys(t *testing.T) {
	srv := s3server.Start(t)
	name := srv.NewBucket(t)
	store := srv.Open(t, srv.URL(name, ""))
	foreign := map[string]string{ // escaped path to key
		"nodes/with%20space": "nodes/with space", "nodes/a%2Bb": "nodes/a+b", "nodes/p%25q": "nodes/p%q", "nodes/%C3%A9t%C3%A9": "nodes/été",
		"nodes/a%26b%3Cc%3E": "nodes/a&b<c>", "nodes/q%3Fx": "nodes/q?x", "nodes/%23": "nodes/#", "nodes/tab%09x": "nodes/tab\tx", "nodes/ctl%01x": "nodes/ctl\x01x",
	}
	planted := 0
	for path, key := range foreign {
		r, err := srv.Raw.Do(t.Context(), http.MethodPut, "/"+name+"/"+path, []byte("x"), nil)
		if err != nil {
			t.Fatal(err)
		}
		if r.Status != http.StatusOK {
			t.Logf("%s refuses the key %q: %d %s", srv.Kind, key, r.Status, r.Code())
			delete(foreign, path)
			continue
		}
		planted++
	}
	if planted == 0 {
		t.Fatal("the server took none of the keys")
	}
	if r := store.Put(t.Context(), "nodes/ours", nil, bucket.IfAbsent()); r.Outcome != bucket.Applied {
		t.Fatal(r.Err)
	}
	l, err := store.List(t.Context(), "nodes/")
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]bool{}
	for _, e := range l.Entries {
		got[e.Key] = true
	}
	for _, key := range foreign {
		// XML has no way to write a control character; versitygw then lists a
		// replacement for it.
		if !got[key] && !strings.ContainsRune(key, 1) {
			t.Errorf("%q is not listed: %q", key, slices.Collect(maps.Keys(got)))
		}
	}
	if !got["nodes/ours"] || len(got) != planted+1 {
		t.Errorf("listed %v", got)
	}
}
