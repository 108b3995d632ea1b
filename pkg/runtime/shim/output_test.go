//go:build linux

package shim

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestHungDisk: a log whose disk does not answer costs the workload
// StallLimit, once, and then nothing; the end of the run does not wait for it.
func TestHungDisk(t *testing.T) {
	dir := t.TempDir()
	segs, err := newSegments(dir, 1<<20, 3)
	if err != nil {
		t.Fatal(err)
	}
	// A pipe that nobody reads takes the first bytes and then hangs, as a
	// network file system does. Its write end takes the segment's place.
	var fds [2]int
	if err := syscall.Pipe2(fds[:], syscall.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	hung := os.NewFile(uintptr(fds[1]), "hung")
	unhang := os.NewFile(uintptr(fds[0]), "unhang")
	out := newOutput(segs, StallLimit)
	out.log.write = func(b []byte) (int, error) { return hung.Write(b) }
	w, err := out.pipe(StreamOut)
	if err != nil {
		t.Fatal(err)
	}
	out.start()
	const mb = 64
	block := bytes.Repeat([]byte(strings.Repeat("x", 99)+"\n"), 10_000)
	begin := time.Now()
	for range mb {
		if _, err := w.Write(block); err != nil {
			t.Fatal(err)
		}
	}
	took := time.Since(begin)
	if took > 20*StallLimit {
		t.Errorf("a hung disk blocked the workload for %v", took)
	}
	w.Close()
	begin = time.Now()
	out.finish(50 * time.Millisecond)
	if d := time.Since(begin); d > 5*time.Second {
		t.Errorf("the end of the run waited %v for a hung disk", d)
	}
	if got, atLeast := out.dropped(), int64(mb*len(block)-4<<20); got < atLeast {
		t.Errorf("%d bytes are counted as dropped, want at least %d", got, atLeast)
	}
	// Let the writer end: read what it wants to write until it has closed.
	go func() {
		<-out.done
		hung.Close()
	}()
	buf := make([]byte, 64<<10)
	for {
		if n, err := unhang.Read(buf); n == 0 || err != nil {
			break
		}
	}
	unhang.Close()
}

// TestFinishDoesNotWaitForStrangers: what is in a pipe is taken though somebody
// else holds its other end open.
func TestFinishDoesNotWaitForStrangers(t *testing.T) {
	dir := t.TempDir()
	segs, err := newSegments(dir, 1<<20, 3)
	if err != nil {
		t.Fatal(err)
	}
	out := newOutput(segs, StallLimit)
	w, err := out.pipe(StreamOut)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close() // the stranger's, to the end of the test
	out.start()
	want := strings.Repeat("line\n", 10_000)
	if _, err := w.WriteString(want); err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	out.finish(10 * time.Second)
	if d := time.Since(begin); d > 5*time.Second {
		t.Errorf("finish took %v", d)
	}
	text, _ := readLog(t, dir)
	if text[StreamOut] != want {
		t.Errorf("%d bytes in the log, want %d", len(text[StreamOut]), len(want))
	}
}

func TestCredit(t *testing.T) {
	c := credit{limit: StallLimit}
	if c.left() != StallLimit {
		t.Errorf("at first %v may be waited", c.left())
	}
	c.spend(StallLimit)
	if c.left() > 0 {
		t.Errorf("%v is left when all is spent", c.left())
	}
	c.earn(MinRate / 100)
	if c.left().Round(time.Microsecond) != 10*time.Millisecond {
		t.Errorf("%v is left after output that earns 10ms", c.left())
	}
	c.earn(10 * MinRate)
	if c.left() != StallLimit {
		t.Errorf("%v is left after much output: more than the limit is never earned", c.left())
	}
}

func BenchmarkRecorder(b *testing.B) {
	segs, err := newSegments(b.TempDir(), 64<<20, 2)
	if err != nil {
		b.Fatal(err)
	}
	r := newRecorder(segs)
	r.write = func(p []byte) (int, error) { return len(p), nil }
	block := bytes.Repeat([]byte(strings.Repeat("x", 99)+"\n"), 300)
	b.SetBytes(int64(len(block)))
	at := time.Now()
	for b.Loop() {
		r.add(StreamOut, at, block)
	}
}

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
