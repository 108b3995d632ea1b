package reconcile

import (
	"context"
	"errors"
	"time"

	"github.com/barista-fleet/barista/pkg/runtime"
)

// Errors that a Runtime wraps, so that the reconciler can tell them apart.
var (
	// ErrNoInstance: the driver knows no such run.
	ErrNoInstance = errors.New("no such instance")
	// ErrUnsupported: this driver, or this host, cannot do it.
	ErrUnsupported = errors.New("not supported by this runtime")
	// ErrLapsed: the node's lease did not allow the start any more when it came
	// to it. Nothing was started, and it is no failure of the name's.
	ErrLapsed = errors.New("lease lapsed before the start")
	// ErrSpec: the spec itself can never start here (missing program, bad
	// digest, forbidden mount); trying again on this node is useless.
	ErrSpec = errors.New("spec cannot run here")
)

// Runtime runs workloads. Its methods are safe for concurrent use, and a run
// outlives the process that started it: after a restart List finds it again.
// Every method is idempotent by instance.
type Runtime interface {
	// Start begins a run and returns when its first process exists (or has
	// already ended). Started twice with one instance it returns the first
	// run. When it returns an error, nothing of the run is alive, unless the
	// error is the context's: then the instance must be asked for with List.
	Start(ctx context.Context, req runtime.StartRequest) (runtime.Workload, error)

	// Stop ends a run: SIGTERM, after grace SIGKILL, of every process it has.
	// It returns nil only when none of them is alive; the returned workload has
	// its exit. Stopping a dead run is no error. A paused run is not thawed to
	// be told: it is killed.
	Stop(ctx context.Context, instance string, grace time.Duration) (runtime.Workload, error)

	// Pause stops all processes of a run from running without ending them, and
	// says how. Pausing a paused run is no error.
	Pause(ctx context.Context, instance string) (kind string, err error)

	// Resume undoes Pause. Resuming a running run is no error.
	Resume(ctx context.Context, instance string) error

	// SetEpoch rewrites the run's fencing token file and its stored Ref, before
	// it returns. It never restarts anything.
	SetEpoch(ctx context.Context, instance string, epoch, incarnation uint64) error

	// List returns every run with this project's labels on this machine,
	// whoever started it, dead ones included until Remove.
	List(ctx context.Context) ([]runtime.Workload, error)

	// Remove forgets a dead run, except its logs. An unknown one is no error.
	Remove(ctx context.Context, instance string) error

	// Watch calls changed with each run that is dead when it begins, and then
	// with each that ends, until ctx ends: a run that ends between a List and the
	// Watch after it is not missed. Calls may repeat, and may be lost across
	// errors: List is the truth.
	Watch(ctx context.Context, changed func(runtime.Workload)) error

	// Info describes the driver: its name, its isolation, what it proved it
	// can do on this host.
	Info() runtime.Info
}

// Keeper is the part of a driver that keeps what a fenced run left behind.
type Keeper interface {
	// Keep forgets a dead run as Remove does, and keeps its working directory for
	// people to look at. It is never resumed.
	Keep(ctx context.Context, instance string) error
}

// LogReader is the part of a driver that serves logs.
type LogReader interface {
	// Logs writes the output of an instance (previous: of the run before it)
	// to w: the last tail lines (all if negative), and with follow what comes
	// until the run ends or ctx does.
	Logs(ctx context.Context, req runtime.LogRequest) error
}
