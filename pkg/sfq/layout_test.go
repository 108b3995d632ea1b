package sfq

import (
	"reflect"
	"testing"
)

// TestLayout: what a cycle touches fills whole lines of memory. A field too many
// costs every tenant or job another one.
func TestLayout(t *testing.T) {
	for _, x := range []struct {
		of    any
		lines uintptr
	}{
		{cand{}, 1},
		{idPage{}, 1},
		{treeGroup{}, 1},
		{classQueue{}, 2},
		{flight{}, 2},
		{tenant{}, 4},
		{queueJob[uint64, struct{}]{}, 1},
		{queueFlow[uint64]{}, 4},
	} {
		if got := reflect.TypeOf(x.of).Size(); got != x.lines*64 {
			t.Errorf("%T has %d bytes, want %d", x.of, got, x.lines*64)
		}
	}
}
