package fleet

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Schema is the version of the record formats this program writes. A reader
// refuses a higher one: it is present but unreadable, never absent.
const Schema = 1

// MaxRecord is the largest encoded record, in bytes. It equals the largest body
// the bucket layer reads, so that a record that was written can be read.
const MaxRecord = 256 << 10

// Keys of the bucket layout. docs/bucket-layout.md has the table.
const (
	KeyMeta       = "meta/fleet"
	KeyEpochFloor = "meta/epoch-floor"
	KeySignal     = "signals/changed"

	PrefixDesired    = "desired/"
	PrefixSessions   = "sessions/"
	PrefixNodes      = "nodes/"
	PrefixInventory  = "inventory/"
	PrefixDirectives = "directives/"
	PrefixEvents     = "events/"
	PrefixTenants    = "tenants/"
	PrefixLogs       = "logs/"
)

// Head begins every record: the schema number and a random nonce that makes
// the bytes, and so the ETag, of every write unique.
type Head struct {
	Schema int    `json:"schema"`
	Nonce  string `json:"nonce"`
}

func (h Head) check() error {
	switch {
	case h.Schema <= 0:
		return errors.New("no schema number")
	case h.Schema > Schema:
		return fmt.Errorf("schema %d, this program knows %d: %w", h.Schema, Schema, ErrNewerSchema)
	}
	return nil
}

// NewNonce returns 128 random bits in hex.
func NewNonce() string { return randomHex(16) }

// NewUID returns the identity of one creation of a name: delete and apply again
// gives another one, which is how old content is told from new.
func NewUID() string { return randomHex(12) }

// NewNodeID returns a node's permanent identity.
func NewNodeID() string { return "n-" + randomHex(8) }

func randomHex(n int) string {
	b := make([]byte, n)
	rand.Read(b) // never fails: crypto/rand ends the process rather than return an error
	return hex.EncodeToString(b)
}

// Meta is meta/fleet: written once, read by everyone.
type Meta struct {
	Head
	FleetID string         `json:"fleet_id"`
	Created time.Time      `json:"created,omitzero"`
	Unknown jsontext.Value `json:",embed"`
}

// EpochFloor is meta/epoch-floor: every ownership record created for a name
// seen absent starts above it, so that epochs never repeat after retention.
type EpochFloor struct {
	Head
	Floor   uint64         `json:"floor"`
	Unknown jsontext.Value `json:",embed"`
}

// Signal is signals/changed: a hint that operators' objects or free names
// changed. Losing one costs latency, never correctness.
type Signal struct {
	Head
	Names   []string       `json:"names,omitempty"`
	Nodes   []string       `json:"nodes,omitempty"`
	Unknown jsontext.Value `json:",embed"`
}

// NodeState is the state of a node's liveness record.
type NodeState string

// The states of a liveness record. Only the node itself writes live and left;
// only a contender (or the node, for itself) writes fenced.
const (
	NodeLive   NodeState = "live"
	NodeFenced NodeState = "fenced"
	NodeLeft   NodeState = "left"
)

// Node is nodes/<id>: the lease that keeps alive every name the node owns.
type Node struct {
	Head
	ID          string    `json:"id"`
	Name        string    `json:"name,omitempty"` // host name for people
	Incarnation uint64    `json:"incarnation"`    // raised by every fence, leave and registration
	State       NodeState `json:"state"`
	Writer      string    `json:"writer,omitempty"` // the agent process life that renews
	Beat        uint64    `json:"beat"`             // never repeats within an incarnation
	TTLMillis   int64     `json:"ttl_ms"`           // constant within an incarnation
	FencedBy    string    `json:"fenced_by,omitempty"`

	Endpoint     string            `json:"endpoint,omitempty"`
	Version      string            `json:"version,omitempty"`
	Runtime      string            `json:"runtime,omitempty"`
	Capabilities []string          `json:"capabilities,omitempty"`
	Labels       map[string]string `json:"labels,omitempty"`
	Capacity     Capacity          `json:"capacity,omitzero"`
	Draining     bool              `json:"draining,omitzero"`
	Cordoned     bool              `json:"cordoned,omitzero"`
	// Service is the cumulative CPU, in milliseconds, that this node has given
	// each tenant. Readers add differences, so a skipped read loses nothing.
	Service map[string]uint64 `json:"service,omitempty"`

	Unknown jsontext.Value `json:",embed"`
}

// TTL is the record's time to live.
func (n *Node) TTL() time.Duration { return time.Duration(n.TTLMillis) * time.Millisecond }

// Capacity is what a node offers and uses.
type Capacity struct {
	CPUMillis   int64          `json:"cpu_milli,omitzero"`
	MemoryBytes int64          `json:"memory_bytes,omitzero"`
	Slots       map[string]int `json:"slots,omitempty"` // job slots by size
	MaxSessions int            `json:"max_sessions,omitzero"`
	Sessions    int            `json:"sessions,omitzero"` // running now
	Jobs        int            `json:"jobs,omitzero"`     // running now

	Unknown jsontext.Value `json:",embed"`
}

// DesiredState says whether a name should exist.
type DesiredState string

// The desired states. Deletion is a write: an absent record is never read as one.
const (
	DesiredPresent DesiredState = "present"
	DesiredDeleted DesiredState = "deleted"
)

// Verb is what an operator asks of a name, once.
type Verb string

// The verbs of an intent.
const (
	VerbRun         Verb = "run" // resume or start
	VerbPause       Verb = "pause"
	VerbStop        Verb = "stop"
	VerbRestart     Verb = "restart"
	VerbCancel      Verb = "cancel"
	VerbReleaseHold Verb = "release-hold"
	VerbEvict       Verb = "evict"
)

// Intent is an edge: it is acted on once, by whoever owns the name when Seq
// exceeds the ownership record's Seen.
type Intent struct {
	Seq   uint64 `json:"seq"`
	Verb  Verb   `json:"verb"`
	Epoch uint64 `json:"epoch,omitzero"` // for evict: the epoch it is meant for

	Unknown jsontext.Value `json:",embed"`
}

// Alarm is the one alarm a name can have. Its own Seq lets it be re-armed.
type Alarm struct {
	Seq uint64    `json:"seq"`
	At  time.Time `json:"at,omitzero"` // zero: cleared

	Unknown jsontext.Value `json:",embed"`
}

// Desired is desired/<name>: what operators want.
type Desired struct {
	Head
	Name       string       `json:"name"`
	UID        string       `json:"uid"`
	Generation uint64       `json:"generation"` // raised by each change of Spec
	Created    time.Time    `json:"created,omitzero"`
	State      DesiredState `json:"state"`
	Spec       Spec         `json:"spec"`
	Intent     Intent       `json:"intent,omitzero"`
	WakeAt     Alarm        `json:"wake_at,omitzero"`

	Unknown jsontext.Value `json:",embed"`
}

// Phase is where a name stands.
type Phase string

// The phases of an ownership record.
const (
	PhasePending  Phase = "pending"  // free; waits for an owner
	PhaseStarting Phase = "starting" // claimed; not yet running
	PhaseRunning  Phase = "running"
	PhaseBackoff  Phase = "backoff" // failed; waits before the next attempt
	PhasePaused   Phase = "paused"
	PhaseStopped  Phase = "stopped" // stopped by request; waits for start

	PhaseCompleted Phase = "completed"
	PhaseFailed    Phase = "failed"
	PhaseCancelled Phase = "cancelled"
	PhaseTimedOut  Phase = "timed_out"
)

// Done reports a phase that is final for its uid.
func (p Phase) Done() bool {
	switch p {
	case PhaseCompleted, PhaseFailed, PhaseCancelled, PhaseTimedOut:
		return true
	default:
		return false
	}
}

// Parked reports a phase that is realised without a running workload: nothing
// resumes it but a wish for it.
func (p Phase) Parked() bool { return p == PhasePaused || p == PhaseStopped }

// Exit is how a run ended.
type Exit struct {
	Code    int       `json:"code"`
	Signal  int       `json:"signal,omitzero"`
	OOM     bool      `json:"oom,omitzero"`
	Lost    bool      `json:"lost,omitzero"` // ended, nobody knows how
	Reason  string    `json:"reason,omitempty"`
	At      time.Time `json:"at,omitzero"` // the owner's wall clock, for people
	CPUMsec int64     `json:"cpu_ms,omitzero"`

	Unknown jsontext.Value `json:",embed"`
}

// Lineage names the memory a snapshot descends from: a cold boot of uid at epoch.
// It is an identity, compared with ==, and closed: it never gains a field.
type Lineage struct {
	UID   string `json:"uid"`
	Epoch uint64 `json:"epoch"`
}

// Snapshot is where a paused name's memory is.
type Snapshot struct {
	Kind    string    `json:"kind"` // frozen, memory, disk
	Node    string    `json:"node"`
	Lineage Lineage   `json:"lineage"`
	Since   time.Time `json:"since,omitzero"`

	Unknown jsontext.Value `json:",embed"`
}

// Session is sessions/<name>: who owns the name, and since which epoch. It is
// also the addressing table.
type Session struct {
	Head
	Name string `json:"name"`
	// Owner is the owning node's id; empty when the name is free.
	Owner       string `json:"owner,omitempty"`
	Incarnation uint64 `json:"incarnation,omitzero"` // the owner's, when it claimed
	// Epoch is the fencing token: it rises with every change of owner and with
	// every re-claim, for the whole life of the key.
	Epoch uint64 `json:"epoch"`
	// OwnerTTLMillis is the owner's lease TTL: how long silence must last where
	// the owner's own record is missing.
	OwnerTTLMillis int64  `json:"owner_ttl_ms,omitzero"`
	OwnerName      string `json:"owner_name,omitempty"`
	Endpoint       string `json:"endpoint,omitempty"`

	UID        string `json:"uid,omitempty"`
	Generation uint64 `json:"generation,omitzero"`
	Phase      Phase  `json:"phase"`
	Reason     string `json:"reason,omitempty"` // one sentence, for people
	Seen       uint64 `json:"seen,omitzero"`    // the last intent carried out
	WakeSeen   uint64 `json:"wake_seen,omitzero"`
	Instance   string `json:"instance,omitempty"` // the workload's id on its node
	// Started is when the current or last run began, and ActiveSince when it last
	// began or was resumed, both by the owner's wall clock: time-outs and TTLs
	// count from them, ownership never does.
	Started     time.Time `json:"started,omitzero"`
	ActiveSince time.Time `json:"active_since,omitzero"`

	LastNode string `json:"last_node,omitempty"`
	LastName string `json:"last_name,omitempty"` // LastNode's name, for people

	Lineage  Lineage  `json:"lineage,omitzero"`
	Snapshot Snapshot `json:"snapshot,omitzero"`

	Attempt          int   `json:"attempt,omitzero"`
	Failures         int   `json:"failures,omitzero"`
	RetryAfterMillis int64 `json:"retry_after_ms,omitzero"` // back-off that is still due, from this write on
	Exit             *Exit `json:"exit,omitempty"`
	Sealed           bool  `json:"sealed,omitzero"` // nobody writes from a sealed record

	Unknown jsontext.Value `json:",embed"`
}

// Clone returns a deep enough copy: what the original points to is never
// changed in place by this project.
func (s *Session) Clone() *Session {
	c := *s
	if s.Exit != nil {
		e := *s.Exit
		c.Exit = &e
	}
	return &c
}

// UnreadableError is a record that is there and cannot be understood. It must
// never be taken for an absent one.
type UnreadableError struct {
	Key string
	Err error
}

func (e *UnreadableError) Error() string {
	return fmt.Sprintf("record %q is present but unreadable: %v", e.Key, e.Err)
}

func (e *UnreadableError) Unwrap() error { return e.Err }

type record interface{ check() error }

// Encode renders a record. It fails on one that a reader would refuse.
func Encode(rec record) ([]byte, error) {
	if err := rec.check(); err != nil {
		return nil, fmt.Errorf("encode record: %w", err)
	}
	b, err := json.Marshal(rec, json.Deterministic(true))
	if err != nil {
		return nil, fmt.Errorf("encode record: %w", err)
	}
	if len(b) > MaxRecord {
		return nil, fmt.Errorf("encode record: %d bytes, at most %d fit", len(b), MaxRecord)
	}
	return b, nil
}

// decode parses body into rec and checks it against key.
func decode(key string, body []byte, rec record) error {
	if body == nil {
		return &UnreadableError{Key: key, Err: errors.New("larger than a record may be")}
	}
	if err := json.Unmarshal(body, rec); err != nil {
		return &UnreadableError{Key: key, Err: err}
	}
	if err := rec.check(); err != nil {
		return &UnreadableError{Key: key, Err: err}
	}
	return nil
}
