package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/barista-fleet/barista/internal/bucket"
	"github.com/barista-fleet/barista/pkg/fleet"
)

// What a wait can be for.
const (
	waitRunning = "running"
	waitExited  = "exited"
	waitPaused  = "paused"
	waitStopped = "stopped"
	waitDeleted = "deleted"
)

func (a *app) waitCommand() *cli.Command {
	const verb = "wait"
	return &cli.Command{
		Name: verb, Category: "names", Usage: "wait until a name stands where it should", ArgsUsage: "NAME",
		Description: "Waits for a session to run and for a job to end, unless --for says otherwise.\n" +
			"It ends early, with an error, when that cannot happen any more without a new command.",
		Flags: []cli.Flag{
			stringFlag(verb, "for", "`phase=running|exited|paused|stopped|deleted`"),
			&cli.StringFlag{Name: "timeout", Usage: "give up after this `DURATION` with exit code 6 (default: never)", Sources: envOf(verb, "timeout")},
			&cli.DurationFlag{Name: "interval", Value: 500 * time.Millisecond, Usage: "how often to look", Sources: envOf(verb, "interval")},
			boolFlag(verb, "exit-code", "wait for the end and exit with the workload's own code; errors of the wait itself are 120 to 127"),
		},
		Action: a.wait, ShellComplete: a.completeNames(1),
	}
}

func (a *app) wait(ctx context.Context, cmd *cli.Command) error {
	code, err := a.waitFor(ctx, cmd)
	if !cmd.Bool("exit-code") {
		return err
	}
	if err != nil {
		return &codeError{code: 120 + failureOf(err).Exit%8, err: err} // 8, held, becomes 120
	}
	if code != 0 {
		return &codeError{code: code}
	}
	return nil
}

// waitFor waits, and returns the workload's exit code where it has one.
func (a *app) waitFor(ctx context.Context, cmd *cli.Command) (code int, err error) {
	out, err := formatOf(cmd)
	if err != nil {
		return 0, err
	}
	names, err := a.names(cmd, 1, 1)
	if err != nil {
		return 0, err
	}
	goal, err := goalOf(cmd)
	if err != nil {
		return 0, err
	}
	outer := ctx
	if s := cmd.String("timeout"); s != "" {
		ms, err := fleet.ParseMillis(s)
		if err != nil {
			return 0, usagef("", "--timeout: %v", err)
		}
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(ms)*time.Millisecond)
		defer cancel()
	}
	c, err := a.client(ctx, cmd)
	if err != nil {
		return 0, err
	}
	name := names[0]
	for {
		v, err := c.Get(ctx, name)
		done, giveUp := false, error(nil)
		switch {
		case err != nil && ctx.Err() != nil && outer.Err() == nil:
			return 0, waitedTooLong(cmd, name, goal, nil)
		case transient(err):
			// An outage ends a wait no more than it ends a workload.
			a.logger(cmd).Debug("cannot look; trying again", "err", err)
		default:
			done, giveUp = reached(v, err, name, &goal)
		}
		if giveUp != nil {
			return 0, giveUp
		}
		if done {
			return exitCodeOf(v), a.waited(out, name, goal, v)
		}
		select {
		case <-outer.Done():
			return 0, outer.Err()
		case <-ctx.Done():
			return 0, waitedTooLong(cmd, name, goal, v)
		case <-time.After(max(cmd.Duration("interval"), minInterval)):
		}
	}
}

func goalOf(cmd *cli.Command) (string, error) {
	goal := strings.TrimPrefix(strings.ToLower(cmd.String("for")), "phase=")
	switch goal {
	case "":
		if cmd.Bool("exit-code") {
			return waitExited, nil
		}
		return "", nil // decided by kind, once the name was read
	case "completed", "done":
		return waitExited, nil
	case waitRunning, waitExited, waitPaused, waitStopped, waitDeleted:
		return goal, nil
	}
	return "", usagef("use --for phase=running, exited, paused, stopped or deleted", "cannot wait for %q", goal)
}

func transient(err error) bool {
	return err != nil && (errors.Is(err, bucket.ErrUnreachable) || errors.Is(err, bucket.ErrThrottled) || errors.Is(err, context.DeadlineExceeded))
}

// reached judges one look. giveUp is why the goal cannot be reached any more.
func reached(v *fleet.View, err error, name string, goal *string) (done bool, giveUp error) {
	if _, ok := errors.AsType[*fleet.NotFoundError](err); ok {
		if *goal == waitDeleted {
			return true, nil
		}
		return false, err
	}
	if err != nil {
		return false, err
	}
	if *goal == "" {
		*goal = waitRunning
		if v.Desired != nil && v.Desired.Spec.Kind == fleet.KindJob {
			*goal = waitExited
		}
	}
	if v.DesiredErr != nil {
		return false, v.DesiredErr
	}
	if v.SessionErr != nil {
		return false, v.SessionErr
	}
	status := v.Status()
	ended := v.Session != nil && v.Session.Phase.Done() && status != fleet.StatusPending
	switch *goal {
	case waitRunning:
		done = status == fleet.StatusRunning
	case waitPaused:
		done = status == fleet.StatusPaused
	case waitStopped:
		done = status == fleet.StatusStopped
	case waitExited:
		done = ended || status == fleet.StatusStopped
	}
	if done {
		return true, nil
	}
	switch {
	case *goal == waitDeleted:
		return false, nil
	case status == fleet.StatusHeld:
		e := fleet.Explain(v, nil)
		return false, &fleet.RefusedError{Op: "wait", Name: name, Held: true, Message: e.Reason, Hint: e.Next}
	case status == fleet.StatusDeleting:
		return false, &fleet.NotFoundError{What: "name", Name: name, Hint: "it was deleted while it was waited for"}
	case ended:
		return false, &failedError{message: fmt.Sprintf("wait %s: it has ended (%s) and will not be %s", name, strings.ToLower(string(status)), *goal), hint: "fleetctl describe " + name}
	}
	return false, nil
}

func waitedTooLong(cmd *cli.Command, name, goal string, v *fleet.View) error {
	e := &timeoutError{message: fmt.Sprintf("wait %s: not %s within %s", name, goal, cmd.String("timeout")), hint: "fleetctl describe " + name}
	if goal == "" {
		e.message = fmt.Sprintf("wait %s: nothing could be read within %s", name, cmd.String("timeout"))
	}
	if v != nil {
		e.message += ": it is " + string(v.Status())
	}
	return e
}

func exitCodeOf(v *fleet.View) int {
	if v == nil || v.Session == nil || v.Session.Exit == nil {
		return 0
	}
	e := v.Session.Exit
	switch {
	case e.Lost:
		return exitFailed
	case e.Signal > 0 && e.Code == 0:
		return 128 + e.Signal
	}
	return e.Code
}

func (a *app) waited(out format, name, goal string, v *fleet.View) error {
	j := nameJSON{Name: name, Status: "gone", Claim: string(fleet.ClaimNone)}
	if v != nil {
		j = newNameJSON(v)
	}
	if done, err := a.emit(out, struct {
		Version int `json:"version"`
		nameJSON
	}{contract, j}); done {
		return err
	}
	if out == formatName {
		return a.line("%s", name)
	}
	if goal == waitDeleted {
		return a.line("%s is gone", name)
	}
	if v.Session != nil && v.Session.Exit != nil && v.Session.Phase.Done() {
		return a.line("%s is %s (exit code %d)", name, v.Status(), exitCodeOf(v))
	}
	return a.line("%s is %s", name, v.Status())
}
