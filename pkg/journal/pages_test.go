package journal

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	bolt "go.etcd.io/bbolt"
)

// Whatever bbolt writes, our reader of its format must find sound: a false
// alarm would throw a healthy journal away. Random trees of every shape, keys
// below all others, deletions that merge pages, rollbacks.
func TestWalkAgreesWithBolt(t *testing.T) {
	for seed := range uint64(Rounds(t, 4)) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 7))
			path := filepath.Join(t.TempDir(), "f")
			db, err := bolt.Open(path, 0o600, &bolt.Options{NoSync: true, PageSize: 1024 << rng.IntN(4)})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = db.Close() }()
			model := map[string]string{}
			for range 60 {
				randomTransaction(t, db, rng, model)
				compare(t, db, path, model)
				if t.Failed() {
					return
				}
			}
		})
	}
}

func randomTransaction(t *testing.T, db *bolt.DB, rng *rand.Rand, model map[string]string) {
	t.Helper()
	tx, err := db.Begin(true)
	if err != nil {
		t.Fatal(err)
	}
	next := map[string]string{}
	maps.Copy(next, model)
	for range rng.IntN(60) {
		bucket := []string{"a", "b", "c"}[rng.IntN(3)]
		b, err := tx.CreateBucketIfNotExists([]byte(bucket))
		if err != nil {
			t.Fatal(err)
		}
		// A window that moves makes whole pages empty on one side and splits
		// them on the other.
		key := fmt.Sprintf("%05d", rng.IntN(400)+rng.IntN(3)*1000)
		if rng.IntN(20) == 0 {
			key = strings.Repeat("!", 1+rng.IntN(300)) // below every other
		}
		if rng.IntN(5) < 2 {
			err = b.Delete([]byte(key))
			delete(next, bucket+"/"+key)
		} else {
			value := strings.Repeat("v", rng.IntN(200)*(1+rng.IntN(20)/19*20))
			err = b.Put([]byte(key), []byte(value))
			next[bucket+"/"+key] = value
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if rng.IntN(8) == 0 {
		err = tx.Rollback()
	} else if err = tx.Commit(); err == nil {
		clear(model)
		maps.Copy(model, next)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func compare(t *testing.T, db *bolt.DB, path string, model map[string]string) {
	t.Helper()
	err := db.View(func(tx *bolt.Tx) error {
		for err := range tx.Check() {
			t.Errorf("bbolt itself: %v", err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	file, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]string{}
	w := &walker{r: bytes.NewReader(file), size: int64(len(file)), visit: func(bucket, key, value []byte) {
		seen[string(bucket)+"/"+string(key)] = string(value)
	}}
	w.walk()
	if len(w.faults) > 0 || w.torn != nil || w.leaked > 0 {
		t.Errorf("a sound file: faults %v, torn %v, %d pages leaked", w.faults, w.torn, w.leaked)
	}
	if len(seen) != len(model) {
		t.Errorf("%d records, want %d", len(seen), len(model))
	}
	for k, v := range model {
		if seen[k] != v {
			t.Errorf("%s: %d bytes, want %d", k, len(seen[k]), len(v))
		}
	}
}
