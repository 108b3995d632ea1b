package agent

import (
	"strings"
	"testing"

	"github.com/go-json-experiment/json"

	"github.com/barista-fleet/barista/pkg/fleet"
	"github.com/barista-fleet/barista/pkg/journal"
)

// Whatever the journal holds, uploading gets on: batch by batch, each no larger than
// a record, everything told once, and what cannot be read left out.
func TestUploadGetsOnWithLargeEvents(t *testing.T) {
	var pending []journal.Event
	want := 0
	for i := range 40 {
		size := 20 << 10
		if i == 7 {
			size = 2 * fleet.MaxRecord
		}
		body, err := json.Marshal(fleet.Event{ID: strings.Repeat("i", i+1), Type: fleet.EventDegraded, Message: strings.Repeat("x", size)})
		if err != nil {
			t.Fatal(err)
		}
		if i%9 == 3 {
			body = []byte("{damaged")
		} else {
			want++
		}
		pending = append(pending, journal.Event{Seq: uint64(10 + i), Data: body})
	}
	told := 0
	for round := uint64(1); len(pending) > 0; round++ {
		head := fleet.EventBatch{Head: fleet.Head{Schema: fleet.Schema, Nonce: "n"}, Node: "n-1", Incarnation: 1, Seq: round}
		body, last, err := encodeEvents(head, pending)
		if err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		b, err := fleet.DecodeEventBatch(fleet.EventKey("n-1", 1, round), body)
		if err != nil || last < pending[0].Seq {
			t.Fatalf("round %d: up to %d: %v", round, last, err)
		}
		told += len(b.Events)
		for len(pending) > 0 && pending[0].Seq <= last {
			pending = pending[1:]
		}
	}
	if told != want {
		t.Errorf("told %d events, want %d", told, want)
	}
}
