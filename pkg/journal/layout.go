package journal

import (
	"bytes"
	"fmt"
	"slices"

	bolt "go.etcd.io/bbolt"
)

// schemaVersion is the layout that this program writes.
const schemaVersion = 1

// Buckets and fixed keys, as drawn in the package comment.
var (
	bucketMeta     = []byte("meta")
	bucketOwned    = []byte("owned")
	bucketOps      = []byte("ops")
	bucketSeen     = []byte("seen")
	bucketEvents   = []byte("events")
	bucketSchedLog = []byte("sched_log")
	bucketObjects  = []byte("objects")
	bucketDamaged  = []byte("damaged")

	keySchema        = []byte("schema")
	keyIdentity      = []byte("identity")
	keyIncarnation   = []byte("incarnation")
	keySchedSnapshot = []byte("sched_snapshot")
	keyEventsDropped = []byte("events_dropped")
)

// allBuckets are the buckets that a file of this schema has.
var allBuckets = [][]byte{
	bucketMeta, bucketOwned, bucketOps, bucketSeen, bucketEvents,
	bucketSchedLog, bucketObjects, bucketDamaged,
}

// layOut makes every bucket and records the schema.
func layOut(tx *bolt.Tx) error {
	for _, name := range allBuckets {
		if _, err := tx.CreateBucketIfNotExists(name); err != nil {
			return fmt.Errorf("bucket %s: %w", name, err)
		}
	}
	return putFramed(tx.Bucket(bucketMeta), bucketMeta, keySchema, u64(schemaVersion))
}

func putFramed(b *bolt.Bucket, bucket, key, payload []byte) error {
	return b.Put(key, frame(bucket, key, payload))
}

// getFramed returns the payload under key, nil if there is none. It is valid
// for the life of the transaction.
func getFramed(b *bolt.Bucket, bucket, key []byte) ([]byte, error) {
	v := b.Get(key)
	if v == nil {
		return nil, nil
	}
	payload, err := unframe(bucket, key, v)
	if err != nil {
		return nil, &Error{Op: "read", Name: string(bucket) + "/" + string(key), Err: err}
	}
	return payload, nil
}

// getU64 returns the number under key, 0 if there is none.
func getU64(b *bolt.Bucket, bucket, key []byte) (uint64, error) {
	payload, err := getFramed(b, bucket, key)
	if err != nil || payload == nil {
		return 0, err
	}
	return parseU64(payload)
}

// checkRecord says whether a stored value of the current schema can be
// understood. Anything goes in "damaged" and in buckets of other schemas.
func checkRecord(bucket, key, value []byte) error {
	if string(bucket) == string(bucketDamaged) || !slices.ContainsFunc(allBuckets, func(b []byte) bool { return bytes.Equal(b, bucket) }) {
		return nil
	}
	payload, err := unframe(bucket, key, value)
	if err != nil {
		return err
	}
	switch string(bucket) {
	case string(bucketMeta):
		return checkMeta(key, payload)
	case string(bucketOwned):
		_, err = decodeRecord(payload, new(Owned))
	case string(bucketOps):
		_, err = decodeRecord(payload, new(Op))
	case string(bucketSeen):
		_, err = parseU64(payload)
	case string(bucketObjects):
		_, _, err = parseNumbered(payload)
	case string(bucketEvents), string(bucketSchedLog):
		if len(key) != 8 {
			err = fmt.Errorf("a key of %d bytes, want 8", len(key))
		}
	}
	return err
}

func checkMeta(key, payload []byte) error {
	var err error
	switch string(key) {
	case string(keyIdentity):
		_, err = decodeRecord(payload, new(Identity))
	case string(keySchedSnapshot):
		_, _, err = parseNumbered(payload)
	case string(keySchema), string(keyIncarnation), string(keyEventsDropped):
		_, err = parseU64(payload)
	}
	return err
}
