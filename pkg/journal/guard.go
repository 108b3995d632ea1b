package journal

import (
	"errors"
	"fmt"
	"runtime/debug"

	bolt "go.etcd.io/bbolt"
	bolterr "go.etcd.io/bbolt/errors"
)

// exclusive runs fn, which may use the database, alone and guarded. If fn
// panics or faults the journal has failed and the database is never used again.
func (j *Journal) exclusive(fn func(*bolt.DB) error) error {
	j.dbMu.Lock()
	defer j.dbMu.Unlock()
	if failure := j.failure.Load(); failure != nil {
		return failure
	}
	err := guarded(func() error { return fn(j.db) })
	if isPanic(err) {
		return j.fail("transaction", err)
	}
	return err
}

// view runs fn in a read transaction.
func (j *Journal) view(op string, fn func(*bolt.Tx) error) error {
	err := j.exclusive(func(db *bolt.DB) error { return db.View(fn) })
	var typed *Error
	switch {
	case err == nil, errors.As(err, &typed):
		return err
	case errors.Is(err, bolterr.ErrDatabaseNotOpen):
		return &Error{Op: op, Kind: ErrClosed}
	default:
		return &Error{Op: op, Err: err}
	}
}

// guarded runs fn and turns a panic, or a fault in a memory-mapped page (the
// file was truncated under us, the disk does not deliver), into an error. It
// must be called on the goroutine that touches the map: Go sends a fault to the
// goroutine that caused it.
func guarded(fn func() error) (err error) {
	old := debug.SetPanicOnFault(true)
	defer debug.SetPanicOnFault(old)
	defer func() {
		if r := recover(); r != nil {
			err = &panicError{value: r, stack: debug.Stack()}
		}
	}()
	return fn()
}

// panicError is a recovered panic or memory fault.
type panicError struct {
	value any
	stack []byte
}

func (e *panicError) Error() string { return fmt.Sprintf("panic: %v\n%s", e.value, e.stack) }

// Unwrap exposes a panic value that is an error, as memory faults are.
func (e *panicError) Unwrap() error {
	err, _ := e.value.(error)
	return err
}

func isPanic(err error) bool {
	var p *panicError
	return errors.As(err, &p)
}
