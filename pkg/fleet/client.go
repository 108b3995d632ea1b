package fleet

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/barista-fleet/barista/internal/bucket"
)

// Bounds of the client.
const (
	// maxAttempts is how often a read-change-write is tried. Operators' objects
	// see a handful of writers at most: who loses this often is fighting a loop.
	maxAttempts = 10
	// callTimeout bounds one request, so that a store that accepts and never
	// answers becomes an error that says so.
	callTimeout = 15 * time.Second
	// listTimeout bounds one listing of any number of pages.
	listTimeout = 60 * time.Second
	// signalTimeout bounds the wake signal: a hint must not hold up its write.
	signalTimeout = 2 * time.Second
	// MaxSignalNames bounds the names in one signal.
	MaxSignalNames = 64
	// retryBase and retryMax bound the wait between two attempts.
	retryBase = 20 * time.Millisecond
	retryMax  = 2 * time.Second
)

// ClientConfig tunes a Client. The zero value is ready to use.
type ClientConfig struct {
	// Reads is how many GETs a listing has in flight; default 32.
	Reads int
	// Writes is how many manifests ApplyAll has in flight; default 16.
	Writes int
	// Logger gets one Debug line for each write attempt and each hint that was
	// lost; default none.
	Logger *slog.Logger
}

// Client is the operator's side of the bucket: it reads what the fleet says of
// itself and writes what operators want. It decides nothing about ownership and
// never writes an ownership or liveness record. Its methods are safe for
// concurrent use, and every write is idempotent: after an error of any kind the
// same call can be made again.
type Client struct {
	store  bucket.Store
	reads  int
	writes int
	log    *slog.Logger
}

// NewClient returns a client of the fleet in store, which may be a bucket or a
// single machine's agent.
func NewClient(store bucket.Store, cfg ClientConfig) *Client {
	if cfg.Reads <= 0 {
		cfg.Reads = 32
	}
	if cfg.Writes <= 0 {
		cfg.Writes = 16
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &Client{store: store, reads: cfg.Reads, writes: cfg.Writes, log: cfg.Logger}
}

// Describe names the store for people.
func (c *Client) Describe() string { return c.store.Description() }

// Meta reads the fleet's identity. A bucket without one is a *NoFleetError.
func (c *Client) Meta(ctx context.Context) (*Meta, error) {
	obj, err := c.get(ctx, KeyMeta)
	if err != nil {
		return nil, err
	}
	if obj.Status != bucket.Found {
		return nil, &NoFleetError{Bucket: c.store.Description()}
	}
	return DecodeMeta(obj.Body)
}

// Init makes the fleet in an empty bucket and reports whether it was this call
// that made it. In a bucket that has one it changes nothing.
func (c *Client) Init(ctx context.Context) (meta *Meta, created bool, err error) {
	w, err := c.update(ctx, "init", c.store.Description(), KeyMeta, func(obj bucket.Object, att attempt) (record, error) {
		if obj.Status == bucket.Found {
			var err error
			if meta, err = DecodeMeta(obj.Body); err != nil {
				return nil, err
			}
			return nil, nil
		}
		meta = &Meta{
			Head:    Head{Schema: Schema, Nonce: att.nonce},
			FleetID: "f-" + randomHex(8),
			Created: storeTime(obj.Date),
		}
		return meta, nil
	})
	return meta, w.written, err
}

// get reads one object within the bound of a call.
func (c *Client) get(ctx context.Context, key string) (bucket.Object, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return c.store.Get(ctx, key, "")
}

func (c *Client) list(ctx context.Context, prefix string) (bucket.Listing, error) {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	return c.store.List(ctx, prefix)
}

// written is what a read-change-write left behind.
type written struct {
	written bool        // false: what is there is already what was wanted
	etag    bucket.ETag // of what is there now
	date    time.Time   // the store's clock
}

// change says what an object should be, given what it is; nil means "as it is".
// It may be called several times, and must put att.nonce into the record.
type change func(obj bucket.Object, att attempt) (record, error)

// attempt is one round of a read-change-write.
type attempt struct {
	nonce string
	// unsure: an earlier attempt of this update had an unknown outcome, the
	// object has changed since and does not show it. It was applied and then
	// overwritten, or it never was and cannot be any more.
	unsure bool
}

// update reads key, lets change say what it should be, and writes that under
// the condition that nobody wrote in between; if somebody did, it starts again.
//
// A write whose outcome is unknown is read back: our nonce there means applied.
// While the object has not changed, the same condition with a new nonce either
// succeeds, and then the first can no longer land, or it fails because the first
// did.
func (c *Client) update(ctx context.Context, op, name, key string, do change) (written, error) {
	pending := make(map[string]bool) // nonces of writes that may still be, or become, what is stored
	var pendingOn bucket.ETag        // the version they were all conditioned on; empty: absence
	var last error
	for n := range maxAttempts {
		if n > 0 {
			if err := pause(ctx, n); err != nil {
				break
			}
		}
		obj, err := c.get(ctx, key)
		if err != nil {
			last = err
			if len(pending) > 0 && ctx.Err() == nil {
				continue // only a read can tell what became of the write
			}
			break
		}
		if n := nonceOf(obj); n != "" && pending[n] {
			return written{written: true, etag: obj.ETag, date: obj.Date}, nil
		}
		att := attempt{nonce: NewNonce()}
		if len(pending) > 0 && obj.ETag != pendingOn {
			att.unsure = true
			clear(pending)
		}
		rec, err := do(obj, att)
		if err != nil {
			return written{}, err
		}
		if rec == nil {
			return written{etag: obj.ETag, date: obj.Date}, nil
		}
		res, err := c.put(ctx, key, rec, obj)
		if err != nil {
			return written{}, err
		}
		c.log.Debug("write", "op", op, "key", key, "attempt", n, "outcome", res.Outcome.String(), "err", res.Err)
		last = res.Err
		switch {
		case res.Outcome == bucket.Applied:
			return written{written: true, etag: res.ETag, date: res.Date}, nil
		case res.Outcome == bucket.Ambiguous:
			pending[att.nonce], pendingOn = true, obj.ETag
		case !res.Conflict() && !errors.Is(res.Err, bucket.ErrThrottled):
			return written{}, res.Err
		}
	}
	switch {
	case len(pending) > 0:
		return written{}, &UnknownOutcomeError{Op: op, Name: name, Err: last}
	case errors.Is(last, bucket.ErrCondition):
		return written{}, &ConflictError{Op: op, Name: name, Message: fmt.Sprintf("lost the race against other writers %d times", maxAttempts), Hint: "try again"}
	case last == nil:
		last = ctx.Err()
	}
	return written{}, last
}

// put writes rec in the place of obj.
func (c *Client) put(ctx context.Context, key string, rec record, obj bucket.Object) (bucket.PutResult, error) {
	body, err := Encode(rec)
	if err != nil {
		return bucket.PutResult{}, &SpecError{Problems: []SpecProblem{{Field: key, Message: err.Error()}}}
	}
	cond := bucket.IfAbsent()
	if obj.Status == bucket.Found {
		cond = bucket.IfMatch(obj.ETag)
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return c.store.Put(ctx, key, body, cond), nil
}

// nonceOf returns the nonce of a record, whatever else it holds.
func nonceOf(obj bucket.Object) string {
	if obj.Status != bucket.Found {
		return ""
	}
	var h Head
	if json.Unmarshal(obj.Body, &h) != nil {
		return ""
	}
	return h.Nonce
}

// pause waits before the next attempt: longer each time, and never the same as
// another writer that lost the same race.
func pause(ctx context.Context, n int) error {
	d := min(retryBase<<min(n, 10), retryMax)
	t := time.NewTimer(d/2 + rand.N(d/2))
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// storeTime is the store's clock, or this machine's where the store does not
// say. It orders the names of a tenant and decides nothing about ownership.
func storeTime(date time.Time) time.Time {
	if date.IsZero() {
		date = time.Now()
	}
	return date.UTC()
}

// Signal rings the fleet's bell: nodes look at once instead of at their next
// slow listing. It is a hint, so a failure is logged and no error. More than
// MaxSignalNames names are not listed at all, which means "look at everything".
func (c *Client) Signal(ctx context.Context, names, nodes []string) {
	s := &Signal{Head: Head{Schema: Schema, Nonce: NewNonce()}}
	if len(names) <= MaxSignalNames {
		s.Names = names
	}
	if len(nodes) <= MaxSignalNames {
		s.Nodes = nodes
	}
	body, err := Encode(s)
	if err == nil {
		// The write it announces is done: an interrupted command rings all the same.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), signalTimeout)
		defer cancel()
		err = c.store.Put(ctx, KeySignal, body, bucket.Unconditional()).Err
	}
	if err != nil {
		c.log.Debug("wake signal lost; nodes will notice at their next listing", "err", err)
	}
}

// each calls do for 0…n-1 with at most width calls in flight, and returns when
// all have returned. When ctx ends, calls that have not begun are not made.
func each(ctx context.Context, n, width int, do func(i int)) {
	var wg sync.WaitGroup
	next := make(chan int)
	for range min(width, n) {
		wg.Go(func() {
			for i := range next {
				do(i)
			}
		})
	}
feed:
	for i := range n {
		select {
		case next <- i:
		case <-ctx.Done():
			break feed
		}
	}
	close(next)
	wg.Wait()
}
