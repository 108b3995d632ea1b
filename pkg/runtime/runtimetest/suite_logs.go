//go:build linux

package runtimetest

import (
	"fmt"
	"strings"

	"github.com/barista-fleet/barista/pkg/runtime"
)

func testOutput(e *env) {
	w := e.start("talk", "-print-lines", "10", "-echo-err", "to stderr", "-echo-raw", "no newline")
	e.ended(w.Instance)
	var all []string
	for i := range 10 {
		all = append(all, fmt.Sprintf("line %d\n", i+1))
	}
	all = append(all, "no newline")
	for _, c := range []struct {
		tail int
		want string
	}{
		{-1, strings.Join(all, "")},
		{100, strings.Join(all, "")},
	} {
		out, errOut := e.logs(runtime.LogRequest{Name: "talk", Tail: c.tail})
		if out != c.want {
			e.Errorf("tail %d: %q, want %q", c.tail, out, c.want)
		}
		if errOut != "to stderr\n" {
			e.Errorf("tail %d: stderr %q", c.tail, errOut)
		}
	}
	if out, errOut := e.logs(runtime.LogRequest{Name: "talk", Tail: 0}); out+errOut != "" {
		e.Errorf("tail 0: %q", out+errOut)
	}
	// Of a run that has ended, following is reading.
	if out, _ := e.logs(runtime.LogRequest{Name: "talk", Tail: -1, Follow: true}); out != strings.Join(all, "") {
		e.Errorf("follow of a dead run: %q", out)
	}
	// Removal keeps it.
	if err := e.d.Remove(e.ctx, w.Instance); err != nil {
		e.Fatal(err)
	}
	if out, _ := e.logs(runtime.LogRequest{Name: "talk", Tail: -1}); out != strings.Join(all, "") {
		e.Errorf("after removal: %q", out)
	}
}

func testChatty(e *env) {
	const mb = 20
	w := e.start("chatty", "-print-mb", fmt.Sprint(mb))
	if w = e.ended(w.Instance); w.Exit.Code != 0 {
		e.Fatalf("exit %+v", w.Exit)
	}
	out, errOut := e.logs(runtime.LogRequest{Name: "chatty", Tail: -1})
	if strings.Contains(errOut, "dropped") {
		e.Fatalf("output was dropped: %s", errOut)
	}
	if got := checkNumbered(e, out); got != mb*10_000 {
		e.Errorf("%d lines, want %d", got, mb*10_000)
	}
	// Tail is exact here too.
	out, _ = e.logs(runtime.LogRequest{Name: "chatty", Tail: 1001})
	if n := strings.Count(out, "\n"); n < 1000 || n > 1001 { // one of them may be of stderr
		e.Errorf("tail of 1001 shows %d lines", n)
	}
}

// checkNumbered checks the lines that a workload prints with -print-mb: each
// one once, in order, from the first on.
func checkNumbered(e *env, out string) int {
	e.Helper()
	n := 0
	for line := range strings.Lines(out) {
		if want := fmt.Sprintf("%010d ", n); !strings.HasPrefix(line, want) || len(line) != 100 {
			e.Fatalf("line %d is %q", n, line)
		}
		n++
	}
	return n
}

func testPrevious(e *env) {
	var last runtime.Workload
	for i := range 3 {
		last = e.start("again", "-echo", fmt.Sprintf("run %d", i))
		e.ended(last.Instance)
	}
	if out, _ := e.logs(runtime.LogRequest{Name: "again", Tail: -1}); out != "run 2\n" {
		e.Errorf("newest run: %q", out)
	}
	if out, _ := e.logs(runtime.LogRequest{Name: "again", Tail: -1, Previous: true}); out != "run 1\n" {
		e.Errorf("previous run: %q", out)
	}
	if out, _ := e.logs(runtime.LogRequest{Name: "again", Tail: -1, Previous: true, Instance: last.Instance}); out != "run 1\n" {
		e.Errorf("run before the last instance: %q", out)
	}
}
