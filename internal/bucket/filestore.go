package bucket

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// The directory of a FileStore:
//
//	DIR/
//	  .barista-bucket    the marker: JSON with a schema number and a random id
//	  objects/           see filename.go
//	    <segment>+/      one directory for each "/" of a key
//	      +lock          held (flock) while a name in this directory changes
//	      <segment>      one object: a header line with its ETag, then the body
//	  tmp/               objects being written; whatever is old is debris
const (
	markerName = ".barista-bucket"
	objectsDir = "objects"
	tempDir    = "tmp"
)

const (
	// maxInFlight bounds the goroutines that a file system which stopped
	// answering can hold on to.
	maxInFlight = 64
	// leaveGrace is how long a call whose context has ended waits for its
	// goroutine: for a rename that has begun, which takes microseconds, to learn
	// the outcome; otherwise so that nothing goes on after the call. Only a file
	// system that hangs takes longer.
	leaveGrace = 250 * time.Millisecond
	// maxMarker bounds the marker file, in bytes.
	maxMarker = 4 << 10
)

// FileStore is a Store in a directory of one machine, for trying a fleet and
// for tests. Any number of processes of that machine may use the directory, and
// any of them may be killed at any instant.
//
// It is safe to use over NFS only from one machine. Its clock is the machine's.
type FileStore struct {
	dir   string
	slots chan struct{}          // bounds calls in flight, see maxInFlight
	id    atomic.Pointer[string] // the marker's id, once seen

	mu      sync.Mutex
	locks   map[string]chan struct{} // per directory: this process's turn at its lock file
	cleaned time.Time                // when this process last looked for debris
}

var _ Store = (*FileStore)(nil)

// NewFileStore returns the store of a directory that InitFileStore made. It
// does not touch the directory: like a bucket behind a network, the directory
// may be away now and come back. Every call on the store checks the marker and
// answers ErrUnreachable while it is missing.
func NewFileStore(dir string) (*FileStore, error) {
	if !filepath.IsAbs(dir) {
		return nil, &Error{Op: "open", Key: dir, Kind: ErrInvalid, Err: errors.New("the directory is not absolute")}
	}
	return &FileStore{
		dir:   filepath.Clean(dir),
		slots: make(chan struct{}, maxInFlight),
		locks: make(map[string]chan struct{}),
	}, nil
}

// InitFileStore makes a directory into an empty bucket. It reports false, and
// changes nothing, where there is a bucket already. It refuses a directory that
// holds anything else.
func InitFileStore(dir string) (created bool, err error) {
	defer func() {
		if err != nil {
			err = fileError("init", dir, err)
		}
	}()
	if !filepath.IsAbs(dir) {
		return false, &Error{Op: "init", Key: dir, Kind: ErrInvalid, Err: errors.New("the directory is not absolute")}
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return false, err
	}
	// Whoever can write the bucket can run code on every node: owner only.
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return false, err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return false, err
	}
	d := &fileDir{Root: root}
	defer d.Close()
	if _, err := d.marker(); err == nil {
		return false, nil
	} else if !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	if err := refuseOccupied(d, dir); err != nil {
		return false, err
	}
	if err := d.takeOwner(); err != nil {
		return false, err
	}
	for _, sub := range []string{objectsDir, tempDir} {
		if err := d.mkdir(sub); err != nil {
			return false, err
		}
	}
	return d.writeMarker()
}

// refuseOccupied keeps init away from a directory with somebody's files in it.
// What an init that was killed leaves behind is no obstacle.
func refuseOccupied(d *fileDir, dir string) error {
	f, err := d.Open(".")
	if err != nil {
		return err
	}
	defer f.Close()
	names, err := f.Readdirnames(-1)
	if err != nil {
		return err
	}
	for _, name := range names {
		// The marker is there if another init has just been faster.
		if name == objectsDir || name == tempDir || name == markerName {
			continue
		}
		return &Error{
			Op: "init", Key: dir, Kind: ErrInvalid, Err: fmt.Errorf("the directory is not empty: it holds %q", name),
			Hint: "name a new or an empty directory",
		}
	}
	return nil
}

// Description is the store's URL.
func (s *FileStore) Description() string {
	return Location{Kind: KindFile, Dir: s.dir}.String()
}

// fileDir is the store's directory, opened for one call. Everything in a call
// goes through this one handle: a directory that is moved away in the middle of
// a call stays the same directory, so no part of the call can take "moved" for
// "empty".
type fileDir struct {
	*os.Root
	mode     fs.FileMode // of the top directory, for what is created below it
	uid, gid int         // its owner
}

// open opens the directory and checks its marker.
func (s *FileStore) open() (*fileDir, error) {
	root, err := os.OpenRoot(s.dir)
	if err != nil {
		return nil, s.away(err)
	}
	d := &fileDir{Root: root}
	if err := s.check(d); err != nil {
		d.Close()
		return nil, err
	}
	return d, nil
}

// check answers an error unless d is, still, the bucket that this store first saw.
func (s *FileStore) check(d *fileDir) error {
	id, err := d.marker()
	if err != nil {
		return s.away(err)
	}
	if err := d.takeOwner(); err != nil {
		return s.away(err)
	}
	if _, err := d.Lstat(objectsDir); err != nil {
		return s.away(err)
	}
	if !s.id.CompareAndSwap(nil, &id) && *s.id.Load() != id {
		return &Error{
			Op: "open", Key: s.dir, Kind: ErrUnreachable, Err: errors.New("another bucket is in this directory now"),
			Hint: "move the former bucket back, or restart what used it",
		}
	}
	return nil
}

func (s *FileStore) away(err error) error {
	e := &Error{Op: "open", Key: s.dir, Kind: ErrUnreachable, Err: err}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		e.Hint = "if the bucket was never made, type: fleetctl init " + s.Description()
	case errors.Is(err, fs.ErrPermission):
		e.Kind = ErrDenied
		e.Hint = "run as the user who owns " + s.dir
	}
	return e
}

// markerFile is the content of the marker.
type markerFile struct {
	Schema int    `json:"schema"`
	ID     string `json:"id"`
}

func (d *fileDir) marker() (id string, err error) {
	f, err := d.Open(markerName)
	if err != nil {
		return "", err
	}
	defer f.Close()
	raw, err := io.ReadAll(io.LimitReader(f, maxMarker))
	if err != nil {
		return "", err
	}
	var m markerFile
	if err := json.Unmarshal(raw, &m); err != nil {
		return "", fmt.Errorf("%s is damaged: %w", markerName, err)
	}
	if m.Schema != 1 || m.ID == "" {
		return "", fmt.Errorf("%s has schema %d: a newer version wrote it", markerName, m.Schema)
	}
	return m.ID, nil
}

// writeMarker is the last step of making a bucket. The link decides between two
// processes that do it at once.
func (d *fileDir) writeMarker() (created bool, err error) {
	raw, err := json.Marshal(markerFile{Schema: 1, ID: randomHex()})
	if err != nil {
		return false, err
	}
	temp, err := d.writeTemp(append(raw, '\n'))
	if err != nil {
		return false, err
	}
	defer func() { _ = d.Remove(temp) }()
	if err := d.Link(temp, markerName); err != nil {
		if errors.Is(err, fs.ErrExist) {
			return false, nil
		}
		return false, err
	}
	return true, d.sync(".")
}

// takeOwner notes the mode and the owner of the top directory.
func (d *fileDir) takeOwner() error {
	info, err := d.Stat(".")
	if err != nil {
		return err
	}
	d.mode = info.Mode().Perm()
	d.uid, d.gid = -1, -1
	if st, ok := info.Sys().(*syscall.Stat_t); ok && os.Geteuid() == 0 {
		d.uid, d.gid = int(st.Uid), int(st.Gid)
	}
	return nil
}

// adopt gives a new file the access that the top directory has, so that an
// agent that runs as root and its user's fleetctl can share a bucket.
func (d *fileDir) adopt(name string, mode fs.FileMode) error {
	if err := d.Chmod(name, mode); err != nil {
		return err
	}
	if d.uid > 0 || d.gid > 0 {
		return d.Chown(name, d.uid, d.gid)
	}
	return nil
}

// mkdir makes one directory and its entry durable; an existing one is fine.
func (d *fileDir) mkdir(name string) error {
	if err := d.Mkdir(name, 0o700); err != nil {
		if errors.Is(err, fs.ErrExist) {
			return nil
		}
		return err
	}
	if err := d.adopt(name, d.mode); err != nil {
		return err
	}
	return d.sync(filepath.Dir(name))
}

// sync makes the entries of a directory durable.
func (d *fileDir) sync(dir string) error {
	f, err := d.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}

// writeTemp writes a durable file with a name of its own in the directory of
// temporary files, and returns its path.
func (d *fileDir) writeTemp(parts ...[]byte) (path string, err error) {
	path = tempDir + "/" + randomHex()
	f, err := d.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrNotExist) { // somebody tidied too well
		if err = d.mkdir(tempDir); err == nil {
			f, err = d.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		}
	}
	if err != nil {
		return "", err
	}
	defer func() {
		if cerr := f.Close(); err == nil {
			err = cerr
		}
		if err != nil {
			_ = d.Remove(path)
		}
	}()
	for _, part := range parts {
		if _, err := f.Write(part); err != nil {
			return "", err
		}
	}
	if err := d.adopt(path, d.mode&0o666); err != nil {
		return "", err
	}
	return path, f.Sync()
}

func randomHex() string {
	var b [16]byte
	rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// fileError types an error of the file system.
func fileError(op, key string, err error) error {
	if _, ok := errors.AsType[*Error](err); ok {
		return err
	}
	e := &Error{Op: op, Key: key, Err: err}
	switch {
	case errors.Is(err, context.Canceled):
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		e.Hint = "free some space on the file system of the bucket"
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		e.Kind = ErrDenied
		e.Hint = "run as the user who owns the bucket's directory, on a file system that is mounted for writing"
	default:
		e.Kind = ErrUnreachable
	}
	return e
}
