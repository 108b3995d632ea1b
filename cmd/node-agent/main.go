// Command node-agent makes a machine a node: it claims names from the fleet's
// bucket, or owns them all where there is none, and runs them.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

// version is set by the linker.
var version = "dev"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends a drain that takes too long
	if err := command().Run(ctx, os.Args); err != nil {
		if exit, ok := errors.AsType[*exitError](err); ok {
			if exit.err != nil {
				fmt.Fprintln(os.Stderr, "node-agent:", exit.err)
			}
			stop()
			os.Exit(exit.code)
		}
		fmt.Fprintln(os.Stderr, "node-agent:", err)
		stop()
		os.Exit(1)
	}
}

// exitError chooses the exit status.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string { return fmt.Sprint(e.err) }
func (e *exitError) Unwrap() error { return e.err }

func usageError(err error) error { return &exitError{code: 2, err: err} }
