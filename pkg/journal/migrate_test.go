package journal_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	bolt "go.etcd.io/bbolt"

	"github.com/barista-fleet/barista/pkg/journal"
)

var update = flag.Bool("update", false, "write the fixtures under testdata again")

const fixtureV0 = "testdata/v0.db"

// writeV0 makes a journal as schema 0 had it.
func writeV0(t *testing.T, path string) {
	t.Helper()
	db, err := bolt.Open(path, 0o600, &bolt.Options{PageSize: 4096})
	if err != nil {
		t.Fatal(err)
	}
	err = db.Update(func(tx *bolt.Tx) error {
		put := func(bucket, key string, v any) {
			b, err := tx.CreateBucketIfNotExists([]byte(bucket))
			if err != nil {
				t.Fatal(err)
			}
			raw, ok := v.([]byte)
			if !ok {
				if raw, err = json.Marshal(v); err != nil {
					t.Fatal(err)
				}
			}
			if err := b.Put([]byte(key), raw); err != nil {
				t.Fatal(err)
			}
		}
		put("node", "identity", map[string]any{
			"fleet_id": "f-1", "bucket": "s3://b", "node_id": "n-1", "incarnation": 4, "driver": "process",
		})
		put("names", "idle", map[string]any{"uid": "u2", "epoch": 3, "incarnation": 2, "phase": "paused"})
		put("names", "web.1", map[string]any{
			"uid": "u1", "epoch": 9, "incarnation": 5, "generation": 2, "instance": "b-1", "attempt": 1, "phase": "running",
			"data": []byte("opaque"),
			"op":   map[string]any{"kind": "stop", "instance": "b-1", "attempt": 1, "data": []byte("why")},
		})
		for i := 8; i <= 12; i++ { // decimal keys: 10 sorts before 8
			put("outbox", fmt.Sprint(i), fmt.Append(nil, i))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}

// place copies a journal file into a new data directory.
func place(t *testing.T, file string) (dir string) {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	dir = t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, journal.DBFile), b, 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestMigrateV0(t *testing.T) {
	if *update {
		_ = os.Remove(fixtureV0)
		writeV0(t, fixtureV0)
	}
	dir := place(t, fixtureV0)
	report, err := journal.Check(dir, journal.Options{})
	if err != nil || !report.OK() || report.Schema != 0 || len(report.Findings) != 1 {
		t.Errorf("check before: %+v, %v", report, err)
	}
	want := journal.State{
		Identity: &journal.Identity{FleetID: "f-1", Bucket: "s3://b", NodeID: "n-1", Incarnation: 4, Driver: "process"},
		Owned: []journal.Owned{
			{Name: "idle", UID: "u2", Epoch: 3, Incarnation: 2, Phase: "paused"},
			{
				Name: "web.1", UID: "u1", Epoch: 9, Incarnation: 5, Generation: 2, Instance: "b-1", Attempt: 1,
				Phase: "running", Data: []byte("opaque"),
			},
		},
		Ops: []journal.Op{{
			Name: "web.1", Kind: "stop", Instance: "b-1", UID: "u1", Epoch: 9, Incarnation: 5, Attempt: 1, Data: []byte("why"),
		}},
		Seen:            map[string]uint64{"idle": 3, "web.1": 9},
		SeenIncarnation: 5, // a claim's, higher than the node's own
		Events:          5,
	}
	for life := range 2 {
		j, opened, err := journal.Open(dir, journal.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if migrated := opened.Migrated != nil; migrated != (life == 0) || opened.Created || opened.Quarantined != nil {
			t.Errorf("life %d: opened %+v", life, opened)
		}
		if got := load(t, j); !reflect.DeepEqual(got, want) {
			t.Errorf("life %d: loaded\n%+v\nwant\n%+v", life, got, want)
		}
		if got := eventNumbers(t, j, 0, 100); got != "8 9 10 11 12" {
			t.Errorf("life %d: outbox %s", life, got)
		}
		if report, err := j.Check(); err != nil || report.Schema != 1 || len(report.Findings) != 0 {
			t.Errorf("life %d: check after: %+v, %v", life, report, err)
		}
		if life == 1 { // numbers go on after the migrated ones
			if r, err := j.Submit(journal.Batch{Events: [][]byte{nil}}).Wait(t.Context()); err != nil || r.FirstEvent != 13 {
				t.Errorf("next event is %d, %v", r.FirstEvent, err)
			}
		}
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// The fixture must stay what the old program wrote, not what this one would.
func TestFixtureIsSchema0(t *testing.T) {
	fresh := filepath.Join(t.TempDir(), "v0.db")
	writeV0(t, fresh)
	dump := func(path string) string {
		db, err := bolt.Open(path, 0o600, &bolt.Options{ReadOnly: true})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = db.Close() }()
		var out strings.Builder
		err = db.View(func(tx *bolt.Tx) error {
			return tx.ForEach(func(name []byte, b *bolt.Bucket) error {
				return b.ForEach(func(k, v []byte) error {
					fmt.Fprintf(&out, "%s/%s=%s\n", name, k, v)
					return nil
				})
			})
		})
		if err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	if got, want := dump(fixtureV0), dump(fresh); got != want {
		t.Errorf("fixture:\n%s\nits writer makes:\n%s", got, want)
	}
}

// A record that the old program could not have written is damage like any
// other: the file is kept aside, the agent starts.
func TestMigrateUnreadable(t *testing.T) {
	for bucket, key := range map[string]string{"node": "identity", "names": "web.1", "outbox": "x"} {
		dir := t.TempDir()
		path := filepath.Join(dir, journal.DBFile)
		writeV0(t, path)
		db, err := bolt.Open(path, 0o600, nil)
		if err != nil {
			t.Fatal(err)
		}
		err = db.Update(func(tx *bolt.Tx) error { return tx.Bucket([]byte(bucket)).Put([]byte(key), []byte("{")) })
		if err != nil {
			t.Fatal(err)
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
		_, opened := open(t, dir)
		if opened.Quarantined == nil || !opened.Created || !strings.Contains(opened.Quarantined.Reason, "migration from schema 0") {
			t.Errorf("%s/%s: opened %+v", bucket, key, opened)
		}
	}
}
