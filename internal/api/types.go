package api

import (
	"encoding/json"
	"time"
)

// State is what the agent is doing about its place in the fleet.
type State string

// The states of an agent.
const (
	StateSingle   State = "single"   // no bucket: nothing to join
	StateStarting State = "starting" // reading what it owned; not yet joined
	StateJoined   State = "joined"   // renewed in time
	StateLapsed   State = "lapsed"   // its deadline passed unconfirmed: starts and claims nothing
	StateFenced   State = "fenced"   // taken off; re-registers
	StateDraining State = "draining" // gives its names up
	StateLeft     State = "left"
	StateFailed   State = "failed" // needs an operator; Reason says why
)

// Status describes an agent at one moment.
type Status struct {
	Version     string `json:"version"`
	Pid         int    `json:"pid"`
	DataDir     string `json:"data_dir"`
	Node        string `json:"node"`    // the name people use
	NodeID      string `json:"node_id"` // permanent
	State       State  `json:"state"`
	Reason      string `json:"reason,omitempty"` // why, when the state is no good one
	Incarnation uint64 `json:"incarnation"`
	// Fleet is the bucket's URL without credentials, or "single machine".
	Fleet   string `json:"fleet"`
	FleetID string `json:"fleet_id,omitempty"`
	// DeadlineMillis is how long the node may still act without a confirmed
	// renewal; negative when lapsed, absent without a bucket.
	DeadlineMillis *int64 `json:"deadline_ms,omitempty"`
	Endpoint       string `json:"endpoint,omitempty"`

	Driver   Driver              `json:"driver"`
	Guard    *Guard              `json:"guard,omitempty"` // absent without a bucket
	Counts   Counts              `json:"counts"`
	Names    []Name              `json:"names"`              // by name
	Fenced   []Fenced            `json:"fenced,omitempty"`   // kept of lost runs, the oldest first
	Requests map[string]Requests `json:"requests,omitempty"` // to the bucket, by class
	Journal  Journal             `json:"journal"`
	Notes    []string            `json:"notes,omitempty"` // whatever an operator should know
}

// Driver describes the runtime driver in use.
type Driver struct {
	Name         string   `json:"name"`
	Isolation    string   `json:"isolation,omitempty"`
	Capabilities []string `json:"capabilities,omitempty"`
	Notes        []string `json:"notes,omitempty"`
}

// Guard describes the process that ends workloads which must not outlive the lease.
type Guard struct {
	Pid    int    `json:"pid,omitempty"`    // 0: none stands
	Cgroup string `json:"cgroup,omitempty"` // where it is in the cgroup v2 hierarchy
	Reason string `json:"reason,omitempty"` // why none stands
}

// Fenced is what is kept of a run whose name this node lost.
type Fenced struct {
	Name  string    `json:"name"`
	Epoch uint64    `json:"epoch"`
	Path  string    `json:"path"`
	Since time.Time `json:"since"`
}

// Counts sums up what the agent holds.
type Counts struct {
	Owned         int            `json:"owned"`
	Operations    int            `json:"operations"` // in flight
	Phases        map[string]int `json:"phases,omitempty"`
	EventsPending uint64         `json:"events_pending"`
	EventsDropped uint64         `json:"events_dropped,omitempty"`
}

// Name is one owned name.
type Name struct {
	Name        string `json:"name"`
	Phase       string `json:"phase"`
	Epoch       uint64 `json:"epoch"`
	Incarnation uint64 `json:"incarnation,omitempty"`
	Instance    string `json:"instance,omitempty"`
	Operation   string `json:"operation,omitempty"` // in flight
	Reason      string `json:"reason,omitempty"`
}

// Requests counts requests of one class: what was asked of which kind of key, as
// in "put-if-match nodes".
type Requests struct {
	Total     uint64 `json:"total"`
	Failed    uint64 `json:"failed,omitempty"`
	Conflicts uint64 `json:"conflicts,omitempty"` // conditional writes that came second
}

// Journal describes the journal.
type Journal struct {
	Batches      uint64   `json:"batches"`
	Transactions uint64   `json:"transactions"`
	Syncs        uint64   `json:"syncs"`
	FileBytes    int64    `json:"file_bytes"`
	UsedBytes    int64    `json:"used_bytes"`
	ReserveShort bool     `json:"reserve_short,omitempty"`
	Failed       bool     `json:"failed,omitempty"`
	Quarantined  string   `json:"quarantined,omitempty"` // file set aside at this start
	Damaged      []string `json:"damaged,omitempty"`     // records set aside at this start
}

// LogRequest asks for a run's output.
type LogRequest struct {
	Name     string `json:"name"`
	Instance string `json:"instance,omitempty"` // empty: the newest run
	Previous bool   `json:"previous,omitempty"` // the run before that
	Tail     int    `json:"tail"`               // lines; negative: all
	Follow   bool   `json:"follow,omitempty"`
}

// EventRequest asks for events.
type EventRequest struct {
	Name   string // empty: of all names
	From   uint64 // first number wanted; 0: from the oldest kept
	Follow bool   // go on with what comes, until the context ends
}

// Event is one event as the agent keeps it: its JSON is the agent's.
type Event = json.RawMessage
