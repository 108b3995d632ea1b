package bucket

import (
	"context"
	"errors"
	"io/fs"
	"math/rand/v2"
	"os"
	"sync/atomic"
	"syscall"
	"time"
)

// call is one operation on a FileStore. The file system cannot be interrupted,
// so an operation runs in a goroutine of its own and its caller leaves when the
// context ends. The two agree on what became of a write through the state: of
// "abandoned" and "committed" the first to be reached holds.
type call struct {
	state atomic.Uint32
	done  chan struct{} // closed when abandoned
}

const (
	callOpen uint32 = iota
	callCommitted
	callAbandoned
)

// commit is asked right before the step that makes a write visible. When it
// answers false the step must not be taken.
func (c *call) commit() bool { return c.state.CompareAndSwap(callOpen, callCommitted) }

// abandon reports whether the operation will certainly change nothing.
func (c *call) abandon() bool {
	ok := c.state.CompareAndSwap(callOpen, callAbandoned)
	if ok {
		close(c.done)
	}
	return ok
}

var errAbandoned = errors.New("the caller has left")

// run performs fn within ctx. When ctx ends first, it answers the context's
// error, and whether fn may have changed something all the same.
func run[T any](ctx context.Context, s *FileStore, fn func(*call) T) (result T, unsure bool, err error) {
	if err := ctx.Err(); err != nil {
		return result, false, err
	}
	select {
	case s.slots <- struct{}{}:
	case <-ctx.Done():
		return result, false, ctx.Err()
	}
	c := &call{done: make(chan struct{})}
	answer := make(chan T, 1)
	go func() {
		defer func() { <-s.slots }()
		answer <- fn(c)
	}()
	select {
	case result = <-answer:
		return result, false, nil
	case <-ctx.Done():
	}
	committed := !c.abandon()
	grace := time.NewTimer(leaveGrace)
	defer grace.Stop()
	select {
	case result = <-answer:
		if committed {
			return result, false, nil
		}
	case <-grace.C:
	}
	return result, committed, ctx.Err()
}

// lock takes the lock of one directory of objects, for changing the names in it
// (exclusive) or for reading them all (shared).
//
// The kernel drops a flock when its holder dies, so a killed process leaves
// nothing behind. A stopped one (SIGSTOP) keeps it; all that others do is then
// refused in time, and nothing is written twice.
func (s *FileStore) lock(c *call, d *fileDir, dir string, how int) (unlock func(), err error) {
	turn := s.turn(dir)
	if how == syscall.LOCK_EX { // keep this process's writers from polling against each other
		select {
		case turn <- struct{}{}:
		case <-c.done:
			return nil, errAbandoned
		}
		defer func() {
			if err != nil {
				<-turn
			}
		}()
	}
	f, err := s.flock(c, d, dir+"/"+lockName, how)
	if err != nil {
		return nil, err
	}
	return func() {
		_ = f.Close() // drops the lock
		if how == syscall.LOCK_EX {
			<-turn
		}
	}, nil
}

func (s *FileStore) turn(dir string) chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	turn := s.locks[dir]
	if turn == nil {
		turn = make(chan struct{}, 1)
		s.locks[dir] = turn
	}
	return turn
}

const (
	lockPollMin = 100 * time.Microsecond // about the time that a lock is held
	lockPollMax = 5 * time.Millisecond
)

func (s *FileStore) flock(c *call, d *fileDir, path string, how int) (*os.File, error) {
	pause := lockPollMin
	for {
		f, err := d.openLock(path, how)
		if err != nil {
			return nil, err
		}
		err = tryFlock(f, how)
		if err == nil {
			if d.isNamed(f, path) {
				return f, nil
			}
			// Somebody removed the lock file: this one guards nothing.
			err = syscall.EWOULDBLOCK
		}
		_ = f.Close()
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, err
		}
		select {
		case <-c.done:
			return nil, errAbandoned
		case <-time.After(pause/2 + rand.N(pause)):
		}
		pause = min(2*pause, lockPollMax)
	}
}

func tryFlock(f *os.File, how int) error {
	for {
		err := syscall.Flock(int(f.Fd()), how|syscall.LOCK_NB)
		if !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}

// openLock opens a lock file; only a writer makes one.
func (d *fileDir) openLock(path string, how int) (*os.File, error) {
	f, err := d.Open(path)
	if err == nil || how == syscall.LOCK_SH || !errors.Is(err, fs.ErrNotExist) {
		return f, err
	}
	f, err = d.OpenFile(path, os.O_RDONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return d.Open(path)
	}
	if err != nil {
		return nil, err
	}
	if err := d.adopt(path, d.mode&0o666); err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

func (d *fileDir) isNamed(f *os.File, path string) bool {
	named, err := d.Lstat(path)
	if err != nil {
		return false
	}
	held, err := f.Stat()
	return err == nil && os.SameFile(named, held)
}
