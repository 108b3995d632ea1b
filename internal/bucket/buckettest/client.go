package buckettest

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/barista-fleet/barista/internal/bucket"
)

// Client returns the store as one client sees it. Clients share the store, the
// rules and nothing else.
func (f *Faults) Client(name string) bucket.Store { return &client{f, name} }

type client struct {
	f    *Faults
	name string
}

var (
	errBroken = errors.New("connection broken")
	errServer = errors.New("500 InternalError")
)

// Description implements bucket.Store.
func (c *client) Description() string { return c.f.inner.Description() }

// Get implements bucket.Store.
func (c *client) Get(ctx context.Context, key string, ifNoneMatch bucket.ETag) (obj bucket.Object, err error) {
	err = c.do(ctx, Get, "get", key, func(ctx context.Context) (*time.Time, error) {
		obj, err = c.f.inner.Get(ctx, key, ifNoneMatch)
		return &obj.Date, err
	})
	if err != nil {
		return bucket.Object{}, err
	}
	return obj, nil
}

// List implements bucket.Store.
func (c *client) List(ctx context.Context, prefix string) (l bucket.Listing, err error) {
	err = c.do(ctx, List, "list", prefix, func(ctx context.Context) (*time.Time, error) {
		l, err = c.f.inner.List(ctx, prefix)
		return &l.Date, err
	})
	if err != nil {
		return bucket.Listing{}, err
	}
	return l, nil
}

// Delete implements bucket.Store.
func (c *client) Delete(ctx context.Context, key string) error {
	return c.do(ctx, Delete, "delete", key, func(ctx context.Context) (*time.Time, error) {
		return nil, c.f.inner.Delete(ctx, key)
	})
}

// do carries out a request without an outcome of its own: whatever happens to
// it is an error.
func (c *client) do(ctx context.Context, op Op, name, key string, call func(context.Context) (*time.Time, error)) error {
	fail := func(kind, err error) error { return &bucket.Error{Op: name, Key: key, Kind: kind, Err: err} }
	if ctx.Err() != nil {
		return fail(nil, ctx.Err())
	}
	p := c.f.meet(c.name, op, key)
	if !c.f.sleep(ctx, p.before) {
		return fail(bucket.ErrUnreachable, ctx.Err())
	}
	switch p.fault.kind {
	case faultDrop, faultZombie:
		return fail(bucket.ErrUnreachable, errBroken)
	case faultHang:
		<-ctx.Done()
		return fail(bucket.ErrUnreachable, ctx.Err())
	case faultThrottle:
		return fail(bucket.ErrThrottled, nil)
	case faultDeny:
		return fail(bucket.ErrDenied, nil)
	case faultFail:
		return fail(bucket.ErrUnreachable, errServer)
	default: // the other faults are of the reply
	}
	date, err := call(ctx)
	switch {
	case p.fault.kind == faultLoseReply:
		return fail(bucket.ErrUnreachable, errBroken)
	case p.fault.kind == faultHangReply:
		<-ctx.Done()
		return fail(bucket.ErrUnreachable, ctx.Err())
	case !c.f.sleep(ctx, p.after):
		return fail(bucket.ErrUnreachable, ctx.Err())
	}
	if date != nil && err == nil {
		*date = date.Add(p.shift)
	}
	return err
}

// Put implements bucket.Store.
func (c *client) Put(ctx context.Context, key string, body []byte, cond bucket.Condition) bucket.PutResult {
	result := func(outcome bucket.Outcome, kind, err error) bucket.PutResult {
		return bucket.PutResult{Outcome: outcome, Err: &bucket.Error{Op: "put", Key: key, Kind: kind, Err: err}}
	}
	if err := bucket.CheckPut(key, body, cond); err != nil {
		return bucket.PutResult{Outcome: bucket.Rejected, Err: err}
	}
	if ctx.Err() != nil {
		return result(bucket.Rejected, nil, ctx.Err())
	}
	p := c.f.meet(c.name, Put, key)
	body = slices.Clone(body) // a late one must not see what its sender does to it
	apply := func() bucket.PutResult { return c.f.inner.Put(context.WithoutCancel(ctx), key, body, cond) }

	sentAt := time.Now()
	if !c.f.sleep(ctx, p.before) {
		// It is on its way, and arrives unless the rules say otherwise.
		if p.fault.kind == 0 || p.fault.kind == faultLoseReply || p.fault.kind == faultHangReply {
			time.AfterFunc(c.f.wake(p.before-time.Since(sentAt)), func() { apply() })
		}
		return result(bucket.Ambiguous, bucket.ErrUnreachable, ctx.Err())
	}
	switch p.fault.kind {
	case faultDrop:
		return result(bucket.Ambiguous, bucket.ErrUnreachable, errBroken)
	case faultFail:
		return result(bucket.Ambiguous, bucket.ErrUnreachable, errServer)
	case faultHang:
		<-ctx.Done()
		return result(bucket.Ambiguous, bucket.ErrUnreachable, ctx.Err())
	case faultThrottle:
		return result(bucket.Rejected, bucket.ErrThrottled, nil)
	case faultDeny:
		return result(bucket.Rejected, bucket.ErrDenied, nil)
	case faultZombie:
		c.f.hold(p.fault.wait, apply)
		return result(bucket.Ambiguous, bucket.ErrUnreachable, errBroken)
	default: // the other faults are of the reply
	}
	r := apply()
	switch {
	case p.fault.kind == faultLoseReply:
		return result(bucket.Ambiguous, bucket.ErrUnreachable, errBroken)
	case p.fault.kind == faultHangReply:
		<-ctx.Done()
		return result(bucket.Ambiguous, bucket.ErrUnreachable, ctx.Err())
	case !c.f.sleep(ctx, p.after):
		return result(bucket.Ambiguous, bucket.ErrUnreachable, ctx.Err())
	}
	if !r.Date.IsZero() {
		r.Date = r.Date.Add(p.shift)
	}
	return r
}

// hold keeps a Put that lands later: after d, or with d = 0 at Land.
func (f *Faults) hold(d time.Duration, land func() bucket.PutResult) {
	if d > 0 {
		time.AfterFunc(f.wake(d), func() { land() })
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.zombies = append(f.zombies, land)
}

// sleep waits for d; it reports false when the context ended first.
func (f *Faults) sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return true
	}
	timer := time.NewTimer(f.wake(d))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
