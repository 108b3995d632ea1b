package journal

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
)

// Kinds of failure, to be tested with errors.Is.
var (
	// ErrDiskFull: there is no room for the batch; nothing of it was applied.
	ErrDiskFull = errors.New("disk full")
	// ErrConflict: an object's condition did not hold.
	ErrConflict = errors.New("condition not met")
	// ErrOpInFlight: the name has an operation in flight already.
	ErrOpInFlight = errors.New("an operation is in flight")
	// ErrGap: a scheduler event does not follow the last one.
	ErrGap = errors.New("scheduler events are not consecutive")
	// ErrRegress: the change would take an identity back or to another fleet.
	ErrRegress = errors.New("identity may not go back")
	// ErrInvalid: the batch can never succeed (empty name, too large).
	ErrInvalid = errors.New("invalid batch")
	// ErrUnknown: the caller stopped waiting; the batch may yet be applied.
	ErrUnknown = errors.New("outcome unknown")
	// ErrFailed: the file can no longer be trusted or written. The batch may
	// have been applied, every later call fails likewise, and the process
	// should end and start again: Open decides what can be kept.
	ErrFailed = errors.New("journal failed")
	// ErrClosed: the journal was closed.
	ErrClosed = errors.New("journal closed")
	// ErrNewerSchema: the file was written by a newer program.
	ErrNewerSchema = errors.New("journal has a newer schema")
	// ErrNoJournal: Check found no file.
	ErrNoJournal = errors.New("no journal")
)

// Error is the typed error of this package: what was asked, of what.
type Error struct {
	Op   string // open, commit, read, check, …
	Name string // the name, key or path concerned; may be empty
	Kind error  // one of the sentinels above; nil if none fits
	Err  error  // the cause; may be nil
	Hint string // what a person can do about it; may be empty
}

func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString("journal ")
	b.WriteString(e.Op)
	if e.Name != "" {
		fmt.Fprintf(&b, " %q", e.Name)
	}
	if e.Kind != nil {
		fmt.Fprintf(&b, ": %v", e.Kind)
	}
	if e.Err != nil {
		fmt.Fprintf(&b, ": %v", e.Err)
	}
	return b.String()
}

// Unwrap exposes both the kind and the cause.
func (e *Error) Unwrap() []error {
	errs := make([]error, 0, 2)
	if e.Kind != nil {
		errs = append(errs, e.Kind)
	}
	if e.Err != nil {
		errs = append(errs, e.Err)
	}
	return errs
}

// LockedError says that another process holds the data directory.
type LockedError struct {
	Path string // of the lock file
	Pid  int    // of the holder; 0 if it could not be read
}

func (e *LockedError) Error() string {
	if e.Pid == 0 {
		return fmt.Sprintf("%s is held by another process", e.Path)
	}
	return fmt.Sprintf("%s is held by process %d", e.Path, e.Pid)
}

// noSpace reports the errors by which file systems and quotas say "full".
func noSpace(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

const hintDiskFull = "free space on the file system of the data directory; stop and delete still work"
