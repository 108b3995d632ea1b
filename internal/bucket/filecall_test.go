package bucket

import (
	"context"
	"errors"
	"io/fs"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// What a Put answers when its context ends depends on whether it had reached
// its commit, and on nothing else.
func TestCallEnds(t *testing.T) {
	for _, c := range []struct {
		name   string
		work   func(*call) string
		result string
		unsure bool
		err    error
		atMost time.Duration
	}{
		{name: "in time", result: "done", work: func(c *call) string {
			c.commit()
			return "done"
		}},
		{name: "before commit", err: context.DeadlineExceeded, atMost: time.Second, result: "left", work: func(c *call) string {
			<-c.done
			if c.commit() {
				return "committed after its caller left"
			}
			return "left"
		}},
		{name: "before commit, hanging", err: context.DeadlineExceeded, atMost: time.Second + leaveGrace, work: func(c *call) string {
			time.Sleep(time.Hour)
			if c.commit() {
				t.Error("committed after its caller left")
			}
			return "late"
		}},
		{name: "after commit", result: "done", atMost: time.Second + leaveGrace, work: func(c *call) string {
			c.commit()
			time.Sleep(time.Second + leaveGrace/2)
			return "done"
		}},
		{name: "after commit, hanging", unsure: true, err: context.DeadlineExceeded, atMost: time.Second + leaveGrace, work: func(c *call) string {
			c.commit()
			time.Sleep(time.Hour)
			return "late"
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, err := NewFileStore("/nowhere")
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				begun := time.Now()
				result, unsure, err := run(ctx, s, c.work)
				if result != c.result || unsure != c.unsure || !errors.Is(err, c.err) || (err == nil) != (c.err == nil) {
					t.Errorf("%q, unsure %v, error %v; want %q, %v, %v", result, unsure, err, c.result, c.unsure, c.err)
				}
				if took := time.Since(begun); took > c.atMost {
					t.Errorf("took %v, want at most %v", took, c.atMost)
				}
				time.Sleep(2 * time.Hour) // let the hanging goroutine end inside the bubble
			})
		})
	}
}

// A file system that hangs holds a bounded number of goroutines; further calls
// end with their contexts.
func TestCallsInFlightAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := NewFileStore("/nowhere")
		if err != nil {
			t.Fatal(err)
		}
		var started atomic.Int64
		for range maxInFlight + 10 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			_, unsure, err := run(ctx, s, func(*call) int {
				started.Add(1)
				time.Sleep(time.Hour)
				return 0
			})
			cancel()
			if unsure || !errors.Is(err, context.DeadlineExceeded) {
				t.Fatalf("unsure %v, error %v", unsure, err)
			}
		}
		if n := started.Load(); n != maxInFlight {
			t.Errorf("%d calls reached the file system, want %d", n, maxInFlight)
		}
		time.Sleep(2 * time.Hour)
	})
}

func TestFileErrorKinds(t *testing.T) {
	for err, kind := range map[error]error{
		syscall.ENOSPC: nil, syscall.EDQUOT: nil, context.Canceled: nil,
		syscall.EACCES: ErrDenied, syscall.EROFS: ErrDenied, syscall.EPERM: ErrDenied,
		syscall.EIO: ErrUnreachable, syscall.ENOENT: ErrUnreachable, syscall.ESTALE: ErrUnreachable, context.DeadlineExceeded: ErrUnreachable,
	} {
		got := fileError("put", "k", &fs.PathError{Op: "write", Path: "x", Err: err})
		var typed *Error
		if !errors.As(got, &typed) || !errors.Is(typed.Kind, kind) || !errors.Is(got, err) {
			t.Errorf("%v: %#v, want kind %v", err, got, kind)
		}
	}
}

// A write that its caller has left must not reach its rename, wherever it was.
func TestAbandonedPutChangesNothing(t *testing.T) {
	dir := t.TempDir()
	if _, err := InitFileStore(dir); err != nil {
		t.Fatal(err)
	}
	s, err := NewFileStore(dir)
	if err != nil {
		t.Fatal(err)
	}
	for range 30 { // the wait for the lock may notice it, or the last check
		c := &call{done: make(chan struct{})}
		c.abandon()
		if r := s.put(c, "a/k", []byte("late"), IfAbsent()); r.Outcome != Rejected {
			t.Fatalf("%v", r.Outcome)
		}
	}
	if obj, err := s.Get(t.Context(), "a/k", ""); err != nil || obj.Status != Absent {
		t.Errorf("%v, error %v", obj.Status, err)
	}
}
