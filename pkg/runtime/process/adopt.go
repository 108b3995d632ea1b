//go:build linux

package process

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/barista-fleet/barista/pkg/runtime"
	"github.com/barista-fleet/barista/pkg/runtime/shim"
)

// adoptLocked takes in a run from disk; nil if there is none. Whatever is
// damaged, a directory whose shim or processes live is a run.
func (d *Driver) adoptLocked(instance string) *run {
	dir := d.runDir(instance)
	if _, err := os.Stat(dir); err != nil {
		return nil
	}
	r := newRun(instance, dir)
	alive := shimAlive(dir)
	r.state = d.readState(instance, dir)
	r.ref = d.readRef(instance, dir, r.state)
	exit, exitErr := shim.ReadExit(dir)
	_, stateErr := os.Stat(filepath.Join(dir, shim.FileState))
	if !alive && exitErr != nil && errors.Is(stateErr, fs.ErrNotExist) && !r.anyAlive() {
		// Its shim was never started, or died before it could start anything.
		d.log.Info("forget a run that was never started", "instance", instance, "name", r.ref.Name)
		d.discard(r)
		return nil
	}
	close(r.started)
	d.runs[instance] = r
	if exitErr == nil && !alive {
		r.exit = exit
		close(r.ended)
		return r
	}
	d.wg.Add(1)
	go d.monitor(r)
	return r
}

// readState reads what the shim wrote. If that cannot be read, the run is
// still looked for where every run of this driver is.
func (d *Driver) readState(instance, dir string) shim.State {
	st, err := shim.ReadState(dir)
	if err == nil {
		return *st
	}
	if !errors.Is(err, fs.ErrNotExist) {
		d.log.Warn("state of a run is damaged", "instance", instance, "error", err)
	}
	guess := shim.State{Instance: instance, Tag: tag(instance)}
	if l, err := shim.ReadLaunch(dir); err == nil {
		guess.Cgroup, guess.LogDir, guess.Ref = l.Cgroup, l.LogDir, l.Ref
	} else if g := d.group(instance); g.Exists() {
		guess.Cgroup = string(g)
	}
	return guess
}

// readRef reads who the run is: from the file that SetEpoch keeps up to date,
// else from the copies made at the start.
func (d *Driver) readRef(instance, dir string, st shim.State) runtime.Ref {
	var ref runtime.Ref
	b, err := os.ReadFile(filepath.Join(dir, shim.FileRef))
	if err == nil {
		err = json.Unmarshal(b, &ref)
	}
	if err != nil {
		d.log.Warn("identity of a run is damaged, using the copy from its start", "instance", instance, "error", err)
		ref = runtime.Ref{}
		if err := json.Unmarshal(st.Ref, &ref); err != nil {
			d.log.Error("a run has lost its name", "instance", instance, "error", err)
		}
	}
	ref.Instance = instance // the directory's name cannot be damaged
	return ref
}

// shimAlive asks the kernel whether the shim of a run lives, by the lock that
// it holds for all its life.
func shimAlive(dir string) bool {
	f, err := os.Open(filepath.Join(dir, shim.FileLock))
	if err != nil {
		return false
	}
	defer f.Close()
	// Shared, so that two who ask at once do not take each other for the shim.
	return syscall.Flock(int(f.Fd()), syscall.LOCK_SH|syscall.LOCK_NB) == syscall.EWOULDBLOCK
}
