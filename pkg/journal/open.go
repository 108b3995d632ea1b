package journal

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	bolt "go.etcd.io/bbolt"
	bolterr "go.etcd.io/bbolt/errors"
)

// DBFile is the name of the journal in the data directory.
const DBFile = "journal.db"

const (
	newSuffix     = ".new"
	damagedSuffix = ".damaged-"
	// maxDamaged is how many damaged files are kept: enough for every cause a
	// person would look at, few enough that a crash loop cannot fill a disk.
	maxDamaged = 8
	// boltLockWait bounds the wait for bbolt's own lock on the file. We hold
	// the directory's lock, so only a foreign tool can be in the way.
	boltLockWait = time.Second
	// mapSize is the initial address space for the map. Remapping must wait for
	// every reader; with this much it never happens in practice.
	mapSize = 256 << 20
	// defaultMaxEvents bounds the outbox of a node that cannot reach its
	// bucket: some 15 MB, half a day at one event a second.
	defaultMaxEvents = 50_000
)

// Options tune a journal. The zero value is what an agent uses.
type Options struct {
	// LockWait bounds the wait for the data directory's lock; 0: one second.
	LockWait time.Duration
	// Reserve is the space kept for essential batches, in bytes; 0: 1 MiB.
	Reserve int64
	// MaxEvents bounds the outbox; the oldest events are dropped and counted
	// beyond it. 0: 50,000.
	MaxEvents uint64
	// Now names files that are set aside; nil: the wall clock.
	Now func() time.Time
}

func (o Options) withDefaults() Options {
	if o.LockWait == 0 {
		o.LockWait = defaultLockWait
	}
	if o.Reserve == 0 {
		o.Reserve = defaultReserve
	}
	if o.MaxEvents == 0 {
		o.MaxEvents = defaultMaxEvents
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return o
}

// Quarantine is a journal file that could not be trusted.
type Quarantine struct {
	Path   string // where it is now
	Reason string
}

// Damage is one record that was set aside within the file.
type Damage struct {
	Bucket string
	Key    string
	Reason string
}

// Opened says what Open found. A caller that sees Quarantined, Damaged or
// Created must not conclude that it owns nothing: it asks the runtime and the
// bucket.
type Opened struct {
	Created     bool        // there was no journal, or none that could be trusted
	Quarantined *Quarantine // nil: none
	Damaged     []Damage
	// Migrated is the schema the file had if it was brought up to date.
	Migrated *int
	// TornMeta: one of the two meta pages was invalid, as a power failure in
	// the middle of a commit leaves it. Nothing acknowledged is missing, unless
	// the disk is at fault.
	TornMeta string
}

// Journal is an open journal. Its methods are safe for concurrent use.
type Journal struct {
	dir  string
	opts Options
	lock *dirLock
	file *os.File // bbolt's descriptor, to be closed if bbolt cannot be any more
	ext  extent   // the committer's

	// dbMu admits one transaction at a time, of either kind. bbolt would let
	// readers run beside the writer, but a fault in one of them can leave its
	// locks held; this one is never held by a transaction that has failed, so
	// nobody waits for ever. All transactions here are short.
	dbMu sync.Mutex
	db   *bolt.DB // guarded by dbMu

	batches, transactions, syncs, rejected, diskFull counter

	fileBytes, usedBytes atomic.Int64
	reserveShort         atomic.Bool
	failure              atomic.Pointer[Error] // set once; see ErrFailed

	mu         sync.Mutex
	queue      []*Ticket // guarded by mu
	committing bool      // guarded by mu: a goroutine runs commitLoop
	closed     bool      // guarded by mu
	idle       *sync.Cond

	// groupGate, if set by a test, is called before each group is taken.
	groupGate func()
}

// Open takes the data directory's lock and opens the journal in it, making
// both if need be. A second Open of one directory fails with *LockedError.
func Open(dir string, opts Options) (*Journal, Opened, error) {
	opts = opts.withDefaults()
	var opened Opened
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, opened, &Error{Op: "open", Name: dir, Err: err}
	}
	lock, err := lockDir(dir, opts.LockWait)
	if err != nil {
		return nil, opened, err
	}
	j := &Journal{dir: dir, opts: opts, lock: lock}
	j.idle = sync.NewCond(&j.mu)
	if err := j.openFile(&opened); err != nil {
		_ = lock.release()
		return nil, opened, err
	}
	return j, opened, nil
}

// openFile opens the file, replacing one that cannot be trusted.
func (j *Journal) openFile(opened *Opened) error {
	path := filepath.Join(j.dir, DBFile)
	found, err := inspect(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		opened.Created = true
	case err != nil:
		return err
	case found.reason != "":
		if err := j.replace(path, found.reason, opened); err != nil {
			return err
		}
	case found.schema > schemaVersion:
		return &Error{
			Op: "open", Name: path, Kind: ErrNewerSchema,
			Err:  fmt.Errorf("schema %d, this program knows %d", found.schema, schemaVersion),
			Hint: "run the newer node-agent that wrote it, or leave the fleet with that one first",
		}
	default:
		opened.TornMeta = found.torn
	}
	if !opened.Created {
		err := j.openBolt(path, found, opened)
		if err == nil || !untrusted(err) {
			return err
		}
		// A file that our own walk passed and that still cannot be used.
		j.abandon()
		if err := j.replace(path, err.Error(), opened); err != nil {
			return err
		}
	}
	if err := create(path); err != nil {
		return err
	}
	return j.openBolt(path, inspection{schema: schemaVersion}, opened)
}

// untrusted reports errors that say something about the file's contents.
func untrusted(err error) bool {
	return isPanic(err) || errors.Is(err, errUnreadable) || errors.Is(err, bolterr.ErrInvalid) ||
		errors.Is(err, bolterr.ErrVersionMismatch) || errors.Is(err, bolterr.ErrChecksum)
}

// create makes an empty journal beside path and moves it there, so that a
// crash leaves either no journal or a whole one.
func create(path string) error {
	tmp := path + newSuffix
	if err := os.RemoveAll(tmp); err != nil {
		return &Error{Op: "create", Name: tmp, Err: err}
	}
	err := guarded(func() error {
		db, err := bolt.Open(tmp, 0o600, &bolt.Options{Timeout: boltLockWait})
		if err != nil {
			return err
		}
		return errors.Join(db.Update(layOut), db.Close())
	})
	if err == nil {
		err = os.Rename(tmp, path)
	}
	if err == nil {
		err = syncDir(filepath.Dir(path))
	}
	if err != nil {
		e := &Error{Op: "create", Name: path, Err: err}
		if noSpace(err) {
			e.Kind, e.Hint = ErrDiskFull, "free some space on the file system of the data directory"
		}
		return e
	}
	return nil
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// openBolt gives the file to bbolt, sets damaged records aside and brings the
// layout up to date.
func (j *Journal) openBolt(path string, found inspection, opened *Opened) error {
	err := guarded(func() error {
		db, err := bolt.Open(path, 0o600, &bolt.Options{
			Timeout:         boltLockWait,
			InitialMmapSize: mapSize,
			FreelistType:    bolt.FreelistArrayType, // reuses low pages first, so the file stays small
			OpenFile: func(name string, flag int, perm os.FileMode) (*os.File, error) {
				f, err := os.OpenFile(name, flag, perm)
				j.file = f
				return f, err
			},
		})
		if err != nil {
			return err
		}
		j.db = db
		if err := j.measure(); err != nil {
			return err
		}
		return migrate(db, found)
	})
	if err != nil {
		if j.db != nil && !isPanic(err) {
			_ = j.db.Close()
		}
		e := &Error{Op: "open", Name: path, Err: err}
		if tooLarge(err) {
			e.Kind, e.Hint = ErrDiskFull, hintDiskFull
		}
		return e
	}
	opened.Damaged = found.damaged
	if found.schema != schemaVersion {
		opened.Migrated = &found.schema
	}
	return nil
}

// measure learns how much of the file is allocated and rebuilds the reserve.
func (j *Journal) measure() error {
	st, err := j.file.Stat()
	if err != nil {
		return err
	}
	var used int64
	if err := j.db.View(func(tx *bolt.Tx) error { used = tx.Size(); return nil }); err != nil {
		return err
	}
	j.ext = extent{f: j.file, allocated: st.Size(), reserve: j.opts.Reserve, syncs: &j.syncs}
	// A restored or copied file may have holes, which are no reserve.
	switch err := fallocate(j.file, 0, st.Size()); {
	case err == nil, errors.Is(err, errors.ErrUnsupported):
	case noSpace(err):
		j.ext.allocated = used
	default:
		return err
	}
	if err := j.ext.prepare(used); err != nil {
		return err
	}
	setLimit(j.db, j.ext.limit(Essential))
	j.publish(used)
	return nil
}

// publish makes the file's figures visible to Stats.
func (j *Journal) publish(used int64) {
	j.fileBytes.Store(j.ext.allocated)
	j.usedBytes.Store(used)
	j.reserveShort.Store(j.ext.short(used))
}

// abandon lets go of a file that bbolt can no longer be trusted to close: its
// locks may be held by a transaction that faulted. The map is leaked.
func (j *Journal) abandon() {
	if j.file != nil {
		_ = j.file.Close() // also gives up bbolt's lock on the file
	}
	j.db, j.file = nil, nil
}

// Dir returns the data directory.
func (j *Journal) Dir() string { return j.dir }

// Close waits for the batches already submitted and releases the file and the
// data directory's lock.
func (j *Journal) Close() error {
	j.mu.Lock()
	if j.closed {
		j.mu.Unlock()
		return nil
	}
	j.closed = true
	for j.committing {
		j.idle.Wait()
	}
	j.mu.Unlock()

	var err error
	if j.failure.Load() == nil {
		err = j.exclusive(func(db *bolt.DB) error { return db.Close() })
	} else {
		err = j.file.Close()
	}
	if err = errors.Join(err, j.lock.release()); err != nil {
		return &Error{Op: "close", Name: j.dir, Err: err}
	}
	return nil
}
