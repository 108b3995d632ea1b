package fleet

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/barista-fleet/barista/internal/bucket"
	"github.com/barista-fleet/barista/internal/bucket/buckettest"
)

// faulty is a store whose calls can be made to fail, and which counts them.
type faulty struct {
	*buckettest.Mem
	mu sync.Mutex
	// put, if set, decides what becomes of a write: call apply to let it reach
	// the store. It is called without the lock.
	put  func(key string, apply func() bucket.PutResult) bucket.PutResult
	get  func(key string) error
	gets map[string]int
	puts map[string]int
	now  int
	peak int // most GETs in flight
}

func newFaulty() *faulty {
	return &faulty{Mem: buckettest.NewMem(), gets: map[string]int{}, puts: map[string]int{}}
}

func (f *faulty) Get(ctx context.Context, key string, etag bucket.ETag) (bucket.Object, error) {
	f.mu.Lock()
	f.gets[key]++
	f.now++
	f.peak = max(f.peak, f.now)
	hook := f.get
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.now--
	}()
	if hook != nil {
		if err := hook(key); err != nil {
			return bucket.Object{}, err
		}
	}
	return f.Mem.Get(ctx, key, etag)
}

func (f *faulty) Put(ctx context.Context, key string, body []byte, cond bucket.Condition) bucket.PutResult {
	f.mu.Lock()
	f.puts[key]++
	hook := f.put
	f.mu.Unlock()
	apply := func() bucket.PutResult { return f.Mem.Put(ctx, key, body, cond) }
	if hook != nil && key != KeySignal {
		return hook(key, apply)
	}
	return apply()
}

var errLost = errors.New("connection reset")

func ambiguous() bucket.PutResult {
	return bucket.PutResult{Outcome: bucket.Ambiguous, Err: &bucket.Error{Op: "put", Err: errLost}}
}

// TestDamagedRecords: a record that cannot be read is not absent. It is replaced
// only when that is asked for, and never when a newer version wrote it.
func TestDamagedRecords(t *testing.T) {
	ctx := t.Context()
	for name, body := range map[string]string{"empty": "", "garbage": "\x00", "newer": `{"schema":2,"nonce":"x"}`} {
		s := newFaulty()
		c := NewClient(s, ClientConfig{})
		s.Plant(PrefixDesired+"a1", []byte(body))
		plantSession(t, s.Mem, "a1", "u", PhaseRunning, nil)
		var bad *UnreadableError
		if _, err := c.Apply(ctx, session("a1", nil), ApplyOptions{}); !asError(err, &bad) {
			t.Errorf("%s: applied over: %v", name, err)
		}
		if _, err := c.Delete(ctx, "a1", DeleteOptions{}); !asError(err, &bad) {
			t.Errorf("%s: deleted: %v", name, err)
		}
		_, err := c.Delete(ctx, "a1", DeleteOptions{ReplaceDamaged: true})
		if name == "newer" {
			if !asError(err, &bad) {
				t.Errorf("%s: deleted by force: %v", name, err)
			}
			continue
		}
		noError(t, err)
		if d := desired(t, s, "a1"); d.State != DesiredDeleted || d.UID != "u" {
			t.Errorf("%s: deleted as %+v: the owner knows another uid", name, d)
		}
	}
}

// TestLostReplies: whatever becomes of the reply, one apply creates one name and
// one verb is asked for once.
func TestLostReplies(t *testing.T) {
	for _, c := range []struct {
		name string
		put  func(n int, apply func() bucket.PutResult) bucket.PutResult
	}{
		{"reply lost after the write", func(n int, apply func() bucket.PutResult) bucket.PutResult {
			if n == 1 {
				apply()
				return ambiguous()
			}
			return apply()
		}},
		{"request lost before the write", func(n int, apply func() bucket.PutResult) bucket.PutResult {
			if n == 1 {
				return ambiguous()
			}
			return apply()
		}},
		{"first write lands after the second was sent", lateWrite()},
		{"throttled", func(n int, apply func() bucket.PutResult) bucket.PutResult {
			if n <= 2 {
				return bucket.PutResult{Outcome: bucket.Rejected, Err: &bucket.Error{Op: "put", Kind: bucket.ErrThrottled}}
			}
			return apply()
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newFaulty()
			n := 0
			s.put = func(_ string, apply func() bucket.PutResult) bucket.PutResult {
				n++
				return c.put(n, apply)
			}
			client := NewClient(s, ClientConfig{})
			a, err := client.Apply(t.Context(), session("a1", nil), ApplyOptions{})
			noError(t, err)
			obj, err := s.Mem.Get(t.Context(), PrefixDesired+"a1", "")
			noError(t, err)
			d := desired(t, s, "a1")
			if a.ETag != obj.ETag || a.UID != d.UID || d.Generation != 1 {
				t.Errorf("reported %+v, stored %+v under %s", a, d, obj.ETag)
			}
			plantSession(t, s.Mem, "a1", d.UID, PhaseRunning, nil)
			n = 0
			r, err := client.SetIntent(t.Context(), "a1", VerbRestart, "restart")
			noError(t, err)
			if d := desired(t, s, "a1"); d.Intent.Seq != 1 || r.Seq != 1 || d.Intent.Verb != VerbRestart {
				t.Errorf("one restart was asked for as %+v, reported as %+v", d.Intent, r)
			}
		})
	}
}

// lateWrite keeps the first write back until the second has been sent.
func lateWrite() func(int, func() bucket.PutResult) bucket.PutResult {
	var late func() bucket.PutResult
	return func(n int, apply func() bucket.PutResult) bucket.PutResult {
		if n == 1 {
			late = apply
			return ambiguous()
		}
		if late != nil {
			late()
			late = nil
		}
		return apply()
	}
}

// TestIntentOvertakenWhileUnknown: our write may have been applied and then
// overwritten by another verb. It is not repeated, and not reported as done.
func TestIntentOvertakenWhileUnknown(t *testing.T) {
	s := newFaulty()
	other := NewClient(s, ClientConfig{})
	_, err := other.Apply(t.Context(), session("a1", nil), ApplyOptions{})
	noError(t, err)
	plantSession(t, s.Mem, "a1", desired(t, s, "a1").UID, PhaseRunning, nil)
	n := 0
	s.put = func(_ string, apply func() bucket.PutResult) bucket.PutResult {
		if n++; n > 1 {
			return apply()
		}
		apply()
		_, err := other.SetIntent(t.Context(), "a1", VerbStop, "stop")
		noError(t, err)
		return ambiguous()
	}
	var conflict *ConflictError
	if _, err := other.SetIntent(t.Context(), "a1", VerbRestart, "restart"); !asError(err, &conflict) {
		t.Errorf("got %v, want a conflict", err)
	}
	if d := desired(t, s, "a1"); d.Intent.Verb != VerbStop || d.Intent.Seq != 2 {
		t.Errorf("the last verb is %+v, want the stop", d.Intent)
	}
}

func TestOutcomeStaysUnknown(t *testing.T) {
	s := newFaulty()
	s.put = func(string, func() bucket.PutResult) bucket.PutResult { return ambiguous() }
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	var unknown *UnknownOutcomeError
	if _, err := NewClient(s, ClientConfig{}).Apply(ctx, session("a1", nil), ApplyOptions{}); !asError(err, &unknown) || !errors.Is(err, errLost) {
		t.Errorf("got %v, want an unknown outcome with its cause", err)
	}
}

func TestDeniedIsNotRepeated(t *testing.T) {
	s := newFaulty()
	s.put = func(string, func() bucket.PutResult) bucket.PutResult {
		return bucket.PutResult{Outcome: bucket.Rejected, Err: &bucket.Error{Op: "put", Kind: bucket.ErrDenied}}
	}
	if _, err := NewClient(s, ClientConfig{}).Apply(t.Context(), session("a1", nil), ApplyOptions{}); !errors.Is(err, bucket.ErrDenied) {
		t.Errorf("got %v", err)
	}
	if s.puts[PrefixDesired+"a1"] != 1 {
		t.Errorf("sent %d times", s.puts[PrefixDesired+"a1"])
	}
}

// TestVerbsFromManyHands: several operators at once lose no verb and no number.
func TestVerbsFromManyHands(t *testing.T) {
	s := newFaulty()
	c := NewClient(s, ClientConfig{})
	a, err := c.Apply(t.Context(), session("a1", nil), ApplyOptions{})
	noError(t, err)
	plantSession(t, s.Mem, "a1", a.UID, PhaseRunning, nil)
	const hands = 8
	seqs := make([]uint64, hands)
	each(t.Context(), hands, hands, func(i int) {
		r, err := c.SetIntent(t.Context(), "a1", VerbRestart, "restart")
		if err != nil {
			t.Error(err)
		}
		seqs[i] = r.Seq
	})
	seen := map[uint64]bool{}
	for _, seq := range seqs {
		if seq < 1 || seq > hands || seen[seq] {
			t.Errorf("numbers %v", seqs)
		}
		seen[seq] = true
	}
	if d := desired(t, s, "a1"); d.Intent.Seq != hands {
		t.Errorf("the last number is %d, want %d", d.Intent.Seq, hands)
	}
}
