package fleet_test

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/barista-fleet/barista/pkg/fleet"
)

func batchOf(events ...fleet.Event) fleet.EventBatch {
	return fleet.EventBatch{
		Head: fleet.Head{Schema: fleet.Schema, Nonce: "n"}, Node: "n-1", NodeName: "ada", Incarnation: 3, Seq: 7, Events: events,
	}
}

func eventOf(id, message string) fleet.Event {
	return fleet.Event{ID: id, Node: "ada", Name: "a1", Epoch: 1, Type: fleet.EventDegraded, Message: message}
}

// A batch takes what fits one record, to the byte, and leaves the rest.
func TestEventBatchIsSplitByItsSize(t *testing.T) {
	second := eventOf("e-2", "second")
	room := 0 // for the first message, with both events in the batch
	{
		body, _, err := fleet.EncodeEventBatch(batchOf(eventOf("e-1", ""), second))
		if err != nil {
			t.Fatal(err)
		}
		room = fleet.MaxRecord - len(body) - len(`,"message":""`)
	}
	for name, c := range map[string]struct{ size, taken int }{
		"fits exactly":  {room, 2},
		"one byte more": {room + 1, 1},
		"far too large": {2 * fleet.MaxRecord, 2}, // cut, so that the next one fits again,
	} {
		body, taken, err := fleet.EncodeEventBatch(batchOf(eventOf("e-1", strings.Repeat("x", c.size)), second))
		if err != nil || len(body) > fleet.MaxRecord || taken != c.taken {
			t.Errorf("%s: took %d in %d bytes, %v; want %d", name, taken, len(body), err, c.taken)
			continue
		}
		if name == "fits exactly" && len(body) != fleet.MaxRecord {
			t.Errorf("%s: %d bytes", name, len(body))
		}
		b, err := fleet.DecodeEventBatch(fleet.EventKey("n-1", 3, 7), body)
		if err != nil || len(b.Events) != taken {
			t.Errorf("%s: read back %v", name, err)
		}
	}
}

func TestGiantEventIsCut(t *testing.T) {
	for name, text := range map[string]string{
		"plain":        strings.Repeat("x", fleet.MaxRecord),
		"escaped":      strings.Repeat("\x01", fleet.MaxRecord),
		"wide":         strings.Repeat("é", fleet.MaxRecord),
		"many of them": strings.Repeat("€", 4*fleet.MaxRecord),
	} {
		body, taken, err := fleet.EncodeEventBatch(batchOf(eventOf("e-1", text), eventOf("e-2", "")))
		if err != nil || taken < 1 {
			t.Errorf("%s: took %d: %v", name, taken, err)
			continue
		}
		b, err := fleet.DecodeEventBatch(fleet.EventKey("n-1", 3, 7), body)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		kept, marker, ok := strings.Cut(b.Events[0].Message, "…")
		if want := fmt.Sprintf(" [%d bytes cut]", len(text)-len(kept)); !ok || marker != want || !strings.HasPrefix(text, kept) || kept == "" {
			t.Errorf("%s: kept %d bytes, marker %q, want %q", name, len(kept), marker, want)
		}
	}
}

func TestSentence(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"", ""},
		{"plain", "plain"},
		{"bad \xff byte", "bad \uFFFD byte"},
		{strings.Repeat("x", fleet.MaxSentence), strings.Repeat("x", fleet.MaxSentence)},
		{strings.Repeat("x", fleet.MaxSentence+1), strings.Repeat("x", fleet.MaxSentence) + "… [1 bytes cut]"},
		{strings.Repeat("x", fleet.MaxSentence-1) + "é", strings.Repeat("x", fleet.MaxSentence-1) + "… [2 bytes cut]"},
	} {
		if got := fleet.Sentence(c.in); got != c.want || !utf8.ValidString(got) {
			t.Errorf("Sentence of %d bytes is %d bytes, ends %q", len(c.in), len(got), got[max(0, len(got)-30):])
		}
	}
}
