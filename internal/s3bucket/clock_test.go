package s3bucket

import (
	"net/http"
	"testing"
	"time"

	"github.com/barista-fleet/barista/internal/bucket"
)

// wallClock is a server that checks signing times by a clock that is off.
func wallClock(off time.Duration, next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		now := time.Now().Add(off)
		w.Header().Set("Date", now.UTC().Format(http.TimeFormat))
		signed, err := time.Parse("20060102T150405Z", r.Header.Get("X-Amz-Date"))
		if err != nil || now.Sub(signed).Abs() > 15*time.Minute {
			s3error(403, "RequestTimeTooSkewed", "The difference is too large.")(w, r)
			return
		}
		next(w, r)
	}
}

func TestSkewedClock(t *testing.T) {
	for _, off := range []time.Duration{time.Hour, -time.Hour, 40 * 24 * time.Hour} {
		srv := newServer(t, wallClock(off, answer(200, "b", "ETag", `"e"`)))
		s := srv.open(t, "")
		if r := s.Put(t.Context(), "k", nil, bucket.IfAbsent()); r.Outcome != bucket.Applied {
			t.Errorf("off by %v: put %v, error %v", off, r.Outcome, r.Err)
		}
		if n := len(srv.seen()); n != 2 {
			t.Errorf("off by %v: sent %d times, want the refused one and one more", off, n)
		}
		if _, err := s.Get(t.Context(), "k", ""); err != nil {
			t.Errorf("off by %v: get %v", off, err)
		}
		if err := s.Delete(t.Context(), "k"); err != nil {
			t.Errorf("off by %v: delete %v", off, err)
		}
		if n := len(srv.seen()); n != 4 {
			t.Errorf("off by %v: the offset was not kept: %d requests", off, n)
		}
	}
}

func TestSkewedClockStartsWithRead(t *testing.T) {
	srv := newServer(t, wallClock(2*time.Hour, listing("", false)))
	s := srv.open(t, "")
	if _, err := s.List(t.Context(), ""); err != nil {
		t.Error(err)
	}
}

// A server that refuses every time gets two requests, not a loop.
func TestSkewedClockInVain(t *testing.T) {
	srv := newServer(t, s3error(403, "RequestTimeTooSkewed", "no", "Date", "Mon, 02 Jan 2006 15:04:05 GMT"))
	s := srv.open(t, "")
	r := s.Put(t.Context(), "k", nil, bucket.IfAbsent())
	if r.Outcome != bucket.Rejected {
		t.Errorf("%v", r.Outcome)
	}
	wantError(t, r.Err, bucket.ErrDenied, "clock")
	if n := len(srv.seen()); n != 2 {
		t.Errorf("sent %d times", n)
	}
}

// A proxy whose Date header is wrong must not move the clock that requests are
// signed with: the server behind it is right.
func TestWrongDateHeader(t *testing.T) {
	const lie = 5 * time.Hour
	srv := newServer(t, func(w http.ResponseWriter, r *http.Request) {
		signed, err := time.Parse("20060102T150405Z", r.Header.Get("X-Amz-Date"))
		w.Header().Set("Date", time.Now().Add(lie).UTC().Format(http.TimeFormat))
		w.Header().Set("ETag", `"e"`)
		if err != nil || time.Since(signed).Abs() > time.Minute {
			w.WriteHeader(http.StatusForbidden)
		}
	})
	s := srv.open(t, "")
	for range 3 {
		r := s.Put(t.Context(), "k", nil, bucket.Unconditional())
		if r.Outcome != bucket.Applied {
			t.Fatalf("%v: %v", r.Outcome, r.Err)
		}
		if off := time.Until(r.Date); off < lie-time.Minute {
			t.Errorf("the date is passed on as it came: off by %v", off)
		}
	}
}
