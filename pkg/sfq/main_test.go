package sfq

import (
	"flag"
	"os"
	"testing"
)

// TestMain gives rapid longer histories than its default of 30 steps: most of
// what can go wrong needs a queue, an open pick and a correction at once.
func TestMain(m *testing.M) {
	given := false
	for _, a := range os.Args[1:] {
		given = given || len(a) > 7 && (a[:7] == "-rapid." || a[:8] == "--rapid.")
	}
	if !given {
		for name, v := range map[string]string{"rapid.checks": "400", "rapid.steps": "120", "rapid.nofailfile": "true"} {
			if err := flag.Set(name, v); err != nil {
				panic(err)
			}
		}
	}
	os.Exit(m.Run())
}
