//go:build linux

package process

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/barista-fleet/barista/pkg/reconcile"
	"github.com/barista-fleet/barista/pkg/runtime"
	"github.com/barista-fleet/barista/pkg/runtime/proctree"
)

// Stop ends a run. SIGTERM goes to each of its processes; when the first one
// ends, or after grace, all that are left are killed. With no grace, and when
// the run is paused, they are killed at once. A second Stop with a shorter
// grace does not wait for the first.
func (d *Driver) Stop(ctx context.Context, instance string, grace time.Duration) (runtime.Workload, error) {
	r, err := d.findStarted(ctx, instance)
	if err != nil {
		return runtime.Workload{}, fmt.Errorf("stop: %w", err)
	}
	if !r.hasEnded() && grace > 0 && r.paused() == "" {
		if err := d.terminate(ctx, r, grace); err != nil {
			return runtime.Workload{}, fmt.Errorf("stop %s: %w", instance, err)
		}
	}
	if !r.hasEnded() {
		if err := d.kill(ctx, r); err != nil {
			return runtime.Workload{}, fmt.Errorf("stop %s: %w", instance, err)
		}
	}
	return d.workload(r), nil
}

// terminate asks a run to end and waits until it has, or grace has passed.
func (d *Driver) terminate(ctx context.Context, r *run, grace time.Duration) error {
	var err error
	if g := r.group(); g != "" {
		err = g.Signal(syscall.SIGTERM)
	} else {
		err = r.tree().Signal(syscall.SIGTERM)
	}
	if err != nil {
		d.log.Warn("cannot ask every process of a run to end", "instance", r.instance, "error", err)
	}
	t := time.NewTimer(grace)
	defer t.Stop()
	select {
	case <-r.ended:
	case <-t.C:
	case <-ctx.Done():
		return ctx.Err()
	case <-d.ctx.Done():
		return ErrClosed
	}
	return nil
}

// kill ends a run by force and waits until its end is recorded.
func (d *Driver) kill(ctx context.Context, r *run) error {
	if err := d.killAll(ctx, r); err != nil {
		return err
	}
	t := time.NewTimer(shimTimeout)
	defer t.Stop()
	select {
	case <-r.ended:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-d.ctx.Done():
		return ErrClosed
	case <-t.C:
	}
	// All its processes are dead, and its shim does not say so: somebody has
	// stopped it, or it hangs. Nothing is lost with it but the exit code.
	id := r.shimState().Shim
	if id.Pid == 0 {
		var err error
		if id, err = findShim(r.dir); err != nil {
			return err
		}
	}
	d.log.Warn("a node-shim does not record the end of its run: it is killed", "instance", r.instance, "pid", id.Pid)
	if err := id.Signal(syscall.SIGKILL); err != nil && !errors.Is(err, proctree.ErrGone) {
		return err
	}
	select {
	case <-r.ended:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-d.ctx.Done():
		return ErrClosed
	}
}

// findShim finds a shim that has not written its state, or whose state is
// damaged, by its arguments.
func findShim(dir string) (proctree.ID, error) {
	all, err := proctree.All()
	if err != nil {
		return proctree.ID{}, err
	}
	want := []byte("node-shim\x00run\x00" + dir + "\x00")
	for _, st := range all {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", st.Pid))
		if err == nil && bytes.Equal(b, want) {
			return st.ID(), nil
		}
	}
	return proctree.ID{}, proctree.ErrGone
}

// killAll kills every process of a run and returns when none is alive.
func (d *Driver) killAll(ctx context.Context, r *run) error {
	kctx, cancel := context.WithTimeout(ctx, killTimeout)
	defer cancel()
	err := d.killOnce(kctx, r)
	if err == nil || ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	members, merr := r.members()
	if merr != nil {
		return merr
	}
	if len(members) == 0 {
		return nil
	}
	pids := make([]int, len(members))
	for i, st := range members {
		pids[i] = st.Pid
	}
	return fmt.Errorf("processes %v are still alive %v after SIGKILL: the kernel does not let them go", pids, killTimeout)
}

func (d *Driver) killOnce(ctx context.Context, r *run) error {
	g := r.group()
	if g == "" {
		if r.shimState().Tag == "" {
			return nil // it has not come as far as to have processes
		}
		return r.tree().Kill(ctx)
	}
	if !g.Exists() {
		return nil
	}
	// Frozen or not: what is frozen dies without running again.
	if err := g.Kill(); err != nil {
		// An old kernel: signals do it, with another look for what was forked.
		if err := d.killMembers(ctx, g); err != nil {
			return err
		}
	}
	return d.waitEmpty(ctx, r)
}

// killMembers does what cgroup.kill does, process by process.
func (d *Driver) killMembers(ctx context.Context, g proctree.Group) error {
	for {
		members, err := g.Members()
		if err != nil || len(members) == 0 {
			return err
		}
		if err := g.Signal(syscall.SIGKILL); err != nil {
			return err
		}
		for _, st := range members {
			if err := st.ID().Wait(ctx); err != nil {
				return err
			}
		}
	}
}

// Remove forgets a run that has ended: everything but its output.
func (d *Driver) Remove(ctx context.Context, instance string) error {
	r, err := d.findStarted(ctx, instance)
	if errors.Is(err, reconcile.ErrNoInstance) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("remove: %w", err)
	}
	if !r.hasEnded() {
		return fmt.Errorf("remove %s: %w", instance, ErrAlive)
	}
	if err := r.lock(ctx); err != nil {
		return err
	}
	defer r.unlock()
	if err := d.removeFiles(r); err != nil {
		return fmt.Errorf("remove %s: %w", instance, err)
	}
	d.mu.Lock()
	if d.runs[instance] == r {
		delete(d.runs, instance)
		d.removed++
	}
	removed := d.removed
	d.mu.Unlock()
	r.mu.Lock()
	name := r.ref.Name
	r.mu.Unlock()
	d.pruneLogs(name, removed)
	return nil
}

// removeFiles removes a run's files, its state last and in one step, so that
// an interrupted removal is a dead run that can be removed again.
func (d *Driver) removeFiles(r *run) error {
	if g := d.group(r.instance); g.Exists() {
		if err := g.Remove(); err != nil {
			return err
		}
	}
	if err := d.dropLimits(r.instance); err != nil {
		return err
	}
	for _, dir := range []string{d.workDir(r.instance), d.shareDir(r.instance)} {
		if err := os.RemoveAll(dir); err != nil {
			return err
		}
	}
	gone := filepath.Join(filepath.Dir(r.dir), ".gone-"+r.instance)
	if err := os.Rename(r.dir, gone); err != nil {
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		return err
	}
	return os.RemoveAll(gone)
}
