package sim

import (
	"hash/fnv"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/barista-fleet/barista/internal/bucket"
)

// store is a linearizable bucket. As on most real ones an ETag is a hash of the
// body: only a nonce in the body makes a version unique.
type store struct {
	objects map[string]stored
	keys    []string // sorted; nil after a key came or went
}

type stored struct {
	body []byte
	etag bucket.ETag
}

func newStore() *store { return &store{objects: map[string]stored{}} }

func etagOf(body []byte) bucket.ETag {
	h := fnv.New64a()
	h.Write(body)
	return bucket.ETag(`"` + strconv.FormatUint(h.Sum64(), 16) + `"`)
}

func (s *store) get(key string, ifNoneMatch bucket.ETag) bucket.Object {
	o, ok := s.objects[key]
	switch {
	case !ok:
		return bucket.Object{Status: bucket.Absent}
	case ifNoneMatch != "" && ifNoneMatch == o.etag:
		return bucket.Object{Status: bucket.NotModified}
	case len(o.body) > bucket.MaxBody:
		return bucket.Object{Status: bucket.Found, ETag: o.etag, Oversize: true}
	}
	return bucket.Object{Status: bucket.Found, ETag: o.etag, Body: o.body}
}

func (s *store) put(key string, body []byte, cond bucket.Condition) bucket.PutResult {
	if !cond.Holds(s.objects[key].etag) {
		return bucket.PutResult{Outcome: bucket.Rejected, Err: bucket.ErrCondition}
	}
	return bucket.PutResult{Outcome: bucket.Applied, ETag: s.plant(key, body)}
}

// plant stores an object whatever is there.
func (s *store) plant(key string, body []byte) bucket.ETag {
	if _, ok := s.objects[key]; !ok {
		s.keys = nil
	}
	o := stored{body: body, etag: etagOf(body)}
	s.objects[key] = o
	return o.etag
}

func (s *store) remove(key string) {
	delete(s.objects, key)
	s.keys = nil
}

func (s *store) list(prefix string) bucket.Listing {
	if s.keys == nil {
		s.keys = slices.Sorted(maps.Keys(s.objects))
	}
	var l bucket.Listing
	i, _ := slices.BinarySearch(s.keys, prefix)
	for ; i < len(s.keys) && strings.HasPrefix(s.keys[i], prefix); i++ {
		o := s.objects[s.keys[i]]
		l.Entries = append(l.Entries, bucket.Entry{Key: s.keys[i], ETag: o.etag, Size: int64(len(o.body))})
	}
	return l
}

// backup is the bucket's contents at one instant.
type backup map[string]stored

func (s *store) backup() backup { return maps.Clone(s.objects) }

func (s *store) restore(b backup) {
	s.objects, s.keys = maps.Clone(b), nil
}
