package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/barista-fleet/barista/internal/api"
	"github.com/barista-fleet/barista/internal/bucket"
	"github.com/barista-fleet/barista/internal/bucket/bucketurl"
	"github.com/barista-fleet/barista/internal/localstore"
	"github.com/barista-fleet/barista/pkg/fleet"
	"github.com/barista-fleet/barista/pkg/journal"
	"github.com/barista-fleet/barista/pkg/lease"
	"github.com/barista-fleet/barista/pkg/reconcile"
	"github.com/barista-fleet/barista/pkg/runtime"
	"github.com/barista-fleet/barista/pkg/runtime/leasefile"
	"github.com/barista-fleet/barista/pkg/runtime/process"
)

// noDeadline is the context of journal waits: a submitted batch is always
// finished, one way or the other, before the journal closes.
var noDeadline = context.Background()

// Config is what an operator chooses. The zero value of a field is its default.
type Config struct {
	DataDir     string
	NodeName    string // default: the host's name
	FleetBucket string // a bucket URL; empty: this machine stands alone
	Advertise   string // published as given; no port is opened for it
	Runtime     string // auto or process
	Labels      map[string]string
	Slots       map[string]int // job slots by size
	MaxSessions int
	TTL         time.Duration
	Renew       time.Duration
	Poll        time.Duration
	APIGroup    string // the group that may use the socket
	ShimPath    string // default: node-shim beside the running program
	Cgroup      string // parent of the workloads' cgroups; see process.Config
	Version     string
	// KeepFenced is how long the working directory of a run is kept whose name was
	// lost; 0: not at all.
	KeepFenced  time.Duration
	MetricsAddr string // HOST:PORT to serve metrics on; empty: nowhere
	Log         *slog.Logger

	// AllowUnproven uses a bucket that failed its probe.
	AllowUnproven bool
	// DrainOnExit gives the names up before Run returns, instead of leaving the
	// workloads running.
	DrainOnExit bool
	drain       drainMode

	// NoGuard leaves the guard out. It is a test's way to show what the guard is for.
	NoGuard bool
	// WallShift moves the wall clock, and only it. It is a test's way to show
	// that no decision about ownership depends on it.
	WallShift time.Duration
}

type drainMode uint8

const (
	drainNever drainMode = iota
	drainAtExit
	drainAtStart
)

// Bounds and defaults of a node.
const (
	runDirName    = "runs"
	defaultCallIn = 3 * time.Second
)

func (c Config) withDefaults() (Config, error) {
	if c.DataDir == "" {
		return c, errors.New("no data directory: give --data-dir DIR (or BARISTA_DATA_DIR)")
	}
	abs, err := filepath.Abs(c.DataDir)
	if err != nil {
		return c, fmt.Errorf("data directory: %w", err)
	}
	c.DataDir = abs
	if c.NodeName == "" && c.drain != drainAtStart { // who leaves keeps the name it had
		if c.NodeName, err = os.Hostname(); err != nil {
			return c, fmt.Errorf("no node name: %w; give --node-name", err)
		}
	}
	if c.Poll == 0 {
		c.Poll = reconcile.DefaultPoll
	}
	if c.TTL == 0 {
		c.TTL = lease.DefaultTTL
	}
	if c.MaxSessions == 0 {
		c.MaxSessions = reconcile.DefaultMaxSessions
	}
	if c.DrainOnExit && c.drain == drainNever {
		c.drain = drainAtExit
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	switch c.Runtime {
	case "", "auto", "process":
	default:
		return c, fmt.Errorf("runtime %q is not one of this build's: auto, process", c.Runtime)
	}
	return c, nil
}

// Agent is one running node.
type Agent struct {
	cfg    Config
	log    *slog.Logger
	j      *journal.Journal
	opened journal.Opened
	book   *book
	store  bucket.Store
	meter  *bucket.Meter     // nil without a bucket
	local  *localstore.Store // nil in a fleet
	driver *process.Driver
	loop   *reconcile.Loop
	keeper guardKeeper
	kept   *keptLogs

	numbers *numbers

	lastBucket string // the bucket that the data directory was last used with
}

// Run runs a node until ctx ends, the node leaves its fleet, or something is
// wrong that trying again cannot mend. Workloads outlive it.
func Run(ctx context.Context, cfg Config) (err error) {
	cfg, err = cfg.withDefaults()
	if err != nil {
		return err
	}
	if _, err := api.SocketPath(cfg.DataDir); err != nil {
		return err
	}
	j, opened, err := journal.Open(cfg.DataDir, journal.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, j.Close()) }()
	a := &Agent{cfg: cfg, log: cfg.Log, j: j, opened: opened}
	a.keeper.a = a
	a.numbers = newNumbers(a.Status)
	start, err := a.open(ctx)
	if err != nil {
		return err
	}
	listener, err := api.Listen(j, cfg.APIGroup)
	if err != nil {
		return err
	}
	if cfg.MetricsAddr != "" && cfg.drain != drainAtStart {
		wait, err := a.serveNumbers(context.WithoutCancel(ctx), cfg.MetricsAddr)
		if err != nil {
			return errors.Join(err, listener.Close())
		}
		defer func() { err = errors.Join(err, wait()) }()
	}
	apiCfg := api.Config{Fleet: cfg.FleetBucket, Logger: a.log}
	if a.local != nil {
		apiCfg.Store = a.local
	}
	actx, stop := context.WithCancel(context.WithoutCancel(ctx))
	served := make(chan error, 1)
	go func() { served <- api.NewServer(a, apiCfg).Serve(actx, listener) }()
	a.log.Info("started", "node", cfg.NodeName, "node_id", a.book.id.NodeID, "store", a.store.Description(), "data_dir", cfg.DataDir, "runtime", a.driver.Info().Driver)
	err = a.runLoop(ctx, start)
	stop()
	serr := <-served
	var fatal *reconcile.FatalError
	switch {
	case errors.As(err, &fatal):
		return errors.Join(a.explain(fatal), serr)
	case errors.Is(err, reconcile.ErrLeft):
		a.log.Info("drained: nothing runs here and no name is held", "node", cfg.NodeName)
		return serr
	case ctx.Err() != nil:
		a.log.Info("stopped; workloads go on", "node", cfg.NodeName)
		return serr
	}
	return errors.Join(err, serr)
}

// runLoop runs the loop and, beside it, what moves events to the bucket. A drain
// outlives ctx: it ends when the node has left, or by a second signal.
func (a *Agent) runLoop(ctx context.Context, start reconcile.Start) error {
	lctx, end := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := func() { end(nil) }
	defer stop()
	// What cannot be journaled must not be begun, and what was begun must not be
	// forgotten: the next start decides what can be kept of the file.
	a.book.broken = func(err error) { end(fmt.Errorf("the journal is broken; a restart repairs it: %w", err)) }
	u := &uploader{a: a}
	var wg sync.WaitGroup
	defer wg.Wait()
	defer stop()
	wg.Go(func() {
		if a.cfg.drain == drainAtStart {
			a.loop.Input(lctx, reconcile.Drain{On: true, Leave: true})
		}
		select {
		case <-ctx.Done():
		case <-lctx.Done(): // the loop has ended by itself
			return
		}
		if a.cfg.drain != drainAtExit {
			stop()
			return
		}
		a.log.Info("draining before the end", "node", a.cfg.NodeName)
		a.loop.Input(lctx, reconcile.Drain{On: true, Leave: true})
	})
	if a.local == nil {
		wg.Go(func() { u.run(lctx) })
		wg.Go(func() { a.kept.run(lctx) })
		a.guard(lctx, &wg)
	}
	err := a.loop.Run(lctx, start)
	stop()
	wg.Wait()
	if errors.Is(err, reconcile.ErrLeft) && a.local == nil {
		// Nobody comes back here to tell it.
		lastCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastUpload)
		defer cancel()
		if uerr := errors.Join(u.last(lastCtx), a.kept.flush(lastCtx)); uerr != nil {
			a.log.Warn("the last events or outputs were not uploaded", "err", uerr)
		}
	}
	return err
}

// guard begins to keep a guard. Before one stands, nothing that needs one starts.
func (a *Agent) guard(ctx context.Context, wg *sync.WaitGroup) {
	if a.cfg.NoGuard {
		a.log.Warn("runs without a guard: a stopped agent's workloads can outlive its lease")
		return
	}
	a.loop.Input(ctx, reconcile.Guard{Missing: true})
	wg.Go(func() { a.keeper.run(ctx) })
}

// explain names the buckets in the words of the command line.
func (a *Agent) explain(fatal *reconcile.FatalError) error {
	was := a.lastBucket
	if was != "" && was != a.cfg.FleetBucket {
		return fmt.Errorf("%w (the data directory was last used with %s, now with %s)", fatal, was, a.cfg.FleetBucket)
	}
	return fatal
}

// open brings together what a start needs, in the order that a start needs it:
// the runtime is asked what runs before anything is decided.
func (a *Agent) open(ctx context.Context) (reconcile.Start, error) {
	var start reconcile.Start
	a.reportDamage()
	state, err := a.j.Load()
	if err != nil {
		return start, err
	}
	dirID, err := journal.DirID(a.cfg.DataDir)
	if err != nil {
		return start, err
	}
	driver, runs, err := a.openDriver(ctx, state)
	if err != nil {
		return start, err
	}
	a.driver = driver
	id, suspicious := identify(state.Identity, runs, thisPlace(dirID))
	if err := a.checkFleet(id); err != nil {
		return start, err
	}
	if suspicious {
		a.log.Warn("the machine, the boot or the data directory is another than the journal's: this node first watches whether someone else lives under its identity")
	}
	life := fleet.NewNonce()
	if a.cfg.NodeName == "" {
		if a.cfg.NodeName = id.NodeName; a.cfg.NodeName == "" {
			a.cfg.NodeName = id.NodeID
		}
	}
	a.lastBucket, id.Driver, id.NodeName = id.Bucket, driver.Info().Driver, a.cfg.NodeName
	if id.FleetID == "" {
		id.Bucket = a.cfg.FleetBucket
	}
	writer := id.Writer
	if suspicious && state.Identity != nil {
		writer = fleet.NewNonce()
	}
	a.book = &book{j: a.j, id: id, here: thisPlace(dirID), node: id.NodeID, name: a.cfg.NodeName, life: life, wall: a.wall}
	if err := a.dropOldOps(state.Ops); err != nil {
		return start, err
	}
	if err := a.book.saveID()(); err != nil {
		return start, err
	}
	// Journaled with the next identity, which is after the bucket has shown that
	// it holds this directory's fleet.
	a.book.id.Bucket = a.cfg.FleetBucket
	if err := a.openStore(ctx); err != nil {
		return start, err
	}
	if err := a.prove(ctx, id.FleetID != ""); err != nil {
		return start, err
	}
	if err := a.openLoop(id.NodeID, writer, life); err != nil {
		return start, err
	}
	last := readLease(a.cfg.DataDir)
	return reconcile.Start{
		Identity: a.book.leaseIdentity(), FleetID: id.FleetID, NewFleetID: "f-" + fleet.NewUID()[:16],
		Suspicious: suspicious, Owned: decodeOwned(state.Owned), Runs: runs, Epochs: state.Seen,
		Confirmed: lease.Instant(last.Confirmed), KillAt: lease.Instant(last.KillAt),
	}, nil
}

func (a *Agent) reportDamage() {
	if q := a.opened.Quarantined; q != nil {
		a.log.Error("the journal could not be trusted and was set aside; what runs here is adopted by its labels", "file", q.Path, "reason", q.Reason)
	}
	for _, d := range a.opened.Damaged {
		a.log.Error("a record of the journal was damaged and set aside", "bucket", d.Bucket, "key", d.Key, "reason", d.Reason)
	}
}

// openDriver opens the driver that the node uses. Auto never changes it once the
// journal has one, and never falls to no isolation by itself in a fleet that
// others reach over a network.
func (a *Agent) openDriver(ctx context.Context, state journal.State) (*process.Driver, []runtime.Workload, error) {
	if (a.cfg.Runtime == "" || a.cfg.Runtime == "auto") && a.cfg.FleetBucket != "" && !strings.HasPrefix(a.cfg.FleetBucket, "file:") &&
		(state.Identity == nil || state.Identity.Driver == "") {
		return nil, nil, errors.New("the process runtime does not isolate workloads, and whoever can write the bucket chooses them: " +
			"ask for it by name with --runtime process")
	}
	return a.newDriver(ctx)
}

// newDriver opens the process driver and asks it what runs here.
func (a *Agent) newDriver(ctx context.Context) (*process.Driver, []runtime.Workload, error) {
	driver, err := process.New(process.Config{
		Dir: filepath.Join(a.cfg.DataDir, runDirName), ShimPath: a.cfg.ShimPath, Logger: a.log, CgroupParent: a.cfg.Cgroup,
		LeaseFile: a.leaseFile(), KeepFenced: a.cfg.KeepFenced,
	})
	if err != nil {
		return nil, nil, err
	}
	runs, err := driver.List(ctx)
	return driver, runs, err
}

// leaseFile is where the lease is published; nowhere on a machine that stands alone.
func (a *Agent) leaseFile() string {
	if a.cfg.FleetBucket == "" {
		return ""
	}
	return filepath.Join(a.cfg.DataDir, leasefile.Name)
}

// checkFleet refuses a data directory of a fleet without a bucket, and one that
// already runs names of its own with one.
func (a *Agent) checkFleet(id journal.Identity) error {
	if id.FleetID != "" && a.cfg.FleetBucket == "" {
		return fmt.Errorf("data directory %s belongs to fleet %s (bucket %s) and no bucket is given: "+
			"give --fleet-bucket %s, or give the directory up with `node-agent leave --data-dir %s`",
			a.cfg.DataDir, id.FleetID, id.Bucket, id.Bucket, a.cfg.DataDir)
	}
	if id.FleetID == "" && a.cfg.FleetBucket != "" {
		own, err := a.j.ListObjects(fleet.PrefixDesired)
		if err != nil {
			return err
		}
		if len(own) > 0 {
			return fmt.Errorf("data directory %s holds %d names of a machine without a bucket: start it without --fleet-bucket, "+
				"`fleetctl export` its names and apply them to the fleet, and use a new data directory there", a.cfg.DataDir, len(own))
		}
	}
	return nil
}

// dropOldOps forgets the operations that the last life had in flight: what became
// of them is read from the runtime, not remembered.
func (a *Agent) dropOldOps(ops []journal.Op) error {
	if len(ops) == 0 {
		return nil
	}
	names := make([]string, 0, len(ops))
	for _, op := range ops {
		a.log.Info("an operation was in flight when the last agent ended; the runtime is asked what became of it", "name", op.Name, "op", op.Kind, "instance", op.Instance)
		names = append(names, op.Name)
	}
	return a.j.Commit(noDeadline, journal.Batch{Class: journal.Essential, DelOps: names})
}

func (a *Agent) wall() time.Time { return time.Now().Add(a.cfg.WallShift) }

func (a *Agent) openStore(ctx context.Context) error {
	if a.cfg.FleetBucket == "" {
		a.local = localstore.New(a.j, nil)
		a.store = a.local
		return a.introduce(ctx)
	}
	store, err := bucketurl.Open(ctx, a.cfg.FleetBucket)
	if err != nil {
		return err
	}
	a.meter = bucket.NewMeter(store)
	a.store = a.meter
	return nil
}

// introduce tells the local store of the one node there is, so that `fleetctl
// nodes`, cordon and drain find it. It is never renewed: nobody waits for it.
func (a *Agent) introduce(ctx context.Context) error {
	n := a.describe()
	n.Head = fleet.Head{Schema: fleet.Schema, Nonce: fleet.NewNonce()}
	n.ID, n.Name, n.Incarnation, n.State, n.TTLMillis = a.book.id.NodeID, a.cfg.NodeName, 1, fleet.NodeLive, a.cfg.TTL.Milliseconds()
	body, err := fleet.Encode(&n)
	if err != nil {
		return err
	}
	if r := a.local.Put(ctx, fleet.PrefixNodes+n.ID, body, bucket.Unconditional()); r.Outcome != bucket.Applied {
		return r.Err
	}
	return nil
}

// describe is what this node says of itself.
func (a *Agent) describe() fleet.Node {
	info := a.driver.Info()
	return fleet.Node{
		Endpoint: a.cfg.Advertise, Version: a.cfg.Version, Runtime: info.Driver, Capabilities: info.Capabilities, Labels: a.cfg.Labels,
		Capacity: fleet.Capacity{Slots: a.cfg.Slots, MaxSessions: a.cfg.MaxSessions},
	}
}

func (a *Agent) openLoop(nodeID, writer, life string) error {
	inFleet := a.cfg.FleetBucket != ""
	jobs := 0
	for _, n := range a.cfg.Slots {
		jobs += n
	}
	lcfg := lease.Config{NodeID: nodeID, NodeName: a.cfg.NodeName, Writer: writer, Life: life, TTL: a.cfg.TTL, Heartbeat: a.cfg.Renew}.WithDefaults()
	m, err := reconcile.New(reconcile.Config{
		Lease: lcfg, Fleet: inFleet, NodeID: nodeID, Name: a.cfg.NodeName,
		Poll: a.cfg.Poll, Resync: max(reconcile.DefaultResync, a.cfg.Poll),
		Describe: a.describe(), Labels: a.cfg.Labels, Runtime: a.driver.Info().Driver,
		JobSlots: jobs, MaxSessions: a.cfg.MaxSessions, MaxOps: reconcile.DefaultMaxOps, MaxClaims: reconcile.DefaultMaxClaims,
	})
	if err != nil {
		return err
	}
	a.kept = newKeptLogs(a.driver, a.driver, a.store, a.cfg.NodeName, a.log.Warn)
	a.loop = &reconcile.Loop{
		Machine: m, Store: a.store, Runtime: a.kept, Journal: a.book, Log: a.log,
		Call: min(lcfg.Call, defaultCallIn), Now: BootTime, Wall: a.wall,
		Told: a.numbers.told,
		Published: func(p reconcile.Publish) {
			if err := writeLease(a.cfg.DataDir, p); err != nil {
				a.log.Error("the lease could not be published", "err", err)
			}
		},
	}
	a.loop.Prepare()
	return nil
}
