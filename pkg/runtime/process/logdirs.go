//go:build linux

package process

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/barista-fleet/barista/pkg/fleet"
	"github.com/barista-fleet/barista/pkg/reconcile"
	"github.com/barista-fleet/barista/pkg/runtime"
)

// sweepEvery is after how many removed runs the number of names that keep
// output is looked at: the look reads one directory per name.
const sweepEvery = 64

// logDir is the output of one run: logs/<name>/<seq>-<instance>.
type logDir struct {
	path     string
	seq      int
	instance string
}

func (d *Driver) nameLogs(name string) string { return filepath.Join(d.cfg.Dir, "logs", name) }

// logDirs lists the runs of a name that have output, the oldest first.
func (d *Driver) logDirs(name string) ([]logDir, error) {
	entries, err := os.ReadDir(d.nameLogs(name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var dirs []logDir
	for _, e := range entries {
		digits, instance, ok := strings.Cut(e.Name(), "-")
		seq, err := strconv.Atoi(digits)
		if ok && err == nil && e.IsDir() {
			dirs = append(dirs, logDir{filepath.Join(d.nameLogs(name), e.Name()), seq, instance})
		}
	}
	slices.SortFunc(dirs, func(a, b logDir) int {
		return cmp.Or(cmp.Compare(a.seq, b.seq), cmp.Compare(a.instance, b.instance))
	})
	return dirs, nil
}

// makeLogDir makes the log directory of a new run, numbered after those that
// are there.
func (d *Driver) makeLogDir(name, instance string) (string, error) {
	dirs, err := d.logDirs(name)
	if err != nil {
		return "", err
	}
	seq := 1
	if n := len(dirs); n > 0 {
		seq = dirs[n-1].seq + 1
	}
	path := filepath.Join(d.nameLogs(name), fmt.Sprintf("%06d-%s", seq, instance))
	return path, os.MkdirAll(path, 0o700)
}

// findLogDir returns the output that a request means.
func (d *Driver) findLogDir(req runtime.LogRequest) (logDir, error) {
	if err := fleet.CheckName(req.Name); err != nil {
		return logDir{}, err
	}
	dirs, err := d.logDirs(req.Name)
	if err != nil {
		return logDir{}, err
	}
	i := len(dirs) - 1
	if req.Instance != "" {
		i = slices.IndexFunc(dirs, func(l logDir) bool { return l.instance == req.Instance })
	}
	if req.Previous && i >= 0 {
		i--
	}
	if i < 0 {
		what := "output of"
		if req.Previous {
			what = "output of an earlier run of"
		}
		return logDir{}, fmt.Errorf("%w: no %s %s is kept here", reconcile.ErrNoInstance, what, req.Name)
	}
	return dirs[i], nil
}

// removeLogDir removes the output of a run that failed to start: nothing of it
// came from the workload.
func (d *Driver) removeLogDir(name, instance string) {
	dirs, err := d.logDirs(name)
	if err != nil {
		d.log.Warn("cannot list logs", "name", name, "error", err)
		return
	}
	for _, l := range dirs {
		if l.instance == instance {
			d.removeLog(l)
		}
	}
	_ = os.Remove(d.nameLogs(name)) // if that was all there was
}

func (d *Driver) removeLog(l logDir) {
	if err := os.RemoveAll(l.path); err != nil {
		d.log.Warn("cannot remove old output", "path", l.path, "error", err)
	}
}

// pruneLogs removes the output of all but the newest removed runs of a name,
// and from time to time that of the names nothing was heard of for longest.
func (d *Driver) pruneLogs(name string, removed int) {
	if err := fleet.CheckName(name); err == nil { // a damaged run may have none
		d.pruneName(name)
	}
	if removed%sweepEvery == 0 {
		d.pruneNames()
	}
}

func (d *Driver) pruneName(name string) {
	dirs, err := d.logDirs(name)
	if err != nil {
		d.log.Warn("cannot list logs", "name", name, "error", err)
		return
	}
	kept := 0
	for _, l := range slices.Backward(dirs) {
		if d.exists(l.instance) {
			continue
		}
		if kept++; kept > d.cfg.KeepRuns {
			d.removeLog(l)
		}
	}
}

// exists reports whether a run is there, so that its output stays.
func (d *Driver) exists(instance string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.runs[instance] != nil {
		return true
	}
	_, err := os.Stat(d.runDir(instance))
	return err == nil
}

// pruneNames bounds the names that have output but no run.
func (d *Driver) pruneNames() {
	entries, err := os.ReadDir(filepath.Join(d.cfg.Dir, "logs"))
	if err != nil {
		d.log.Warn("cannot list logs", "error", err)
		return
	}
	type idle struct {
		name  string
		since time.Time
	}
	var names []idle
	for _, e := range entries {
		dirs, err := d.logDirs(e.Name())
		info, ierr := e.Info()
		if err != nil || ierr != nil || slices.ContainsFunc(dirs, func(l logDir) bool { return d.exists(l.instance) }) {
			continue
		}
		names = append(names, idle{e.Name(), info.ModTime()})
	}
	if len(names) <= d.cfg.KeepNames {
		return
	}
	slices.SortFunc(names, func(a, b idle) int { return a.since.Compare(b.since) })
	for _, n := range names[:len(names)-d.cfg.KeepNames] {
		// A run of this name that starts now is seen by makeLogDir's own
		// directory: remove what was listed, not the whole.
		dirs, err := d.logDirs(n.name)
		if err != nil {
			continue
		}
		for _, l := range dirs {
			if !d.exists(l.instance) {
				d.removeLog(l)
			}
		}
		_ = os.Remove(d.nameLogs(n.name)) // fails, rightly, unless it is empty
	}
}
