package journal

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	bolt "go.etcd.io/bbolt"
)

// check refuses what can never be applied, and returns the batch's size.
func (b *Batch) check() (bytes int, err error) {
	bad := func(name, format string, args ...any) {
		if err == nil {
			err = &Error{Op: "commit", Name: name, Kind: ErrInvalid, Err: fmt.Errorf(format, args...)}
		}
	}
	key := func(k string) {
		if k == "" || len(k) > MaxKey {
			bad(k, "a name has 1 to %d bytes", MaxKey)
		}
		bytes += len(k)
	}
	data := func(name string, d []byte) {
		if len(d) > MaxData {
			bad(name, "%d bytes of data, at most %d fit", len(d), MaxData)
		}
		bytes += len(d)
	}
	for _, names := range [][]string{b.DelOps, b.DelOwned, b.Forget, b.DelObjects} {
		for _, name := range names {
			key(name)
		}
	}
	seen := make(map[string]bool, len(b.PutOps))
	for _, op := range b.PutOps {
		key(op.Name)
		data(op.Name, op.Data)
		if seen[op.Name] {
			bad(op.Name, "two operations for one name")
		}
		seen[op.Name] = true
	}
	for _, o := range b.PutOwned {
		key(o.Name)
		data(o.Name, o.Data)
	}
	for name := range b.Seen {
		key(name)
	}
	for _, e := range b.Events {
		data("event", e)
	}
	if s := b.SchedSnapshot; s != nil {
		data("scheduler snapshot", s.Data)
	}
	for _, e := range b.SchedAppend {
		data("scheduler event", e.Data)
	}
	clear(seen)
	for _, o := range b.PutObjects {
		key(o.Key)
		data(o.Key, o.Body)
		if seen[o.Key] {
			bad(o.Key, "two writes of one object")
		}
		seen[o.Key] = true
		if o.Cond.kind == condNone {
			bad(o.Key, "a put needs a condition")
		}
	}
	if bytes > MaxBatch {
		bad("", "%d bytes, at most %d fit in one batch", bytes, MaxBatch)
	}
	return bytes, err
}

// conditions reports why the batch may not be applied to the state that the
// batches before it in the transaction have made. It changes nothing.
func (b *Batch) conditions(tx *bolt.Tx) error {
	if err := b.identityCondition(tx); err != nil {
		return err
	}
	for _, op := range b.PutOps {
		if tx.Bucket(bucketOps).Get([]byte(op.Name)) != nil && !slices.Contains(b.DelOps, op.Name) {
			return &Error{Op: "commit", Name: op.Name, Kind: ErrOpInFlight}
		}
	}
	if err := b.schedCondition(tx); err != nil {
		return err
	}
	for _, o := range b.PutObjects {
		have, err := objectVersion(tx, o.Key)
		if err != nil {
			return err
		}
		if slices.Contains(b.DelObjects, o.Key) {
			have = 0
		}
		switch {
		case o.Cond.kind == condAbsent && have != 0:
			return &Error{Op: "commit", Name: o.Key, Kind: ErrConflict, Err: fmt.Errorf("exists at version %d", have)}
		case o.Cond.kind == condVersion && have != o.Cond.version:
			return &Error{
				Op: "commit", Name: o.Key, Kind: ErrConflict,
				Err: fmt.Errorf("version is %d, not %d", have, o.Cond.version),
			}
		}
	}
	return nil
}

func (b *Batch) identityCondition(tx *bolt.Tx) error {
	if b.Identity == nil {
		return nil
	}
	old, err := readIdentity(tx)
	if err != nil || old == nil {
		return err
	}
	regress := func(format string, args ...any) error {
		return &Error{Op: "commit", Name: old.NodeID, Kind: ErrRegress, Err: fmt.Errorf(format, args...)}
	}
	n := b.Identity
	switch {
	case old.FleetID != "" && n.FleetID != "" && n.FleetID != old.FleetID:
		return regress("fleet %s to %s", old.FleetID, n.FleetID)
	case n.NodeID == old.NodeID && n.Incarnation < old.Incarnation:
		return regress("incarnation %d to %d", old.Incarnation, n.Incarnation)
	}
	return nil
}

func (b *Batch) schedCondition(tx *bolt.Tx) error {
	if b.SchedSnapshot == nil && len(b.SchedAppend) == 0 {
		return nil
	}
	snap, err := getFramed(tx.Bucket(bucketMeta), bucketMeta, keySchedSnapshot)
	if err != nil {
		return err
	}
	var last uint64
	if snap != nil {
		if last, _, err = parseNumbered(snap); err != nil {
			return err
		}
	}
	if s := b.SchedSnapshot; s != nil && s.Through < last {
		return &Error{
			Op: "commit", Kind: ErrGap,
			Err: fmt.Errorf("snapshot through %d, the stored one is through %d", s.Through, last),
		}
	}
	if k, _ := tx.Bucket(bucketSchedLog).Cursor().Last(); k != nil {
		last = max(last, binary.BigEndian.Uint64(k))
	}
	if s := b.SchedSnapshot; s != nil {
		last = max(last, s.Through)
	}
	for _, e := range b.SchedAppend {
		if e.Seq != last+1 {
			return &Error{Op: "commit", Kind: ErrGap, Err: fmt.Errorf("event %d after %d", e.Seq, last)}
		}
		last = e.Seq
	}
	return nil
}

// applier applies one batch; its first error sticks.
type applier struct {
	tx  *bolt.Tx
	err error
}

func (a *applier) put(bucket, key, payload []byte) {
	if a.err == nil {
		a.err = putFramed(a.tx.Bucket(bucket), bucket, key, payload)
	}
}

func (a *applier) record(bucket []byte, key string, head any, data []byte) {
	payload, err := encodeRecord(head, data)
	if a.err == nil {
		a.err = err
	}
	a.put(bucket, []byte(key), payload)
}

func (a *applier) del(bucket []byte, keys []string) {
	for _, key := range keys {
		if a.err == nil {
			a.err = a.tx.Bucket(bucket).Delete([]byte(key))
		}
	}
}

// raise stores n where the stored number is smaller.
func (a *applier) raise(bucket, key []byte, n uint64) {
	if a.err != nil || n == 0 {
		return
	}
	have, err := getU64(a.tx.Bucket(bucket), bucket, key)
	if a.err = err; err == nil && n > have {
		a.put(bucket, key, u64(n))
	}
}

// dropThrough deletes the numbered keys up to and including n.
func (a *applier) dropThrough(bucket []byte, n uint64) {
	if a.err != nil || n == 0 {
		return
	}
	b := a.tx.Bucket(bucket)
	end := u64(n)
	// Collected first: a cursor that deletes as it goes skips keys in bbolt.
	var doomed [][]byte
	c := b.Cursor()
	for k, _ := c.First(); k != nil && bytes.Compare(k, end) <= 0; k, _ = c.Next() {
		doomed = append(doomed, bytes.Clone(k))
	}
	for _, k := range doomed {
		if a.err == nil {
			a.err = b.Delete(k)
		}
	}
}

// apply makes the changes. An error leaves the transaction half done: it must
// be rolled back.
func (b *Batch) apply(tx *bolt.Tx, maxEvents uint64) (Receipt, error) {
	a := &applier{tx: tx}
	var r Receipt

	a.del(bucketOps, b.DelOps)
	a.del(bucketOwned, b.DelOwned)
	a.del(bucketSeen, b.Forget)
	a.del(bucketObjects, b.DelObjects)

	if id := b.Identity; id != nil {
		a.record(bucketMeta, string(keyIdentity), id, nil)
		a.raise(bucketMeta, keyIncarnation, max(id.Incarnation, id.Intended))
	}
	for i := range b.PutOps {
		op := &b.PutOps[i]
		a.record(bucketOps, op.Name, op, op.Data)
	}
	for i := range b.PutOwned {
		o := &b.PutOwned[i]
		a.record(bucketOwned, o.Name, o, o.Data)
		a.raise(bucketSeen, []byte(o.Name), o.Epoch)
	}
	for name, epoch := range b.Seen {
		a.raise(bucketSeen, []byte(name), epoch)
	}
	a.raise(bucketMeta, keyIncarnation, b.SeenIncarnation)

	if s := b.SchedSnapshot; s != nil {
		a.put(bucketMeta, keySchedSnapshot, numbered(s.Through, s.Data))
		a.dropThrough(bucketSchedLog, s.Through)
	}
	for _, e := range b.SchedAppend {
		a.put(bucketSchedLog, u64(e.Seq), e.Data)
	}

	a.dropThrough(bucketEvents, b.DropEvents)
	r.FirstEvent = a.events(b.Events, maxEvents)
	r.Versions = a.objects(b.PutObjects)
	return r, a.err
}

// events appends to the outbox and discards the oldest beyond its bound.
func (a *applier) events(events [][]byte, maxEvents uint64) (first uint64) {
	b := a.tx.Bucket(bucketEvents)
	var last uint64
	for _, e := range events {
		if a.err != nil {
			return 0
		}
		last, a.err = b.NextSequence()
		if first == 0 {
			first = last
		}
		a.put(bucketEvents, u64(last), e)
	}
	if a.err != nil || last <= maxEvents {
		return first
	}
	k, _ := b.Cursor().First()
	if k == nil {
		return first
	}
	oldest, keep := binary.BigEndian.Uint64(k), last-maxEvents+1
	if oldest >= keep {
		return first
	}
	a.dropThrough(bucketEvents, keep-1)
	dropped, err := getU64(a.tx.Bucket(bucketMeta), bucketMeta, keyEventsDropped)
	a.err = errors.Join(a.err, err)
	a.put(bucketMeta, keyEventsDropped, u64(dropped+keep-oldest))
	return first
}

// objects stores objects under versions that are never used again, not even
// for another key: a version seen before a delete cannot match after it.
func (a *applier) objects(puts []ObjectPut) []uint64 {
	if len(puts) == 0 {
		return nil
	}
	versions := make([]uint64, len(puts))
	for i, o := range puts {
		if a.err != nil {
			return nil
		}
		versions[i], a.err = a.tx.Bucket(bucketObjects).NextSequence()
		a.put(bucketObjects, []byte(o.Key), numbered(versions[i], o.Body))
	}
	return versions
}
