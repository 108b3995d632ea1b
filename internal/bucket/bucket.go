package bucket

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// MaxBody is the largest body that a record may have, in bytes. A Get of a
// larger object answers Found with Oversize set and no body, so that a reader
// can tell "present but unreadable" from "absent" without buffering it.
const MaxBody = 256 << 10

// MaxKey is the longest key accepted, in bytes. It leaves room for a bucket
// prefix below the 255-byte file name limit of stores that map keys to files.
const MaxKey = 200

// ETag identifies one version of an object. It is opaque: it is compared for
// equality and sent back exactly as it came, quotes included. The empty ETag
// means "none known" and is never sent to a store.
type ETag string

// Store is an object store with conditional writes. Implementations are safe
// for concurrent use. Contexts bound every call; a call whose context ends
// returns promptly, and for a Put that means Ambiguous unless the store had
// already answered.
type Store interface {
	// Get reads one object. With a non-empty ifNoneMatch that equals the
	// stored ETag it answers NotModified and no body.
	Get(ctx context.Context, key string, ifNoneMatch ETag) (Object, error)

	// Put writes one object under a condition. It is sent exactly once.
	Put(ctx context.Context, key string, body []byte, cond Condition) PutResult

	// List returns every object whose key starts with prefix, ordered by key.
	// It pages internally and fails whole: an error means that nothing can be
	// said about what is absent.
	List(ctx context.Context, prefix string) (Listing, error)

	// Delete removes one object without a condition. Deleting an absent key is
	// no error. It is for objects that nobody can still write conditionally.
	Delete(ctx context.Context, key string) error

	// Description names the store for people: its URL without credentials.
	Description() string
}

// ReadStatus says what a Get found.
type ReadStatus uint8

// The answers of a Get. The zero value is not an answer.
const (
	_ ReadStatus = iota
	Found
	NotModified
	Absent
)

func (s ReadStatus) String() string {
	switch s {
	case Found:
		return "found"
	case NotModified:
		return "not modified"
	case Absent:
		return "absent"
	default:
		return "no answer"
	}
}

// Object is the answer of a Get.
type Object struct {
	Status   ReadStatus
	Body     []byte    // the caller's to keep; nil unless Found, or when Oversize
	ETag     ETag      // set when Found
	Oversize bool      // the object is larger than MaxBody; Body is nil
	Date     time.Time // the store's clock when it answered; zero if it did not say
}

// Entry is one object of a Listing.
type Entry struct {
	Key  string
	ETag ETag
	Size int64 // bytes
	// Modified is when this version was written, by the store's clock; zero if the
	// store does not say. Ages are judged by it, against the Date of the Listing
	// it came with. Ownership never is.
	Modified time.Time
}

// Listing is the answer of a List.
type Listing struct {
	Entries []Entry
	Date    time.Time // the store's clock at the first page; zero if unknown
}

// Condition is what must hold for a Put to be applied. The zero value is
// refused: an unconditional write is asked for by name.
type Condition struct {
	kind condKind
	etag ETag
}

type condKind uint8

const (
	condNone condKind = iota
	condAbsent
	condMatch
	condAlways
)

// IfAbsent applies the Put only where the key does not exist.
func IfAbsent() Condition { return Condition{kind: condAbsent} }

// IfMatch applies the Put only where the stored ETag equals etag.
func IfMatch(etag ETag) Condition { return Condition{kind: condMatch, etag: etag} }

// Unconditional applies the Put always. It is for hints and logs, which nobody
// decides by.
func Unconditional() Condition { return Condition{kind: condAlways} }

// WantAbsent reports whether the condition is IfAbsent.
func (c Condition) WantAbsent() bool { return c.kind == condAbsent }

// WantMatch returns the ETag that must match, and whether the condition is IfMatch.
func (c Condition) WantMatch() (ETag, bool) { return c.etag, c.kind == condMatch }

// Validate refuses the zero condition and an IfMatch of an empty ETag, which
// some servers take for "no condition".
func (c Condition) Validate() error {
	switch {
	case c.kind == condNone:
		return errors.New("bucket: a put needs a condition")
	case c.kind == condMatch && c.etag == "":
		return errors.New("bucket: if-match with an empty etag")
	}
	return nil
}

// Holds reports whether the condition holds for an object with this ETag;
// "" stands for an absent one.
func (c Condition) Holds(stored ETag) bool {
	switch c.kind {
	case condAlways:
		return true
	case condAbsent:
		return stored == ""
	case condMatch:
		return stored != "" && stored == c.etag
	default:
		return false
	}
}

func (c Condition) String() string {
	switch c.kind {
	case condAbsent:
		return "if-absent"
	case condMatch:
		return "if-match " + string(c.etag)
	case condAlways:
		return "unconditional"
	default:
		return "no condition"
	}
}

// Outcome is what is known of a Put.
type Outcome uint8

// The outcomes of a Put. The zero value is the one that promises nothing.
const (
	// Ambiguous: applied, or not, or not yet.
	Ambiguous Outcome = iota
	// Applied: stored; the result carries the new ETag.
	Applied
	// Rejected: certainly not applied, now or later. Err says why; see
	// PutResult.Conflict.
	Rejected
)

func (o Outcome) String() string {
	switch o {
	case Applied:
		return "applied"
	case Rejected:
		return "rejected"
	default:
		return "ambiguous"
	}
}

// PutResult is the answer of a Put.
type PutResult struct {
	Outcome Outcome
	ETag    ETag      // set when Applied
	Date    time.Time // the store's clock when it answered; zero if unknown
	Err     error     // why not Applied; nil when Applied
}

// Conflict reports a Put that was rejected because its condition did not hold,
// as opposed to one that was refused for another reason (throttled, forbidden).
func (r PutResult) Conflict() bool {
	return r.Outcome == Rejected && errors.Is(r.Err, ErrCondition)
}

// Kinds of failure, to be tested with errors.Is.
var (
	// ErrCondition: a conditional write met another version of the object.
	ErrCondition = errors.New("condition not met")
	// ErrThrottled: the store asked to slow down. Whether a Put was applied all
	// the same is in its outcome, as ever.
	ErrThrottled = errors.New("throttled")
	// ErrDenied: the credentials do not allow the request.
	ErrDenied = errors.New("access denied")
	// ErrCredentials: there are no usable credentials.
	ErrCredentials = errors.New("no usable credentials")
	// ErrUnreachable: the store, or the bucket in it, did not answer.
	ErrUnreachable = errors.New("bucket unreachable")
	// ErrInvalid: the request can never succeed (bad key, body too large).
	ErrInvalid = errors.New("invalid request")
)

// Error is the typed error of this package: what was asked of which key.
type Error struct {
	Op   string // get, put, list, delete, open
	Key  string // key or prefix
	Kind error  // one of the sentinels above; nil if none fits
	Err  error  // the cause
	Hint string // what a person can do about it; may be empty
}

func (e *Error) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "bucket %s", e.Op)
	if e.Key != "" {
		fmt.Fprintf(&b, " %q", e.Key)
	}
	if e.Kind != nil {
		fmt.Fprintf(&b, ": %v", e.Kind)
	}
	if e.Err != nil {
		fmt.Fprintf(&b, ": %v", e.Err)
	}
	return b.String()
}

// Unwrap exposes both the kind and the cause.
func (e *Error) Unwrap() []error {
	errs := make([]error, 0, 2)
	if e.Kind != nil {
		errs = append(errs, e.Kind)
	}
	if e.Err != nil {
		errs = append(errs, e.Err)
	}
	return errs
}

// CheckKey refuses keys that some store would alter, reject or confuse:
// segments of A-Za-z0-9 and ._=- separated by single slashes, no segment that
// is "." or "..", at most MaxKey bytes.
func CheckKey(key string) error {
	if key == "" || len(key) > MaxKey {
		return &Error{Op: "key", Key: key, Kind: ErrInvalid, Err: fmt.Errorf("a key has 1 to %d bytes", MaxKey)}
	}
	for seg := range strings.SplitSeq(key, "/") {
		if seg == "" || seg == "." || seg == ".." {
			return &Error{Op: "key", Key: key, Kind: ErrInvalid, Err: errors.New("empty, . or .. segment")}
		}
		for i := range len(seg) {
			if !keyByte(seg[i]) {
				return &Error{Op: "key", Key: key, Kind: ErrInvalid, Err: fmt.Errorf("byte %q at %d", seg[i], i)}
			}
		}
	}
	return nil
}

func keyByte(c byte) bool {
	switch {
	case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		return true
	}
	return c == '.' || c == '_' || c == '=' || c == '-'
}
