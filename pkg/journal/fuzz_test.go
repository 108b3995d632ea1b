package journal_test

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	bolt "go.etcd.io/bbolt"

	"github.com/barista-fleet/barista/pkg/journal"
)

const samplePage = 4096

// withSchema returns the journal with another schema number, its checksum right.
func withSchema(t testing.TB, file []byte, schema uint64) []byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(path, file, 0o600); err != nil {
		t.Fatal(err)
	}
	db, err := bolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	payload := binary.BigEndian.AppendUint64(nil, schema)
	sum := crc32.Checksum(append([]byte("meta\x00schema\x00"), payload...), crc32.MakeTable(crc32.Castagnoli))
	value := append(binary.BigEndian.AppendUint32([]byte{1}, sum), payload...)
	err = db.Update(func(tx *bolt.Tx) error { return tx.Bucket([]byte("meta")).Put([]byte("schema"), value) })
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	out, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// surviveOpen opens whatever file is, uses the journal and opens it again. It
// may be refused (a newer schema), never panic, and after it the file is sound.
func surviveOpen(t testing.TB, dir string, file []byte) (opened journal.Opened) {
	t.Helper()
	writeJournal(t, dir, file)
	if _, err := journal.Check(dir, journal.Options{}); err != nil {
		t.Fatalf("check: %v", err)
	}
	for life := range 2 {
		j, o, err := journal.Open(dir, journal.Options{Reserve: 64 << 10})
		if err != nil {
			t.Fatalf("open: %v", err)
		}
		if life == 0 {
			opened = o
			if q := o.Quarantined; q != nil && strings.Contains(q.Reason, "panic") {
				t.Fatalf("bbolt saw a file that the walk should have refused: %s", q.Reason)
			}
		} else if o.Quarantined != nil || o.Damaged != nil {
			t.Fatalf("the second open found damage: %+v", o)
		}
		s := load(t, j)
		if _, _, err := j.Sched(); err != nil {
			t.Fatal(err)
		}
		if _, err := j.Events(0, 10_000); err != nil {
			t.Fatal(err)
		}
		if _, err := j.ListObjects(""); err != nil {
			t.Fatal(err)
		}
		commit(t, j, journal.Batch{
			PutOwned: []journal.Owned{{Name: "new", Data: make([]byte, 10_000)}},
			Events:   [][]byte{[]byte("e")},
			DelOwned: names(s),
			PutObjects: []journal.ObjectPut{
				{Key: "k", Body: make([]byte, 5000), Cond: journal.Always()},
			},
		})
		commit(t, j, journal.Batch{DropEvents: 1 << 62, DelObjects: []string{"k"}})
		if r, err := j.Check(); err != nil || !r.OK() {
			t.Fatalf("check after use: %+v, %v", r.Findings, err)
		}
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return opened
}

func names(s journal.State) (out []string) {
	for _, o := range s.Owned {
		out = append(out, o.Name)
	}
	return out
}

// fixMeta makes the checksums of both meta pages right, so that a mutation
// inside them gets past it.
func fixMeta(file []byte) {
	for page := range 2 {
		off := page*samplePage + 16
		if off+64 <= len(file) {
			h := fnv.New64a()
			_, _ = h.Write(file[off : off+56])
			binary.NativeEndian.PutUint64(file[off+56:], h.Sum64())
		}
	}
}

// usedBytes is how far a sound file's pages reach; the rest is its reserve.
func usedBytes(file []byte) int {
	high := func(page int) uint64 { return binary.NativeEndian.Uint64(file[page*samplePage+16+40:]) }
	return int(max(high(0), high(1))) * samplePage
}

// mutate damages a few places the way disks, and malice, do.
func mutate(rng *rand.Rand, file []byte) []byte {
	b := bytes.Clone(file)
	used := usedBytes(b)
	for range 1 + rng.IntN(4) {
		if used < 4*samplePage {
			break // cut by an earlier step
		}
		at := rng.IntN(used)
		if rng.IntN(3) == 0 {
			at = rng.IntN(2 * samplePage) // the metas
		}
		if rng.IntN(3) == 0 {
			at = at&^(samplePage-1) + rng.IntN(64) // headers and first elements
		}
		switch rng.IntN(6) {
		case 0:
			b[at] ^= 1 << rng.IntN(8)
		case 1:
			b[at] = byte(rng.IntN(256))
		case 2:
			clear(b[at:min(len(b), at+1+rng.IntN(samplePage))])
		case 3:
			from := rng.IntN(used)
			copy(b[at:], b[from:min(len(b), from+rng.IntN(2*samplePage))])
		case 4:
			page := at &^ (samplePage - 1)
			from := rng.IntN(used) &^ (samplePage - 1)
			copy(b[page:min(len(b), page+samplePage)], b[from:])
		case 5:
			if rng.IntN(4) == 0 {
				b = b[:rng.IntN(len(b))]
				used = min(used, len(b))
			}
		}
	}
	if rng.IntN(2) == 0 {
		fixMeta(b)
	}
	return b
}

// TestMutatedFiles is the fuzz target's idea with a fixed seed, for every run.
func TestMutatedFiles(t *testing.T) {
	rounds := journal.Rounds(t, 60)
	sample := sampleJournal(t)
	rng := rand.New(rand.NewPCG(20240506, 1))
	quarantined, damaged, clean := 0, 0, 0
	root := t.TempDir()
	for i := range rounds {
		dir := filepath.Join(root, "d")
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		o := surviveOpen(t, dir, mutate(rng, sample))
		switch {
		case o.Quarantined != nil:
			quarantined++
		case len(o.Damaged) > 0:
			damaged++
		default:
			clean++
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
		if t.Failed() {
			t.Fatalf("round %d", i)
		}
	}
	t.Logf("%d quarantined, %d with records set aside, %d untouched where it matters", quarantined, damaged, clean)
	if quarantined < rounds/4 || damaged == 0 || clean == 0 {
		t.Errorf("%d quarantined, %d damaged, %d clean of %d: the mutations miss", quarantined, damaged, clean, rounds)
	}
}

// FuzzOpen takes a seed of arbitrary bytes, or a patch over a sound journal.
func FuzzOpen(f *testing.F) {
	sample := sampleJournal(f)
	v0, err := os.ReadFile(fixtureV0)
	if err != nil {
		f.Fatal(err)
	}
	f.Add([]byte(nil), uint32(0), uint32(0), true)
	f.Add([]byte("garbage"), uint32(0), uint32(0), false)
	f.Add([]byte{0xff, 0xff, 0xff}, uint32(samplePage+30), uint32(1<<31), true)
	f.Add([]byte{2, 0, 1, 0}, uint32(5*samplePage+8), uint32(1<<31), true)
	f.Add([]byte{}, uint32(0), uint32(3*samplePage+5), true)
	f.Add(v0[:2*samplePage], uint32(0), uint32(0), false)
	f.Fuzz(func(t *testing.T, patch []byte, at, size uint32, overSample bool) {
		file := patch
		if overSample {
			file = bytes.Clone(sample)
			copy(file[int(at)%len(file):], patch)
			fixMeta(file)
			file = file[:min(len(file), int(size))]
		}
		surviveOpen(t, t.TempDir(), file)
	})
}
