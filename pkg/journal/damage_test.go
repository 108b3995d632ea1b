package journal_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/barista-fleet/barista/pkg/journal"
)

// sampleJournal returns a journal file with a tree of several levels in some
// buckets, inline and empty ones, overflow pages and a free list.
func sampleJournal(t testing.TB) []byte {
	t.Helper()
	dir := t.TempDir()
	j, _, err := journal.Open(dir, journal.Options{Reserve: 64 << 10})
	if err != nil {
		t.Fatal(err)
	}
	commit(t, j, journal.Batch{
		Identity:      &journal.Identity{NodeID: "n-1", FleetID: "f", Incarnation: 2},
		SchedSnapshot: &journal.SchedSnapshot{Through: 1, Data: make([]byte, 20_000)},
		SchedAppend:   []journal.SchedEvent{{Seq: 2, Data: []byte("e")}},
	})
	var b journal.Batch
	for i := range 300 {
		b.PutOwned = append(b.PutOwned, journal.Owned{Name: fmt.Sprintf("name-%04d", i), Epoch: uint64(i + 1), Data: make([]byte, i)})
		b.Events = append(b.Events, fmt.Appendf(nil, "event %d", i))
	}
	commit(t, j, b)
	commit(t, j, journal.Batch{
		PutOps:     []journal.Op{{Name: "name-0000", Kind: "start"}},
		PutObjects: []journal.ObjectPut{{Key: "desired/x", Body: make([]byte, 9000), Cond: journal.IfAbsent()}},
		DropEvents: 120,
	})
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	file, err := os.ReadFile(filepath.Join(dir, journal.DBFile))
	if err != nil {
		t.Fatal(err)
	}
	return file
}

func writeJournal(t testing.TB, dir string, file []byte) string {
	t.Helper()
	path := filepath.Join(dir, journal.DBFile)
	if err := os.WriteFile(path, file, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// A file that cannot be trusted never stops an agent from starting: it is kept
// aside, byte for byte, and the agent is told.
func TestQuarantine(t *testing.T) {
	sample := sampleJournal(t)
	page := 4096
	if len(sample) < 16*page {
		t.Fatalf("a sample of %d bytes", len(sample))
	}
	edit := func(fn func(b []byte)) []byte {
		b := bytes.Clone(sample)
		fn(b)
		return b
	}
	random := make([]byte, 64<<10)
	for i := range random {
		random[i] = byte(rand.N(256))
	}
	for name, file := range map[string][]byte{
		"empty":              {},
		"one byte":           {0},
		"zeroed":             make([]byte, len(sample)),
		"garbage":            random,
		"text":               []byte(strings.Repeat("this is no journal\n", 1000)),
		"one page":           sample[:page],
		"meta pages only":    sample[:2*page],
		"cut in half":        sample[:len(sample)/4],
		"cut inside a page":  sample[:9*page+100],
		"both metas zeroed":  edit(func(b []byte) { clear(b[:2*page]) }),
		"data pages zeroed":  edit(func(b []byte) { clear(b[2*page:]) }),
		"one level zeroed":   edit(func(b []byte) { clear(b[8*page : 24*page]) }),
		"shifted by a byte":  append([]byte{0}, sample...),
		"pages swapped":      edit(swapPages),
		"first key changed":  edit(growFirstKey),
		"last key too high":  edit(raiseLastKey),
		"foreign bbolt file": foreign(t, "something"),
		"no schema":          foreign(t, "meta"),
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			writeJournal(t, dir, file)
			if report, err := journal.Check(dir, journal.Options{}); err != nil || report.OK() {
				t.Errorf("check finds nothing: %+v, %v", report.Findings, err)
			}
			j, opened := open(t, dir)
			q := opened.Quarantined
			if q == nil || !opened.Created || q.Reason == "" {
				t.Fatalf("opened %+v", opened)
			}
			if !strings.HasPrefix(filepath.Base(q.Path), journal.DBFile+".damaged-") {
				t.Errorf("kept at %s", q.Path)
			}
			if kept, err := os.ReadFile(q.Path); err != nil || !bytes.Equal(kept, file) {
				t.Errorf("the file was not kept as it was: %d bytes, %v", len(kept), err)
			}
			if s := load(t, j); !reflect.DeepEqual(s, journal.State{Seen: map[string]uint64{}}) {
				t.Errorf("the new journal holds %+v", s)
			}
			commit(t, j, journal.Batch{Identity: &journal.Identity{NodeID: "n"}})
			if report, err := j.Check(); err != nil || len(report.Findings) > 0 {
				t.Errorf("the new journal: %+v, %v", report.Findings, err)
			}
		})
	}
}

// ownedLeaves finds leaf pages of the owned bucket, not its first.
func ownedLeaves(b []byte) (offsets []int) {
	const page = 4096
	for off := 2 * page; off+page <= len(b); off += page {
		if binary.NativeEndian.Uint64(b[off:]) == uint64(off/page) && binary.NativeEndian.Uint16(b[off+8:]) == 2 &&
			bytes.Contains(b[off:off+page], []byte("name-01")) && bytes.Contains(b[off:off+page], []byte(`{"epoch":`)) {
			offsets = append(offsets, off)
		}
	}
	return offsets
}

// swapPages exchanges two leaf pages with their ids corrected, so that only
// the order of keys gives them away.
func swapPages(b []byte) {
	const page = 4096
	leaves := ownedLeaves(b)
	x, y := leaves[0], leaves[len(leaves)-1]
	tmp := bytes.Clone(b[x : x+page])
	copy(b[x:], b[y:y+page])
	copy(b[y:], tmp)
	binary.NativeEndian.PutUint64(b[x:], uint64(x/page))
	binary.NativeEndian.PutUint64(b[y:], uint64(y/page))
}

// growFirstKey makes a page's first key longer by a byte of its value. It still
// sorts where it should, but it is not what the parent calls the page: bbolt
// would give the parent a second entry for it at the next change.
func growFirstKey(b []byte) {
	elem := b[ownedLeaves(b)[1]+16:]
	ne := binary.NativeEndian
	ne.PutUint32(elem[8:], ne.Uint32(elem[8:])+1)
	ne.PutUint32(elem[12:], ne.Uint32(elem[12:])-1)
}

// raiseLastKey makes a page's last key sort behind the next page's first.
func raiseLastKey(b []byte) {
	page := b[ownedLeaves(b)[0]:]
	ne := binary.NativeEndian
	elem := 16 + 16*(int(ne.Uint16(page[10:]))-1)
	page[elem+int(ne.Uint32(page[elem+4:]))] = 'o' // of name-…
}

// foreign is a sound bbolt file that is no journal.
func foreign(t *testing.T, bucket string) []byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), "f")
	db, err := bolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	err = db.Update(func(tx *bolt.Tx) error { _, err := tx.CreateBucket([]byte(bucket)); return err })
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestQuarantineOfOtherThings(t *testing.T) {
	t.Run("directory", func(t *testing.T) {
		dir := t.TempDir()
		if err := os.MkdirAll(filepath.Join(dir, journal.DBFile, "sub"), 0o700); err != nil {
			t.Fatal(err)
		}
		if _, opened := open(t, dir); opened.Quarantined == nil {
			t.Errorf("opened %+v", opened)
		}
	})
	t.Run("unreadable is not damaged", func(t *testing.T) {
		if os.Getuid() == 0 {
			return // root reads everything
		}
		dir := t.TempDir()
		path := writeJournal(t, dir, sampleJournal(t))
		if err := os.Chmod(path, 0); err != nil {
			t.Fatal(err)
		}
		if _, _, err := journal.Open(dir, journal.Options{}); !errors.Is(err, os.ErrPermission) {
			t.Errorf("open: %v", err)
		}
	})
	t.Run("a half-made new file is ignored", func(t *testing.T) {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, journal.DBFile+".new"), []byte("half"), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, opened := open(t, dir); opened.Quarantined != nil || !opened.Created {
			t.Errorf("opened %+v", opened)
		}
	})
}

// A crash loop with a bad disk must not fill it with damaged files.
func TestQuarantineIsBounded(t *testing.T) {
	dir := t.TempDir()
	now := time.Date(2024, 5, 6, 7, 8, 9, 0, time.UTC)
	var last string
	for i := range 12 {
		writeJournal(t, dir, fmt.Append(nil, "garbage ", i))
		if i%3 == 0 {
			now = now.Add(time.Second) // several within one second, too
		}
		j, opened, err := journal.Open(dir, journal.Options{Now: func() time.Time { return now }})
		if err != nil {
			t.Fatal(err)
		}
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
		last = opened.Quarantined.Path
	}
	kept, err := filepath.Glob(filepath.Join(dir, journal.DBFile+".damaged-*"))
	if err != nil || len(kept) != 8 {
		t.Errorf("%d files kept, want 8: %v, %v", len(kept), kept, err)
	}
	if b, err := os.ReadFile(last); err != nil || string(b) != "garbage 11" {
		t.Errorf("the newest is %q, %v", b, err)
	}
}

// A newer agent's journal is refused and left alone: going back to an old
// version must not cost the node its memory.
func TestNewerSchemaIsRefused(t *testing.T) {
	dir := t.TempDir()
	path := writeJournal(t, dir, withSchema(t, sampleJournal(t), 2))
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	_, _, err = journal.Open(dir, journal.Options{})
	var typed *journal.Error
	if !errors.Is(err, journal.ErrNewerSchema) || !errors.As(err, &typed) || typed.Hint == "" {
		t.Fatalf("open: %v", err)
	}
	if after, err := os.ReadFile(path); err != nil || !bytes.Equal(before, after) {
		t.Errorf("the file was changed, %v", err)
	}
	if report, err := journal.Check(dir, journal.Options{}); err != nil || report.OK() || report.Schema != 2 {
		t.Errorf("check: %+v, %v", report, err)
	}
}

// A single bad record costs that record, and only that.
func TestDamagedRecord(t *testing.T) {
	sample := sampleJournal(t)
	record := []byte(`{"epoch":8}`) // of name-0007
	if n := bytes.Count(sample, record); n != 1 {
		t.Fatalf("the record is there %d times", n)
	}
	sample[bytes.Index(sample, record)+len(`{"epoch":`)] = '9' // still JSON, only wrong
	dir := t.TempDir()
	writeJournal(t, dir, sample)
	report, err := journal.Check(dir, journal.Options{})
	if err != nil || report.OK() || len(report.Findings) != 1 || !strings.Contains(report.Findings[0].String(), "owned/name-0007") {
		t.Errorf("check: %+v, %v", report.Findings, err)
	}
	for life := range 2 {
		j, opened, err := journal.Open(dir, journal.Options{})
		if err != nil || opened.Quarantined != nil {
			t.Fatalf("open: %+v, %v", opened, err)
		}
		if life == 0 && (len(opened.Damaged) != 1 || opened.Damaged[0].Bucket != "owned" || opened.Damaged[0].Key != "name-0007") {
			t.Errorf("opened %+v", opened)
		}
		if life == 1 && len(opened.Damaged) != 0 {
			t.Errorf("reported again: %+v", opened)
		}
		s := load(t, j)
		if len(s.Owned) != 299 || s.Identity == nil || len(s.Ops) != 1 || s.Seen["name-0007"] != 8 {
			t.Errorf("life %d: %d names, %+v", life, len(s.Owned), s.Identity)
		}
		if report, err := j.Check(); err != nil || !report.OK() || len(report.Findings) != 1 || report.Records["damaged"] != 1 {
			t.Errorf("life %d: check %+v, %v", life, report, err)
		}
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// One torn meta page is what a power failure in the middle of a commit leaves:
// the other one, and everything acknowledged, is intact.
func TestTornMeta(t *testing.T) {
	sample := sampleJournal(t)
	metaTx := func(page int) uint64 { return binary.NativeEndian.Uint64(sample[page*4096+16+48:]) }
	older := 0
	if metaTx(1) < metaTx(0) {
		older = 1
	}
	copy(sample[older*4096+16+20:], "torn by a power cut")
	dir := t.TempDir()
	writeJournal(t, dir, sample)
	if report, err := journal.Check(dir, journal.Options{}); err != nil || !report.OK() || len(report.Findings) != 1 {
		t.Errorf("check: %+v, %v", report, err)
	}
	j, opened := open(t, dir)
	if opened.TornMeta == "" || opened.Quarantined != nil {
		t.Errorf("opened %+v", opened)
	}
	if s := load(t, j); len(s.Owned) != 300 || len(s.Ops) != 1 {
		t.Errorf("%d names, %d operations", len(s.Owned), len(s.Ops))
	}
}

// Somebody truncates the file under a running agent: the map faults with
// SIGBUS. The agent must be told, not killed, and must be able to start again.
func TestTruncatedWhileOpen(t *testing.T) {
	for _, first := range []string{"read", "commit", "check"} {
		t.Run(first, func(t *testing.T) {
			dir := t.TempDir()
			path := writeJournal(t, dir, sampleJournal(t))
			j, _, err := journal.Open(dir, journal.Options{})
			if err != nil {
				t.Fatal(err)
			}
			if err := os.Truncate(path, 0); err != nil {
				t.Fatal(err)
			}
			read := func() error { _, err := j.Load(); return err }
			write := func() error {
				return j.Commit(t.Context(), journal.Batch{PutOwned: []journal.Owned{{Name: "x"}}})
			}
			check := func() error { _, err := j.Check(); return err }
			calls := map[string]func() error{"read": read, "commit": write, "check": check}
			for _, name := range []string{first, "read", "commit", "check"} {
				if err := calls[name](); !errors.Is(err, journal.ErrFailed) {
					t.Errorf("%s: %v", name, err)
				}
			}
			if !j.Stats().Failed {
				t.Error("the failure is not in the stats")
			}
			if err := j.Close(); err != nil {
				t.Errorf("close: %v", err)
			}
			j, opened := open(t, dir)
			if opened.Quarantined == nil {
				t.Errorf("opened %+v", opened)
			}
			commit(t, j, journal.Batch{PutOwned: []journal.Owned{{Name: "x"}}})
		})
	}
}
