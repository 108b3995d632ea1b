package s3bucket

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/barista-fleet/barista/internal/bucket"
)

func TestGet(t *testing.T) {
	const date = "Mon, 02 Jan 2006 15:04:05 GMT"
	big := strings.Repeat("x", bucket.MaxBody+1)
	for _, c := range []struct {
		name     string
		ifNone   bucket.ETag
		answers  []http.HandlerFunc
		want     bucket.Object
		requests int
		kind     error
	}{
		{"found", "", []http.HandlerFunc{answer(200, "body", "ETag", `"e"`)}, bucket.Object{Status: bucket.Found, ETag: `"e"`, Body: []byte("body")}, 1, nil},
		{"unquoted etag", "", []http.HandlerFunc{answer(200, "body", "ETag", `e`)}, bucket.Object{Status: bucket.Found, ETag: `e`, Body: []byte("body")}, 1, nil},
		{"empty", "", []http.HandlerFunc{answer(200, "", "ETag", `"e"`)}, bucket.Object{Status: bucket.Found, ETag: `"e"`, Body: []byte{}}, 1, nil},
		{"absent", "", []http.HandlerFunc{s3error(404, "NoSuchKey", "no")}, bucket.Object{Status: bucket.Absent}, 1, nil},
		{"not modified", `"e"`, []http.HandlerFunc{status(304)}, bucket.Object{Status: bucket.NotModified}, 1, nil},
		{"modified", `"old"`, []http.HandlerFunc{answer(200, "b", "ETag", `"e"`)}, bucket.Object{Status: bucket.Found, ETag: `"e"`, Body: []byte("b")}, 1, nil},
		{"oversize", "", []http.HandlerFunc{answer(200, big, "ETag", `"e"`)}, bucket.Object{Status: bucket.Found, ETag: `"e"`, Oversize: true}, 1, nil},
		{"500 then fine", "", []http.HandlerFunc{s3error(500, "InternalError", "x"), answer(200, "b", "ETag", `"e"`)}, bucket.Object{Status: bucket.Found, ETag: `"e"`, Body: []byte("b")}, 2, nil},
		{"cut then fine", "", []http.HandlerFunc{cut, answer(200, "b", "ETag", `"e"`)}, bucket.Object{Status: bucket.Found, ETag: `"e"`, Body: []byte("b")}, 2, nil},
		{"short then fine", "", []http.HandlerFunc{short("ETag", `"e"`), answer(200, "b", "ETag", `"e"`)}, bucket.Object{Status: bucket.Found, ETag: `"e"`, Body: []byte("b")}, 2, nil},
		{"short", "", []http.HandlerFunc{short("ETag", `"e"`)}, bucket.Object{}, 3, bucket.ErrUnreachable},
		{"cut", "", []http.HandlerFunc{cut}, bucket.Object{}, 3, bucket.ErrUnreachable},
		{"500", "", []http.HandlerFunc{html(500)}, bucket.Object{}, 3, bucket.ErrUnreachable},
		{"hang", "", []http.HandlerFunc{hang}, bucket.Object{}, 1, bucket.ErrUnreachable},
		{"portal", "", []http.HandlerFunc{html(200)}, bucket.Object{}, 3, bucket.ErrUnreachable},
		{"304 unasked", "", []http.HandlerFunc{status(304)}, bucket.Object{}, 1, bucket.ErrUnreachable},
		{"404 empty", "", []http.HandlerFunc{status(404)}, bucket.Object{}, 1, bucket.ErrUnreachable},
		{"404 html", "", []http.HandlerFunc{html(404)}, bucket.Object{}, 1, bucket.ErrUnreachable},
		{"404 bucket", "", []http.HandlerFunc{s3error(404, "NoSuchBucket", "no")}, bucket.Object{}, 1, bucket.ErrUnreachable},
		{"403", "", []http.HandlerFunc{s3error(403, "AccessDenied", "no")}, bucket.Object{}, 1, bucket.ErrDenied},
		{"301", "", []http.HandlerFunc{s3error(301, "PermanentRedirect", "no")}, bucket.Object{}, 1, bucket.ErrUnreachable},
	} {
		t.Run(c.name, func(t *testing.T) {
			var script []http.HandlerFunc
			for _, a := range c.answers {
				script = append(script, func(w http.ResponseWriter, r *http.Request) {
					w.Header().Set("Date", date)
					a(w, r)
				})
			}
			srv := newServer(t, script...)
			s := srv.open(t, "")
			obj, err := s.Get(t.Context(), "a/k", c.ifNone)
			seen := srv.seen()
			if len(seen) != c.requests {
				t.Errorf("sent %d requests, want %d", len(seen), c.requests)
			}
			wantHeader(t, seen[0], "If-Match", nil)
			if c.ifNone != "" {
				wantHeader(t, seen[0], "If-None-Match", []string{string(c.ifNone)})
			} else {
				wantHeader(t, seen[0], "If-None-Match", nil)
			}
			if c.kind != nil {
				if err == nil || obj.Status != 0 {
					t.Fatalf("%v without an error", obj.Status)
				}
				wantError(t, err, c.kind, "")
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if obj.Status != c.want.Status || obj.ETag != c.want.ETag || obj.Oversize != c.want.Oversize ||
				string(obj.Body) != string(c.want.Body) || (obj.Body == nil) != (c.want.Body == nil) {
				t.Errorf("got %+v, want %+v", obj, c.want)
			}
			if obj.Date.Year() != 2006 {
				t.Errorf("date %v", obj.Date)
			}
		})
	}
}

// An oversize object is told by its length; its body is not fetched, and one
// without a length is not read to its end.
func TestGetEndless(t *testing.T) {
	srv := newServer(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("ETag", `"e"`)
		endless(200)(w, r)
	})
	s := srv.open(t, "")
	obj, err := s.Get(t.Context(), "k", "")
	if err != nil || !obj.Oversize || obj.Body != nil {
		t.Fatalf("%v, oversize %v, error %v", obj.Status, obj.Oversize, err)
	}
}

func TestList(t *testing.T) {
	srv := newServer(t, listing("t1", true, "nodes/a", "nodes/b"), listing("t2", true, "nodes/c%2Bd%01+e"), listing("", false, "nodes/B"))
	s := srv.open(t, "")
	got, err := s.List(t.Context(), "nodes/")
	if err != nil {
		t.Fatal(err)
	}
	written := time.Date(2026, 2, 3, 4, 5, 6, 0, time.UTC)
	want := []bucket.Entry{
		{Key: "nodes/B", ETag: `"e-nodes/B"`, Size: 7, Modified: written},
		{Key: "nodes/a", ETag: `"e-nodes/a"`, Size: 7, Modified: written},
		{Key: "nodes/b", ETag: `"e-nodes/b"`, Size: 7, Modified: written},
		{Key: "nodes/c+d\x01 e", ETag: `"e-nodes/c%2Bd%01+e"`, Size: 7, Modified: written},
	}
	if !slices.Equal(got.Entries, want) {
		t.Errorf("listed %+v, want %+v", got.Entries, want)
	}
	if time.Since(got.Date).Abs() > time.Minute {
		t.Errorf("date %v", got.Date)
	}
	for i, token := range []string{"", "t1", "t2"} {
		q := srv.seen()[i].URL.Query()
		if q.Get("continuation-token") != token || q.Get("prefix") != "nodes/" || q.Get("list-type") != "2" || q.Get("encoding-type") != "url" {
			t.Errorf("page %d: sent %v", i+1, q)
		}
	}
}

func TestListPrefix(t *testing.T) {
	srv := newServer(t, listing("", false, "team/one/nodes/a"))
	isolate(t)
	s := openURL(t, "s3://fleet/team/one?endpoint="+srv.URL, WithCredentials("A", "b"))
	got, err := s.List(t.Context(), "nodes/")
	if err != nil || len(got.Entries) != 1 || got.Entries[0].Key != "nodes/a" {
		t.Fatalf("listed %+v, error %v", got.Entries, err)
	}
	if q := srv.seen()[0].URL.Query(); q.Get("prefix") != "team/one/nodes/" {
		t.Errorf("asked for prefix %q", q.Get("prefix"))
	}
	if got, err := s.List(t.Context(), ""); err != nil || len(got.Entries) != 1 {
		t.Errorf("all: %+v, error %v", got.Entries, err)
	}
}

// A listing fails whole: a part of it would make living objects look absent.
func TestListFailures(t *testing.T) {
	page1 := listing("t1", true, "a/1")
	for _, c := range []struct {
		name     string
		answers  []http.HandlerFunc
		requests int
		kind     error
		text     string
	}{
		{"repeated token", []http.HandlerFunc{page1, listing("t1", true, "a/2")}, 2, bucket.ErrUnreachable, "continuation token"},
		{"truncated without token", []http.HandlerFunc{page1, listing("", true, "a/2")}, 2, bucket.ErrUnreachable, "not where"},
		{"repeated page", []http.HandlerFunc{page1, listing("t2", true, "a/1")}, 2, bucket.ErrUnreachable, "repeats the key"},
		{"foreign key", []http.HandlerFunc{page1, listing("", false, "b/1")}, 2, bucket.ErrUnreachable, "does not start with"},
		{"second page fails", []http.HandlerFunc{page1, s3error(500, "InternalError", "x")}, 4, bucket.ErrUnreachable, "InternalError"},
		{"second page denied", []http.HandlerFunc{page1, s3error(403, "AccessDenied", "x")}, 2, bucket.ErrDenied, "AccessDenied"},
		{"portal", []http.HandlerFunc{html(200)}, 3, bucket.ErrUnreachable, ""},
		{"other xml", []http.HandlerFunc{answer(200, "<a><b/></a>")}, 3, bucket.ErrUnreachable, "not a listing"},
		{"empty body", []http.HandlerFunc{status(200)}, 3, bucket.ErrUnreachable, "not a listing"},
		{"cut short", []http.HandlerFunc{answer(200, "<ListBucketResult><Name>fleet</Name><Contents><Key>a/1</Key>")}, 3, bucket.ErrUnreachable, ""},
		{"no bucket", []http.HandlerFunc{s3error(404, "NoSuchBucket", "x")}, 1, bucket.ErrUnreachable, "NoSuchBucket"},
		{"hang", []http.HandlerFunc{hang}, 1, bucket.ErrUnreachable, "no answer within"},
	} {
		t.Run(c.name, func(t *testing.T) {
			srv := newServer(t, c.answers...)
			s := srv.open(t, "")
			got, err := s.List(t.Context(), "a/")
			if err == nil || got.Entries != nil {
				t.Fatalf("listed %+v, error %v", got.Entries, err)
			}
			wantError(t, err, c.kind, "")
			if !strings.Contains(err.Error(), c.text) {
				t.Errorf("error %q, want %q in it", err, c.text)
			}
			if n := len(srv.seen()); n != c.requests {
				t.Errorf("sent %d requests, want %d", n, c.requests)
			}
		})
	}
}

func TestReadContext(t *testing.T) {
	srv := newServer(t, hang)
	s := srv.open(t, "", WithTimeout(time.Minute))
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(100*time.Millisecond, cancel)
	if _, err := s.Get(ctx, "k", ""); !errors.Is(err, context.Canceled) {
		t.Errorf("get: %v", err)
	}
	ctx, cancel = context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := s.List(ctx, ""); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("list: %v", err)
	}
}

// More than the SDK's shared quota of failing reads must not make the next one fail.
func TestReadsHaveNoSharedQuota(t *testing.T) {
	srv := newServer(t, status(503))
	s := srv.open(t, "", WithTimeout(3*time.Second))
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			if _, err := s.Get(t.Context(), "k", ""); err == nil {
				t.Error("a failing read succeeded")
			}
		})
	}
	wg.Wait()
	srv.answers(status(503), answer(200, "b", "ETag", `"e"`))
	if obj, err := s.Get(t.Context(), "k", ""); err != nil || obj.Status != bucket.Found {
		t.Errorf("after 20 failed reads, one failure and a success: %v, error %v", obj.Status, err)
	}
}
