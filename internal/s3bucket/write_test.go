package s3bucket

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/barista-fleet/barista/internal/bucket"
)

func TestPutSends(t *testing.T) {
	srv := newServer(t, status(200, "ETag", `"new"`, "Date", "Mon, 02 Jan 2006 15:04:05 GMT"))
	s := srv.open(t, "&region=eu-west-1")
	for _, c := range []struct {
		cond                 bucket.Condition
		ifMatch, ifNoneMatch []string
	}{
		{bucket.IfAbsent(), nil, []string{"*"}},
		{bucket.IfMatch(`"old-1"`), []string{`"old-1"`}, nil},
		{bucket.IfMatch(`W/unquoted`), []string{`W/unquoted`}, nil},
		{bucket.Unconditional(), nil, nil},
	} {
		r := s.Put(t.Context(), "nodes/n1", []byte("body"), c.cond)
		if r.Outcome != bucket.Applied || r.ETag != `"new"` || r.Err != nil {
			t.Fatalf("%v: %+v", c.cond, r)
		}
		if want := time.Date(2006, 1, 2, 15, 4, 5, 0, time.UTC); !r.Date.Equal(want) {
			t.Errorf("%v: date %v, want %v", c.cond, r.Date, want)
		}
		seen := srv.seen()
		got := seen[len(seen)-1]
		if got.Method != http.MethodPut || got.URL.Path != "/fleet/nodes/n1" || string(got.body) != "body" || got.ContentLength != 4 {
			t.Errorf("%v: sent %s %s, %q of %d bytes", c.cond, got.Method, got.URL, got.body, got.ContentLength)
		}
		wantHeader(t, got, "If-Match", c.ifMatch)
		wantHeader(t, got, "If-None-Match", c.ifNoneMatch)
		sum := sha256.Sum256([]byte("body"))
		wantHeader(t, got, "X-Amz-Content-Sha256", []string{hex.EncodeToString(sum[:])})
		wantHeader(t, got, "Content-Encoding", nil)
		wantHeader(t, got, "X-Amz-Trailer", nil)
		wantHeader(t, got, "X-Amz-Checksum-Crc32", nil)
		if auth := got.Header.Get("Authorization"); !strings.Contains(auth, "Credential=AKEY/") || !strings.Contains(auth, "/eu-west-1/s3/") {
			t.Errorf("%v: signed %q", c.cond, auth)
		}
	}
}

func wantHeader(t *testing.T, r request, name string, want []string) {
	t.Helper()
	got := r.Header.Values(name)
	if strings.Join(got, "|") != strings.Join(want, "|") || len(got) != len(want) {
		t.Errorf("%s %s: header %s is %q, want %q", r.Method, r.URL.Path, name, got, want)
	}
}

func TestPutRefusesBeforeSending(t *testing.T) {
	srv := newServer(t, status(200, "ETag", `"x"`))
	s := srv.open(t, "")
	for name, r := range map[string]bucket.PutResult{
		"empty etag": s.Put(t.Context(), "k", nil, bucket.IfMatch("")),
		"zero":       s.Put(t.Context(), "k", nil, bucket.Condition{}),
		"key":        s.Put(t.Context(), "a//b", nil, bucket.IfAbsent()),
		"body":       s.Put(t.Context(), "k", make([]byte, bucket.MaxBody+1), bucket.IfAbsent()),
	} {
		if r.Outcome != bucket.Rejected || !errors.Is(r.Err, bucket.ErrInvalid) {
			t.Errorf("%s: %v %v", name, r.Outcome, r.Err)
		}
	}
	if n := len(srv.seen()); n != 0 {
		t.Errorf("%d requests were sent", n)
	}
}

func TestPutPrefixAndEmptyBody(t *testing.T) {
	srv := newServer(t, status(200, "ETag", `"x"`))
	isolate(t)
	s := openURL(t, "s3://fleet/team/one?endpoint="+srv.URL, WithCredentials("A", "b"))
	if r := s.Put(t.Context(), "a/k=v", nil, bucket.IfAbsent()); r.Outcome != bucket.Applied {
		t.Fatal(r.Err)
	}
	got := srv.seen()[0]
	if got.URL.Path != "/fleet/team/one/a/k=v" || len(got.body) != 0 || got.ContentLength != 0 {
		t.Errorf("sent %s with %d bytes, length %d", got.URL.Path, len(got.body), got.ContentLength)
	}
}

// Every answer of a Put has one meaning, and none makes it send a second time.
func TestPutOutcomes(t *testing.T) {
	const match, create = "match", "create"
	for _, c := range []struct {
		name    string
		on      string // the condition; both when empty
		answer  http.HandlerFunc
		outcome bucket.Outcome
		kind    error
		hint    string // part of it
	}{
		{"412", "", s3error(412, "PreconditionFailed", "no"), bucket.Rejected, bucket.ErrCondition, ""},
		{"412 html", "", html(412), bucket.Rejected, bucket.ErrCondition, ""},
		{"412 empty", "", status(412), bucket.Rejected, bucket.ErrCondition, ""},
		{"412 endless", "", endless(412), bucket.Rejected, bucket.ErrCondition, ""},
		{"404 key", match, s3error(404, "NoSuchKey", "no"), bucket.Rejected, bucket.ErrCondition, ""},
		{"404 empty", match, status(404), bucket.Rejected, bucket.ErrCondition, ""},
		{"404 html", create, html(404), bucket.Rejected, bucket.ErrUnreachable, "is an S3 server"},
		{"404 bucket", "", s3error(404, "NoSuchBucket", "no"), bucket.Rejected, bucket.ErrUnreachable, "make the bucket fleet"},
		{"404 user", "", s3error(404, "XAdminUserNotFound", "no"), bucket.Rejected, bucket.ErrCredentials, "renew"},
		{"404 other", "", s3error(404, "NoSuchThing", "no"), bucket.Rejected, bucket.ErrInvalid, ""},
		{"409", "", s3error(409, "ConditionalRequestConflict", "no"), bucket.Ambiguous, nil, ""},
		{"409 html", "", html(409), bucket.Ambiguous, nil, ""},
		{"429", "", s3error(429, "TooManyRequests", "no"), bucket.Rejected, bucket.ErrThrottled, ""},
		{"429 empty", "", status(429), bucket.Rejected, bucket.ErrThrottled, ""},
		{"503 slow down", "", s3error(503, "SlowDown", "no"), bucket.Ambiguous, bucket.ErrThrottled, ""},
		{"503", "", s3error(503, "ServiceUnavailable", "no"), bucket.Ambiguous, bucket.ErrUnreachable, ""},
		{"503 html", "", html(503), bucket.Ambiguous, bucket.ErrUnreachable, ""},
		{"500", "", s3error(500, "InternalError", "no"), bucket.Ambiguous, bucket.ErrUnreachable, ""},
		{"502 empty", "", status(502), bucket.Ambiguous, bucket.ErrUnreachable, ""},
		{"504 html", "", html(504), bucket.Ambiguous, bucket.ErrUnreachable, ""},
		{"501", "", s3error(501, "NotImplemented", "A header you provided"), bucket.Rejected, bucket.ErrInvalid, "no conditional writes"},
		{"501 html", "", html(501), bucket.Ambiguous, bucket.ErrUnreachable, ""},
		{"403", "", s3error(403, "AccessDenied", "no"), bucket.Rejected, bucket.ErrDenied, "s3:PutObject"},
		{"403 html", "", html(403), bucket.Rejected, bucket.ErrDenied, ""},
		{"403 signature", "", s3error(403, "SignatureDoesNotMatch", "no"), bucket.Rejected, bucket.ErrDenied, "secret key"},
		{"403 unknown key", "", s3error(403, "InvalidAccessKeyId", "no"), bucket.Rejected, bucket.ErrCredentials, "renew"},
		{"400 expired", "", s3error(400, "ExpiredToken", "no"), bucket.Rejected, bucket.ErrCredentials, "renew"},
		{"400 time-out", "", s3error(400, "RequestTimeout", "no"), bucket.Ambiguous, bucket.ErrUnreachable, ""},
		{"408", "", status(408), bucket.Ambiguous, bucket.ErrUnreachable, ""},
		{"400", "", s3error(400, "InvalidArgument", "no"), bucket.Rejected, bucket.ErrInvalid, ""},
		{"200 without etag", "", status(200), bucket.Ambiguous, nil, ""},
		{"204 without etag", "", status(204), bucket.Ambiguous, nil, ""},
		{"304", "", status(304), bucket.Ambiguous, bucket.ErrUnreachable, ""},
		{
			"301", "", s3error(301, "PermanentRedirect", "no", "X-Amz-Bucket-Region", "eu-north-1"),
			bucket.Rejected, bucket.ErrUnreachable, "region eu-north-1, not us-east-1",
		},
		{"307", "", status(307, "Location", "http://127.0.0.1:1/other"), bucket.Rejected, bucket.ErrUnreachable, "another region"},
		{
			"400 region", "", s3error(400, "AuthorizationHeaderMalformed", "the region 'us-east-1' is wrong; expecting 'ap-south-1'"),
			bucket.Rejected, bucket.ErrUnreachable, "region=ap-south-1",
		},
		{"cut", "", cut, bucket.Ambiguous, bucket.ErrUnreachable, ""},
		{"hang", "", hang, bucket.Ambiguous, bucket.ErrUnreachable, ""},
	} {
		for on, cond := range map[string]bucket.Condition{match: bucket.IfMatch(`"e"`), create: bucket.IfAbsent()} {
			if c.on != "" && c.on != on {
				continue
			}
			t.Run(c.name+" on "+on, func(t *testing.T) {
				srv := newServer(t, c.answer)
				s := srv.open(t, "")
				r := s.Put(t.Context(), "a/k", []byte("x"), cond)
				if r.Outcome != c.outcome || r.Err == nil || r.ETag != "" {
					t.Fatalf("%v, etag %q, error %v; want %v", r.Outcome, r.ETag, r.Err, c.outcome)
				}
				wantError(t, r.Err, c.kind, c.hint)
				if n := len(srv.seen()); n != 1 {
					t.Errorf("sent %d times", n)
				}
			})
		}
	}
}

// kinds are all sentinels: an error is of the wanted kind and of no other.
var kinds = []error{
	bucket.ErrCondition, bucket.ErrThrottled, bucket.ErrDenied, bucket.ErrCredentials, bucket.ErrUnreachable, bucket.ErrInvalid,
}

func wantError(t *testing.T, err, kind error, hint string) {
	t.Helper()
	for _, k := range kinds {
		if errors.Is(err, k) != errors.Is(k, kind) {
			t.Errorf("error %q: is %q = %v; want kind %v", err, k, errors.Is(err, k), kind)
		}
	}
	var typed *bucket.Error
	if !errors.As(err, &typed) || typed.Op == "" {
		t.Fatalf("error %v is not typed", err)
	}
	if !strings.Contains(typed.Hint, hint) {
		t.Errorf("hint %q, want %q in it", typed.Hint, hint)
	}
}

func TestPutNeverSent(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	_ = l.Close() // nothing listens there now
	isolate(t)
	s := openURL(t, "s3://fleet?endpoint=http://"+addr, WithCredentials("A", "b"))
	r := s.Put(t.Context(), "k", nil, bucket.IfAbsent())
	if r.Outcome != bucket.Rejected {
		t.Errorf("a refused connection: %v; want rejected, nothing was sent", r.Outcome)
	}
	wantError(t, r.Err, bucket.ErrUnreachable, "")
	if !strings.Contains(r.Err.Error(), "connection refused") || strings.Contains(r.Err.Error(), "operation error") {
		t.Errorf("error %q", r.Err)
	}
}

func TestPutContext(t *testing.T) {
	srv := newServer(t, hang)
	s := srv.open(t, "", WithTimeout(time.Minute))

	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	begun := time.Now()
	r := s.Put(ctx, "k", nil, bucket.IfAbsent())
	if r.Outcome != bucket.Ambiguous || !errors.Is(r.Err, context.DeadlineExceeded) {
		t.Errorf("deadline: %v %v", r.Outcome, r.Err)
	}
	wantError(t, r.Err, bucket.ErrUnreachable, "")
	if took := time.Since(begun); took > 2*time.Second {
		t.Errorf("took %v", took)
	}

	ctx, cancel = context.WithCancel(t.Context())
	time.AfterFunc(100*time.Millisecond, cancel)
	r = s.Put(ctx, "k", nil, bucket.IfAbsent())
	if r.Outcome != bucket.Ambiguous || !errors.Is(r.Err, context.Canceled) {
		t.Errorf("cancelled under way: %v %v", r.Outcome, r.Err)
	}
	r = s.Put(ctx, "k", nil, bucket.IfAbsent())
	if r.Outcome != bucket.Rejected || !errors.Is(r.Err, context.Canceled) || len(srv.seen()) != 2 {
		t.Errorf("cancelled before: %v %v, %d requests", r.Outcome, r.Err, len(srv.seen()))
	}
}

// A broken idle connection is the common case of a server's restart. The
// transport may use another one, and the server still sees one request.
func TestPutAfterServerClosedIdle(t *testing.T) {
	srv := newServer(t, status(200, "ETag", `"x"`))
	s := srv.open(t, "")
	for i := range 5 {
		if r := s.Put(t.Context(), "k", []byte("x"), bucket.Unconditional()); r.Outcome == bucket.Rejected {
			t.Fatal(r.Err)
		}
		if n := len(srv.seen()); n > i+1 {
			t.Fatalf("%d puts reached the server as %d", i+1, n)
		}
		srv.CloseClientConnections()
	}
}

func TestDelete(t *testing.T) {
	srv := newServer(t, status(204), s3error(404, "NoSuchKey", "no"), s3error(404, "NoSuchBucket", "no"), s3error(500, "InternalError", "no"))
	s := srv.open(t, "")
	for _, want := range []error{nil, nil, bucket.ErrUnreachable, bucket.ErrUnreachable} {
		if err := s.Delete(t.Context(), "a/k"); !errors.Is(err, want) || (want == nil) != (err == nil) {
			t.Errorf("delete: %v, want %v", err, want)
		}
	}
	seen := srv.seen()
	if len(seen) != 4 {
		t.Errorf("sent %d times", len(seen))
	}
	if seen[0].Method != http.MethodDelete || seen[0].URL.Path != "/fleet/a/k" || seen[0].Header.Get("If-Match") != "" {
		t.Errorf("sent %s %s", seen[0].Method, seen[0].URL)
	}
}

// A redirect is an answer. Following it would send a write twice, and a signed
// request to a host that somebody else named.
func TestRedirectsAreNotFollowed(t *testing.T) {
	other := newServer(t, answer(200, "b", "ETag", `"e"`))
	for _, code := range []int{301, 302, 303, 307, 308} {
		srv := newServer(t, status(code, "Location", other.URL+"/fleet/k"))
		s := srv.open(t, "")
		r := s.Put(t.Context(), "k", []byte("x"), bucket.IfAbsent())
		_, gerr := s.Get(t.Context(), "k", "")
		_, lerr := s.List(t.Context(), "")
		derr := s.Delete(t.Context(), "k")
		if r.Outcome != bucket.Rejected || gerr == nil || lerr == nil || derr == nil {
			t.Errorf("%d: put %v, get %v, list %v, delete %v", code, r.Outcome, gerr, lerr, derr)
		}
		if n := len(srv.seen()); n != 4 {
			t.Errorf("%d: sent %d requests", code, n)
		}
	}
	if n := len(other.seen()); n != 0 {
		t.Errorf("%d requests followed a redirect", n)
	}
}

// A proxy's error page may never end. What it says is clear from its status.
func TestEndlessErrorBody(t *testing.T) {
	srv := newServer(t, endless(412))
	s := srv.open(t, "", WithTimeout(20*time.Second))
	begun := time.Now()
	if r := s.Put(t.Context(), "k", nil, bucket.IfAbsent()); !r.Conflict() {
		t.Errorf("%v %v", r.Outcome, r.Err)
	}
	if took := time.Since(begun); took > 10*time.Second {
		t.Errorf("took %v: the body was read to the time-out", took)
	}
}
