package buckettest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/barista-fleet/barista/internal/bucket"
)

// Without a rule the wrapper changes nothing, with latency neither.
func TestFaultsConform(t *testing.T) {
	Run(t, func(*testing.T) bucket.Store { return NewFaults(NewMem(), 1).Client("n1") })
	t.Run("latency", func(t *testing.T) {
		Suite{Racers: 16, Keys: 50}.Run(t, func(*testing.T) bucket.Store {
			f := NewFaults(NewMem(), 1)
			f.SetLatency(10*time.Microsecond, time.Millisecond)
			return f.Client("n1")
		})
	})
}

// Each fault has its outcome for the sender, its effect on the store, and its
// time.
func TestFaults(t *testing.T) {
	const timeout = 3 * time.Second
	for _, c := range []struct {
		name    string
		fault   Fault
		outcome bucket.Outcome // of a Put
		kind    error          // of a Put and of reads; nil: no error
		stored  bool           // right after the Put's return
		later   bool           // after a minute
		takes   time.Duration
	}{
		{"drop", Drop(), bucket.Ambiguous, bucket.ErrUnreachable, false, false, 0},
		{"hang", Hang(), bucket.Ambiguous, bucket.ErrUnreachable, false, false, timeout},
		{"lose reply", LoseReply(), bucket.Ambiguous, bucket.ErrUnreachable, true, true, 0},
		{"hang reply", HangReply(), bucket.Ambiguous, bucket.ErrUnreachable, true, true, timeout},
		{"zombie", Zombie(5 * time.Second), bucket.Ambiguous, bucket.ErrUnreachable, false, true, 0},
		{"held zombie", Zombie(0), bucket.Ambiguous, bucket.ErrUnreachable, false, false, 0},
		{"throttle", Throttle(), bucket.Rejected, bucket.ErrThrottled, false, false, 0},
		{"deny", Deny(), bucket.Rejected, bucket.ErrDenied, false, false, 0},
		{"fail", Fail(), bucket.Ambiguous, bucket.ErrUnreachable, false, false, 0},
		{"delay", Delay(time.Second), bucket.Applied, nil, true, true, time.Second},
		{"long delay", Delay(5 * time.Second), bucket.Ambiguous, bucket.ErrUnreachable, false, true, timeout},
		{"delayed reply", DelayReply(time.Second), bucket.Applied, nil, true, true, time.Second},
		{"long delayed reply", DelayReply(5 * time.Second), bucket.Ambiguous, bucket.ErrUnreachable, true, true, timeout},
		{"date", ShiftDate(time.Hour), bucket.Applied, nil, true, true, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				mem := NewMem()
				f := NewFaults(mem, 1)
				f.Add(Rule{Fault: c.fault})
				s := f.Client("n1")
				timed := func(what string, call func(context.Context)) {
					ctx, cancel := context.WithTimeout(t.Context(), timeout)
					defer cancel()
					begun := time.Now()
					call(ctx)
					if took := time.Since(begun); took < c.takes || took > c.takes+time.Microsecond {
						t.Errorf("%s took %v, want %v", what, took, c.takes)
					}
				}
				timed("put", func(ctx context.Context) {
					r := s.Put(ctx, "a/k", []byte("one"), bucket.IfAbsent())
					if r.Outcome != c.outcome || !errors.Is(r.Err, c.kind) || (r.Err == nil) != (c.kind == nil) || r.Conflict() {
						t.Errorf("put: %v, error %v; want %v, %v", r.Outcome, r.Err, c.outcome, c.kind)
					}
					if c.fault.kind == faultDate && time.Until(r.Date) < time.Hour-time.Second {
						t.Errorf("date %v was not shifted", r.Date)
					}
				})
				if _, stored := mem.Snapshot()["a/k"]; stored != c.stored {
					t.Errorf("stored right after: %v, want %v", stored, c.stored)
				}
				time.Sleep(time.Minute)
				if _, stored := mem.Snapshot()["a/k"]; stored != c.later {
					t.Errorf("stored after a minute: %v, want %v", stored, c.later)
				}
				timed("get", func(ctx context.Context) {
					if obj, err := s.Get(ctx, "a/k", ""); !errors.Is(err, c.kind) || (err == nil) != (c.kind == nil) || (err == nil) != (obj.Status != 0) {
						t.Errorf("get: %v, error %v, want %v", obj.Status, err, c.kind)
					}
				})
				timed("list", func(ctx context.Context) {
					if l, err := s.List(ctx, ""); !errors.Is(err, c.kind) || err != nil && l.Entries != nil {
						t.Errorf("list: %v, error %v, want %v", l.Entries, err, c.kind)
					}
				})
				timed("delete", func(ctx context.Context) {
					if err := s.Delete(ctx, "a/k"); !errors.Is(err, c.kind) {
						t.Errorf("delete: %v, want %v", err, c.kind)
					}
				})
			})
		})
	}
}

func TestZombiesLandInOrder(t *testing.T) {
	mem := NewMem()
	f := NewFaults(mem, 1)
	f.Add(Rule{Ops: Put, Fault: Zombie(0), Times: 2})
	s := f.Client("n1")
	body := []byte("first")
	s.Put(t.Context(), "a/k", body, bucket.IfAbsent())
	copy(body, "XXXXX")
	s.Put(t.Context(), "a/k", []byte("second"), bucket.IfAbsent())
	if f.Held() != 2 || len(mem.Snapshot()) != 0 {
		t.Fatalf("%d held, stored %v", f.Held(), mem.Snapshot())
	}
	got := f.Land()
	if len(got) != 2 || got[0].Outcome != bucket.Applied || !got[1].Conflict() {
		t.Errorf("landed %+v", got)
	}
	if string(mem.Snapshot()["a/k"]) != "first" || f.Held() != 0 {
		t.Errorf("stored %q, %d held", mem.Snapshot()["a/k"], f.Held())
	}
}

// A zombie's condition is judged when it lands: a write in between, even of
// other contents, has burnt it.
func TestZombieCanBeBurnt(t *testing.T) {
	mem := NewMem()
	f := NewFaults(mem, 1)
	s := f.Client("n1")
	old := mustApply(t, s, "a/k", "old", bucket.IfAbsent())
	f.Add(Rule{Fault: Zombie(0), Times: 1})
	s.Put(t.Context(), "a/k", []byte("zombie"), bucket.IfMatch(old))
	mustApply(t, s, "a/k", "old, new nonce", bucket.IfMatch(old))
	if got := f.Land(); len(got) != 1 || !got[0].Conflict() {
		t.Errorf("landed %+v", got)
	}
}

func TestRulesMatch(t *testing.T) {
	f := NewFaults(NewMem(), 1)
	f.Add(Rule{Client: "n1", Ops: Put, Prefix: "nodes/", Skip: 1, Times: 2, Fault: Throttle()})
	var got []string
	put := func(client, key string) {
		r := f.Client(client).Put(t.Context(), key, nil, bucket.Unconditional())
		got = append(got, fmt.Sprintf("%s %s %v", client, key, r.Outcome))
	}
	for range 4 {
		put("n1", "nodes/x")
	}
	put("n2", "nodes/x")
	put("n1", "desired/x")
	if _, err := f.Client("n1").Get(t.Context(), "nodes/x", ""); err != nil {
		t.Errorf("a rule for puts met a get: %v", err)
	}
	want := []string{
		"n1 nodes/x applied", "n1 nodes/x rejected", "n1 nodes/x rejected", "n1 nodes/x applied",
		"n2 nodes/x applied", "n1 desired/x applied",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%q, want\n%q", got, want)
	}
	for _, c := range []struct {
		client string
		ops    Op
		class  string
		want   int
	}{{"", Any, "", 7}, {"n1", Any, "", 6}, {"n1", Put, "nodes/", 4}, {"n1", Reads, "nodes/", 1}, {"", Put, "desired/", 1}, {"n3", Any, "", 0}} {
		if n := f.Count(c.client, c.ops, c.class); n != c.want {
			t.Errorf("count of %q, %v, %q: %d, want %d", c.client, c.ops, c.class, n, c.want)
		}
	}
}

func TestPartitionAndHeal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := NewFaults(NewMem(), 1)
		heal := f.Partition("n1")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := f.Client("n1").Get(ctx, "k", ""); !errors.Is(err, bucket.ErrUnreachable) {
			t.Errorf("n1 through its partition: %v", err)
		}
		if _, err := f.Client("n2").Get(t.Context(), "k", ""); err != nil {
			t.Errorf("n2: %v", err)
		}
		heal()
		if _, err := f.Client("n1").Get(t.Context(), "k", ""); err != nil {
			t.Errorf("n1, healed: %v", err)
		}
		heal = f.Deaf("n1")
		ctx, cancel = context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if r := f.Client("n1").Put(ctx, "k", []byte("x"), bucket.IfAbsent()); r.Outcome != bucket.Ambiguous {
			t.Errorf("deaf: %v", r.Outcome)
		}
		heal()
		wantBody(t, f.Client("n2"), "k", "x", etagOf([]byte("x")))
	})
}

// One seed is one story: the same chances, the same delays, the same order.
func TestSeedsReplay(t *testing.T) {
	story := func(seed uint64) (lines []string) {
		synctest.Test(t, func(t *testing.T) {
			f := NewFaults(NewMem(), seed)
			f.SetLatency(time.Millisecond, 5*time.Millisecond)
			f.Add(Rule{Ops: Put, Chance: 0.3, Fault: LoseReply()})
			f.Add(Rule{Ops: Reads, Chance: 0.2, Fault: Drop()})
			done := make(chan string)
			for n := range 4 {
				s := f.Client(fmt.Sprint("n", n))
				time.Sleep(time.Nanosecond)
				go func() {
					for i := range 10 {
						obj, err := s.Get(t.Context(), "k", "")
						cond := bucket.IfAbsent()
						if obj.ETag != "" {
							cond = bucket.IfMatch(obj.ETag)
						}
						r := s.Put(t.Context(), "k", fmt.Appendf(nil, "%d.%d", n, i), cond)
						done <- fmt.Sprint(n, i, err != nil, r.Outcome)
					}
				}()
			}
			for range 40 {
				lines = append(lines, <-done)
			}
		})
		return lines
	}
	if a, b := story(7), story(7); !slices.Equal(a, b) {
		t.Errorf("seed 7 told two stories:\n%q\n%q", a, b)
	}
	if a, b := story(7), story(8); slices.Equal(a, b) {
		t.Error("seeds 7 and 8 tell the same story")
	}
}
