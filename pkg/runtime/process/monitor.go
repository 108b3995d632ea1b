//go:build linux

package process

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/barista-fleet/barista/pkg/runtime/proctree"
	"github.com/barista-fleet/barista/pkg/runtime/shim"
)

// monitor waits for a run to end, and says so.
func (d *Driver) monitor(r *run) {
	defer d.wg.Done()
	if err := d.waitShim(r); err != nil {
		if d.ctx.Err() == nil {
			d.log.Error("cannot wait for a run", "instance", r.instance, "error", err)
		}
		return
	}
	exit, err := shim.ReadExit(r.dir)
	if err != nil {
		exit, err = d.waitOrphan(r, err)
	}
	if err == nil {
		err = d.endGroup(r)
	}
	if err != nil {
		if d.ctx.Err() == nil {
			d.log.Error("cannot follow a run to its end", "instance", r.instance, "error", err)
		}
		return
	}
	r.mu.Lock()
	r.exit = exit
	ref := r.ref
	r.mu.Unlock()
	close(r.ended)
	d.log.Info("run ended", "instance", r.instance, "name", ref.Name, "epoch", ref.Epoch,
		"code", exit.Code, "signal", exit.Signal, "lost", exit.Lost, "oom", exit.OOM)
	d.announce(r)
}

// waitShim returns nil when the run's shim is dead.
func (d *Driver) waitShim(r *run) error {
	st := r.shimState()
	h, err := proctree.Open(st.Shim)
	if err == nil {
		defer h.Close()
		if err := h.Wait(d.ctx); err != nil {
			return err
		}
		r.reap()
		return nil
	}
	if shimAlive(r.dir) {
		return d.waitLock(r)
	}
	r.reap()
	return nil
}

// waitLock is waitShim for a shim whose pid is not known: that of an agent
// killed between starting it and hearing from it, or one with a damaged state.
func (d *Driver) waitLock(r *run) error {
	f, err := os.Open(filepath.Join(r.dir, shim.FileLock))
	if err != nil {
		return err
	}
	free := make(chan error, 1)
	// Costs a thread, and ends at the latest with the shim; few runs come here.
	go func() {
		defer f.Close()
		for {
			err := syscall.Flock(int(f.Fd()), syscall.LOCK_SH)
			if err != syscall.EINTR {
				free <- err
				return
			}
		}
	}()
	select {
	case err := <-free:
		return err
	case <-d.ctx.Done():
		return d.ctx.Err()
	}
}

// waitOrphan waits for the processes of a run whose shim is dead without
// having recorded an exit, and records that nobody knows it.
func (d *Driver) waitOrphan(r *run, readErr error) (*shim.Exit, error) {
	st := r.shimState()
	reason := "its node-shim was killed"
	switch {
	case !errors.Is(readErr, fs.ErrNotExist):
		reason = "its exit record is damaged"
	case st.Shim.Boot != "" && st.Shim.Boot != proctree.BootID():
		reason = "the machine was restarted"
	default:
		members, err := r.members()
		if err != nil {
			return nil, err
		}
		if len(members) > 0 {
			d.log.Warn("a run goes on without its node-shim: its exit will not be known",
				"instance", r.instance, "processes", len(members))
		}
		if err := d.waitEmpty(d.ctx, r); err != nil {
			return nil, err
		}
	}
	exit := &shim.Exit{
		Instance: r.instance, Lost: true, Reason: reason, Pid: st.Child.Pid,
		Started: st.Started, Ended: time.Now().UTC().Round(0), CPUMsec: r.group().CPU().Milliseconds(),
	}
	if errors.Is(readErr, fs.ErrNotExist) {
		if err := shim.WriteExit(r.dir, exit); err != nil {
			// Found out again by the next agent; this one knows.
			d.log.Error("cannot record a lost run", "instance", r.instance, "error", err)
		}
	}
	return exit, nil
}

// waitEmpty returns nil when no process of the run is alive.
func (d *Driver) waitEmpty(ctx context.Context, r *run) error {
	g := r.group()
	if g == "" {
		return r.tree().WaitEmpty(ctx)
	}
	return d.waitGroup(ctx, g, r.ended, func(e proctree.Events) bool { return !e.Populated })
}

// waitGroup waits until the state of a group is as wanted, or its run has
// ended: whoever removes a group then takes with it the news that it is empty,
// which the kernel delivers up to 10 ms late.
func (d *Driver) waitGroup(ctx context.Context, g proctree.Group, ended <-chan struct{}, want func(proctree.Events) bool) error {
	if !g.Exists() {
		return nil // with all that was in it
	}
	changed, cancel, err := d.notify.watch(g.EventsFile())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer cancel()
	for {
		ev, err := g.Events()
		if err != nil {
			return err
		}
		if want(ev) {
			return nil
		}
		select {
		case <-changed:
		case <-ended:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// endGroup removes the group of a run that has ended, killing what a stranger
// may have put into it.
func (d *Driver) endGroup(r *run) error {
	if err := d.dropLimits(r.instance); err != nil {
		d.log.Warn("cannot remove the limits of an ended run", "instance", r.instance, "error", err)
	}
	g := r.group()
	if !g.Exists() {
		return nil
	}
	ev, err := g.Events()
	if err != nil {
		return err
	}
	if ev.Populated {
		if err := g.Kill(); err != nil {
			return err
		}
		if err := d.waitEmpty(d.ctx, r); err != nil {
			return err
		}
	}
	if err := g.Remove(); err != nil {
		// An empty group costs some memory; Remove of the run tries again.
		d.log.Warn("cannot remove the cgroup of an ended run", "instance", r.instance, "error", err)
	}
	return nil
}
