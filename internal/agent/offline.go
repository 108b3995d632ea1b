package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/barista-fleet/barista/pkg/journal"
)

// StopAll ends every workload of a data directory whose agent is not running,
// and returns their names. It asks nobody: in a fleet the names stay this node's
// until its lease ends, and then move on.
func StopAll(ctx context.Context, cfg Config, grace time.Duration) (names []string, err error) {
	cfg, err = cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	j, opened, err := journal.Open(cfg.DataDir, journal.Options{})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, j.Close()) }()
	a := &Agent{cfg: cfg, log: cfg.Log, j: j, opened: opened}
	driver, runs, err := a.newDriver(ctx)
	if err != nil {
		return nil, err
	}
	for _, r := range runs {
		if r.State.Dead() {
			continue
		}
		if _, serr := driver.Stop(ctx, r.Instance, grace); serr != nil {
			err = errors.Join(err, fmt.Errorf("stop %s: %w", r.Name, serr))
			continue
		}
		names = append(names, r.Name)
	}
	return names, err
}

// Leave drains a node and takes it out of its fleet: its workloads end, its names
// are freed, its record says left. Then the data directory belongs to no fleet.
// With forget the bucket is not asked: that is for a bucket that is gone for
// good, and it is refused while workloads run.
func Leave(ctx context.Context, cfg Config, forget bool) (err error) {
	cfg.drain = drainAtStart
	cfg, err = cfg.withDefaults()
	if err != nil {
		return err
	}
	if !forget {
		if cfg.FleetBucket == "" {
			return errors.New("leave needs the bucket to free this node's names in: give --fleet-bucket, or --forget if that bucket is gone for good")
		}
		if err := Run(ctx, cfg); err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("interrupted before the node had left: %w", err)
		}
	}
	j, opened, err := journal.Open(cfg.DataDir, journal.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, j.Close()) }()
	a := &Agent{cfg: cfg, log: cfg.Log, j: j, opened: opened}
	_, runs, err := a.newDriver(ctx)
	if err != nil {
		return err
	}
	for _, r := range runs {
		if !r.State.Dead() {
			return fmt.Errorf("%s still runs here: end it first with `node-agent stop-all --data-dir %s`", r.Name, cfg.DataDir)
		}
	}
	return a.forget()
}

// forget clears what ties the data directory to a fleet. It keeps its node id:
// nothing of the old fleet is known to the next one.
func (a *Agent) forget() error {
	state, err := a.j.Load()
	if err != nil || state.Identity == nil {
		return err
	}
	id := *state.Identity
	id.FleetID, id.Bucket = "", ""
	batch := journal.Batch{Class: journal.Essential, Identity: &id}
	for _, o := range state.Owned {
		batch.DelOwned = append(batch.DelOwned, o.Name)
	}
	for name := range state.Seen {
		batch.Forget = append(batch.Forget, name)
	}
	return a.j.Commit(noDeadline, batch)
}
