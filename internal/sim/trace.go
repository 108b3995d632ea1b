package sim

import (
	"fmt"
	"strings"
	"time"
)

// tailLines is how much of a trace a failure prints: enough to see the last few
// leases of every node.
const tailLines = 80

// trace is what happened. Its hash covers every line, kept or not, so two runs
// of a seed can be compared without keeping anything.
type trace struct {
	hash  uint64
	keep  bool // render lines: only when a seed is replayed
	lines []line
	all   bool // keep every line, not only the tail
}

type line struct {
	at     time.Duration
	node   int
	what   string
	detail string
	n      uint64
}

const (
	fnvOffset = 14695981039346656037
	fnvPrime  = 1099511628211
)

func (t *trace) word(v uint64) {
	for range 8 {
		t.hash = (t.hash ^ v&0xff) * fnvPrime
		v >>= 8
	}
}

func fnvHash(b []byte) uint64 {
	h := uint64(fnvOffset)
	for _, c := range b {
		h = (h ^ uint64(c)) * fnvPrime
	}
	return h
}

func (t *trace) text(s string) {
	for i := range len(s) {
		t.hash = (t.hash ^ uint64(s[i])) * fnvPrime
	}
}

// note adds one line. node is -1 for what no node did.
func (w *world) note(node int, what, detail string, n uint64) {
	t := &w.trace
	t.word(uint64(w.now))
	t.word(uint64(node + 1))
	t.text(what)
	t.text(detail)
	t.word(n)
	if !t.keep {
		return
	}
	t.lines = append(t.lines, line{at: w.now, node: node, what: what, detail: detail, n: n})
	if !t.all && len(t.lines) > 4*tailLines {
		t.lines = append(t.lines[:0], t.lines[len(t.lines)-tailLines:]...)
	}
}

// noteBody adds the line of a write. What was written is part of the hash, and is
// rendered only where lines are.
func (w *world) noteBody(node int, what, key string, body []byte) {
	h := fnvHash(body)
	w.note(node, what, key, h)
	if t := &w.trace; t.keep {
		l := &t.lines[len(t.lines)-1]
		l.detail, l.n = key+" "+string(body), 0
	}
}

// tail renders the last lines.
func (w *world) tail() string {
	lines := w.trace.lines
	if !w.trace.all && len(lines) > tailLines {
		lines = lines[len(lines)-tailLines:]
	}
	var b strings.Builder
	for _, l := range lines {
		who := "-"
		if l.node >= 0 {
			who = w.nodes[l.node].host
		}
		fmt.Fprintf(&b, "%10.6fs %-4s %-14s %s", l.at.Seconds(), who, l.what, l.detail)
		if l.n != 0 {
			fmt.Fprintf(&b, " %d", l.n)
		}
		b.WriteByte('\n')
	}
	return b.String()
}
