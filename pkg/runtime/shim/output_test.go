//go:build linux

package shim

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestStall is about a disk that takes nothing: the writer of the log is started
// only after the workload has written all that it would.
func TestStall(t *testing.T) {
	text := bytes.Repeat([]byte(strings.Repeat("x", 63)+"\n"), 2*maxBuffers*bufferSize/64)
	output := func(t *testing.T, stall time.Duration) (o *output, w *os.File, kept func() int) {
		dir := t.TempDir()
		segs, err := newSegments(dir, 64<<20, 2)
		if err != nil {
			t.Fatal(err)
		}
		o = newOutput(segs, stall)
		if w, err = o.pipe(StreamOut); err != nil {
			t.Fatal(err)
		}
		return o, w, func() int { return loggedBytes(t, dir) }
	}

	t.Run("impatient: the workload goes on, and what it lost is counted", func(t *testing.T) {
		o, w, kept := output(t, time.Millisecond)
		if _, err := w.Write(text); err != nil { // returns although nobody writes the log
			t.Fatal(err)
		}
		_ = w.Close()
		o.start()
		o.finish(time.Minute)
		if o.dropped() == 0 || kept()+int(o.dropped()) != len(text) {
			t.Errorf("of %d bytes %d are in the log and %d counted as dropped", len(text), kept(), o.dropped())
		}
	})

	t.Run("patient: the workload waits, and loses nothing", func(t *testing.T) {
		o, w, kept := output(t, time.Hour)
		wrote := make(chan error, 1)
		go func() {
			_, err := w.Write(text)
			_ = w.Close()
			wrote <- err
		}()
		for o.inUse.Load() < maxBuffers {
			time.Sleep(time.Millisecond)
		}
		select {
		case err := <-wrote:
			t.Fatalf("more was written than fits: %v", err)
		default:
		}
		o.start()
		if err := <-wrote; err != nil {
			t.Fatal(err)
		}
		o.finish(time.Minute)
		if o.dropped() != 0 || kept() != len(text) {
			t.Errorf("of %d bytes %d are in the log and %d counted as dropped", len(text), kept(), o.dropped())
		}
	})
}

// loggedBytes counts the bytes of a workload's standard output in a log.
func loggedBytes(t *testing.T, dir string) int {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, path := range files {
		body, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(body)) {
			if _, text, ok := strings.Cut(line, " stdout F "); ok {
				n += len(text)
			} else if _, text, ok := strings.Cut(line, " stdout P "); ok {
				n += len(text) - 1 // the line break is the log's
			}
		}
	}
	return n
}
