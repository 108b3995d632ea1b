package fleet

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// EventType says what happened.
type EventType string

// The event types. A reader prints one it does not know as it stands.
const (
	EventClaimed   EventType = "CLAIMED"   // a node became the owner
	EventReclaimed EventType = "RECLAIMED" // an owner that was fenced became it again
	EventStarting  EventType = "STARTING"
	EventStarted   EventType = "STARTED"
	EventExited    EventType = "EXITED"
	EventPaused    EventType = "PAUSED"
	EventResumed   EventType = "RESUMED"
	EventStopped   EventType = "STOPPED"
	EventAlarm     EventType = "ALARM"    // an alarm fired
	EventFenced    EventType = "FENCED"   // this node lost the name and stopped its workload
	EventDegraded  EventType = "DEGRADED" // something was lost: memory, a warm start
	EventHeld      EventType = "HELD"     // waits for an operator
	EventOrphaned  EventType = "ORPHANED" // owned, but no longer in desired state
	EventLapsed    EventType = "LAPSED"   // this node could not renew in time
	EventReleased  EventType = "RELEASED" // given up; anyone may claim it
	EventDeleted   EventType = "DELETED"
	EventFailed    EventType = "FAILED"
	EventCompleted EventType = "COMPLETED"
	EventJoined    EventType = "JOINED" // a node registered
	EventLeft      EventType = "LEFT"
	EventCordoned  EventType = "CORDONED"
)

// MaxEventsPerBatch keeps a batch far below MaxRecord: an event is some
// hundreds of bytes.
const MaxEventsPerBatch = 256

// MaxSentence bounds a text for people in a record, in bytes. What is longer is the
// output of a program that ended in one.
const MaxSentence = 4 << 10

// Sentence makes any text fit for a record: valid UTF-8, and cut, with a marker that
// says by how much, where it is longer than MaxSentence.
func Sentence(text string) string { return cutText(text, MaxSentence) }

// cutText keeps the first most bytes of text, or a little less, and says what is
// missing.
func cutText(text string, most int) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	if len(text) <= most {
		return text
	}
	kept := strings.ToValidUTF8(text[:max(most, 0)], "") // without half a rune
	return fmt.Sprintf("%s… [%d bytes cut]", kept, len(text)-len(kept))
}

// Event is one thing that happened, as the node that saw it tells it.
type Event struct {
	ID      string    `json:"id"`   // unique in the fleet: readers drop duplicates by it
	Time    time.Time `json:"time"` // the node's wall clock, for people
	Node    string    `json:"node"`
	Name    string    `json:"name,omitempty"`
	Epoch   uint64    `json:"epoch,omitzero"`
	Type    EventType `json:"type"`
	Message string    `json:"message,omitempty"`

	Unknown jsontext.Value `json:",embed"`
}

// EventBatch is events/<node>/<incarnation>-<seq>: created once, never changed.
// A batch whose write had an unknown outcome may be written again under another
// key, so an event can appear twice, with the same id.
type EventBatch struct {
	Head
	Node        string  `json:"node"`
	NodeName    string  `json:"node_name,omitempty"`
	Incarnation uint64  `json:"incarnation"`
	Seq         uint64  `json:"seq"`
	Events      []Event `json:"events"`

	Unknown jsontext.Value `json:",embed"`
}

// EncodeEventBatch encodes as many events from the front of b as one record takes, at
// least one of them, and says how many that are. An event that is too large for a
// record of its own is cut.
func EncodeEventBatch(b EventBatch) (body []byte, taken int, err error) {
	all := b.Events
	b.Events = nil
	head, err := Encode(&b)
	if err != nil || len(all) == 0 {
		return head, 0, err
	}
	room := MaxRecord - len(head) + len(",") // the first has no comma
	for taken < min(len(all), MaxEventsPerBatch) {
		e := all[taken]
		size, err := encodedSize(&e)
		if err == nil && size > room && taken == 0 {
			size, err = e.cut(room)
		}
		if err != nil {
			return nil, 0, fmt.Errorf("encode event %s: %w", e.ID, err)
		}
		if size > room {
			break
		}
		room -= size
		b.Events = append(b.Events, e)
		taken++
	}
	body, err = Encode(&b)
	return body, taken, err
}

// encodedSize is what an event takes in a batch, its comma included.
func encodedSize(e *Event) (int, error) {
	b, err := json.Marshal(e, json.Deterministic(true))
	return len(b) + 1, err
}

// cut shortens the event until it takes no more than room, and returns what it takes.
func (e *Event) cut(room int) (int, error) {
	e.Unknown = nil
	text := e.Message
	for most := len(text); ; most /= 2 { // an escape can make six bytes of one
		e.Message = cutText(text, most)
		if size, err := encodedSize(e); err != nil || size <= room || most == 0 {
			return size, err
		}
	}
}

// EventKey is the key of one batch. Both numbers are padded, so that a listing
// of a node's batches is in the order they were written.
func EventKey(node string, incarnation, seq uint64) string {
	return fmt.Sprintf("%s%s/%010d-%012d", PrefixEvents, node, incarnation, seq)
}

// ParseEventKey takes a batch's key apart.
func ParseEventKey(key string) (node string, incarnation, seq uint64, err error) {
	rest, ok := strings.CutPrefix(key, PrefixEvents)
	node, tail, slash := strings.Cut(rest, "/")
	inc, sq, dash := strings.Cut(tail, "-")
	if ok && slash && dash && node != "" {
		incarnation, err = strconv.ParseUint(inc, 10, 64)
		if err == nil {
			seq, err = strconv.ParseUint(sq, 10, 64)
		}
		if err == nil {
			return node, incarnation, seq, nil
		}
	}
	return "", 0, 0, fmt.Errorf("key %q is no event batch's", key)
}

// DecodeEventBatch reads the batch under key.
func DecodeEventBatch(key string, body []byte) (*EventBatch, error) {
	node, incarnation, seq, err := ParseEventKey(key)
	if err != nil {
		return nil, &UnreadableError{Key: key, Err: err}
	}
	b := new(EventBatch)
	if err := decode(key, body, b); err != nil {
		return nil, err
	}
	switch {
	case b.Node != node || b.Incarnation != incarnation || b.Seq != seq:
		return nil, &UnreadableError{Key: key, Err: fmt.Errorf("says it is %s", EventKey(b.Node, b.Incarnation, b.Seq))}
	case len(b.Events) > MaxEventsPerBatch:
		return nil, &UnreadableError{Key: key, Err: fmt.Errorf("%d events, at most %d", len(b.Events), MaxEventsPerBatch)}
	}
	for i := range b.Events {
		if b.Events[i].ID == "" {
			return nil, &UnreadableError{Key: key, Err: errors.New("an event without id")}
		}
	}
	return b, nil
}
