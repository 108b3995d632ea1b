package fleet

import (
	"errors"
	"fmt"
)

// NotFoundError is a name, node or tenant that does not exist.
type NotFoundError struct {
	What string // "name", "node", "tenant"
	Name string
	Hint string
}

func (e *NotFoundError) Error() string { return fmt.Sprintf("no such %s: %q", e.What, e.Name) }

// ConflictError is a write that lost a race, or that contradicts what is there.
type ConflictError struct {
	Op      string // "apply", "delete", "pause", …
	Name    string
	Message string
	Hint    string
}

func (e *ConflictError) Error() string { return fmt.Sprintf("%s %s: %s", e.Op, e.Name, e.Message) }

// RefusedError is a verb that cannot apply to a name as it stands.
type RefusedError struct {
	Op      string
	Name    string
	Message string
	Hint    string
	Held    bool // it waits for an operator's release-hold
}

func (e *RefusedError) Error() string { return fmt.Sprintf("%s %s: %s", e.Op, e.Name, e.Message) }

// UnknownOutcomeError is a write of which nobody can say whether it was
// applied, also after it was asked for several times. Trying again is safe:
// every operation of a Client is idempotent.
type UnknownOutcomeError struct {
	Op   string
	Name string
	Err  error // what the last answer was
}

func (e *UnknownOutcomeError) Error() string {
	return fmt.Sprintf("%s %s: the outcome is unknown: %v", e.Op, e.Name, e.Err)
}

func (e *UnknownOutcomeError) Unwrap() error { return e.Err }

// NotOwnedError is a name that exists and that no node owns now.
type NotOwnedError struct {
	Name   string
	Status Status
	Epoch  uint64
	Reason string // why, in one sentence
	Next   string // the command to type next
}

func (e *NotOwnedError) Error() string {
	return fmt.Sprintf("nobody owns %s: %s", e.Name, e.Reason)
}

// NoFleetError is a bucket in which no fleet was made.
type NoFleetError struct{ Bucket string }

func (e *NoFleetError) Error() string {
	return fmt.Sprintf("there is no fleet in %s", e.Bucket)
}

// ErrNewerSchema marks a record that a newer version wrote: it must not be replaced.
var ErrNewerSchema = errors.New("written by a newer version")

// Newer reports an unreadable record that a newer version of this project
// wrote, as opposed to one that is damaged.
func Newer(err error) bool { return errors.Is(err, ErrNewerSchema) }
