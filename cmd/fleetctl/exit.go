package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/urfave/cli/v3"

	"github.com/barista-fleet/barista/internal/api"
	"github.com/barista-fleet/barista/internal/bucket"
	"github.com/barista-fleet/barista/pkg/fleet"
)

// The exit codes. They are part of the interface: scripts branch on them.
const (
	exitOK          = 0
	exitFailed      = 1 // and: resolve found nobody who owns the name
	exitUsage       = 2
	exitConflict    = 3
	exitCredentials = 4
	exitUnreachable = 5 // nothing is known about what was asked for
	exitTimeout     = 6
	exitNotFound    = 7
	exitHeld        = 8
)

// usageError is a command line or a manifest that says nothing sensible.
type usageError struct {
	message string
	hint    string
}

func (e *usageError) Error() string { return e.message }

func usagef(hint, format string, args ...any) error {
	return &usageError{message: fmt.Sprintf(format, args...), hint: hint}
}

// timeoutError is a wait that ended without what it waited for.
type timeoutError struct{ message, hint string }

func (e *timeoutError) Error() string { return e.message }

// failedError is anything that simply did not work, with a hint.
type failedError struct{ message, hint string }

func (e *failedError) Error() string { return e.message }

// codeError ends the program with a code of its own: the job's, or diff's.
// Without an err nothing is reported.
type codeError struct {
	code int
	err  error
}

func (e *codeError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit %d", e.code)
	}
	return e.err.Error()
}
func (e *codeError) Unwrap() error { return e.err }

// manyErrors are the failures of a verb that does several things. Each is
// reported; the worst decides the exit code.
type manyErrors []error

func (e manyErrors) Error() string {
	parts := make([]string, len(e))
	for i, err := range e {
		parts[i] = err.Error()
	}
	return strings.Join(parts, "; ")
}

// worst orders exit codes by how little is known afterwards.
var worst = map[int]int{
	exitOK: 0, exitFailed: 1, exitHeld: 2, exitNotFound: 3, exitUsage: 4,
	exitConflict: 5, exitTimeout: 6, exitCredentials: 7, exitUnreachable: 8,
}

// failure is an error as it is reported.
type failure struct {
	Code      string `json:"code"`
	Message   string `json:"message"`
	Hint      string `json:"hint,omitempty"`
	Retryable bool   `json:"retryable"`
	Name      string `json:"name,omitempty"`
	Epoch     uint64 `json:"epoch,omitzero"`
	Exit      int    `json:"exit_code"`
}

// failureOf is the one place where errors become codes, hints and exit codes.
func failureOf(err error) failure {
	f := failure{Code: "failed", Message: err.Error(), Exit: exitFailed}
	set := func(exit int, code, name, hint string) failure {
		f.Exit, f.Code, f.Name, f.Hint = exit, code, name, hint
		return f
	}
	var (
		usage    *usageError
		timeout  *timeoutError
		failed   *failedError
		manifest *fleet.ManifestError
		spec     *fleet.SpecError
		badName  *fleet.NameError
		missing  *fleet.NotFoundError
		conflict *fleet.ConflictError
		refused  *fleet.RefusedError
		unowned  *fleet.NotOwnedError
		unknown  *fleet.UnknownOutcomeError
		nofleet  *fleet.NoFleetError
		unread   *fleet.UnreadableError
		store    *bucket.Error
		agent    *api.Error
	)
	switch {
	case errors.As(err, &usage):
		return set(exitUsage, "usage", "", usage.hint)
	case errors.As(err, &timeout):
		f.Retryable = true
		return set(exitTimeout, "timeout", "", timeout.hint)
	case errors.As(err, &failed):
		return set(exitFailed, "failed", "", failed.hint)
	case errors.As(err, &manifest):
		f.Message = manifest.Error()
		return set(exitUsage, "manifest", "", "")
	case errors.As(err, &badName):
		return set(exitUsage, "name", badName.Name, "")
	case errors.As(err, &spec):
		return set(exitUsage, "spec", "", "fleetctl apply --help lists the flags")
	case errors.As(err, &missing):
		return set(exitNotFound, "not_found", missing.Name, missing.Hint)
	case errors.As(err, &unowned):
		f.Epoch, f.Retryable = unowned.Epoch, true
		return set(exitFailed, "not_owned", unowned.Name, unowned.Next)
	case errors.As(err, &refused) && refused.Held:
		return set(exitHeld, "held", refused.Name, refused.Hint)
	case errors.As(err, &refused):
		return set(exitFailed, "refused", refused.Name, refused.Hint)
	case errors.As(err, &unknown):
		f.Retryable = true
		return set(exitUnreachable, "unknown_outcome", unknown.Name, "run the same command again: it does nothing twice")
	case errors.As(err, &conflict):
		return set(exitConflict, "conflict", conflict.Name, conflict.Hint)
	case errors.As(err, &nofleet):
		return set(exitUnreachable, "no_fleet", "", "check the URL, or make a fleet there: fleetctl init")
	case errors.As(err, &unread):
		return set(exitFailed, "unreadable", strings.TrimPrefix(unread.Key, fleet.PrefixDesired), unreadableHint(unread))
	case errors.As(err, &store):
		return storeFailure(f, err, store.Hint)
	case errors.As(err, &agent):
		return storeFailure(f, err, agent.Hint)
	case errors.Is(err, context.DeadlineExceeded):
		f.Retryable = true
		return set(exitUnreachable, "unreachable", "", "")
	case errors.Is(err, context.Canceled):
		f.Message = "interrupted"
		return set(exitFailed, "interrupted", "", "")
	}
	return f
}

// storeFailure classifies what a bucket or an agent answered. What it does not
// know is "nothing is known": an error of a store says nothing about its objects.
func storeFailure(f failure, err error, hint string) failure {
	f.Hint = hint
	var agent *api.Error
	switch {
	case errors.As(err, &agent) && agent.Code == api.CodeFleetMember:
		f.Exit, f.Code = exitUsage, "fleet_member"
	case errors.As(err, &agent) && agent.Code == api.CodeNotFound:
		f.Exit, f.Code = exitNotFound, "not_found"
	case errors.Is(err, bucket.ErrDenied) || errors.Is(err, bucket.ErrCredentials):
		f.Exit, f.Code = exitCredentials, "credentials"
		if f.Hint == "" {
			f.Hint = "credentials come from the AWS chain: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, AWS_PROFILE, or an instance role"
		}
	case errors.Is(err, bucket.ErrInvalid):
		f.Exit, f.Code = exitUsage, "usage"
	case errors.Is(err, bucket.ErrCondition):
		f.Exit, f.Code, f.Retryable = exitConflict, "conflict", true
	default:
		f.Exit, f.Code, f.Retryable = exitUnreachable, "unreachable", true
	}
	return f
}

func unreadableHint(e *fleet.UnreadableError) string {
	switch {
	case fleet.Newer(e):
		return "upgrade fleetctl"
	case strings.HasPrefix(e.Key, fleet.PrefixDesired):
		return "write it anew with: fleetctl apply --replace-damaged …, or remove it with: fleetctl delete --replace-damaged NAME"
	}
	return ""
}

// report says what went wrong and returns the exit code.
func (a *app) report(root *cli.Command, err error) int {
	if err == nil {
		return exitOK
	}
	var own *codeError
	isOwn := errors.As(err, &own)
	if isOwn && own.err == nil {
		return own.code
	}
	var list manyErrors
	if !errors.As(err, &list) {
		list = manyErrors{err}
	}
	asJSON := wantsJSON(root)
	for _, err := range list {
		f := failureOf(err)
		if asJSON {
			a.reportJSON(f)
			continue
		}
		_, _ = fmt.Fprintf(a.stderr, "fleetctl: %s\n", safe(f.Message))
		if f.Hint != "" {
			_, _ = fmt.Fprintf(a.stderr, "  %s\n", safe(f.Hint))
		}
	}
	if isOwn {
		return own.code
	}
	return worstOf(list)
}

// worstOf is the exit code of an error, or of the worst of several.
func worstOf(err error) int {
	var list manyErrors
	if !errors.As(err, &list) {
		return failureOf(err).Exit
	}
	code := exitOK
	for _, err := range list {
		if exit := failureOf(err).Exit; worst[exit] > worst[code] {
			code = exit
		}
	}
	return code
}

func (a *app) reportJSON(f failure) {
	b, err := toJSON(map[string]any{"error": f}, false)
	if err == nil {
		_, err = a.stderr.Write(b)
	}
	if err != nil {
		_, _ = fmt.Fprintf(os.Stderr, "fleetctl: %s\n", safe(f.Message))
	}
}
