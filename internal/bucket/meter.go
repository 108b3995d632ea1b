package bucket

import (
	"context"
	"errors"
	"maps"
	"strings"
	"sync"
)

// Meter is a Store that counts what passes through it, by class: what was asked
// of which kind of key. It is how the cost of a node is known and pinned.
type Meter struct {
	Store

	mu     sync.Mutex
	counts map[string]Count // guarded by mu
}

// Count is what was counted of one class.
type Count struct {
	Total     uint64
	Failed    uint64 // errors of reads; writes that were Ambiguous or refused
	Conflicts uint64 // conditional writes whose condition did not hold
}

var _ Store = (*Meter)(nil)

// NewMeter counts the requests to store.
func NewMeter(store Store) *Meter {
	return &Meter{Store: store, counts: map[string]Count{}}
}

// Counts returns a copy of the counts, by class: get, get-304, put-if-absent,
// put-if-match, put, list and delete, each with the first segment of the key, as
// in "put-if-match nodes".
func (m *Meter) Counts() map[string]Count {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := make(map[string]Count, len(m.counts))
	maps.Copy(out, m.counts)
	return out
}

func (m *Meter) count(op, key string, err error) {
	area, _, _ := strings.Cut(key, "/")
	m.mu.Lock()
	defer m.mu.Unlock()
	c := m.counts[op+" "+area]
	c.Total++
	switch {
	case err == nil:
	case errors.Is(err, ErrCondition):
		c.Conflicts++
	default:
		c.Failed++
	}
	m.counts[op+" "+area] = c
}

// Get implements Store.
func (m *Meter) Get(ctx context.Context, key string, ifNoneMatch ETag) (Object, error) {
	obj, err := m.Store.Get(ctx, key, ifNoneMatch)
	op := "get"
	if obj.Status == NotModified {
		op = "get-304"
	}
	m.count(op, key, err)
	return obj, err
}

// Put implements Store.
func (m *Meter) Put(ctx context.Context, key string, body []byte, cond Condition) PutResult {
	r := m.Store.Put(ctx, key, body, cond)
	op := "put"
	if cond.WantAbsent() {
		op = "put-if-absent"
	} else if _, ok := cond.WantMatch(); ok {
		op = "put-if-match"
	}
	err := r.Err
	if r.Outcome == Ambiguous && err == nil {
		err = ErrUnreachable
	}
	m.count(op, key, err)
	return r
}

// List implements Store. One call is counted once, however many pages it had.
func (m *Meter) List(ctx context.Context, prefix string) (Listing, error) {
	l, err := m.Store.List(ctx, prefix)
	m.count("list", prefix, err)
	return l, err
}

// Delete implements Store.
func (m *Meter) Delete(ctx context.Context, key string) error {
	err := m.Store.Delete(ctx, key)
	m.count("delete", key, err)
	return err
}
