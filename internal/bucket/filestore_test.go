package bucket_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/barista-fleet/barista/internal/bucket"
	"github.com/barista-fleet/barista/internal/bucket/buckettest"
)

func newFileStore(t *testing.T) (*bucket.FileStore, string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "fleet")
	created, err := bucket.InitFileStore(dir)
	if err != nil || !created {
		t.Fatalf("init: created %v, error %v", created, err)
	}
	return openFileStore(t, dir), dir
}

func openFileStore(t *testing.T, dir string) *bucket.FileStore {
	t.Helper()
	s, err := bucket.NewFileStore(dir)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestFileStore(t *testing.T) {
	var dir string
	buckettest.Suite{
		Plant: func(t *testing.T, _ bucket.Store, key string, body []byte) {
			path := filepath.Join(dir, "objects", "a+", filepath.Base(key))
			writeFile(t, path, string(body))
		},
	}.Run(t, func(t *testing.T) bucket.Store {
		var s *bucket.FileStore
		s, dir = newFileStore(t)
		return s
	})
}

func writeFile(t *testing.T, path, body string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(body), 0o600); err != nil {
		t.Fatal(err)
	}
}

func put(t *testing.T, s bucket.Store, key, body string, cond bucket.Condition) bucket.ETag {
	t.Helper()
	r := s.Put(t.Context(), key, []byte(body), cond)
	if r.Outcome != bucket.Applied {
		t.Fatalf("put %s: %v %v", key, r.Outcome, r.Err)
	}
	return r.ETag
}

func wantUnreachable(t *testing.T, s bucket.Store, hint string) {
	t.Helper()
	obj, gerr := s.Get(t.Context(), "a/k", "")
	_, aerr := s.Get(t.Context(), "a/none", "")
	l, lerr := s.List(t.Context(), "")
	r := s.Put(t.Context(), "a/k", nil, bucket.IfAbsent())
	derr := s.Delete(t.Context(), "a/k")
	if obj.Status != 0 || l.Entries != nil || r.Outcome != bucket.Rejected || r.Conflict() {
		t.Errorf("unreachable, and get says %v, list %v, put %v", obj.Status, l.Entries, r.Outcome)
	}
	for _, err := range []error{gerr, aerr, lerr, r.Err, derr} {
		var typed *bucket.Error
		if !errors.Is(err, bucket.ErrUnreachable) || !errors.As(err, &typed) || !strings.Contains(typed.Hint, hint) {
			t.Errorf("error %v, want unreachable with %q in its hint", err, hint)
		}
	}
}

func TestFileStoreInit(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "deep", "er", "fleet")
	s := openFileStore(t, dir)
	wantUnreachable(t, s, "fleetctl init file://"+dir)
	if _, err := os.Stat(filepath.Dir(dir)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("using a bucket that was never made left something behind: %v", err)
	}

	// Many at once: one makes it, the others find it.
	var wg sync.WaitGroup
	var mu sync.Mutex
	made := 0
	for range 16 {
		wg.Go(func() {
			created, err := bucket.InitFileStore(dir)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				t.Errorf("init: %v", err)
			}
			if created {
				made++
			}
		})
	}
	wg.Wait()
	if made != 1 {
		t.Errorf("%d made the bucket", made)
	}
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("mode %v, error %v; others must not be able to write a bucket", info.Mode(), err)
	}

	put(t, s, "a/k", "one", bucket.IfAbsent())
	if created, err := bucket.InitFileStore(dir); created || err != nil {
		t.Errorf("again: created %v, error %v", created, err)
	}
	if obj, err := s.Get(t.Context(), "a/k", ""); err != nil || string(obj.Body) != "one" {
		t.Errorf("after another init: %v %v", obj, err)
	}
}

func TestFileStoreInitRefuses(t *testing.T) {
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, "thesis.txt"), "mine")
	if created, err := bucket.InitFileStore(dir); created || !errors.Is(err, bucket.ErrInvalid) || !strings.Contains(err.Error(), "thesis.txt") {
		t.Errorf("a directory in use: created %v, error %v", created, err)
	}
	if _, err := bucket.InitFileStore("relative"); !errors.Is(err, bucket.ErrInvalid) {
		t.Errorf("a relative directory: %v", err)
	}
	if _, err := bucket.NewFileStore("relative"); !errors.Is(err, bucket.ErrInvalid) {
		t.Errorf("opening a relative directory: %v", err)
	}
	file := filepath.Join(dir, "thesis.txt")
	if created, err := bucket.InitFileStore(file); created || err == nil {
		t.Errorf("a file: created %v, error %v", created, err)
	}

	// An init that was killed is completed by the next one.
	half := t.TempDir()
	if err := os.Mkdir(filepath.Join(half, "objects"), 0o700); err != nil {
		t.Fatal(err)
	}
	if created, err := bucket.InitFileStore(half); !created || err != nil {
		t.Errorf("half made: created %v, error %v", created, err)
	}
}

func TestFileStoreMovedAway(t *testing.T) {
	s, dir := newFileStore(t)
	etag := put(t, s, "a/k", "one", bucket.IfAbsent())
	away := dir + ".away"
	if err := os.Rename(dir, away); err != nil {
		t.Fatal(err)
	}
	wantUnreachable(t, s, "fleetctl init")
	if err := os.Mkdir(dir, 0o700); err != nil { // a mount point without its file system
		t.Fatal(err)
	}
	wantUnreachable(t, s, "fleetctl init")
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	if _, err := bucket.InitFileStore(dir); err != nil {
		t.Fatal(err)
	}
	wantUnreachable(t, s, "move the former bucket back")
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(away, dir); err != nil {
		t.Fatal(err)
	}
	put(t, s, "a/k", "two", bucket.IfMatch(etag))

	for _, part := range []string{"objects", ".barista-bucket"} {
		if err := os.Rename(filepath.Join(dir, part), filepath.Join(dir, "x")); err != nil {
			t.Fatal(err)
		}
		wantUnreachable(t, s, "")
		if err := os.Rename(filepath.Join(dir, "x"), filepath.Join(dir, part)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, ".barista-bucket"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	wantUnreachable(t, s, "")
}

// Moving the directory away and back under running readers must never show an
// object as absent, at whichever instant the move happens.
func TestFileStoreMovedUnderReaders(t *testing.T) {
	s, dir := newFileStore(t)
	put(t, s, "a/k", "one", bucket.IfAbsent())
	ctx, stop := context.WithTimeout(t.Context(), 20*time.Second)
	defer stop()
	var wg sync.WaitGroup
	wg.Go(func() {
		for ctx.Err() == nil {
			if os.Rename(dir, dir+".away") != nil || os.Rename(dir+".away", dir) != nil {
				t.Error("could not move the directory")
				return
			}
		}
	})
	const enough = 300 // reads of either kind
	found, failed := 0, 0
	for min(found, failed) < enough && ctx.Err() == nil {
		obj, err := s.Get(t.Context(), "a/k", "")
		switch {
		case err != nil && !errors.Is(err, bucket.ErrUnreachable):
			t.Errorf("get: %v", err)
		case err != nil:
			failed++
		case obj.Status != bucket.Found:
			t.Errorf("the object is %v", obj.Status)
		default:
			found++
		}
		if l, err := s.List(t.Context(), ""); err == nil && len(l.Entries) != 1 {
			t.Errorf("listed %v", l.Entries)
		}
	}
	stop()
	wg.Wait()
	if min(found, failed) < enough {
		t.Errorf("%d reads found the object and %d did not reach it: the test hardly met one of the cases", found, failed)
	}
}

// Whoever is stopped while it holds the lock makes the others fail in time, and
// a write that was given up does not land later.
func TestFileStoreLockHeld(t *testing.T) {
	s, dir := newFileStore(t)
	etag := put(t, s, "a/k", "one", bucket.IfAbsent())
	lock, err := os.Open(filepath.Join(dir, "objects", "a+", "+lock"))
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	begun := time.Now()
	r := s.Put(ctx, "a/k", []byte("two"), bucket.IfMatch(etag))
	if r.Outcome != bucket.Rejected || !errors.Is(r.Err, context.DeadlineExceeded) || r.Conflict() {
		t.Errorf("put: %v %v", r.Outcome, r.Err)
	}
	if _, err := s.List(ctx, "a/"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("list: %v", err)
	}
	if took := time.Since(begun); took > 2*time.Second {
		t.Errorf("took %v", took)
	}
	// Reads of one object and other directories need no lock.
	if obj, err := s.Get(t.Context(), "a/k", ""); err != nil || string(obj.Body) != "one" {
		t.Errorf("get: %v %v", obj, err)
	}
	put(t, s, "b/k", "other", bucket.IfAbsent())

	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_UN); err != nil {
		t.Fatal(err)
	}
	time.Sleep(50 * time.Millisecond) // ten times the longest pause of a waiting writer
	put(t, s, "a/k", "three", bucket.IfMatch(etag))
	if names := debris(t, dir); len(names) != 0 {
		t.Errorf("left behind: %v", names)
	}
}

func debris(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(dir, "tmp"))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func TestFileStoreLockRemoved(t *testing.T) {
	s, dir := newFileStore(t)
	etag := put(t, s, "a/k", "one", bucket.IfAbsent())
	path := filepath.Join(dir, "objects", "a+", "+lock")
	held, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	if err := syscall.Flock(int(held.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	put(t, s, "a/k", "two", bucket.IfMatch(etag))
	if _, err := os.Stat(path); err != nil {
		t.Errorf("no new lock file: %v", err)
	}
}

func TestFileStoreDebris(t *testing.T) {
	s, dir := newFileStore(t)
	old, fresh := filepath.Join(dir, "tmp", "old"), filepath.Join(dir, "tmp", "fresh")
	writeFile(t, old, "half a reco")
	writeFile(t, fresh, "being written")
	long := time.Now().Add(-time.Hour)
	if err := os.Chtimes(old, long, long); err != nil {
		t.Fatal(err)
	}
	put(t, s, "a/k", "one", bucket.IfAbsent())
	if names := debris(t, dir); !slices.Equal(names, []string{"fresh"}) {
		t.Errorf("temporary files %v, want the fresh one only", names)
	}
	// Somebody who removes all of it is no problem either.
	if err := os.RemoveAll(filepath.Join(dir, "tmp")); err != nil {
		t.Fatal(err)
	}
	put(t, s, "a/k2", "two", bucket.IfAbsent())
}

// Files that hands or accidents put there are objects with whatever is in them:
// never absent, and to be overwritten like any other.
func TestFileStoreForeignFiles(t *testing.T) {
	s, dir := newFileStore(t)
	bodies := map[string]string{
		"empty": "", "garbage": "\x00\xff\x00", "header": "barista-object 1 ", "cut": "barista-object 1 0123456789abcdef",
		"upper": "barista-object 1 0123456789ABCDEF0123456789ABCDEF\nbody", "next": "barista-object 2 0123456789abcdef0123456789abcdef\nbody",
	}
	for name, body := range bodies {
		writeFile(t, filepath.Join(dir, "objects", "a+", name), body)
	}
	// Names that no key has, and things that are no files, are no objects.
	for _, name := range []string{"Upper", "a b", "x~", "x+", "x+0", "a+/x#"} {
		writeFile(t, filepath.Join(dir, "objects", name+"", "file#"), "x")
	}
	if err := syscall.Mkfifo(filepath.Join(dir, "objects", "a+", "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "objects", "a+", "directory"), 0o700); err != nil {
		t.Fatal(err)
	}
	l, err := s.List(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	if len(l.Entries) != len(bodies) {
		t.Errorf("listed %+v", l.Entries)
	}
	for _, e := range l.Entries {
		obj, err := s.Get(t.Context(), e.Key, "")
		body := bodies[strings.TrimPrefix(e.Key, "a/")]
		if err != nil || string(obj.Body) != body || obj.ETag != e.ETag || e.Size != int64(len(body)) {
			t.Errorf("%s: %q etag %s, error %v; want %q, listed %+v", e.Key, obj.Body, obj.ETag, err, body, e)
		}
		if r := s.Put(t.Context(), e.Key, []byte("x"), bucket.IfAbsent()); !r.Conflict() {
			t.Errorf("%s: create: %v %v", e.Key, r.Outcome, r.Err)
		}
		put(t, s, e.Key, "repaired", bucket.IfMatch(obj.ETag))
	}
	for _, key := range []string{"a/pipe", "a/directory"} {
		if obj, err := s.Get(t.Context(), key, ""); err == nil {
			t.Errorf("%s is %v", key, obj.Status)
		}
	}
	if r := s.Put(t.Context(), "a/directory", nil, bucket.Unconditional()); r.Outcome == bucket.Applied {
		t.Errorf("wrote over a directory")
	}
}

// ETags are minted by each write: A, B, A is seen as three versions.
func TestFileStoreETagsNeverRepeat(t *testing.T) {
	s, _ := newFileStore(t)
	seen := map[bucket.ETag]bool{}
	for i := range 20 {
		etag := put(t, s, "a/k", fmt.Sprint(i%2), bucket.Unconditional())
		if seen[etag] {
			t.Fatalf("etag %s came twice", etag)
		}
		seen[etag] = true
	}
}

func TestFileStoreDescription(t *testing.T) {
	s := openFileStore(t, "/var/lib/a fleet")
	if got := s.Description(); got != "file:///var/lib/a%20fleet" {
		t.Error(got)
	}
}
