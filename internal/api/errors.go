package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"syscall"

	"github.com/barista-fleet/barista/internal/bucket"
)

// Code classifies an error for programs.
type Code string

// The codes. docs and exit codes of fleetctl are made from them.
const (
	CodeInvalid     Code = "invalid"      // the request can never succeed
	CodeNotFound    Code = "not_found"    // no such name, run, object
	CodeConflict    Code = "conflict"     // lost a race, or the state forbids it
	CodeUnsupported Code = "unsupported"  // this agent cannot do it
	CodeFleetMember Code = "fleet_member" // objects of a fleet are in its bucket
	CodeUnreachable Code = "unreachable"  // the agent, or its bucket, does not answer
	CodeThrottled   Code = "throttled"    // too many requests at once
	CodeDenied      Code = "denied"       // not allowed
	CodeCredentials Code = "credentials"  // no usable credentials
	CodeDiskFull    Code = "disk_full"
	CodeTimeout     Code = "timeout"
	CodeHeld        Code = "held"      // needs an operator's decision
	CodeTruncated   Code = "truncated" // a stream ended before its end
	CodeInternal    Code = "internal"
)

// httpStatus is the answer's status for each code.
var httpStatus = map[Code]int{
	CodeInvalid:     http.StatusBadRequest,
	CodeNotFound:    http.StatusNotFound,
	CodeConflict:    http.StatusConflict,
	CodeUnsupported: http.StatusNotImplemented,
	CodeFleetMember: http.StatusConflict,
	CodeUnreachable: http.StatusBadGateway,
	CodeThrottled:   http.StatusTooManyRequests,
	CodeDenied:      http.StatusForbidden,
	CodeCredentials: http.StatusUnauthorized,
	CodeDiskFull:    http.StatusInsufficientStorage,
	CodeTimeout:     http.StatusGatewayTimeout,
	CodeHeld:        http.StatusConflict,
	CodeTruncated:   http.StatusInternalServerError,
	CodeInternal:    http.StatusInternalServerError,
}

// Error is an error as it crosses the socket. An Agent returns one to choose
// the code and the hint; any other error is sent as CodeInternal.
type Error struct {
	Op        string `json:"-"` // what the client asked: status, logs, do stop-all, …
	Code      Code   `json:"code"`
	Message   string `json:"message"`
	Hint      string `json:"hint,omitempty"`
	Retryable bool   `json:"retryable"`
	Outcome   string `json:"outcome,omitempty"` // of a failed write
	Err       error  `json:"-"`                 // the cause, where it happened on this side
}

func (e *Error) Error() string {
	if e.Op == "" {
		return e.Message
	}
	return fmt.Sprintf("agent %s: %s", e.Op, e.Message)
}

func (e *Error) Unwrap() error { return e.Err }

// Is lets errors.Is(err, bucket.ErrUnreachable) and the like see through the
// socket.
func (e *Error) Is(target error) bool {
	kind := kindOf(e.Code)
	return kind != nil && kind == target
}

// kinds pairs the codes with the errors that stand for them on either side.
var kinds = []struct {
	code Code
	kind error
}{
	{CodeConflict, bucket.ErrCondition},
	{CodeThrottled, bucket.ErrThrottled},
	{CodeDenied, bucket.ErrDenied},
	{CodeCredentials, bucket.ErrCredentials},
	{CodeUnreachable, bucket.ErrUnreachable},
	{CodeInvalid, bucket.ErrInvalid},
	{CodeDiskFull, syscall.ENOSPC},
}

func kindOf(code Code) error {
	for _, k := range kinds {
		if k.code == code {
			return k.kind
		}
	}
	return nil
}

// toError renders any error for the wire.
func toError(err error) *Error {
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	out := &Error{Code: CodeInternal, Message: err.Error(), Err: err}
	if be, ok := errors.AsType[*bucket.Error](err); ok {
		out.Hint = be.Hint
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		out.Code, out.Retryable = CodeTimeout, true
	}
	for _, k := range kinds {
		if errors.Is(err, k.kind) {
			out.Code = k.code
			break
		}
	}
	out.Retryable = out.Retryable || out.Code == CodeThrottled || out.Code == CodeUnreachable
	return out
}
