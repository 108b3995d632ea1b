package lease

import (
	"time"

	"github.com/barista-fleet/barista/internal/bucket"
	"github.com/barista-fleet/barista/pkg/fleet"
)

// Event is something that happened to the machine: a reply, a saved
// intent, time passing, a command.
type Event interface{ event() }

// Events from the runner. Each reply carries the Op of the effect it answers; a
// reply to an operation that is no longer awaited is dropped.
type (
	// Tick says that time has passed.
	Tick struct{}
	// GotObject answers a Get.
	GotObject struct {
		Op     uint64
		Object bucket.Object
		Err    error
	}
	// PutDone answers a Put.
	PutDone struct {
		Op     uint64
		Result bucket.PutResult
	}
	// Listed answers a List.
	Listed struct {
		Op      uint64
		Listing bucket.Listing
		Err     error
	}
	// IdentitySaved answers a SaveIdentity: the identity is on disk.
	IdentitySaved struct {
		Op  uint64
		Err error
	}
)

// Commands from the reconciler.
type (
	// Boot begins a process life with what the journal holds.
	Boot struct {
		Identity Identity
		// Suspicious: the machine, the boot or the data directory is another
		// than the journal's, so someone else may live under this identity. The
		// own record is watched for a full TTL before anything is written.
		Suspicious bool
		// Idle: this node owned nothing when its last life ended, and nothing runs
		// here. Then a changed TTL takes effect at once, by a new incarnation; else
		// it waits for one, since raising frees every name.
		Idle bool
		// MaxSeen is the highest incarnation found in local workloads' labels.
		MaxSeen uint64
	}
	// AllowRaise says whether every local workload with on_bucket_loss: stop is
	// dead and every pending start cancelled. Only then may the incarnation be
	// raised: raising makes the old claims takeable at once.
	AllowRaise struct{ OK bool }
	// Leave asks to write the record as left. The reconciler sends it when
	// nothing is held and no workload is alive.
	Leave struct{}
	// Read asks for a fresh look at sessions/<name>.
	Read struct{ Name string }
	// SessionsListed passes on a whole listing of sessions/, and the names that
	// the reconciler cares for: those the listing lacks are absent.
	SessionsListed struct {
		Entries []bucket.Entry
		Names   []string
	}
	// Floor passes on meta/epoch-floor.
	Floor struct{ Floor uint64 }
	// Seen passes on the highest epoch the journal knows for a name, and whether
	// this node owned it then.
	Seen struct {
		Name  string
		Epoch uint64
		Owned bool
	}
	// Hint passes on the nodes named in a signal: their records are worth a look.
	Hint struct{ Nodes []string }
	// Submit asks for one write of sessions/<name>.
	Submit struct {
		Name   string
		Kind   Write
		Record *fleet.Session // owner, incarnation, epoch and nonce are set by the machine
		// Override lets a claim go ahead where the bucket is behind the journal,
		// because an operator said so.
		Override bool
	}
)

func (Tick) event()           {}
func (GotObject) event()      {}
func (PutDone) event()        {}
func (Listed) event()         {}
func (IdentitySaved) event()  {}
func (Boot) event()           {}
func (AllowRaise) event()     {}
func (Leave) event()          {}
func (Read) event()           {}
func (SessionsListed) event() {}
func (Floor) event()          {}
func (Seen) event()           {}
func (Submit) event()         {}
func (Hint) event()           {}

// Identity is the part of the journal that the protocol needs.
type Identity struct {
	Incarnation uint64 // the last one known to be registered; 0: never
	Writer      string // the writer of that incarnation
	Intended    uint64 // an incarnation that a write may have made real
	NewWriter   string // the writer of Intended
}

// highest is the highest incarnation the identity mentions.
func (id Identity) highest() uint64 { return max(id.Incarnation, id.Intended) }

// owns reports whether a live record with this incarnation and writer was
// written from this journal.
func (id Identity) owns(incarnation uint64, writer string) bool {
	return incarnation != 0 && (incarnation == id.Incarnation && writer == id.Writer ||
		incarnation == id.Intended && writer == id.NewWriter)
}

// Write is why sessions/<name> is written.
type Write uint8

// The kinds of writes of an ownership record.
const (
	_            Write = iota
	WriteClaim         // take a free name, or one whose claim is invalid: epoch+1
	WriteReclaim       // take back what still names us under an older incarnation: epoch+1
	WriteTouch         // establish ownership of a record that names us now: same epoch
	WriteUpdate        // a transition of a held name
	WriteRelease       // give a held name up; the workload is dead
	WriteFinal         // finish a takeable name without owning it: epoch+1, no owner
	writeBurn          // make a claim that was given up unable to land
)

func (w Write) String() string {
	switch w {
	case WriteClaim:
		return "claim"
	case WriteReclaim:
		return "reclaim"
	case WriteTouch:
		return "touch"
	case WriteUpdate:
		return "update"
	case WriteRelease:
		return "release"
	case WriteFinal:
		return "final"
	case writeBurn:
		return "burn"
	default:
		return "no write"
	}
}

// acquires reports a write whose success makes this node the owner.
func (w Write) acquires() bool { return w == WriteClaim || w == WriteReclaim || w == WriteTouch }

// raisesEpoch reports a write that changes the fencing token.
func (w Write) raisesEpoch() bool {
	return w == WriteClaim || w == WriteReclaim || w == WriteFinal
}

// Effect is something the machine wants done. Requests are answered by the
// event named after them; notices are for the reconciler and need no answer.
type Effect interface{ effect() }

// Requests.
type (
	// Get reads one object, unless it still has IfNoneMatch.
	Get struct {
		Op          uint64
		Key         string
		IfNoneMatch bucket.ETag
	}
	// Put writes one object, once.
	Put struct {
		Op   uint64
		Key  string
		Body []byte
		Cond bucket.Condition
	}
	// List lists a prefix.
	List struct {
		Op     uint64
		Prefix string
	}
	// SaveIdentity makes an identity durable. With an Op it is answered, and the
	// write that depends on it is sent only then.
	SaveIdentity struct {
		Op       uint64
		Identity Identity
	}
	// Ring tells others, as a hint, that a node's incarnation or a name changed.
	Ring struct{ Names, Nodes []string }
)

// Notices.
type (
	// Joined: this node is live under Incarnation, with the TTL of its registration.
	Joined struct {
		Incarnation uint64
		TTL         time.Duration
	}
	// Lapsed: the deadline passed without a confirmed renewal.
	Lapsed struct{}
	// Renewed: confirmed again after Lapsed, never having been fenced.
	Renewed struct{}
	// Fenced: the own record shows that this node's incarnation has passed.
	// Nothing is held any more.
	Fenced struct{ Incarnation uint64 }
	// Halted: the machine does nothing more. Reason is for people.
	Halted struct{ Reason string }
	// Left: the record says left.
	Left struct{}
	// PeerPassed: a higher incarnation of a node was seen; its older claims are
	// invalid.
	PeerPassed struct {
		NodeID      string
		Incarnation uint64
		ByUs        bool // this node wrote the fence
	}
	// Acquired: a name is held.
	Acquired struct {
		Name string
		Kind Write
		Rec  *fleet.Session
	}
	// Written: an update, release or final write was applied.
	Written struct {
		Name string
		Kind Write
		Rec  *fleet.Session
	}
	// NotWritten: a write certainly did not happen; the view is fresh. Conflict
	// says that another write came first.
	NotWritten struct {
		Name     string
		Kind     Write
		Conflict bool
	}
	// Lost: a held name was written by someone else.
	Lost struct {
		Name  string
		Epoch uint64 // the epoch that was lost
		Owner string // the new owner's id; may be empty
	}
	// Changed: the view of a name is another.
	Changed struct{ Name string }
)

func (Get) effect()          {}
func (Put) effect()          {}
func (List) effect()         {}
func (SaveIdentity) effect() {}
func (Ring) effect()         {}
func (Joined) effect()       {}
func (Lapsed) effect()       {}
func (Renewed) effect()      {}
func (Fenced) effect()       {}
func (Halted) effect()       {}
func (Left) effect()         {}
func (PeerPassed) effect()   {}
func (Acquired) effect()     {}
func (Written) effect()      {}
func (NotWritten) effect()   {}
func (Lost) effect()         {}
func (Changed) effect()      {}
