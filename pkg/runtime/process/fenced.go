//go:build linux

package process

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/barista-fleet/barista/pkg/reconcile"
	"github.com/barista-fleet/barista/pkg/runtime"
)

const (
	// DefaultKeepFenced is how long the working directory of a run whose name was
	// lost is kept: time for a person to look.
	DefaultKeepFenced = 24 * time.Hour
	// fencedLook is how often what was kept for long enough is looked for.
	fencedLook = time.Minute

	fencedDir  = "fenced"
	fencedFile = "kept.json"
	fencedWork = "work"
)

var _ reconcile.Keeper = (*Driver)(nil)

// Fenced is the working directory of a run whose name this node lost. Nothing resumes
// it: it is of another lineage than what runs under the name now.
type Fenced struct {
	Ref   runtime.Ref
	Path  string    // the working directory
	Since time.Time // wall clock
}

// Keep forgets a dead run as Remove does, and sets its working directory aside for
// Config.KeepFenced.
func (d *Driver) Keep(ctx context.Context, instance string) error {
	r, err := d.findStarted(ctx, instance)
	if errors.Is(err, reconcile.ErrNoInstance) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("keep: %w", err)
	}
	if !r.hasEnded() {
		return fmt.Errorf("keep %s: %w", instance, ErrAlive)
	}
	if d.cfg.KeepFenced > 0 {
		r.mu.Lock()
		ref := r.ref
		r.mu.Unlock()
		// A disk that has no room for it must not keep the name's new owner waiting.
		if err := d.setAside(ref); err != nil {
			d.log.Warn("the working directory of a fenced run cannot be kept", "instance", instance, "error", err)
		}
	}
	return d.Remove(ctx, instance)
}

func (d *Driver) setAside(ref runtime.Ref) error {
	top := filepath.Join(d.cfg.Dir, fencedDir, ref.Instance)
	if err := os.MkdirAll(top, 0o700); err != nil {
		return err
	}
	body, err := json.Marshal(Fenced{Ref: ref, Since: time.Now().UTC()})
	if err != nil {
		return err
	}
	// Who it was, before what it left: without that it would never be collected.
	if err := os.WriteFile(filepath.Join(top, fencedFile), body, 0o600); err != nil {
		return err
	}
	err = os.Rename(d.workDir(ref.Instance), filepath.Join(top, fencedWork))
	if errors.Is(err, os.ErrNotExist) {
		return nil // set aside by a removal that was interrupted
	}
	return err
}

// Fenced lists what is kept, the oldest first.
func (d *Driver) Fenced() ([]Fenced, error) {
	entries, err := os.ReadDir(filepath.Join(d.cfg.Dir, fencedDir))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var out []Fenced
	for _, e := range entries {
		top := filepath.Join(d.cfg.Dir, fencedDir, e.Name())
		var f Fenced
		body, err := os.ReadFile(filepath.Join(top, fencedFile))
		if err == nil {
			err = json.Unmarshal(body, &f)
		}
		if err != nil { // damaged: its directory says how old it is
			info, serr := e.Info()
			if serr != nil {
				continue // collected at this moment
			}
			f = Fenced{Since: info.ModTime()}
		}
		f.Ref.Instance, f.Path = e.Name(), filepath.Join(top, fencedWork)
		out = append(out, f)
	}
	slices.SortFunc(out, func(a, b Fenced) int { return a.Since.Compare(b.Since) })
	return out, nil
}

// collectFenced removes what was kept for long enough at now.
func (d *Driver) collectFenced(now time.Time) {
	all, err := d.Fenced()
	if err != nil {
		d.log.Warn("cannot list what is kept of fenced runs", "error", err)
		return
	}
	for _, f := range all {
		if now.Sub(f.Since) < d.cfg.KeepFenced {
			continue
		}
		if err := os.RemoveAll(filepath.Dir(f.Path)); err != nil {
			d.log.Warn("cannot remove what was kept of a fenced run", "path", f.Path, "error", err)
		}
	}
}

// watchFenced collects until the driver is closed.
func (d *Driver) watchFenced() {
	t := time.NewTicker(fencedLook)
	defer t.Stop()
	for {
		d.collectFenced(time.Now())
		select {
		case <-t.C:
		case <-d.ctx.Done():
			return
		}
	}
}
