// Command fleetctl is the operator's side of a fleet: it writes what should run
// into the bucket, and reads what the bucket says of itself. It never talks to
// a node, so it works where no node does.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args, os.Stdin, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}
