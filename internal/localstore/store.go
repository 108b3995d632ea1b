// Package localstore makes a node's journal the object store of a machine
// without a bucket: the same records under the same keys, so that everything
// that works on a bucket works on one machine.
//
// It behaves like a bucket that has exactly one writer at a time and never
// goes away. Its ETags are versions that are never used twice.
package localstore

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/barista-fleet/barista/internal/bucket"
	"github.com/barista-fleet/barista/pkg/journal"
)

// Store is a bucket.Store over a journal.
type Store struct {
	j       *journal.Journal
	changed func(key string)
}

var _ bucket.Store = (*Store)(nil)

// New returns a store over j. If changed is not nil it is called after each
// write and delete that was applied, on the writer's goroutine: a hint that
// saves the wait for the next poll.
func New(j *journal.Journal, changed func(key string)) *Store {
	if changed == nil {
		changed = func(string) {}
	}
	return &Store{j: j, changed: changed}
}

// Description implements bucket.Store.
func (s *Store) Description() string { return "this machine (" + s.j.Dir() + ")" }

func etagOf(version uint64) bucket.ETag {
	return bucket.ETag(`"v` + strconv.FormatUint(version, 10) + `"`)
}

// versionOf is the inverse of etagOf; false if the ETag is none of ours.
func versionOf(etag bucket.ETag) (uint64, bool) {
	digits, ok := strings.CutPrefix(string(etag), `"v`)
	if !ok {
		return 0, false
	}
	version, err := strconv.ParseUint(strings.TrimSuffix(digits, `"`), 10, 64)
	return version, err == nil && etagOf(version) == etag
}

// Get implements bucket.Store.
func (s *Store) Get(ctx context.Context, key string, ifNoneMatch bucket.ETag) (bucket.Object, error) {
	if err := bucket.CheckKey(key); err != nil {
		return bucket.Object{}, err
	}
	if err := ctx.Err(); err != nil {
		return bucket.Object{}, &bucket.Error{Op: "get", Key: key, Err: err}
	}
	o, found, err := s.j.GetObject(key)
	now := time.Now()
	switch {
	case err != nil:
		return bucket.Object{}, storeError("get", key, err)
	case !found:
		return bucket.Object{Status: bucket.Absent, Date: now}, nil
	case ifNoneMatch != "" && ifNoneMatch == etagOf(o.Version):
		return bucket.Object{Status: bucket.NotModified, Date: now}, nil
	case o.Size > bucket.MaxBody:
		return bucket.Object{Status: bucket.Found, ETag: etagOf(o.Version), Oversize: true, Date: now}, nil
	}
	return bucket.Object{Status: bucket.Found, Body: o.Body, ETag: etagOf(o.Version), Date: now}, nil
}

// Put implements bucket.Store.
func (s *Store) Put(ctx context.Context, key string, body []byte, cond bucket.Condition) bucket.PutResult {
	if err := bucket.CheckPut(key, body, cond); err != nil {
		return bucket.PutResult{Outcome: bucket.Rejected, Err: err}
	}
	if err := ctx.Err(); err != nil {
		return bucket.PutResult{Outcome: bucket.Rejected, Err: &bucket.Error{Op: "put", Key: key, Err: err}}
	}
	// A change to what exists may use the reserve: deleting a name is one.
	class, jcond := journal.Ordinary, journal.Always()
	if cond.WantAbsent() {
		jcond = journal.IfAbsent()
	} else if etag, ok := cond.WantMatch(); ok {
		version, known := versionOf(etag)
		if !known {
			return s.rejected(key, cond)
		}
		class, jcond = journal.Essential, journal.IfVersion(version)
	}
	r, err := s.j.Submit(journal.Batch{
		Class: class,
		// The caller may change its slice once we return, also before the
		// journal is done with a batch that it stopped waiting for.
		PutObjects: []journal.ObjectPut{{Key: key, Body: append([]byte{}, body...), Cond: jcond}},
	}).Wait(ctx)
	now := time.Now()
	switch {
	case err == nil:
		s.changed(key)
		return bucket.PutResult{Outcome: bucket.Applied, ETag: etagOf(r.Versions[0]), Date: now}
	case errors.Is(err, journal.ErrUnknown), errors.Is(err, journal.ErrFailed):
		return bucket.PutResult{Outcome: bucket.Ambiguous, Err: storeError("put", key, err), Date: now}
	default:
		return bucket.PutResult{Outcome: bucket.Rejected, Err: storeError("put", key, err), Date: now}
	}
}

// rejected answers an update from an ETag that this store never gave.
func (s *Store) rejected(key string, cond bucket.Condition) bucket.PutResult {
	return bucket.PutResult{Outcome: bucket.Rejected, Date: time.Now(), Err: &bucket.Error{
		Op: "put", Key: key, Kind: bucket.ErrCondition, Err: fmt.Errorf("%v is no version of this store", cond),
	}}
}

// List implements bucket.Store.
func (s *Store) List(ctx context.Context, prefix string) (bucket.Listing, error) {
	if err := bucket.CheckPrefix(prefix); err != nil {
		return bucket.Listing{}, err
	}
	if err := ctx.Err(); err != nil {
		return bucket.Listing{}, &bucket.Error{Op: "list", Key: prefix, Err: err}
	}
	objects, err := s.j.ListObjects(prefix)
	if err != nil {
		return bucket.Listing{}, storeError("list", prefix, err)
	}
	l := bucket.Listing{Date: time.Now(), Entries: make([]bucket.Entry, len(objects))}
	for i, o := range objects {
		l.Entries[i] = bucket.Entry{Key: o.Key, ETag: etagOf(o.Version), Size: int64(o.Size)}
	}
	return l, nil
}

// Delete implements bucket.Store.
func (s *Store) Delete(ctx context.Context, key string) error {
	if err := bucket.CheckKey(key); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return &bucket.Error{Op: "delete", Key: key, Err: err}
	}
	err := s.j.Commit(ctx, journal.Batch{Class: journal.Essential, DelObjects: []string{key}})
	if err != nil {
		return storeError("delete", key, err)
	}
	s.changed(key)
	return nil
}

// storeError renders a journal's error as a bucket's.
func storeError(op, key string, err error) error {
	e := &bucket.Error{Op: op, Key: key, Err: err}
	if je, ok := errors.AsType[*journal.Error](err); ok {
		e.Hint = je.Hint
	}
	switch {
	case errors.Is(err, journal.ErrConflict):
		e.Kind = bucket.ErrCondition
	case errors.Is(err, journal.ErrInvalid):
		e.Kind = bucket.ErrInvalid
	case errors.Is(err, journal.ErrClosed), errors.Is(err, journal.ErrFailed):
		e.Kind = bucket.ErrUnreachable
	}
	return e
}
