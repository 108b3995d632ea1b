package journal

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// LockFile is the name of the lock in the data directory.
const LockFile = "agent.lock"

const (
	// defaultLockWait lets a restart overlap with the end of the old process,
	// and keeps the answer to a second start well within two seconds.
	defaultLockWait = time.Second
	lockRetry       = 25 * time.Millisecond
)

// dirLock is the data directory's exclusive lock. It is a flock on its own
// file, so it dies with the process and needs no clean-up after kill -9.
type dirLock struct{ f *os.File }

// lockDir takes the lock, trying for up to wait.
func lockDir(dir string, wait time.Duration) (*dirLock, error) {
	path := filepath.Join(dir, LockFile)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, &Error{Op: "lock", Name: path, Err: err}
	}
	for waited := time.Duration(0); ; waited += lockRetry {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			break
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			_ = f.Close()
			return nil, &Error{Op: "lock", Name: path, Err: err}
		}
		if waited >= wait {
			pid := readPid(f)
			_ = f.Close()
			return nil, &LockedError{Path: path, Pid: pid}
		}
		time.Sleep(lockRetry)
	}
	// The pid is for people. It is written over the old one without truncating,
	// so that it needs no new block on a full disk; failing to write it does not
	// make the lock any less held.
	_, _ = f.WriteAt(fmt.Appendf(nil, "%-10d\n", os.Getpid()), 0)
	return &dirLock{f: f}, nil
}

// readPid returns the pid in a lock file, 0 if there is none.
func readPid(f *os.File) int {
	var buf [16]byte
	n, _ := f.ReadAt(buf[:], 0)
	pid, err := strconv.Atoi(strings.TrimSpace(string(buf[:n])))
	if err != nil {
		return 0
	}
	return pid
}

// release gives the lock up. The file stays: removing it would let two
// processes lock two files of one name.
func (l *dirLock) release() error { return l.f.Close() }

// DirID identifies a data directory by device and inode, "dev:ino". A copy of
// the directory has another one; device numbers may also change at a reboot.
func DirID(dir string) (string, error) {
	var st syscall.Stat_t
	if err := syscall.Stat(dir, &st); err != nil {
		return "", &Error{Op: "stat", Name: dir, Err: err}
	}
	return fmt.Sprintf("%d:%d", uint64(st.Dev), uint64(st.Ino)), nil
}
