package journal

// Bounds. A batch that exceeds one is refused with ErrInvalid.
const (
	// MaxKey is the longest name or object key, in bytes. It exceeds every
	// bucket key (200) and leaves room for the prefix under "damaged".
	MaxKey = 512
	// MaxData is the largest opaque payload of one record, in bytes: four times
	// the largest record of a bucket, so that any of them fits with its envelope.
	MaxData = 1 << 20
	// MaxBatch is the largest sum of payloads in one batch, in bytes. bbolt
	// holds a whole transaction in memory.
	MaxBatch = 16 << 20
)

// Identity is who this node is. It is written as a whole.
//
// FleetID may be set once and cleared (by leaving), never changed; Incarnation
// never goes back under one NodeID. A batch that tries is refused with ErrRegress.
type Identity struct {
	FleetID     string `json:"fleet_id,omitempty"` // empty: never joined, or left
	Bucket      string `json:"bucket,omitempty"`   // the fleet's URL, without credentials
	NodeID      string `json:"node_id"`
	Incarnation uint64 `json:"incarnation,omitempty"` // last confirmed
	// Intended is the incarnation that a raise under way will write. It is
	// journaled before the write is sent; 0 when none is under way.
	Intended  uint64 `json:"intended,omitempty"`
	Writer    string `json:"writer,omitempty"`     // the writer of Incarnation
	NewWriter string `json:"new_writer,omitempty"` // the writer of Intended
	MachineID string `json:"machine_id,omitempty"`
	BootID    string `json:"boot_id,omitempty"`
	DirID     string `json:"dir_id,omitempty"`    // see DirID
	Driver    string `json:"driver,omitempty"`    // the runtime driver in use
	NodeName  string `json:"node_name,omitempty"` // what people last called it
}

// Owned is one name that this node owns, or last knew that it owned.
type Owned struct {
	Name        string `json:"-"` // the key
	UID         string `json:"uid,omitempty"`
	Epoch       uint64 `json:"epoch,omitempty"`
	Incarnation uint64 `json:"incarnation,omitempty"`
	Generation  uint64 `json:"generation,omitempty"`
	Instance    string `json:"instance,omitempty"`
	Attempt     int    `json:"attempt,omitempty"`
	Phase       string `json:"phase,omitempty"`
	Data        []byte `json:"-"` // opaque to this package
}

// Op is an operation in flight: journaled before its effect, deleted with its
// result. A name has at most one.
type Op struct {
	Name        string `json:"-"` // the key
	Kind        string `json:"kind"`
	Instance    string `json:"instance,omitempty"`
	UID         string `json:"uid,omitempty"`
	Epoch       uint64 `json:"epoch,omitempty"`
	Incarnation uint64 `json:"incarnation,omitempty"`
	Attempt     int    `json:"attempt,omitempty"`
	Data        []byte `json:"-"` // opaque to this package
}

// Event is one entry of the outbox.
type Event struct {
	Seq  uint64 // assigned by the journal, increasing, never reused
	Data []byte
}

// SchedEvent is one scheduler event. The caller numbers them; an append that
// does not follow the last one by exactly one is refused with ErrGap, because a
// replay with a hole would compute another state.
type SchedEvent struct {
	Seq  uint64
	Data []byte
}

// SchedSnapshot replaces all scheduler events up to and including Through.
type SchedSnapshot struct {
	Through uint64
	Data    []byte
}

// ObjectPut is a conditional write of one object.
type ObjectPut struct {
	Key  string
	Body []byte
	Cond ObjectCond
}

// ObjectCond is the condition of an ObjectPut. The zero value is refused.
type ObjectCond struct {
	kind    condKind
	version uint64
}

type condKind uint8

const (
	condNone condKind = iota
	condAbsent
	condVersion
	condAlways
)

// IfAbsent holds where the key does not exist.
func IfAbsent() ObjectCond { return ObjectCond{kind: condAbsent} }

// IfVersion holds where the stored version is v.
func IfVersion(v uint64) ObjectCond { return ObjectCond{kind: condVersion, version: v} }

// Always holds.
func Always() ObjectCond { return ObjectCond{kind: condAlways} }

// Object is one stored object.
type Object struct {
	Key     string
	Version uint64 // never reused, also not by another key or after a delete
	Body    []byte // nil in listings
	Size    int    // bytes of the body
}

// Class says what a batch may use when the disk is full.
type Class uint8

const (
	// Ordinary batches begin something. They leave the reserve alone and fail
	// with ErrDiskFull when only it is left.
	Ordinary Class = iota
	// Essential batches end or record something that has happened: results,
	// deletions, identity. They may use the reserve.
	Essential
)

// Batch is a set of changes that is applied as one. Within a batch the order
// is: removals, then everything that is put. The zero Batch is valid and empty.
// What its slices point to must not change before the batch has ended; after
// ErrUnknown nobody knows when that is, so it must not change at all.
type Batch struct {
	Class Class

	Identity *Identity // nil: unchanged

	DelOps []string // absent ones are no error
	PutOps []Op     // refused with ErrOpInFlight where the name still has one

	DelOwned []string // absent ones are no error
	PutOwned []Owned  // inserted or replaced; raises the name's seen epoch

	Seen            map[string]uint64 // raises, never lowers
	SeenIncarnation uint64            // raises, never lowers
	Forget          []string          // drops seen epochs, for names retired for good

	DropEvents uint64 // drops events up to and including this number; 0: none
	Events     [][]byte

	SchedSnapshot *SchedSnapshot // applied before SchedAppend
	SchedAppend   []SchedEvent

	DelObjects []string // absent ones are no error
	PutObjects []ObjectPut
}

// Receipt says what numbers a batch was given.
type Receipt struct {
	FirstEvent uint64   // number of Events[0]; 0 if there were none
	Versions   []uint64 // of PutObjects, in order
}

// State is everything that a restart needs at once.
type State struct {
	Identity        *Identity // nil: none was ever journaled
	Owned           []Owned   // by name
	Ops             []Op      // by name
	Seen            map[string]uint64
	SeenIncarnation uint64

	Events        uint64 // in the outbox
	EventsDropped uint64 // discarded because the outbox was full, ever
}
