//go:build linux

package process

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"

	"github.com/barista-fleet/barista/pkg/runtime"
	"github.com/barista-fleet/barista/pkg/runtime/shim"
)

// readBuffer holds the longest record with room to spare.
const readBuffer = 64 << 10

// Logs writes the output of a run. See package shim for what is on disk: the
// segments of a run are numbered and never renamed, so following them by number
// neither misses a line nor shows one twice, however often they rotate.
func (d *Driver) Logs(ctx context.Context, req runtime.LogRequest) error {
	if req.Stdout == nil {
		req.Stdout = io.Discard
	}
	if req.Stderr == nil {
		req.Stderr = io.Discard
	}
	dir, err := d.findLogDir(req)
	if err != nil {
		return fmt.Errorf("logs: %w", err)
	}
	r := &logReader{dir: dir.path, stdout: req.Stdout, stderr: req.Stderr}
	if err := r.seek(req.Tail); err != nil {
		return fmt.Errorf("logs of %s: %w", req.Name, err)
	}
	defer r.close()
	// A run that is not known has been removed: its output is complete.
	if run, err := d.find(dir.instance); req.Follow && err == nil {
		err = d.follow(ctx, r, run)
		if err != nil {
			return fmt.Errorf("logs of %s: %w", req.Name, err)
		}
	}
	if err := r.copy(); err != nil {
		return fmt.Errorf("logs of %s: %w", req.Name, err)
	}
	return r.finish()
}

// follow copies until the run has ended.
func (d *Driver) follow(ctx context.Context, r *logReader, run *run) error {
	// The watch comes before the first look, so no change falls in between.
	changed, cancel, err := d.notify.watch(r.dir)
	if err != nil {
		return err
	}
	defer cancel()
	for {
		if err := r.copy(); err != nil {
			return err
		}
		select {
		case <-changed:
		case <-run.ended:
			return nil // the last look is the caller's
		case <-ctx.Done():
			return ctx.Err()
		case <-d.ctx.Done():
			return ErrClosed
		}
	}
}

// logReader walks through the segments of one run.
type logReader struct {
	dir            string
	stdout, stderr io.Writer

	n    int // number of the segment being read; 0 before the first
	f    *os.File
	in   *bufio.Reader
	off  int64  // end of the last whole record read
	torn []byte // what is behind it: a record whose end is not there yet

	// skip is how many lines, counted over all streams in the order in which
	// they begin, are before the first one to show.
	skip  int
	lines int     // that have begun
	cur   [3]int  // by stream: number of the line being written
	open  [3]bool // by stream: whether it has begun
	out   [2]*bufio.Writer
}

// seek finds the first line to show, so that tail lines are shown of those
// that are there now. A negative tail shows all.
func (r *logReader) seek(tail int) error {
	r.out[0], r.out[1] = bufio.NewWriterSize(r.stdout, readBuffer), bufio.NewWriterSize(r.stderr, readBuffer)
	if tail < 0 {
		return nil
	}
	segs, err := listSegments(r.dir)
	if err != nil || len(segs) == 0 {
		return err
	}
	// Only as many segments from the end as the tail needs are looked at. Three
	// lines more than asked for: one of each stream may have begun before.
	first, total := len(segs), 0
	for first > 0 && total < tail+3 {
		first--
		n, err := countLines(shim.SegmentPath(r.dir, segs[first]))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		total += n
	}
	// Count again in one pass with the rules of showing, over what is there.
	probe := &logReader{dir: r.dir, n: segs[first] - 1, skip: int(^uint(0) >> 1)}
	probe.out = [2]*bufio.Writer{bufio.NewWriter(io.Discard), bufio.NewWriter(io.Discard)}
	defer probe.close()
	if err := probe.copy(); err != nil {
		return err
	}
	r.n = segs[first] - 1
	r.skip = max(probe.lines-tail, 0)
	return nil
}

// copy shows everything that is there from where it stopped.
func (r *logReader) copy() error {
	for {
		if r.f != nil {
			if err := r.copySegment(); err != nil {
				return err
			}
		}
		next, err := r.hasNext()
		if err != nil {
			return err
		}
		if next == 0 {
			break
		}
		// The writer begins a segment after its last word in the one before:
		// what came between our end of file and the look is read now.
		if r.f != nil {
			if err := r.copySegment(); err != nil {
				return err
			}
		}
		if err := r.openSegment(next); err != nil {
			return err
		}
	}
	return errors.Join(r.out[0].Flush(), r.out[1].Flush())
}

// hasNext returns the number of the segment after the current one, 0 if it
// does not exist yet.
func (r *logReader) hasNext() (int, error) {
	if r.f != nil {
		if _, err := os.Stat(shim.SegmentPath(r.dir, r.n+1)); err == nil {
			return r.n + 1, nil
		} else if !errors.Is(err, fs.ErrNotExist) {
			return 0, err
		}
	}
	segs, err := listSegments(r.dir)
	if err != nil {
		return 0, err
	}
	i := slices.IndexFunc(segs, func(n int) bool { return n > r.n })
	if i < 0 {
		return 0, nil
	}
	return segs[i], nil
}

func (r *logReader) openSegment(n int) error {
	f, err := os.Open(shim.SegmentPath(r.dir, n))
	if errors.Is(err, fs.ErrNotExist) {
		return nil // rotated away this instant: the next look finds a later one
	}
	if err != nil {
		return err
	}
	if r.n > 0 && n > r.n+1 && r.f != nil {
		// The reader was slower than the writer by all the segments there are.
		fmt.Fprintf(r.out[1], "[barista: %d log segments were rotated away before they could be read]\n", n-r.n-1)
	}
	r.close()
	r.torn = r.torn[:0]
	r.n, r.f, r.in, r.off = n, f, bufio.NewReaderSize(f, readBuffer), 0
	return nil
}

// copySegment shows the whole records between here and the end of the file. It
// reads an unfinished one again the next time: when a write fails, the shim
// cuts it off and may put another one in its place.
func (r *logReader) copySegment() error {
	if len(r.torn) > 0 {
		if _, err := r.f.Seek(r.off, io.SeekStart); err != nil {
			return err
		}
		r.in.Reset(r.f)
		r.torn = r.torn[:0]
	}
	for {
		line, err := r.in.ReadSlice('\n')
		if errors.Is(err, io.EOF) {
			r.torn = append(r.torn, line...)
			return nil
		}
		if err != nil { // also for a record that cannot be one of ours, being too long
			return err
		}
		r.off += int64(len(line))
		if err := r.show(line[:len(line)-1]); err != nil {
			return err
		}
	}
}

// show writes one record, if its line is one of those asked for.
func (r *logReader) show(line []byte) error {
	rec, ok := shim.ParseRecord(line)
	if !ok {
		return nil // damaged by something else than the shim; it has no stream
	}
	s := rec.Stream
	if !r.open[s] {
		r.cur[s], r.open[s] = r.lines, true
		r.lines++
	}
	if rec.Full {
		r.open[s] = false
	}
	if r.cur[s] < r.skip {
		return nil
	}
	w, other := r.out[0], r.out[1]
	if s != shim.StreamOut {
		w, other = other, w
	}
	// Where both streams go to one place they keep their order.
	if other.Buffered() > 0 {
		if err := other.Flush(); err != nil {
			return err
		}
	}
	if s == shim.StreamShim {
		_, err := fmt.Fprintf(w, "[barista: %s]\n", rec.Text)
		return err
	}
	if _, err := w.Write(rec.Text); err != nil {
		return err
	}
	if rec.Full {
		return w.WriteByte('\n')
	}
	return nil
}

// finish shows what a shim that was killed in the middle of a record left of
// it, and flushes.
func (r *logReader) finish() error {
	if err := r.show(r.torn); err != nil {
		return err
	}
	return errors.Join(r.out[0].Flush(), r.out[1].Flush())
}

func (r *logReader) close() {
	if r.f != nil {
		r.f.Close() // only read from
		r.f = nil
	}
}

// listSegments returns the numbers of the segments that are there, in order.
func listSegments(dir string) ([]int, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var segs []int
	for _, e := range entries {
		if n := shim.SegmentNumber(e.Name()); n > 0 {
			segs = append(segs, n)
		}
	}
	slices.Sort(segs)
	return segs, nil
}

// countLines counts the records of a segment that end a line.
func countLines(path string) (int, error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	in := bufio.NewReaderSize(f, readBuffer)
	n := 0
	for {
		line, err := in.ReadSlice('\n')
		if errors.Is(err, io.EOF) {
			return n, nil
		}
		if err != nil {
			return n, err
		}
		if rec, ok := shim.ParseRecord(line[:len(line)-1]); ok && rec.Full {
			n++
		}
	}
}
