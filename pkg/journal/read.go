package journal

import (
	"bytes"
	"context"
	"encoding/binary"

	bolt "go.etcd.io/bbolt"
)

func readIdentity(tx *bolt.Tx) (*Identity, error) {
	payload, err := getFramed(tx.Bucket(bucketMeta), bucketMeta, keyIdentity)
	if err != nil || payload == nil {
		return nil, err
	}
	id := new(Identity)
	if _, err := decodeRecord(payload, id); err != nil {
		return nil, &Error{Op: "read", Name: "identity", Err: err}
	}
	return id, nil
}

// each calls fn with every payload of a bucket, in the order of keys. The
// slices are valid during the call only.
func each(tx *bolt.Tx, bucket []byte, fn func(key, payload []byte) error) error {
	return tx.Bucket(bucket).ForEach(func(k, v []byte) error {
		payload, err := unframe(bucket, k, v)
		if err == nil {
			err = fn(k, payload)
		}
		if err != nil {
			return &Error{Op: "read", Name: string(bucket) + "/" + string(k), Err: err}
		}
		return nil
	})
}

// Load returns everything that a restart needs.
func (j *Journal) Load() (State, error) {
	s := State{Seen: map[string]uint64{}}
	err := j.view("load", func(tx *bolt.Tx) (err error) {
		meta := tx.Bucket(bucketMeta)
		if s.Identity, err = readIdentity(tx); err != nil {
			return err
		}
		if s.SeenIncarnation, err = getU64(meta, bucketMeta, keyIncarnation); err != nil {
			return err
		}
		if s.EventsDropped, err = getU64(meta, bucketMeta, keyEventsDropped); err != nil {
			return err
		}
		err = each(tx, bucketOwned, func(k, payload []byte) error {
			o := Owned{Name: string(k)}
			o.Data, err = decodeRecord(payload, &o)
			s.Owned = append(s.Owned, o)
			return err
		})
		if err != nil {
			return err
		}
		err = each(tx, bucketOps, func(k, payload []byte) error {
			o := Op{Name: string(k)}
			o.Data, err = decodeRecord(payload, &o)
			s.Ops = append(s.Ops, o)
			return err
		})
		if err != nil {
			return err
		}
		err = each(tx, bucketSeen, func(k, payload []byte) error {
			s.Seen[string(k)], err = parseU64(payload)
			return err
		})
		s.Events = outboxSize(tx)
		return err
	})
	if err != nil {
		return State{}, err
	}
	return s, nil
}

// outboxSize counts without reading: numbers are consecutive, because events
// are dropped from the front only. A record that was set aside makes it count
// one too many.
func outboxSize(tx *bolt.Tx) uint64 {
	c := tx.Bucket(bucketEvents).Cursor()
	first, _ := c.First()
	last, _ := c.Last()
	if len(first) != 8 || len(last) != 8 {
		return 0
	}
	return binary.BigEndian.Uint64(last) - binary.BigEndian.Uint64(first) + 1
}

// Events returns up to limit events whose numbers are from or higher, in order.
func (j *Journal) Events(from uint64, limit int) ([]Event, error) {
	var out []Event
	err := j.view("read events", func(tx *bolt.Tx) error {
		c := tx.Bucket(bucketEvents).Cursor()
		for k, v := c.Seek(u64(from)); k != nil && len(out) < limit; k, v = c.Next() {
			payload, err := unframe(bucketEvents, k, v)
			if err != nil {
				return &Error{Op: "read", Name: "events", Err: err}
			}
			out = append(out, Event{Seq: binary.BigEndian.Uint64(k), Data: bytes.Clone(payload)})
		}
		return nil
	})
	return out, err
}

// Sched returns the scheduler's snapshot, nil if there is none, and every event
// after it.
func (j *Journal) Sched() (*SchedSnapshot, []SchedEvent, error) {
	var snap *SchedSnapshot
	var log []SchedEvent
	err := j.view("read scheduler log", func(tx *bolt.Tx) error {
		payload, err := getFramed(tx.Bucket(bucketMeta), bucketMeta, keySchedSnapshot)
		if err != nil {
			return err
		}
		if payload != nil {
			through, data, err := parseNumbered(payload)
			if err != nil {
				return err
			}
			snap = &SchedSnapshot{Through: through, Data: bytes.Clone(data)}
		}
		return each(tx, bucketSchedLog, func(k, payload []byte) error {
			log = append(log, SchedEvent{Seq: binary.BigEndian.Uint64(k), Data: bytes.Clone(payload)})
			return nil
		})
	})
	if err != nil {
		return nil, nil, err
	}
	return snap, log, nil
}

// objectVersion returns the version stored under key, 0 if it is absent.
func objectVersion(tx *bolt.Tx, key string) (uint64, error) {
	payload, err := getFramed(tx.Bucket(bucketObjects), bucketObjects, []byte(key))
	if err != nil || payload == nil {
		return 0, err
	}
	version, _, err := parseNumbered(payload)
	return version, err
}

// GetObject returns one object, false if it is absent.
func (j *Journal) GetObject(key string) (Object, bool, error) {
	var o Object
	found := false
	err := j.view("get object", func(tx *bolt.Tx) error {
		payload, err := getFramed(tx.Bucket(bucketObjects), bucketObjects, []byte(key))
		if err != nil || payload == nil {
			return err
		}
		version, body, err := parseNumbered(payload)
		if err != nil {
			return err
		}
		found = true
		o = Object{Key: key, Version: version, Body: append([]byte{}, body...), Size: len(body)}
		return nil
	})
	if err != nil {
		return Object{}, false, err
	}
	return o, found, nil
}

// ListObjects returns the objects whose keys start with prefix, by key and
// without bodies.
func (j *Journal) ListObjects(prefix string) ([]Object, error) {
	var out []Object
	err := j.view("list objects", func(tx *bolt.Tx) error {
		c := tx.Bucket(bucketObjects).Cursor()
		p := []byte(prefix)
		for k, v := c.Seek(p); k != nil && bytes.HasPrefix(k, p); k, v = c.Next() {
			payload, err := unframe(bucketObjects, k, v)
			if err != nil {
				return &Error{Op: "read", Name: "objects/" + string(k), Err: err}
			}
			version, body, err := parseNumbered(payload)
			if err != nil {
				return &Error{Op: "read", Name: "objects/" + string(k), Err: err}
			}
			out = append(out, Object{Key: string(k), Version: version, Size: len(body)})
		}
		return nil
	})
	return out, err
}

// PutObject writes one object under a condition and returns its new version. A
// condition that does not hold is ErrConflict.
func (j *Journal) PutObject(ctx context.Context, key string, body []byte, cond ObjectCond) (uint64, error) {
	r, err := j.Submit(Batch{PutObjects: []ObjectPut{{Key: key, Body: body, Cond: cond}}}).Wait(ctx)
	if err != nil {
		return 0, err
	}
	return r.Versions[0], nil
}
