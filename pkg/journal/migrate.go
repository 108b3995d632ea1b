package journal

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"

	bolt "go.etcd.io/bbolt"
)

// A migration brings the layout from one schema to the next. Each has a fixture
// of the old layout under testdata.
type migration struct {
	from int
	name string
	run  func(*bolt.Tx) error
}

// migrations, ordered; the last one leads to schemaVersion.
var migrations = []migration{
	{from: 0, name: "checksums, seen epochs, numbered outbox", run: migrateV0},
}

// errUnreadable marks an old record that a migration cannot read.
var errUnreadable = errors.New("unreadable record")

// migrate moves damaged records aside and brings the file to schemaVersion, in
// one transaction: a crash leaves the old layout whole.
func migrate(db *bolt.DB, found inspection) error {
	if found.schema == schemaVersion && len(found.damaged) == 0 {
		return nil
	}
	return db.Update(func(tx *bolt.Tx) error {
		for _, m := range migrations {
			if m.from < found.schema {
				continue
			}
			if err := m.run(tx); err != nil {
				return fmt.Errorf("migration from schema %d (%s): %w", m.from, m.name, err)
			}
		}
		return setAside(tx, found.damaged)
	})
}

// setAside moves damaged records into their own bucket, where nothing reads
// them but people.
func setAside(tx *bolt.Tx, damaged []Damage) error {
	aside := tx.Bucket(bucketDamaged)
	for _, d := range damaged {
		b := tx.Bucket([]byte(d.Bucket))
		v := b.Get([]byte(d.Key))
		if v == nil {
			continue
		}
		if err := aside.Put([]byte(d.Bucket+"/"+d.Key), append([]byte{}, v...)); err != nil {
			return err
		}
		if err := b.Delete([]byte(d.Key)); err != nil {
			return err
		}
	}
	return nil
}

// Schema 0, written by development builds: bare JSON without checksums, one
// operation inside its name's record, events under their number in decimal.
var (
	v0Node   = []byte("node")   // "identity" → JSON Identity
	v0Names  = []byte("names")  // <name> → JSON v0Name
	v0Outbox = []byte("outbox") // <decimal number> → event
)

type v0Name struct {
	Owned
	Data []byte  `json:"data,omitempty"`
	Op   *v0Oper `json:"op,omitempty"`
}

type v0Oper struct {
	Kind     string `json:"kind"`
	Instance string `json:"instance,omitempty"`
	Attempt  int    `json:"attempt,omitempty"`
	Data     []byte `json:"data,omitempty"`
}

// migrateV0 rewrites the old buckets as one batch in the new ones. The highest
// epochs and incarnation seen, which schema 0 did not keep, start from what the
// records say.
func migrateV0(tx *bolt.Tx) error {
	var b Batch
	if v := tx.Bucket(v0Node).Get([]byte("identity")); v != nil {
		b.Identity = new(Identity)
		if err := json.Unmarshal(v, b.Identity); err != nil {
			return fmt.Errorf("%w: identity: %w", errUnreadable, err)
		}
	}
	err := tx.Bucket(v0Names).ForEach(func(k, v []byte) error {
		var n v0Name
		if err := json.Unmarshal(v, &n); err != nil {
			return fmt.Errorf("%w: name %q: %w", errUnreadable, k, err)
		}
		o := n.Owned
		o.Name, o.Data = string(k), n.Data
		b.PutOwned = append(b.PutOwned, o)
		b.SeenIncarnation = max(b.SeenIncarnation, o.Incarnation)
		if op := n.Op; op != nil {
			b.PutOps = append(b.PutOps, Op{
				Name: o.Name, Kind: op.Kind, Instance: op.Instance, UID: o.UID,
				Epoch: o.Epoch, Incarnation: o.Incarnation, Attempt: op.Attempt, Data: op.Data,
			})
		}
		return nil
	})
	if err != nil {
		return err
	}
	events, err := v0Events(tx)
	if err != nil {
		return err
	}
	if err := layOut(tx); err != nil {
		return err
	}
	if _, err := b.apply(tx, defaultMaxEvents); err != nil {
		return err
	}
	a := &applier{tx: tx}
	for _, e := range events {
		a.put(bucketEvents, u64(e.Seq), e.Data)
		if a.err == nil {
			a.err = tx.Bucket(bucketEvents).SetSequence(e.Seq)
		}
	}
	for _, old := range [][]byte{v0Node, v0Names, v0Outbox} {
		if a.err == nil && tx.Bucket(old) != nil {
			a.err = tx.DeleteBucket(old)
		}
	}
	return a.err
}

// v0Events returns the old outbox by number: decimal keys do not sort by it.
func v0Events(tx *bolt.Tx) ([]Event, error) {
	outbox := tx.Bucket(v0Outbox)
	if outbox == nil {
		return nil, nil
	}
	var events []Event
	err := outbox.ForEach(func(k, v []byte) error {
		seq, err := strconv.ParseUint(string(k), 10, 64)
		if err != nil {
			return fmt.Errorf("%w: event %q: %w", errUnreadable, k, err)
		}
		events = append(events, Event{Seq: seq, Data: bytes.Clone(v)})
		return nil
	})
	slices.SortFunc(events, func(a, b Event) int { return cmp.Compare(a.Seq, b.Seq) })
	return events, err
}
