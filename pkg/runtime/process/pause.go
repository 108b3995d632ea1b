//go:build linux

package process

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/barista-fleet/barista/pkg/runtime/proctree"
	"github.com/barista-fleet/barista/pkg/runtime/shim"
)

// alive returns the run, locked for a change, if it has not ended.
func (d *Driver) alive(ctx context.Context, instance string) (*run, error) {
	r, err := d.findStarted(ctx, instance)
	if err != nil {
		return nil, err
	}
	if err := r.lock(ctx); err != nil {
		return nil, err
	}
	if r.hasEnded() {
		r.unlock()
		return nil, fmt.Errorf("run %s: %w", instance, ErrEnded)
	}
	return r, nil
}

// Pause keeps every process of a run from running: frozen by its cgroup, or
// stopped one by one where there is none.
func (d *Driver) Pause(ctx context.Context, instance string) (kind string, err error) {
	r, err := d.alive(ctx, instance)
	if err != nil {
		return "", fmt.Errorf("pause: %w", err)
	}
	defer r.unlock()
	if g := r.group(); g != "" {
		kind, err = PauseFrozen, d.freeze(ctx, g)
	} else {
		kind, err = PauseStoppedTree, stopTree(ctx, r)
	}
	if err != nil {
		return "", fmt.Errorf("pause %s: %w", instance, err)
	}
	return kind, nil
}

// freeze freezes a group, or leaves it as it was.
func (d *Driver) freeze(ctx context.Context, g proctree.Group) error {
	was := g.FreezeAsked()
	if err := g.SetFrozen(true); err != nil {
		return err
	}
	wctx, cancel := context.WithTimeout(ctx, pauseTimeout)
	defer cancel()
	err := d.waitGroup(wctx, g, func(e proctree.Events) bool { return e.Frozen || !e.Populated })
	if err == nil {
		ev, everr := g.Events()
		switch {
		case everr != nil:
			return everr
		case !ev.Populated:
			return ErrEnded
		}
		return nil
	}
	if was {
		return err
	}
	if terr := g.SetFrozen(false); terr != nil {
		err = errors.Join(err, terr)
	}
	return fmt.Errorf("not frozen: %w", err)
}

// stopTree stops a run's processes one by one, or leaves them running. The
// mark comes first: a run that is stopped halfway is one that can be resumed.
func stopTree(ctx context.Context, r *run) error {
	mark := filepath.Join(r.dir, filePaused)
	if err := os.WriteFile(mark, nil, 0o600); err != nil {
		return err
	}
	wctx, cancel := context.WithTimeout(ctx, pauseTimeout)
	defer cancel()
	if err := r.tree().Stop(wctx); err != nil {
		return errors.Join(err, r.tree().Continue(), os.Remove(mark))
	}
	return nil
}

// Resume undoes Pause.
func (d *Driver) Resume(ctx context.Context, instance string) error {
	r, err := d.alive(ctx, instance)
	if err != nil {
		return fmt.Errorf("resume: %w", err)
	}
	defer r.unlock()
	if g := r.group(); g != "" {
		err = d.thaw(ctx, g)
	} else {
		err = continueTree(r)
	}
	if err != nil {
		return fmt.Errorf("resume %s: %w", instance, err)
	}
	return nil
}

func (d *Driver) thaw(ctx context.Context, g proctree.Group) error {
	if err := g.SetFrozen(false); err != nil {
		return err
	}
	wctx, cancel := context.WithTimeout(ctx, pauseTimeout)
	defer cancel()
	return d.waitGroup(wctx, g, func(e proctree.Events) bool { return !e.Frozen })
}

// continueTree only acts on a run that Pause has stopped: a process that
// stopped itself is none of our business.
func continueTree(r *run) error {
	mark := filepath.Join(r.dir, filePaused)
	if _, err := os.Stat(mark); err != nil {
		return nil
	}
	if err := r.tree().Continue(); err != nil {
		return err
	}
	return os.Remove(mark)
}

// SetEpoch gives a run a higher fencing token: first the file that the
// workload reads, then the record of who the run is.
func (d *Driver) SetEpoch(ctx context.Context, instance string, epoch, incarnation uint64) error {
	r, err := d.findStarted(ctx, instance)
	if err != nil {
		return fmt.Errorf("set epoch: %w", err)
	}
	if err := r.lock(ctx); err != nil {
		return err
	}
	defer r.unlock()
	r.mu.Lock()
	ref := r.ref
	r.mu.Unlock()
	if epoch < ref.Epoch {
		return fmt.Errorf("set epoch of %s: %d is below its epoch %d, and epochs never go back", instance, epoch, ref.Epoch)
	}
	ref.Epoch, ref.Incarnation = epoch, incarnation
	b, err := json.Marshal(ref)
	if err != nil {
		return err
	}
	gid := os.Getegid()
	if l, err := shim.ReadLaunch(r.dir); err == nil && l.SetUser {
		gid = int(l.GID)
	}
	if err := shim.Replace(filepath.Join(d.shareDir(instance), fileEpoch), epochText(epoch), sharedMode, gid); err != nil {
		return fmt.Errorf("set epoch of %s: %w", instance, err)
	}
	if err := shim.Replace(filepath.Join(r.dir, shim.FileRef), b, 0o600, -1); err != nil {
		return fmt.Errorf("set epoch of %s: %w", instance, err)
	}
	r.mu.Lock()
	r.ref = ref
	r.mu.Unlock()
	return nil
}
