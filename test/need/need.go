// Package need is for tests that need something of the machine which not every
// machine has: a server, a cgroup, a namespace.
package need

import (
	"fmt"
	"os"
	"testing"
)

// SkipsEnv names a file to which each skip adds a line. `go test` hides the
// output of what passes, so whoever runs it sets the file and shows it at the end.
const SkipsEnv = "BARISTA_TEST_SKIPS"

// Missing ends a test for want of something, which the format says. With CI=true
// that is a failure, since there everything must be there; elsewhere it is a skip
// that says what was not tested.
func Missing(tb testing.TB, format string, args ...any) {
	tb.Helper()
	what := fmt.Sprintf(format, args...)
	if os.Getenv("CI") == "true" {
		tb.Fatal(what)
	}
	line := fmt.Sprintf("SKIPPED, NOT TESTED: %s: %s", tb.Name(), what)
	if path := os.Getenv(SkipsEnv); path != "" {
		if f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644); err == nil {
			_, _ = fmt.Fprintln(f, line)
			_ = f.Close()
		}
	}
	tb.Skip(line)
}
