package runtime

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"time"

	"github.com/barista-fleet/barista/pkg/fleet"
)

// State is where one run of a workload stands on this machine.
type State string

// The states of a run.
const (
	StateStarting State = "starting" // asked for; not known to have begun
	StateRunning  State = "running"
	StatePaused   State = "paused"
	StateExited   State = "exited" // ended, and Exit says how
	StateLost     State = "lost"   // ended, and nobody knows how
)

// Dead reports a state in which no process of the run is alive.
func (s State) Dead() bool { return s == StateExited || s == StateLost }

// Ref identifies one run: which name, under which ownership. It is stored with
// the run (a label, a state file) when it starts, so that an agent that has lost
// its journal can still tell what it finds.
type Ref struct {
	Instance    string // unique per run; see InstanceID
	FleetID     string // empty on a machine without a bucket
	NodeID      string
	NodeName    string
	Name        string
	UID         string
	Generation  uint64
	Epoch       uint64 // the fencing token; SetEpoch raises it
	Incarnation uint64
	Attempt     int
	StopOnLoss  bool // the spec's on_bucket_loss is stop
	KeepLogs    bool `json:",omitempty"` // the spec wants the end of its output in the bucket
}

// StartRequest is everything a driver needs to start a run.
type StartRequest struct {
	Ref
	Spec fleet.Spec // with defaults applied
}

// Workload is a run as a driver sees it.
type Workload struct {
	Ref
	State     State
	Pid       int // of the workload's first process; 0 if none
	Started   time.Time
	Exit      *fleet.Exit // set when State is Dead
	CPUMillis int64       // consumed so far, from the kernel's accounting
	PauseKind string      // frozen, stopped-tree, memory: set when paused
	Overdue   bool        // ended from outside because it would have outlived the node's lease
}

// InstanceID derives the id of one run. It is the same for the same arguments,
// which makes a start idempotent, and fits every driver's rules for ids
// (letters, digits and single dashes, 32 bytes).
func InstanceID(name, uid string, epoch uint64, attempt int) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\x00%s\x00%d\x00%d", name, uid, epoch, attempt))
	return "b-" + hex.EncodeToString(sum[:15])
}

// Info describes a driver on this host.
type Info struct {
	Driver       string   // process, containerd, runsc
	Isolation    string   // one line for people
	Capabilities []string // pause:frozen, cgroup:v2, …: only what was proved here
	Notes        []string // what this host lacks, and what is used instead
}

// LogRequest asks for a run's output.
type LogRequest struct {
	Name     string
	Instance string // empty: the newest run of Name
	Previous bool   // the run before that
	Tail     int    // lines; negative: all
	Follow   bool
	Stdout   io.Writer
	Stderr   io.Writer // may equal Stdout
}
