package buckettest

import (
	"context"
	"crypto/md5"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/barista-fleet/barista/internal/bucket"
)

// Mem is a linearizable store in memory. Equal bodies have equal ETags, as on
// most real servers.
type Mem struct {
	mu      sync.Mutex
	objects map[string][]byte
	written map[string]time.Time
	skew    time.Duration
}

var _ bucket.Store = (*Mem)(nil)

// NewMem returns an empty store.
func NewMem() *Mem {
	return &Mem{objects: make(map[string][]byte), written: make(map[string]time.Time)}
}

// SetSkew moves the store's clock against the local one.
func (m *Mem) SetSkew(d time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.skew = d
}

// Plant stores an object past all checks: one that is too large, or whose key
// no client of ours would write.
func (m *Mem) Plant(key string, body []byte) bucket.ETag {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.objects[key], m.written[key] = slices.Clone(body), m.dateLocked()
	return etagOf(body)
}

// Snapshot returns a copy of all objects.
func (m *Mem) Snapshot() map[string][]byte {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := make(map[string][]byte, len(m.objects))
	for key, body := range m.objects {
		out[key] = slices.Clone(body)
	}
	return out
}

// Restore replaces all objects: a bucket restored from a backup.
func (m *Mem) Restore(objects map[string][]byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	clear(m.objects)
	for key, body := range objects {
		m.objects[key], m.written[key] = slices.Clone(body), m.dateLocked()
	}
}

func etagOf(body []byte) bucket.ETag {
	sum := md5.Sum(body)
	return bucket.ETag(`"` + hex.EncodeToString(sum[:]) + `"`)
}

func (m *Mem) dateLocked() time.Time { return time.Now().Add(m.skew) }

// Get implements bucket.Store.
func (m *Mem) Get(ctx context.Context, key string, ifNoneMatch bucket.ETag) (bucket.Object, error) {
	if err := bucket.CheckKey(key); err != nil {
		return bucket.Object{}, err
	}
	if err := ctx.Err(); err != nil {
		return bucket.Object{}, &bucket.Error{Op: "get", Key: key, Err: err}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	body, ok := m.objects[key]
	if !ok {
		return bucket.Object{Status: bucket.Absent, Date: m.dateLocked()}, nil
	}
	etag := etagOf(body)
	if ifNoneMatch != "" && ifNoneMatch == etag {
		return bucket.Object{Status: bucket.NotModified, Date: m.dateLocked()}, nil
	}
	obj := bucket.Object{Status: bucket.Found, ETag: etag, Date: m.dateLocked()}
	if len(body) > bucket.MaxBody {
		obj.Oversize = true
	} else {
		obj.Body = append([]byte{}, body...)
	}
	return obj, nil
}

// Put implements bucket.Store.
func (m *Mem) Put(ctx context.Context, key string, body []byte, cond bucket.Condition) bucket.PutResult {
	if err := bucket.CheckPut(key, body, cond); err != nil {
		return bucket.PutResult{Outcome: bucket.Rejected, Err: err}
	}
	if err := ctx.Err(); err != nil {
		return bucket.PutResult{Outcome: bucket.Rejected, Err: &bucket.Error{Op: "put", Key: key, Err: err}}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	stored := bucket.ETag("")
	if old, ok := m.objects[key]; ok {
		stored = etagOf(old)
	}
	if !cond.Holds(stored) {
		return bucket.PutResult{Outcome: bucket.Rejected, Date: m.dateLocked(), Err: &bucket.Error{
			Op: "put", Key: key, Kind: bucket.ErrCondition, Err: fmt.Errorf("%v: the object has etag %q", cond, stored),
		}}
	}
	m.objects[key], m.written[key] = append([]byte{}, body...), m.dateLocked()
	return bucket.PutResult{Outcome: bucket.Applied, ETag: etagOf(body), Date: m.dateLocked()}
}

// List implements bucket.Store.
func (m *Mem) List(ctx context.Context, prefix string) (bucket.Listing, error) {
	if err := bucket.CheckPrefix(prefix); err != nil {
		return bucket.Listing{}, err
	}
	if err := ctx.Err(); err != nil {
		return bucket.Listing{}, &bucket.Error{Op: "list", Key: prefix, Err: err}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	listing := bucket.Listing{Date: m.dateLocked()}
	for _, key := range slices.Sorted(maps.Keys(m.objects)) {
		if strings.HasPrefix(key, prefix) {
			body := m.objects[key]
			listing.Entries = append(listing.Entries, bucket.Entry{Key: key, ETag: etagOf(body), Size: int64(len(body)), Modified: m.written[key]})
		}
	}
	return listing, nil
}

// Delete implements bucket.Store.
func (m *Mem) Delete(ctx context.Context, key string) error {
	if err := bucket.CheckKey(key); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return &bucket.Error{Op: "delete", Key: key, Err: err}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.objects, key)
	return nil
}

// Description implements bucket.Store.
func (m *Mem) Description() string { return "memory" }
