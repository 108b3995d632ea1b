//go:build linux

package process

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"
)

// Defaults of Config.
const (
	// DefaultLogBytes and DefaultLogFiles bound the output kept of one run:
	// 50 MB, the same order as container runtimes keep.
	DefaultLogBytes = 10 << 20
	DefaultLogFiles = 5
	// DefaultKeepRuns is how many removed runs of a name keep their output:
	// enough to look at the run before the last restart, and the one before.
	DefaultKeepRuns = 3
	// DefaultKeepNames is how many names without a run keep their output.
	DefaultKeepNames = 1000
	// DefaultStartTimeout is how long a start may take: half of what the
	// protocol gives a node before it gives the name up.
	DefaultStartTimeout = 5 * time.Second

	// minLogBytes: a segment takes a few of the longest records.
	minLogBytes = 64 << 10

	// killTimeout is how long processes may take to die of SIGKILL. What
	// takes longer is stuck in the kernel, and Stop says so.
	killTimeout = 10 * time.Second
	// shimTimeout is how long a shim may take to record an end when its
	// processes are dead: more than it waits for a disk that hangs.
	shimTimeout = 8 * time.Second
	// pauseTimeout is how long a freeze may take. It is delayed only by
	// processes that are stuck in the kernel.
	pauseTimeout = 5 * time.Second
)

// Config configures a Driver.
type Config struct {
	Dir      string // state directory, made if it is not there
	ShimPath string // node-shim; default: beside this program
	NodeID   string // for $BARISTA_NODE where a request has none
	Logger   *slog.Logger

	// CgroupParent is the cgroup v2 directory to make groups in, which must
	// exist; "none" uses no cgroups. Default: "barista" at the top of the
	// hierarchy, else below the agent's own group.
	CgroupParent string

	// LeaseFile is what the agent publishes of its lease. A run with StopOnLoss
	// starts only while it allows it; empty: nothing is asked.
	LeaseFile string

	LogBytes int64 // size of one log segment
	LogFiles int   // segments kept of a run
	// LogStall is how long a workload waits for a disk that takes no output before
	// output is dropped; 0 leaves it to the shim, which is impatient.
	LogStall time.Duration
	KeepRuns int
	// KeepFenced is how long the working directory of a run is kept whose name was
	// lost; 0: not at all.
	KeepFenced   time.Duration
	KeepNames    int
	StartTimeout time.Duration
}

// CgroupNone as Config.CgroupParent makes the driver use no cgroups.
const CgroupNone = "none"

func (c Config) withDefaults() (Config, error) {
	if c.Dir == "" {
		return c, errors.New("process runtime: no state directory given")
	}
	dir, err := filepath.Abs(c.Dir)
	if err != nil {
		return c, fmt.Errorf("process runtime: state directory: %w", err)
	}
	c.Dir = dir
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.LogBytes == 0 {
		c.LogBytes = DefaultLogBytes
	}
	if c.LogFiles == 0 {
		c.LogFiles = DefaultLogFiles
	}
	if c.KeepRuns == 0 {
		c.KeepRuns = DefaultKeepRuns
	}
	if c.KeepNames == 0 {
		c.KeepNames = DefaultKeepNames
	}
	if c.StartTimeout == 0 {
		c.StartTimeout = DefaultStartTimeout
	}
	if c.ShimPath == "" {
		exe, err := os.Executable()
		if err != nil {
			return c, fmt.Errorf("process runtime: find node-shim: %w", err)
		}
		c.ShimPath = filepath.Join(filepath.Dir(exe), "node-shim")
	}
	return c, c.validate()
}

func (c Config) validate() error {
	switch {
	case c.LogBytes < minLogBytes:
		return fmt.Errorf("process runtime: log segments of %d bytes, at least %d are needed", c.LogBytes, minLogBytes)
	case c.LogFiles < 2:
		return fmt.Errorf("process runtime: %d log segments a run: with fewer than 2 a rotation loses everything", c.LogFiles)
	case c.KeepRuns < 1, c.KeepNames < 1:
		return errors.New("process runtime: the output of at least one run and one name must be kept")
	case c.LogStall < 0:
		return errors.New("process runtime: negative patience with the disk of the logs")
	case c.StartTimeout < 0:
		return errors.New("process runtime: negative start time-out")
	}
	if _, err := os.Stat(c.ShimPath); err != nil {
		return fmt.Errorf("process runtime: node-shim must stand beside node-agent, or be given by path: %w", err)
	}
	return nil
}
