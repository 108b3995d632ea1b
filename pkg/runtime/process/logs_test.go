//go:build linux

package process_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/barista-fleet/barista/pkg/reconcile"
	"github.com/barista-fleet/barista/pkg/runtime"
	"github.com/barista-fleet/barista/pkg/runtime/process"
	"github.com/barista-fleet/barista/test/need"
)

const smallSegment = 64 << 10

// numbered checks lines of 100 bytes that begin with consecutive numbers, the
// first of them being first, and returns how many there are.
func numbered(t *testing.T, text string, first int) int {
	t.Helper()
	n := 0
	for line := range strings.Lines(text) {
		want := fmt.Sprintf("%010d ", first+n)
		if !strings.HasPrefix(line, want) || len(line) != 100 {
			t.Fatalf("line %d is %q, want it to begin with %q", n, line, want)
		}
		n++
	}
	return n
}

// TestFollowAcrossRotation: while a run's output goes through dozens of
// segments, a reader that follows sees every line once. None is removed before
// the end, however slow this machine is; TestSlowFollower is about that.
func TestFollowAcrossRotation(t *testing.T) {
	m := newMachine(t, process.Config{LogBytes: smallSegment, LogFiles: 1000})
	m.openDriver()
	const mb = 4
	w := m.start(request(t, "spin", 0, "-print-mb", strconv.Itoa(mb), "-rate", "4"))
	const readers = 3
	outs := make([]bytes.Buffer, readers)
	var wg sync.WaitGroup
	for i := range readers {
		wg.Go(func() {
			err := m.d.Logs(m.ctx, runtime.LogRequest{Name: "spin", Tail: -1, Follow: true, Stdout: &outs[i]})
			if err != nil {
				t.Errorf("follow: %v", err)
			}
		})
	}
	wg.Wait() // each ends with the run
	if got := m.get(w.Instance); got.State != runtime.StateExited {
		t.Errorf("follow returned while the run is %s", got.State)
	}
	for i := range outs {
		if n := numbered(t, outs[i].String(), 0); n != mb*10_000 {
			t.Errorf("reader %d saw %d lines, want %d", i, n, mb*10_000)
		}
	}
	segments := m.segments("spin")
	if len(segments) < 50 {
		t.Errorf("%d segments: the test needs dozens", len(segments))
	}
	for _, s := range segments {
		if st, err := os.Stat(s); err != nil || st.Size() > smallSegment {
			t.Errorf("segment %s: %v, %v", s, st, err)
		}
	}
}

func (m *machine) segments(name string) []string {
	m.Helper()
	found, err := filepath.Glob(filepath.Join(m.cfg.Dir, "logs", name, "*", "*.log"))
	if err != nil {
		m.Fatal(err)
	}
	return found
}

// TestSlowFollower: a reader slower than the rotation is told of the gap and
// goes on behind it; it never shows the wrong text as if nothing were missing.
func TestSlowFollower(t *testing.T) {
	m := newMachine(t, process.Config{LogBytes: smallSegment, LogFiles: 2})
	m.openDriver()
	w := m.start(request(t, "spin", 0, "-print-mb", "2", "-rate", "8"))
	var out, errOut bytes.Buffer
	waited := false
	err := m.d.Logs(m.ctx, runtime.LogRequest{Name: "spin", Tail: -1, Follow: true, Stderr: &errOut, Stdout: writerFunc(func(p []byte) (int, error) {
		if !waited {
			waited = true
			m.ended(w.Instance) // the reader sleeps through all that is written
		}
		return out.Write(p)
	})})
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(errOut.String(), "rotated away before they could be read") {
		t.Errorf("the gap is not admitted: %q", errOut.String())
	}
	last := -1
	for line := range strings.Lines(out.String()) {
		n, err := strconv.Atoi(line[:10])
		if err != nil || len(line) != 100 || n <= last {
			t.Fatalf("line %q after number %d", line, last)
		}
		last = n
	}
	if last != 2*10_000-1 {
		t.Errorf("the last line shown is number %d, want %d", last, 2*10_000-1)
	}
}

// TestFollowFromTail: a follower that begins in the middle shows the last
// lines and then all that come.
func TestFollowFromTail(t *testing.T) {
	m := newMachine(t, process.Config{LogBytes: smallSegment, LogFiles: 1000})
	m.openDriver()
	const total = 3 * 10_000
	m.start(request(t, "spin", 0, "-print-mb", "3", "-rate", "4"))
	for _, tail := range []int{0, 1, 17, 5000} {
		var b bytes.Buffer
		if err := m.d.Logs(m.ctx, runtime.LogRequest{Name: "spin", Tail: tail, Follow: true, Stdout: &b}); err != nil {
			t.Fatal(err)
		}
		first := total
		if b.Len() > 0 {
			var err error
			if first, err = strconv.Atoi(b.String()[:10]); err != nil {
				t.Fatal(err)
			}
		}
		if n := numbered(t, b.String(), first); first+n != total {
			t.Errorf("tail %d: lines %d to %d, want them to go to %d", tail, first, first+n, total)
		}
	}
}

// TestTail: exactly the last lines, whatever segment they are in, and with
// lines of two streams and unfinished ones among them.
func TestTail(t *testing.T) {
	m := newMachine(t, process.Config{LogBytes: smallSegment, LogFiles: 20})
	m.openDriver()
	const lines = 5000
	w := m.start(request(t, "count", 0, "-print-lines", strconv.Itoa(lines), "-echo-raw", "unfinished"))
	m.ended(w.Instance)
	if n := len(m.segments("count")); n < 3 {
		t.Fatalf("%d segments: the test needs several", n)
	}
	want := make([]string, 0, lines+1)
	for i := range lines {
		want = append(want, fmt.Sprintf("line %d\n", i+1))
	}
	want = append(want, "unfinished")
	for _, tail := range []int{0, 1, 2, 3, 1000, 1400, 1401, 1402, 4999, 5000, 5001, 9999, -1} {
		var b bytes.Buffer
		if err := m.d.Logs(m.ctx, runtime.LogRequest{Name: "count", Tail: tail, Stdout: &b, Stderr: &b}); err != nil {
			t.Fatal(err)
		}
		n := tail
		if n < 0 || n > len(want) {
			n = len(want)
		}
		if got := b.String(); got != strings.Join(want[len(want)-n:], "") {
			t.Errorf("tail %d: %d bytes from %.20q on, want %d lines from %q on", tail, len(got), got, n, want[max(len(want)-n, 0)%len(want)])
		}
	}
}

// TestFollowEndsWithItsContext: also when nothing is ever written.
func TestFollowEndsWithItsContext(t *testing.T) {
	m := newMachine(t, process.Config{})
	m.openDriver()
	m.start(request(t, "silent", 0, "-for", "-1s"))
	ctx, cancel := context.WithTimeout(m.ctx, 50*time.Millisecond)
	defer cancel()
	err := m.d.Logs(ctx, runtime.LogRequest{Name: "silent", Tail: -1, Follow: true})
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("follow: %v", err)
	}
}

// TestPartialLineIsShown: a prompt is seen without the newline that never comes.
func TestPartialLineIsShown(t *testing.T) {
	m := newMachine(t, process.Config{})
	m.openDriver()
	m.start(request(t, "prompt", 0, "-echo-raw", "password: ", "-for", "-1s"))
	ctx, cancel := context.WithTimeout(m.ctx, patience)
	defer cancel()
	var b bytes.Buffer
	err := m.d.Logs(ctx, runtime.LogRequest{Name: "prompt", Tail: -1, Follow: true, Stdout: writerFunc(func(p []byte) (int, error) {
		b.Write(p)
		cancel()
		return len(p), nil
	})})
	if b.String() != "password: " {
		t.Errorf("prompt %q (%v)", b.String(), err)
	}
}

// TestOutputIsBounded: the output kept of a name's removed runs, and of names
// without runs, is bounded; that of runs that are there stays.
func TestOutputIsBounded(t *testing.T) {
	m := newMachine(t, process.Config{KeepRuns: 2, KeepNames: 5})
	m.openDriver()
	runs := func(name string) []string {
		found, err := filepath.Glob(filepath.Join(m.cfg.Dir, "logs", name, "*"))
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	alive := m.start(request(t, "again", 0, "-for", "-1s", "-echo", "run 0"))
	for i := 1; i <= 5; i++ {
		w := m.start(request(t, "again", i, "-echo", fmt.Sprintf("run %d", i)))
		m.ended(w.Instance)
		if err := m.d.Remove(m.ctx, w.Instance); err != nil {
			t.Fatal(err)
		}
	}
	if got := runs("again"); len(got) != 3 || !strings.HasSuffix(got[0], alive.Instance) {
		t.Errorf("output of %q is kept, want that of the live run and of two removed ones", got)
	}
	if out, _ := m.logs("again"); out != "run 5\n" {
		t.Errorf("newest run's output: %q", out)
	}
	for i := range 70 {
		w := m.start(request(t, fmt.Sprintf("job-%d", i), 0))
		m.ended(w.Instance)
		if err := m.d.Remove(m.ctx, w.Instance); err != nil {
			t.Fatal(err)
		}
	}
	names, err := os.ReadDir(filepath.Join(m.cfg.Dir, "logs"))
	if err != nil {
		t.Fatal(err)
	}
	if len(names) > 5+64 {
		t.Errorf("%d names keep output, want a bound", len(names))
	}
	if len(runs("again")) != 3 {
		t.Error("the output of a live run's name was removed")
	}
	err = m.d.Logs(m.ctx, runtime.LogRequest{Name: "job-0", Tail: -1})
	if !errors.Is(err, reconcile.ErrNoInstance) {
		t.Errorf("output of the oldest job: %v", err)
	}
}

// mountTmpfs mounts a file system of a size that can be filled.
func mountTmpfs(t *testing.T, size string) string {
	t.Helper()
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size="+size); err != nil {
		need.Missing(t, "no right to mount a tmpfs (run the tests as root): %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// fillDisk takes all space that is left, and returns a function that gives it
// back.
func fillDisk(t *testing.T, dir string) (free func()) {
	t.Helper()
	path := filepath.Join(dir, "ballast")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, size := range []int{64 << 10, 4 << 10, 1} {
		for {
			if _, err := f.Write(make([]byte, size)); err != nil {
				break
			}
		}
	}
	return func() {
		t.Helper()
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
}

// TestDiskFull: with no space left a chatty workload is not blocked, its exit
// is kept, its epoch can be raised, and it can be stopped and removed; once
// there is space again the log says what is missing.
func TestDiskFull(t *testing.T) {
	for _, form := range forms {
		t.Run(form.name, func(t *testing.T) {
			cfg := form.cfg
			cfg.Dir = filepath.Join(mountTmpfs(t, "2m"), "state")
			cfg.LogBytes = 8 << 20 // so that rotation does not make room
			m := newMachine(t, cfg)
			m.openDriver()
			gate := filepath.Join(t.TempDir(), "gate")
			quiet := m.start(request(t, "quiet", 0, "-for", "-1s", "-ignore-term"))
			w := m.start(request(t, "chatty", 0, "-echo", "before", "-print-mb", "50", "-rate", "50", "-until-file", gate, "-exit", "6"))
			m.output(w, "before")
			free := fillDisk(t, cfg.Dir)

			// 50 MB at 50 MB/s: it ends in time only if it is never blocked.
			begin := time.Now()
			m.waitExitOrGate(w, gate)
			if d := time.Since(begin); d > 10*time.Second {
				t.Errorf("the workload took %v to print 50 MB at 50 MB/s", d)
			}
			if got := m.ended(w.Instance); got.State != runtime.StateExited || got.Exit.Code != 6 {
				t.Errorf("its end on a full disk: %s %+v, want code 6", got.State, got.Exit)
			}
			if err := m.d.SetEpoch(m.ctx, quiet.Instance, 5, 1); err != nil {
				t.Errorf("set epoch on a full disk: %v", err)
			}
			if got := m.get(quiet.Instance); got.Epoch != 5 {
				t.Errorf("epoch %d, want 5", got.Epoch)
			}
			got, err := m.d.Stop(m.ctx, quiet.Instance, 10*time.Millisecond)
			if err != nil || got.State != runtime.StateExited || got.Exit.Signal != int(syscall.SIGKILL) {
				t.Errorf("stop on a full disk: %+v, %v", got, err)
			}
			if err := m.d.Remove(m.ctx, quiet.Instance); err != nil {
				t.Errorf("remove on a full disk: %v", err)
			}
			// A new run cannot start, which is not its spec's fault. What was
			// removed has made room, so that is taken first.
			free()
			free = fillDisk(t, cfg.Dir)
			_, err = m.d.Start(m.ctx, request(t, "new", 0))
			if err == nil || errors.Is(err, reconcile.ErrSpec) {
				t.Errorf("start on a full disk: %v", err)
			}
			free()
			m.start(request(t, "new", 0))
			m.ended(request(t, "new", 0).Instance)
		})
	}
}

// waitExitOrGate opens the gate, upon which the workload ends once it has
// printed everything, and waits for that.
func (m *machine) waitExitOrGate(w runtime.Workload, gate string) {
	m.Helper()
	if err := os.WriteFile(gate, nil, 0o666); err != nil {
		m.Fatal(err)
	}
	m.ended(w.Instance)
}

// TestDroppedIsAdmitted: output lost on a full disk is counted in the log as
// soon as a write succeeds, and what comes later is whole.
func TestDroppedIsAdmitted(t *testing.T) {
	cfg := process.Config{Dir: filepath.Join(mountTmpfs(t, "2m"), "state"), LogBytes: 8 << 20}
	m := newMachine(t, cfg)
	m.openDriver()
	w := m.start(request(t, "chatty", 0, "-echo", "before", "-print-mb", "8", "-rate", "2"))
	m.output(w, "before")
	free := fillDisk(t, cfg.Dir)
	time.Sleep(500 * time.Millisecond) // a megabyte with nowhere to go
	free()
	m.ended(w.Instance)
	out, errOut := m.logs("chatty")
	i := strings.Index(errOut, "dropped ")
	if i < 0 {
		t.Fatalf("nothing is said to be missing: %q", errOut)
	}
	var dropped int
	if _, err := fmt.Sscanf(errOut[i:], "dropped %d bytes", &dropped); err != nil || dropped <= 0 {
		t.Errorf("said to be missing: %q", errOut[i:])
	}
	if !strings.Contains(errOut, "no space left on device") {
		t.Errorf("no reason is given: %q", errOut)
	}
	// The last line that was printed is there: logging went on.
	if last := fmt.Sprintf("%010d ", 8*10_000-1); !strings.Contains(out, last) {
		t.Errorf("the log ends with %q, want %q", out[max(0, len(out)-100):], last)
	}
}

// TestFastWriterIsNotBlocked: what prints as fast as it can comes to its end, and
// loses nothing that is not admitted. How fast that is belongs to the benchmarks: a
// busy machine may be slower than the writer is patient.
func TestFastWriterIsNotBlocked(t *testing.T) {
	const mb = 150
	// In memory: the machine's disk is not what is tested.
	dir := filepath.Join(mountTmpfs(t, "400m"), "state")
	m := newMachine(t, process.Config{Dir: dir, LogBytes: 32 << 20, LogFiles: 10})
	m.openDriver()
	w := m.start(request(t, "fast", 0, "-print-mb", strconv.Itoa(mb)))
	got := m.ended(w.Instance)
	if got.Exit.Code != 0 {
		t.Fatalf("ended with %+v", got.Exit)
	}
	out, errOut := m.logs("fast")
	if strings.Contains(errOut, "dropped") {
		t.Logf("this machine was too slow: %q", errOut)
	} else if n := numbered(t, out, 0); n != mb*10_000 {
		t.Errorf("%d lines, want %d", n, mb*10_000)
	}
	var printed, millis int
	if _, err := fmt.Sscanf(errOut, "printed %d MB in %d ms", &printed, &millis); err != nil {
		t.Fatalf("%q: %v", errOut, err)
	}
	t.Logf("the log took %.0f MB/s", float64(printed)*1000/float64(max(millis, 1)))
	if printed != mb {
		t.Errorf("%d MB were printed, want %d", printed, mb)
	}
}
