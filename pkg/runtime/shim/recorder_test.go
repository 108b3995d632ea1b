//go:build linux

package shim

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// readLog returns the text of a log directory by stream, and the records of all.
func readLog(t *testing.T, dir string) (text [3]string, records []string) {
	t.Helper()
	for n := 1; ; n++ {
		b, err := os.ReadFile(SegmentPath(dir, n))
		if errors.Is(err, os.ErrNotExist) {
			if n > 1 && len(records) > 0 {
				return text, records
			}
			if n > 1000 {
				t.Fatal("no segments")
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(b)) {
			line, ok := strings.CutSuffix(line, "\n")
			r, parsed := ParseRecord([]byte(line))
			if !ok || !parsed {
				t.Fatalf("segment %d: torn record %q", n, line)
			}
			text[r.Stream] += string(r.Text)
			if r.Full {
				text[r.Stream] += "\n"
			}
			records = append(records, line[len(timeLayout)+1:])
		}
	}
}

func newTestRecorder(t *testing.T, dir string, maxBytes int64, maxFiles int) *recorder {
	t.Helper()
	segs, err := newSegments(dir, maxBytes, maxFiles)
	if err != nil {
		t.Fatal(err)
	}
	return newRecorder(segs)
}

// TestRecorderKeepsEveryByte cuts one text at every place, and gets it back.
func TestRecorderKeepsEveryByte(t *testing.T) {
	text := "first\n\nthird " + strings.Repeat("long ", 9000) + "\nlast without end"
	for _, cut := range []int{1, 2, 5, 6, 7, 100, MaxRecord - 1, MaxRecord, MaxRecord + 1, 2*MaxRecord + 3, len(text)} {
		dir := t.TempDir()
		r := newTestRecorder(t, dir, 10<<20, 5)
		at := time.Unix(100, 0)
		for rest := text; rest != ""; {
			n := min(cut, len(rest))
			r.add(StreamOut, at, []byte(rest[:n]))
			r.add(StreamErr, at, []byte("e"))
			rest = rest[n:]
		}
		r.finish()
		got, records := readLog(t, dir)
		if got[StreamOut] != text {
			t.Errorf("cut at %d: %d bytes came back as %d", cut, len(text), len(got[StreamOut]))
		}
		if want := strings.Repeat("e", (len(text)+cut-1)/cut); got[StreamErr] != want {
			t.Errorf("cut at %d: stderr %q, want %q", cut, got[StreamErr], want)
		}
		for _, rec := range records {
			if len(rec) > HeaderLen+MaxRecord {
				t.Errorf("cut at %d: record of %d bytes", cut, len(rec))
			}
		}
	}
}

func TestRecorderPartial(t *testing.T) {
	dir := t.TempDir()
	r := newTestRecorder(t, dir, 1<<20, 5)
	at := time.Unix(100, 0)
	r.add(StreamOut, at, []byte("name: "))
	if !r.unfinished() {
		t.Error("an unfinished line is not known as one")
	}
	r.flushPartial()
	if r.unfinished() {
		t.Error("nothing is unfinished after it was written")
	}
	r.add(StreamOut, at, []byte("joe\nnext\n"))
	r.finish()
	_, records := readLog(t, dir)
	if want := []string{"stdout P name: ", "stdout F joe", "stdout F next"}; strings.Join(records, "|") != strings.Join(want, "|") {
		t.Errorf("records %q, want %q", records, want)
	}
}

// TestSegmentsRotate: no more bytes and files than allowed, whole records, and
// numbers that only rise.
func TestSegmentsRotate(t *testing.T) {
	dir := t.TempDir()
	const maxBytes, maxFiles = 4096, 3
	r := newTestRecorder(t, dir, maxBytes, maxFiles)
	line := strings.Repeat("z", 99) + "\n"
	for range 500 {
		r.add(StreamOut, time.Unix(1, 0), []byte(line))
		r.flush()
	}
	r.finish()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) != maxFiles {
		t.Errorf("%d segments, want %d", len(entries), maxFiles)
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || info.Size() > maxBytes || info.Mode().Perm() != 0o600 {
			t.Errorf("segment %s: %v, %v", e.Name(), info, err)
		}
		if SegmentNumber(e.Name()) < 10 {
			t.Errorf("segment %s after some dozen rotations", e.Name())
		}
	}
	if n := SegmentNumber("/x/notes.txt"); n != 0 {
		t.Errorf("a file that is no segment has number %d", n)
	}
}

// limitFileSize makes every write beyond a size fail, as a full disk does,
// with as much of it written as fits.
func limitFileSize(t *testing.T, size uint64) (lift func()) {
	t.Helper()
	var old syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &old); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: size, Max: old.Max}); err != nil {
		t.Fatal(err)
	}
	lift = func() {
		if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &old); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(lift)
	return lift
}

// TestRecorderOnAFullDisk: what does not fit is dropped in whole records and
// counted to the byte; lines that were open are ended before more is written.
func TestRecorderOnAFullDisk(t *testing.T) {
	dir := t.TempDir()
	r := newTestRecorder(t, dir, 1<<20, 5)
	at := time.Unix(100, 0)
	line := strings.Repeat("x", 99) + "\n"
	r.add(StreamErr, at, []byte("half a line"))
	r.flushPartial()
	lift := limitFileSize(t, 1000)
	r.add(StreamOut, at, []byte(strings.Repeat(line, 50)))
	r.flush() // some fit
	for range 10 {
		r.add(StreamOut, at, []byte(line))
		r.flush()
	}
	lift()
	r.add(StreamErr, at, []byte("other half\n"))
	r.add(StreamOut, at, []byte("after\n"))
	r.finish()

	text, records := readLog(t, dir)
	kept := strings.Count(text[StreamOut], line)
	if kept == 0 || kept >= 50 {
		t.Fatalf("%d lines were kept: the disk was not full in the middle", kept)
	}
	if want := int64(60-kept) * 100; r.total != want {
		t.Errorf("%d bytes are counted as dropped, want %d", r.total, want)
	}
	// A remark is short and may fit where a line does not, so there can be
	// several; together they tell of every byte.
	var admitted int64
	for line := range strings.Lines(text[StreamShim]) {
		var n int64
		if _, err := fmt.Sscanf(line, "dropped %d bytes of output: file too large", &n); err != nil {
			t.Errorf("remark %q: %v", line, err)
		}
		admitted += n
	}
	if admitted != r.total {
		t.Errorf("%d bytes are admitted to be missing, want %d", admitted, r.total)
	}
	if !strings.HasPrefix(text[StreamErr], "half a line\nother half\n") {
		t.Errorf("a line that was open when text was lost goes on afterwards: %q", text[StreamErr])
	}
	if last := records[len(records)-1]; last != "stdout F after" {
		t.Errorf("the log ends with %q", last)
	}
}

// TestRecorderCannotRotate: where no new segment can be made output is
// dropped, and logging goes on when one can.
func TestRecorderCannotRotate(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "log")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	r := newTestRecorder(t, dir, 4096, 3)
	line := []byte(strings.Repeat("x", 99) + "\n")
	away := dir + ".away"
	if err := os.Rename(dir, away); err != nil {
		t.Fatal(err)
	}
	for range 100 {
		r.add(StreamOut, time.Unix(1, 0), line)
		r.flush()
	}
	if r.total == 0 {
		t.Error("nothing was dropped without a directory to rotate in")
	}
	if err := os.Rename(away, dir); err != nil {
		t.Fatal(err)
	}
	r.add(StreamOut, time.Unix(1, 0), []byte("after\n"))
	r.finish()
	text, _ := readLog(t, dir)
	if !strings.Contains(text[StreamShim], "dropped ") || !strings.HasSuffix(text[StreamOut], "after\n") {
		t.Errorf("after it came back: %q, %q", text[StreamShim], text[StreamOut][max(0, len(text[StreamOut])-50):])
	}
}
