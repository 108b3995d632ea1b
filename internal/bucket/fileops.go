package bucket

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Get implements Store.
func (s *FileStore) Get(ctx context.Context, key string, ifNoneMatch ETag) (Object, error) {
	if err := CheckKey(key); err != nil {
		return Object{}, err
	}
	type answer struct {
		obj Object
		err error
	}
	a, _, err := run(ctx, s, func(*call) answer {
		obj, err := s.get(key)
		return answer{obj, err}
	})
	if err == nil {
		err = a.err
	}
	if err != nil {
		return Object{}, fileError("get", key, err)
	}
	a.obj.Date = time.Now()
	if a.obj.Status == Found && ifNoneMatch != "" && a.obj.ETag == ifNoneMatch {
		return Object{Status: NotModified, Date: a.obj.Date}, nil
	}
	return a.obj, nil
}

func (s *FileStore) get(key string) (Object, error) {
	d, err := s.open()
	if err != nil {
		return Object{}, err
	}
	defer d.Close()
	obj, _, err := read(d.Root, objectPath(key), true)
	if errors.Is(err, fs.ErrNotExist) {
		// Absent is a fact about a bucket that is still one: somebody may be
		// removing it from below.
		if err := s.check(d); err != nil {
			return Object{}, err
		}
		return Object{Status: Absent}, nil
	}
	return obj, err
}

func objectPath(key string) string {
	dir, name := keyPath(key)
	if dir == "" {
		return objectsDir + "/" + name
	}
	return objectsDir + "/" + dir + "/" + name
}

// Put implements Store. A Put whose context ends is Rejected when it had not
// yet reached the rename.
func (s *FileStore) Put(ctx context.Context, key string, body []byte, cond Condition) PutResult {
	if err := CheckPut(key, body, cond); err != nil {
		return PutResult{Outcome: Rejected, Err: err}
	}
	result, unsure, err := run(ctx, s, func(c *call) PutResult { return s.put(c, key, body, cond) })
	switch {
	case unsure:
		result = PutResult{Outcome: Ambiguous, Err: err}
	case err != nil:
		result = PutResult{Outcome: Rejected, Err: err}
	}
	if result.Err != nil {
		result.Err = fileError("put", key, result.Err)
	}
	result.Date = time.Now()
	return result
}

func (s *FileStore) put(c *call, key string, body []byte, cond Condition) PutResult {
	rejected := func(err error) PutResult { return PutResult{Outcome: Rejected, Err: err} }
	d, err := s.open()
	if err != nil {
		return rejected(err)
	}
	defer d.Close()
	s.tidy(d)

	// Most losers can be told before anything is written.
	path := objectPath(key)
	if err := meets(d, key, path, cond); err != nil {
		return rejected(err)
	}
	header, etag := newHeader()
	temp, err := d.writeTemp(header, body)
	if err != nil {
		return rejected(err)
	}
	defer func() { _ = d.Remove(temp) }() // fails after the rename, as it should
	dir := path[:strings.LastIndexByte(path, '/')]
	if err := d.mkdirAll(dir); err != nil {
		return rejected(err)
	}
	outcome, err := s.replace(c, d, key, temp, path, cond)
	if err != nil {
		return PutResult{Outcome: outcome, Err: err}
	}
	if err := d.sync(dir); err != nil {
		return PutResult{Outcome: Ambiguous, Err: err}
	}
	return PutResult{Outcome: Applied, ETag: etag}
}

// replace is the compare-and-swap. The lock is held for a look and a rename
// only, so that a process is hardly ever stopped or killed while it holds it.
func (s *FileStore) replace(c *call, d *fileDir, key, temp, path string, cond Condition) (Outcome, error) {
	unlock, err := s.lock(c, d, path[:strings.LastIndexByte(path, '/')], syscall.LOCK_EX)
	if err != nil {
		return Rejected, err
	}
	defer unlock()
	if err := meets(d, key, path, cond); err != nil {
		return Rejected, err
	}
	if !c.commit() {
		return Rejected, errAbandoned
	}
	if err := d.Rename(temp, path); err != nil {
		if _, lerr := d.Lstat(temp); lerr == nil || errors.Is(err, fs.ErrNotExist) {
			return Rejected, err // it is where it was, or was never there
		}
		return Ambiguous, err
	}
	return Applied, nil
}

func meets(d *fileDir, key, path string, cond Condition) error {
	stored, err := stat(d.Root, path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	etag := stored.ETag
	if cond.Holds(etag) {
		return nil
	}
	found := "the object is absent"
	if etag != "" {
		found = "the object has etag " + string(etag)
	}
	return &Error{Op: "put", Key: key, Kind: ErrCondition, Err: fmt.Errorf("%v: %s", cond, found)}
}

// mkdirAll makes the directory of an object. It never makes the directory of
// all objects: where that is gone, so is the bucket.
func (d *fileDir) mkdirAll(dir string) error {
	if _, err := d.Lstat(dir); err == nil {
		return nil
	}
	for i := len(objectsDir) + 1; i < len(dir); i++ {
		if dir[i] == '/' {
			if err := d.mkdir(dir[:i]); err != nil {
				return err
			}
		}
	}
	return d.mkdir(dir)
}

// Delete implements Store.
func (s *FileStore) Delete(ctx context.Context, key string) error {
	if err := CheckKey(key); err != nil {
		return err
	}
	result, _, err := run(ctx, s, func(c *call) error { return s.remove(c, key) })
	if err == nil {
		err = result
	}
	if err != nil {
		return fileError("delete", key, err)
	}
	return nil
}

func (s *FileStore) remove(c *call, key string) error {
	d, err := s.open()
	if err != nil {
		return err
	}
	defer d.Close()
	path := objectPath(key)
	dir := path[:strings.LastIndexByte(path, '/')]
	if _, err := d.Lstat(dir); errors.Is(err, fs.ErrNotExist) {
		return s.check(d)
	}
	unlock, err := s.lock(c, d, dir, syscall.LOCK_EX)
	if err != nil {
		return err
	}
	defer unlock()
	if !c.commit() {
		return errAbandoned
	}
	if err := d.Remove(path); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return s.check(d)
		}
		return err
	}
	return d.sync(dir)
}

// List implements Store.
func (s *FileStore) List(ctx context.Context, prefix string) (Listing, error) {
	if err := CheckPrefix(prefix); err != nil {
		return Listing{}, err
	}
	type answer struct {
		entries []Entry
		err     error
	}
	a, _, err := run(ctx, s, func(c *call) answer {
		entries, err := s.list(c, prefix)
		return answer{entries, err}
	})
	if err == nil {
		err = a.err
	}
	if err != nil {
		return Listing{}, fileError("list", prefix, err)
	}
	return Listing{Entries: a.entries, Date: time.Now()}, nil
}

func (s *FileStore) list(c *call, prefix string) ([]Entry, error) {
	d, err := s.open()
	if err != nil {
		return nil, err
	}
	defer d.Close()
	l := lister{store: s, call: c, dir: d, prefix: prefix}
	keyDir, path := "", objectsDir
	if i := strings.LastIndexByte(prefix, '/'); i >= 0 {
		keyDir = prefix[:i+1]
		if CheckKey(prefix[:i]) != nil {
			return nil, nil // no key has an empty segment
		}
		path += "/" + dirPath(prefix[:i])
	}
	if err := l.walk(keyDir, path); err != nil {
		return nil, err
	}
	// As for Absent: what is missing is missing only if the bucket is there.
	if err := s.check(d); err != nil {
		return nil, err
	}
	slices.SortFunc(l.entries, func(a, b Entry) int { return cmp.Compare(a.Key, b.Key) })
	return l.entries, nil
}

// dirPath is the directory of the keys below keyDir.
func dirPath(keyDir string) string {
	dir, _ := keyPath(keyDir + "/x")
	return dir
}

// lister collects the entries of one List.
type lister struct {
	store   *FileStore
	call    *call
	dir     *fileDir
	prefix  string
	entries []Entry
}

// walk lists one directory; keyDir is what its keys start with.
func (l *lister) walk(keyDir, path string) error {
	names, err := l.names(path)
	if err != nil || len(names) == 0 {
		return err
	}
	root, err := l.dir.OpenRoot(path)
	if err != nil {
		return err
	}
	defer root.Close()
	for _, name := range names {
		select {
		case <-l.call.done:
			return errAbandoned
		default:
		}
		if sub, ok := strings.CutSuffix(name, "+"); ok {
			seg, ok := decodeSegment(sub)
			if below := keyDir + seg + "/"; ok && (strings.HasPrefix(below, l.prefix) || strings.HasPrefix(l.prefix, below)) {
				if err := l.walk(below, path+"/"+name); err != nil {
					return err
				}
			}
			continue
		}
		seg, ok := decodeSegment(name)
		if !ok || !strings.HasPrefix(keyDir+seg, l.prefix) {
			continue
		}
		entry, err := stat(root, name)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, errNotFile) {
			continue // deleted during this call, or never an object
		}
		if err != nil {
			return err
		}
		entry.Key = keyDir + seg
		l.entries = append(l.entries, entry)
	}
	return nil
}

// names reads a directory under its lock. On some file systems a name that is
// replaced while its directory is read can be missed, and a reader would take a
// living object for an absent one.
func (l *lister) names(path string) ([]string, error) {
	unlock, err := l.store.lock(l.call, l.dir, path, syscall.LOCK_SH)
	switch {
	case errors.Is(err, fs.ErrNotExist): // nothing was ever written there
		unlock = func() {}
	case err != nil:
		return nil, err
	}
	defer unlock()
	f, err := l.dir.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return f.Readdirnames(-1)
}

const (
	tidyEvery = 10 * time.Minute
	// debrisAge is far beyond the time that a write takes. Removing the file of
	// a writer that was stopped for longer is safe: its rename then fails.
	debrisAge = 10 * time.Minute
)

// tidy removes what killed writers left behind. It is best effort.
func (s *FileStore) tidy(d *fileDir) {
	s.mu.Lock()
	due := time.Since(s.cleaned) >= tidyEvery
	if due {
		s.cleaned = time.Now()
	}
	s.mu.Unlock()
	if !due {
		return
	}
	f, err := d.Open(tempDir)
	if err != nil {
		return
	}
	defer f.Close()
	names, _ := f.Readdirnames(-1)
	for _, name := range names {
		info, err := d.Lstat(tempDir + "/" + name)
		if err == nil && time.Since(info.ModTime()) > debrisAge {
			_ = d.Remove(tempDir + "/" + name)
		}
	}
}
