//go:build linux

package process

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/barista-fleet/barista/pkg/fleet"
	"github.com/barista-fleet/barista/pkg/reconcile"
	"github.com/barista-fleet/barista/pkg/runtime"
	"github.com/barista-fleet/barista/pkg/runtime/shim"
)

// sharedMode is that of the files a workload may read: through its group, so
// that no other user of the machine can.
const sharedMode = 0o440

// Start begins a run. The start goes on when ctx ends: it is decided within
// Config.StartTimeout, and List then tells how.
func (d *Driver) Start(ctx context.Context, req runtime.StartRequest) (runtime.Workload, error) {
	if err := ctx.Err(); err != nil {
		return runtime.Workload{}, err
	}
	if err := checkInstance(req.Instance); err != nil {
		return runtime.Workload{}, fmt.Errorf("start: %w: %w", reconcile.ErrSpec, err)
	}
	if err := fleet.CheckName(req.Name); err != nil {
		return runtime.Workload{}, fmt.Errorf("start: %w: %w", reconcile.ErrSpec, err)
	}
	r, err := d.startOnce(req)
	if err != nil {
		return runtime.Workload{}, fmt.Errorf("start %s: %w", req.Name, err)
	}
	select {
	case <-r.started:
	case <-ctx.Done():
		return runtime.Workload{}, ctx.Err()
	}
	if r.startErr != nil {
		return runtime.Workload{}, fmt.Errorf("start %s: %w", req.Name, r.startErr)
	}
	if err := d.waitChild(ctx, r); err != nil {
		return runtime.Workload{}, err
	}
	return d.workload(r), nil
}

// waitChild waits until the first process of a run exists or the run has ended.
// Only a run whose agent was killed while its shim came up is found before.
func (d *Driver) waitChild(ctx context.Context, r *run) error {
	if r.shimState().Child.Pid != 0 || r.hasEnded() {
		return nil
	}
	changed, cancel, err := d.notify.watch(r.dir)
	if err != nil {
		return fmt.Errorf("start %s: %w", r.instance, err)
	}
	defer cancel()
	for r.shimState().Child.Pid == 0 {
		select {
		case <-changed:
		case <-r.ended:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		case <-d.ctx.Done():
			return ErrClosed
		}
	}
	return nil
}

// startOnce returns the run with the request's instance, and begins it if there
// is none.
func (d *Driver) startOnce(req runtime.StartRequest) (*run, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, ErrClosed
	}
	if r := d.runs[req.Instance]; r != nil {
		return r, nil
	}
	if r := d.adoptLocked(req.Instance); r != nil {
		return r, nil
	}
	r := newRun(req.Instance, d.runDir(req.Instance))
	r.ref = req.Ref
	d.runs[req.Instance] = r
	d.wg.Go(func() {
		d.begin(r, &req)
	})
	return r, nil
}

// begin starts a run and decides r.started.
func (d *Driver) begin(r *run, req *runtime.StartRequest) {
	since := time.Now()
	err := d.launch(r, req)
	if err != nil {
		d.mu.Lock()
		delete(d.runs, r.instance)
		d.mu.Unlock()
		r.startErr = err
		close(r.started)
		return
	}
	d.log.Info("run started", "instance", r.instance, "name", req.Name, "epoch", req.Epoch,
		"pid", r.shimState().Child.Pid, "elapsed_ms", time.Since(since).Milliseconds())
	close(r.started)
	d.wg.Add(1)
	go d.monitor(r)
}

// launch does what a start takes, and undoes all of it when it fails.
func (d *Driver) launch(r *run, req *runtime.StartRequest) (err error) {
	if err := checkSpec(&req.Spec); err != nil {
		return err
	}
	l := &shim.Launch{
		Protocol: shim.Protocol, Instance: r.instance, Tag: tag(r.instance),
		Args: req.Spec.Command, Env: d.environ(req), Workdir: req.Spec.Workdir,
		LogMaxBytes: d.cfg.LogBytes, LogMaxFiles: d.cfg.LogFiles, LogStall: d.cfg.LogStall,
	}
	if req.StopOnLoss && d.cfg.LeaseFile != "" {
		l.LeaseFile, l.Incarnation = d.cfg.LeaseFile, req.Incarnation
	}
	if l.Workdir == "" {
		l.Workdir = d.workDir(r.instance)
	} else if !filepath.IsAbs(l.Workdir) {
		return fmt.Errorf("%w: working directory %q is not an absolute path", reconcile.ErrSpec, l.Workdir)
	}
	if err := setUser(l, req.Spec.User); err != nil {
		return err
	}
	if err := d.checkReach(l); err != nil {
		return err
	}
	if l.Ref, err = json.Marshal(req.Ref); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			d.discard(r)
		}
	}()
	if err := d.makeFiles(l, req); err != nil {
		return err
	}
	lock, err := d.makeRunDir(r, l)
	if err != nil {
		return err
	}
	defer lock.Close()
	return d.runShim(r, lock)
}

// makeFiles makes what the workload sees, its log directory and its cgroup.
func (d *Driver) makeFiles(l *shim.Launch, req *runtime.StartRequest) error {
	uid, gid := os.Geteuid(), os.Getegid()
	owner := uid
	if l.SetUser {
		owner, gid = int(l.UID), int(l.GID)
	}
	work, share := d.workDir(l.Instance), d.shareDir(l.Instance)
	for _, dir := range []string{work, filepath.Join(work, "tmp")} {
		if err := makeDir(dir, 0o700, owner, gid); err != nil {
			return err
		}
	}
	// Readable by the workload's group, writable by the agent alone.
	if err := makeDir(share, 0o750, uid, gid); err != nil {
		return err
	}
	if err := shim.Replace(filepath.Join(share, fileEpoch), epochText(req.Epoch), sharedMode, gid); err != nil {
		return err
	}
	if len(req.Spec.Payload) > 0 {
		if err := shim.Replace(filepath.Join(share, filePayload), req.Spec.Payload, sharedMode, gid); err != nil {
			return err
		}
	}
	dir, err := d.makeLogDir(req.Name, l.Instance)
	if err != nil {
		return err
	}
	l.LogDir = dir
	if g := d.group(l.Instance); g != "" {
		if err := errors.Join(d.makeGroups(), g.Create()); err != nil {
			return err
		}
		l.Cgroup = string(g)
	}
	return d.setLimits(l, &req.Spec)
}

func makeDir(path string, mode fs.FileMode, uid, gid int) error {
	if err := os.Mkdir(path, mode); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if err := os.Chown(path, uid, gid); err != nil {
		return err
	}
	return os.Chmod(path, mode) // whatever the umask took away
}

func epochText(epoch uint64) []byte { return append(strconv.AppendUint(nil, epoch, 10), '\n') }

// makeRunDir makes the run's state directory, complete and with its lock held,
// and only then gives it its name: whoever finds a directory with a run's name
// and a free lock knows that no shim will come.
func (d *Driver) makeRunDir(r *run, l *shim.Launch) (lock *os.File, err error) {
	tmp := d.runDir("." + r.instance)
	if err := os.Mkdir(tmp, 0o700); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(tmp))
		}
	}()
	lock, err = os.OpenFile(filepath.Join(tmp, shim.FileLock), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			lock.Close()
		}
	}()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, fmt.Errorf("lock the run: %w", err)
	}
	if err := shim.WriteLaunch(tmp, l); err != nil {
		return nil, err
	}
	if err := shim.Replace(filepath.Join(tmp, shim.FileRef), l.Ref, 0o600, -1); err != nil {
		return nil, err
	}
	return lock, os.Rename(tmp, r.dir)
}

// runShim starts the run's shim and waits for its answer.
func (d *Driver) runShim(r *run, lock *os.File) error {
	answer, pw, err := os.Pipe()
	if err != nil {
		return err
	}
	defer answer.Close()
	defer pw.Close()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer null.Close()
	errFile, err := os.OpenFile(filepath.Join(r.dir, shim.FileErr), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer errFile.Close()
	sys := &syscall.SysProcAttr{Setsid: true}
	if d.host.shims != "" {
		dir, err := os.Open(string(d.host.shims))
		if err != nil {
			return err
		}
		defer dir.Close()
		sys.UseCgroupFD, sys.CgroupFD = true, int(dir.Fd())
	}
	r.shimPid, err = syscall.ForkExec(d.cfg.ShimPath, []string{"node-shim", "run", r.dir}, &syscall.ProcAttr{
		Dir: "/", Env: shimEnv, Sys: sys,
		Files: []uintptr{null.Fd(), null.Fd(), errFile.Fd(), pw.Fd(), lock.Fd()},
	})
	if err != nil {
		return fmt.Errorf("start %s: %w", d.cfg.ShimPath, err)
	}
	pw.Close() // the shim's is the only one now, so its death ends the pipe
	if err := answer.SetReadDeadline(time.Now().Add(d.cfg.StartTimeout)); err != nil {
		return err
	}
	word, text, err := shim.ReadAnswer(answer)
	switch {
	case word == shim.AnswerOK:
		r.shimState()
		return nil
	case word == shim.AnswerOver:
		return fmt.Errorf("%w: %s", reconcile.ErrLapsed, text)
	case word == shim.AnswerSpec:
		return fmt.Errorf("%w: %s", reconcile.ErrSpec, text)
	case word == shim.AnswerError:
		return errors.New(text)
	case err != nil:
		return fmt.Errorf("no answer from node-shim within %v: %w", d.cfg.StartTimeout, err)
	}
	said, _ := os.ReadFile(errFile.Name())
	return fmt.Errorf("node-shim died while it started: %s", bytes.TrimSpace(said))
}

// discard ends and removes everything of a run that does not count as started.
func (d *Driver) discard(r *run) {
	if r.shimPid != 0 {
		// It has ended, or it hangs before it could answer.
		_ = syscall.Kill(r.shimPid, syscall.SIGKILL) // our unreaped child: the number is still its
		r.reap()
	}
	ctx, cancel := context.WithTimeout(d.ctx, killTimeout)
	defer cancel()
	if err := d.killAll(ctx, r); err != nil {
		d.log.Error("a run that failed to start may still have processes", "instance", r.instance, "error", err)
		return // its files are what finds them again
	}
	if err := d.removeFiles(r); err != nil {
		d.log.Warn("cannot remove the files of a run that failed to start", "instance", r.instance, "error", err)
	}
	r.mu.Lock()
	name := r.ref.Name
	r.mu.Unlock()
	if fleet.CheckName(name) == nil { // a damaged run may have lost it
		d.removeLogDir(name, r.instance)
	}
}
