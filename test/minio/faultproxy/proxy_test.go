package faultproxy_test

import (
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/barista-fleet/barista/internal/bucket"
	"github.com/barista-fleet/barista/internal/bucket/buckettest"
	"github.com/barista-fleet/barista/internal/s3bucket"
	"github.com/barista-fleet/barista/test/minio/faultproxy"
	"github.com/barista-fleet/barista/test/minio/s3server"
)

const timeout = time.Second

// setup returns a proxy before a server, and the store of one bucket through
// the proxy and past it.
func setup(t *testing.T, seed uint64) (p *faultproxy.Proxy, through, direct bucket.Store) {
	t.Helper()
	srv := s3server.Start(t)
	p, err := faultproxy.New(srv.Endpoint, seed)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	name := srv.NewBucket(t)
	return p, srv.Open(t, srv.URL(name, p.URL()), s3bucket.WithTimeout(timeout)), srv.Open(t, srv.URL(name, ""))
}

func TestTransparent(t *testing.T) {
	srv := s3server.Start(t)
	p, err := faultproxy.New(srv.Endpoint, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	buckettest.Suite{Racers: 16, Rounds: 2, Keys: 1001, NoSiblings: srv.Kind == s3server.VersityGW}.Run(t, func(t *testing.T) bucket.Store {
		return srv.Open(t, srv.URL(srv.NewBucket(t), p.URL()))
	})
}

// What a fault makes of a Put: what its sender is told, and what is true.
func TestPutFaults(t *testing.T) {
	p, through, direct := setup(t, 1)
	for i, c := range []struct {
		fault    faultproxy.Fault
		create   bucket.Outcome
		kind     error
		stored   bool           // the create was carried out
		conflict bucket.Outcome // of a second create, under the same fault
	}{
		{faultproxy.Fault{Name: "none"}, bucket.Applied, nil, true, bucket.Rejected},
		{faultproxy.DropBefore(), bucket.Ambiguous, bucket.ErrUnreachable, false, bucket.Ambiguous},
		{faultproxy.DropAfter(), bucket.Ambiguous, bucket.ErrUnreachable, true, bucket.Ambiguous},
		{faultproxy.Hang(), bucket.Ambiguous, bucket.ErrUnreachable, false, bucket.Ambiguous},
		{faultproxy.HangAfter(), bucket.Ambiguous, bucket.ErrUnreachable, true, bucket.Ambiguous},
		{faultproxy.Delay(100 * time.Millisecond), bucket.Applied, nil, true, bucket.Rejected},
		{faultproxy.DelayReply(100 * time.Millisecond), bucket.Applied, nil, true, bucket.Rejected},
		{faultproxy.DelayReply(2 * timeout), bucket.Ambiguous, bucket.ErrUnreachable, true, bucket.Ambiguous},
		{faultproxy.Cut(), bucket.Ambiguous, bucket.ErrUnreachable, true, bucket.Rejected},
		{faultproxy.FailBefore(500, "InternalError"), bucket.Ambiguous, bucket.ErrUnreachable, false, bucket.Ambiguous},
		{faultproxy.FailAfter(500, "InternalError"), bucket.Ambiguous, bucket.ErrUnreachable, true, bucket.Ambiguous},
		{faultproxy.FailAfter(502, ""), bucket.Ambiguous, bucket.ErrUnreachable, true, bucket.Ambiguous},
		{faultproxy.FailBefore(503, "SlowDown"), bucket.Ambiguous, bucket.ErrThrottled, false, bucket.Ambiguous},
		{faultproxy.FailBefore(429, "TooManyRequests"), bucket.Rejected, bucket.ErrThrottled, false, bucket.Rejected},
		{faultproxy.FailBefore(403, "AccessDenied"), bucket.Rejected, bucket.ErrDenied, false, bucket.Rejected},
		{faultproxy.FailAfter(409, "OperationAborted"), bucket.Ambiguous, nil, true, bucket.Ambiguous},
		{faultproxy.HTMLErrors(), bucket.Applied, nil, true, bucket.Rejected},
		{faultproxy.NoETag(), bucket.Ambiguous, nil, true, bucket.Rejected},
		{faultproxy.ShiftDate(5 * time.Hour), bucket.Applied, nil, true, bucket.Rejected},
	} {
		t.Run(c.fault.Name, func(t *testing.T) {
			defer p.Clear()
			p.Add(faultproxy.Rule{Ops: []faultproxy.Op{faultproxy.Put}, Fault: c.fault})
			key := fmt.Sprintf("put/%d", i)
			before := p.Seen(faultproxy.Put)
			r := through.Put(t.Context(), key, []byte("one"), bucket.IfAbsent())
			if n := p.Seen(faultproxy.Put) - before; n != 1 {
				t.Errorf("sent %d times", n)
			}
			if r.Outcome != c.create || c.kind != nil && !errors.Is(r.Err, c.kind) || (r.Outcome == bucket.Applied) != (r.Err == nil) {
				t.Errorf("create: %v, error %v; want %v, %v", r.Outcome, r.Err, c.create, c.kind)
			}
			if obj, err := direct.Get(t.Context(), key, ""); err != nil || (obj.Status == bucket.Found) != c.stored {
				t.Errorf("after the create it is %v (error %v), want stored %v", obj.Status, err, c.stored)
			}
			if p.Met(c.fault.Name) == 0 {
				t.Error("the request did not meet the fault")
			}
			if !c.stored { // so that the second one is refused
				if r := direct.Put(t.Context(), key, []byte("one"), bucket.IfAbsent()); r.Outcome != bucket.Applied {
					t.Fatal(r.Err)
				}
			}
			r = through.Put(t.Context(), key, []byte("two"), bucket.IfAbsent())
			if r.Outcome != c.conflict {
				t.Errorf("second create: %v, error %v; want %v", r.Outcome, r.Err, c.conflict)
			}
		})
	}
}

// A Put whose sender has given up arrives all the same, and a write from the
// same ETag in the meantime is what keeps it from landing.
func TestLatePut(t *testing.T) {
	p, through, direct := setup(t, 1)
	put := func(key, body string, cond bucket.Condition) bucket.ETag {
		t.Helper()
		r := direct.Put(t.Context(), key, []byte(body), cond)
		if r.Outcome != bucket.Applied {
			t.Fatal(r.Err)
		}
		return r.ETag
	}
	lands, burnt := put("late/lands", "old", bucket.IfAbsent()), put("late/burnt", "old", bucket.IfAbsent())
	p.Add(faultproxy.Rule{Ops: []faultproxy.Op{faultproxy.Put}, Fault: faultproxy.Delay(timeout + 500*time.Millisecond)})
	for key, etag := range map[string]bucket.ETag{"late/lands": lands, "late/burnt": burnt} {
		if r := through.Put(t.Context(), key, []byte("late"), bucket.IfMatch(etag)); r.Outcome != bucket.Ambiguous {
			t.Errorf("%s: %v", key, r.Outcome)
		}
		if key == "late/burnt" {
			put(key, "old, new nonce", bucket.IfMatch(etag))
		}
	}
	deadline := time.Now().Add(10 * time.Second)
	for {
		obj, err := direct.Get(t.Context(), "late/lands", "")
		if err == nil && string(obj.Body) == "late" {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("it never landed: %q, error %v", obj.Body, err)
		}
		time.Sleep(20 * time.Millisecond)
	}
	// The other was sent before or at most a time-out after this one.
	time.Sleep(timeout + 200*time.Millisecond)
	if obj, err := direct.Get(t.Context(), "late/burnt", ""); err != nil || string(obj.Body) != "old, new nonce" {
		t.Errorf("the burnt write landed: %q, error %v", obj.Body, err)
	}
}

// What a fault makes of reads. One that meets it once is repeated and succeeds;
// one that meets it each time is an error, and never "absent" or "empty".
func TestReadFaults(t *testing.T) {
	p, through, direct := setup(t, 1)
	for i := range 10 {
		if r := direct.Put(t.Context(), fmt.Sprintf("read/%d", i), []byte("0123456789"), bucket.IfAbsent()); r.Outcome != bucket.Applied {
			t.Fatal(r.Err)
		}
	}
	for _, c := range []struct {
		fault     faultproxy.Fault
		get, list error // when each try meets it; nil: none
		once      bool  // a read that meets it once succeeds
	}{
		{faultproxy.DropBefore(), bucket.ErrUnreachable, bucket.ErrUnreachable, true},
		{faultproxy.DropAfter(), bucket.ErrUnreachable, bucket.ErrUnreachable, true},
		{faultproxy.Hang(), bucket.ErrUnreachable, bucket.ErrUnreachable, false},
		{faultproxy.HangAfter(), bucket.ErrUnreachable, bucket.ErrUnreachable, false},
		{faultproxy.Delay(50 * time.Millisecond), nil, nil, true},
		{faultproxy.Cut(), bucket.ErrUnreachable, bucket.ErrUnreachable, true},
		{faultproxy.FailBefore(500, "InternalError"), bucket.ErrUnreachable, bucket.ErrUnreachable, true},
		{faultproxy.FailBefore(503, "SlowDown"), bucket.ErrThrottled, bucket.ErrThrottled, true},
		{faultproxy.FailBefore(429, "TooManyRequests"), bucket.ErrThrottled, bucket.ErrThrottled, true},
		{faultproxy.FailBefore(403, "AccessDenied"), bucket.ErrDenied, bucket.ErrDenied, false},
		{faultproxy.FailBefore(404, "NoSuchBucket"), bucket.ErrUnreachable, bucket.ErrUnreachable, false},
		{faultproxy.NoETag(), bucket.ErrUnreachable, nil, true},
		{faultproxy.ShiftDate(-7 * time.Hour), nil, nil, true},
		{faultproxy.NoToken(), nil, bucket.ErrUnreachable, false},
		{faultproxy.RepeatToken(), nil, bucket.ErrUnreachable, false},
	} {
		t.Run(c.fault.Name, func(t *testing.T) {
			defer p.Clear()
			checkReads(t, through, c.get, c.list, p.Add(faultproxy.Rule{Ops: []faultproxy.Op{faultproxy.Get, faultproxy.List}, Fault: c.fault}))
			if p.Met(c.fault.Name) == 0 {
				t.Error("no request met the fault")
			}
			if !c.once {
				return
			}
			for _, op := range []faultproxy.Op{faultproxy.Get, faultproxy.List} {
				p.Add(faultproxy.Rule{Ops: []faultproxy.Op{op}, Times: 1, Fault: c.fault})
			}
			checkReads(t, through, nil, nil, p.Clear)
		})
	}
	t.Run("truncated listing", func(t *testing.T) {
		defer p.Clear()
		checkReads(t, through, nil, bucket.ErrUnreachable, p.Add(faultproxy.Rule{Ops: []faultproxy.Op{faultproxy.List}, Fault: faultproxy.Truncate()}))
	})
	t.Run("html 404", func(t *testing.T) {
		defer p.Clear()
		p.Add(faultproxy.Rule{Fault: faultproxy.HTMLErrors()})
		if obj, err := through.Get(t.Context(), "read/none", ""); !errors.Is(err, bucket.ErrUnreachable) {
			t.Errorf("a 404 that the store did not write: %v, error %v", obj.Status, err)
		}
	})
}

func checkReads(t *testing.T, s bucket.Store, get, list error, end func()) {
	t.Helper()
	defer end()
	obj, err := s.Get(t.Context(), "read/3", "")
	if !errors.Is(err, get) || (err == nil) != (get == nil) || get == nil && string(obj.Body) != "0123456789" || get != nil && obj.Status != 0 {
		t.Errorf("get: %v %q, error %v; want %v", obj.Status, obj.Body, err, get)
	}
	l, err := s.List(t.Context(), "read/")
	if !errors.Is(err, list) || (err == nil) != (list == nil) || list == nil && len(l.Entries) != 10 || list != nil && l.Entries != nil {
		t.Errorf("list: %d entries, error %v; want %v", len(l.Entries), err, list)
	}
}

// In a seeded mixture of all faults a counter, kept by the rules for unclear
// outcomes, loses and doubles nothing.
func TestMixture(t *testing.T) {
	for seed := range uint64(2) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			p, through, direct := setup(t, seed)
			for _, f := range []faultproxy.Fault{
				faultproxy.DropBefore(), faultproxy.DropAfter(), faultproxy.Cut(), faultproxy.FailBefore(500, "InternalError"),
				faultproxy.FailAfter(503, "ServiceUnavailable"), faultproxy.FailBefore(429, "TooManyRequests"), faultproxy.HTMLErrors(),
				faultproxy.ShiftDate(3 * time.Hour), faultproxy.DelayReply(20 * time.Millisecond),
			} {
				p.Add(faultproxy.Rule{Chance: 0.05, Fault: f})
			}
			p.Add(faultproxy.Rule{Ops: []faultproxy.Op{faultproxy.Put}, Chance: 0.05, Fault: faultproxy.NoETag()})
			want := 0
			for want < 60 {
				if add(t, through, want) {
					want++
				}
			}
			if obj, err := direct.Get(t.Context(), "mix/counter", ""); err != nil || string(obj.Body) != fmt.Sprint(want) {
				t.Errorf("counted to %q, error %v; want %d", obj.Body, err, want)
			}
			if p.Met("drop after commit") == 0 || p.Met("fail before") == 0 {
				t.Error("the mixture had no faults in it")
			}
		})
	}
}

// add tries to bring the counter from n to n+1, and reports whether it is there:
// applied, or found so after an unclear answer.
func add(t *testing.T, s bucket.Store, n int) bool {
	t.Helper()
	obj, err := s.Get(t.Context(), "mix/counter", "")
	if err != nil {
		return false
	}
	cond := bucket.IfAbsent()
	held := 0
	if obj.Status == bucket.Found {
		cond = bucket.IfMatch(obj.ETag)
		if _, err := fmt.Sscan(string(obj.Body), &held); err != nil {
			t.Fatalf("the counter holds %q", obj.Body)
		}
	}
	if held == n+1 {
		return true // an unclear write of ours had been applied
	}
	if held != n {
		t.Fatalf("the counter is at %d, and we brought it to %d", held, n)
	}
	r := s.Put(t.Context(), "mix/counter", fmt.Append(nil, n+1), cond)
	if r.Conflict() {
		t.Fatalf("nobody else writes, and the write met another: %v", r.Err)
	}
	return r.Outcome == bucket.Applied
}

func TestSeen(t *testing.T) {
	p, through, _ := setup(t, 1)
	ctx := t.Context()
	through.Put(ctx, "a/k", nil, bucket.IfAbsent())
	_, gerr := through.Get(ctx, "a/k", "")
	_, lerr := through.List(ctx, "a/")
	if err := errors.Join(gerr, lerr, through.Delete(ctx, "a/k")); err != nil {
		t.Fatal(err)
	}
	for _, op := range []faultproxy.Op{faultproxy.Put, faultproxy.Get, faultproxy.List, faultproxy.Delete} {
		if n := p.Seen(op); n != 1 {
			t.Errorf("%s: seen %d", op, n)
		}
	}
	if n := p.Seen(http.MethodHead); n != 0 {
		t.Errorf("seen %d of what was never sent", n)
	}
}
