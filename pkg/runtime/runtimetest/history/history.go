// Package history is the truth about what ran: a file to which every workload
// of a test appends its own starts, ticks and stops, and a checker that reads it.
//
// A line has seven fields:
//
//	<ns> <event> <name> <epoch> <node> <instance> <pid>
//
// where ns is CLOCK_BOOTTIME, one clock for all processes of a machine, and an
// empty field is written as "-". The checker does not trust what schedulers
// say: two runs of one name overlap when one shows a sign of life between the
// first and the last sign of the other.
package history

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
)

// Event is what a line tells.
type Event string

// The events of a run.
const (
	Start Event = "start"
	Tick  Event = "tick"
	Stop  Event = "stop"
)

// Line is one line of a history.
type Line struct {
	At       int64 // nanoseconds of CLOCK_BOOTTIME
	Event    Event
	Name     string
	Epoch    uint64
	Node     string
	Instance string
	Pid      int
}

const fields = 7

// String renders the line as it stands in the file, without the newline.
func (l Line) String() string {
	return fmt.Sprintf("%d %s %s %d %s %s %d", l.At, l.Event, dash(l.Name), l.Epoch, dash(l.Node), dash(l.Instance), l.Pid)
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func undash(s string) string {
	if s == "-" {
		return ""
	}
	return s
}

// ParseLine parses one line.
func ParseLine(s string) (Line, error) {
	f := strings.Fields(s)
	if len(f) != fields {
		return Line{}, fmt.Errorf("history line %q: %d fields, want %d", s, len(f), fields)
	}
	at, err1 := strconv.ParseInt(f[0], 10, 64)
	epoch, err2 := strconv.ParseUint(f[3], 10, 64)
	pid, err3 := strconv.Atoi(f[6])
	if err := errors.Join(err1, err2, err3); err != nil {
		return Line{}, fmt.Errorf("history line %q: %w", s, err)
	}
	switch e := Event(f[1]); e {
	case Start, Tick, Stop:
		return Line{at, e, undash(f[2]), epoch, undash(f[4]), undash(f[5]), pid}, nil
	}
	return Line{}, fmt.Errorf("history line %q: unknown event %q", s, f[1])
}

// Parse reads a whole history. The last line may be torn, by a process that
// was killed while it wrote; any other that cannot be read is an error.
func Parse(r io.Reader) ([]Line, error) {
	var lines []Line
	in := bufio.NewReader(r)
	for {
		s, err := in.ReadString('\n')
		if errors.Is(err, io.EOF) {
			return lines, nil
		}
		if err != nil {
			return nil, err
		}
		l, err := ParseLine(s)
		if err != nil {
			return nil, err
		}
		lines = append(lines, l)
	}
}

// ReadFile reads the history in a file.
func ReadFile(path string) ([]Line, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return Parse(f)
}

// Run is the life of one process as the history shows it.
type Run struct {
	Name     string
	Epoch    uint64 // at its start
	Node     string
	Instance string
	Pid      int
	First    int64 // its first and last sign of life
	Last     int64
	Starts   int
	Stops    int
	Ticks    int
}

func (r *Run) String() string {
	return fmt.Sprintf("%s on %s at epoch %d (instance %s, pid %d)", r.Name, dash(r.Node), r.Epoch, dash(r.Instance), r.Pid)
}

// Runs groups lines by process, in the order of their first signs of life.
func Runs(lines []Line) []*Run {
	type key struct {
		name, node, instance string
		pid                  int
	}
	byKey := make(map[key]*Run)
	var runs []*Run
	for _, l := range lines {
		k := key{l.Name, l.Node, l.Instance, l.Pid}
		r := byKey[k]
		if r == nil {
			r = &Run{Name: l.Name, Epoch: l.Epoch, Node: l.Node, Instance: l.Instance, Pid: l.Pid, First: l.At, Last: l.At}
			byKey[k] = r
			runs = append(runs, r)
		}
		r.First, r.Last = min(r.First, l.At), max(r.Last, l.At)
		switch l.Event {
		case Start:
			r.Starts++
		case Tick:
			r.Ticks++
		case Stop:
			r.Stops++
		}
	}
	slices.SortFunc(runs, func(a, b *Run) int { return cmp.Compare(a.First, b.First) })
	return runs
}
