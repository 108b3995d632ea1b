//go:build linux

package process

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/barista-fleet/barista/pkg/reconcile"
	"github.com/barista-fleet/barista/pkg/runtime"
	"github.com/barista-fleet/barista/pkg/runtime/proctree"
)

var (
	_ reconcile.Runtime   = (*Driver)(nil)
	_ reconcile.LogReader = (*Driver)(nil)
)

// Errors of this driver, beside those of package reconcile.
var (
	// ErrEnded: what was asked needs a run that has not ended.
	ErrEnded = errors.New("the run has ended")
	// ErrAlive: what was asked needs a run that has ended.
	ErrAlive = errors.New("the run has not ended")
	// ErrClosed: the driver was closed.
	ErrClosed = errors.New("the driver is closed")
)

// Driver runs workloads as processes. It is safe for concurrent use.
type Driver struct {
	cfg    Config
	log    *slog.Logger
	host   host // what this machine has; see probe.go
	notify *notifier

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu       sync.Mutex
	closed   bool                  // guarded by mu
	runs     map[string]*run       // by instance; guarded by mu
	watchers map[*watcher]struct{} // guarded by mu
	removed  int                   // runs removed so far; guarded by mu
}

// New returns a driver over cfg.Dir, having tried what this machine can do and
// found every run that is there.
func New(cfg Config) (*Driver, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	d := &Driver{
		cfg: cfg, log: cfg.Logger,
		runs: make(map[string]*run), watchers: make(map[*watcher]struct{}),
	}
	if err := d.makeDirs(); err != nil {
		return nil, fmt.Errorf("process runtime: %w", err)
	}
	if d.notify, err = newNotifier(); err != nil {
		return nil, fmt.Errorf("process runtime: %w", err)
	}
	d.ctx, d.cancel = context.WithCancel(context.Background())
	if err := d.probe(); err != nil {
		d.Close()
		return nil, fmt.Errorf("process runtime: %w", err)
	}
	d.sweep()
	if err := d.scan(); err != nil {
		d.Close()
		return nil, fmt.Errorf("process runtime: %w", err)
	}
	d.wg.Go(d.watchFenced)
	return d, nil
}

// Close forgets every run and leaves it alone. It returns when nothing of the
// driver runs any more.
func (d *Driver) Close() error {
	d.mu.Lock()
	d.closed = true
	d.mu.Unlock()
	d.cancel()
	d.wg.Wait()
	d.dropGroups()
	d.notify.close()
	return nil
}

func (d *Driver) makeDirs() error {
	// Others may pass through the top to what is theirs, and list nothing.
	modes := map[string]fs.FileMode{"": 0o711, "runs": 0o700, "logs": 0o700, "share": 0o711, "work": 0o711}
	for _, name := range []string{"", "runs", "logs", "share", "work"} {
		path := filepath.Join(d.cfg.Dir, name)
		if err := os.MkdirAll(path, modes[name]); err != nil {
			return err
		}
		if err := os.Chmod(path, modes[name]); err != nil {
			return err
		}
	}
	return nil
}

func (d *Driver) runDir(instance string) string { return filepath.Join(d.cfg.Dir, "runs", instance) }

func (d *Driver) shareDir(instance string) string { return filepath.Join(d.cfg.Dir, "share", instance) }

func (d *Driver) workDir(instance string) string { return filepath.Join(d.cfg.Dir, "work", instance) }

// group returns the cgroup that a run of this driver has, if it has one.
func (d *Driver) group(instance string) proctree.Group {
	if d.host.parent == "" {
		return ""
	}
	return proctree.Group(filepath.Join(string(d.host.parent), instance))
}

// dirHash tells the groups of several drivers on one machine apart.
func dirHash(dir string) string {
	sum := sha256.Sum256([]byte(dir))
	return "d-" + hex.EncodeToString(sum[:6])
}

// checkInstance refuses what cannot be a file name of ours.
func checkInstance(instance string) error {
	if instance == "" || len(instance) > 128 || strings.ContainsAny(instance, "/\x00") || instance[0] == '.' {
		return fmt.Errorf("bad instance id %q", instance)
	}
	return nil
}

// List returns every run of this directory.
func (d *Driver) List(ctx context.Context) ([]runtime.Workload, error) {
	if err := d.scan(); err != nil {
		return nil, err
	}
	d.mu.Lock()
	runs := make([]*run, 0, len(d.runs))
	for _, r := range d.runs {
		runs = append(runs, r)
	}
	d.mu.Unlock()
	slices.SortFunc(runs, func(a, b *run) int { return strings.Compare(a.instance, b.instance) })
	list := make([]runtime.Workload, 0, len(runs))
	for _, r := range runs {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		list = append(list, d.workload(r))
	}
	return list, nil
}

// scan takes in the runs on disk that are not known yet: at the start all of
// them, later those that another driver object started.
func (d *Driver) scan() error {
	entries, err := os.ReadDir(filepath.Join(d.cfg.Dir, "runs"))
	if err != nil {
		return fmt.Errorf("list runs: %w", err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return ErrClosed
	}
	for _, e := range entries {
		if e.IsDir() && checkInstance(e.Name()) == nil && d.runs[e.Name()] == nil {
			d.adoptLocked(e.Name())
		}
	}
	return nil
}

// find returns a run by its id, also one that another driver object started.
func (d *Driver) find(instance string) (*run, error) {
	if err := checkInstance(instance); err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, ErrClosed
	}
	if r := d.runs[instance]; r != nil {
		return r, nil
	}
	if r := d.adoptLocked(instance); r != nil {
		return r, nil
	}
	return nil, fmt.Errorf("run %s: %w", instance, reconcile.ErrNoInstance)
}

// findStarted is find, and waits until the run's start has been decided.
func (d *Driver) findStarted(ctx context.Context, instance string) (*run, error) {
	r, err := d.find(instance)
	if err != nil {
		return nil, err
	}
	select {
	case <-r.started:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if r.startErr != nil {
		return nil, fmt.Errorf("run %s: %w: its start failed: %w", instance, reconcile.ErrNoInstance, r.startErr)
	}
	return r, nil
}

// sweep removes what an agent that was killed left half made or half removed.
func (d *Driver) sweep() {
	for _, sub := range []string{"runs", "share", "work"} {
		entries, err := os.ReadDir(filepath.Join(d.cfg.Dir, sub))
		if err != nil {
			d.log.Warn("cannot sweep state directory", "dir", sub, "error", err)
			continue
		}
		for _, e := range entries {
			path := filepath.Join(d.cfg.Dir, sub, e.Name())
			switch {
			case e.Name()[0] != '.':
				continue
			case sub == "runs" && shimAlive(path):
				continue // another agent is making it at this moment
			}
			if err := os.RemoveAll(path); err != nil {
				d.log.Warn("cannot sweep state directory", "path", path, "error", err)
			}
		}
	}
}
