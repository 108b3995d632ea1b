//go:build linux

package shim

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"time"
)

const (
	// PartialDelay is how long a line may stay unfinished before what there is
	// of it is shown: a prompt, a progress bar.
	PartialDelay = 250 * time.Millisecond
	// batchSize is how much is written at once.
	batchSize = 128 << 10
)

// recorder turns output into records and writes them. It is used by one
// goroutine. Nothing it meets makes it stop.
type recorder struct {
	segs  *segments
	write func(records []byte) (n int, err error) // segs.write, but for tests
	limit int                                     // of a batch
	batch []byte
	lines [2]line // by Stream

	lost   int64 // dropped and not yet admitted to in the log
	reason error
	total  int64 // dropped since the start

	stamp   []byte // of stampAt, formatted
	stampAt time.Time
}

// line is the unfinished line of one stream.
type line struct {
	head []byte // not written yet, shorter than MaxRecord
	at   time.Time
	open bool // a piece of it was written
}

func newRecorder(segs *segments) *recorder {
	return &recorder{segs: segs, write: segs.write, limit: int(min(batchSize, segs.maxBytes/4))}
}

// add records text of a stream.
func (r *recorder) add(s Stream, at time.Time, text []byte) {
	if r.lost > 0 && !r.admit(at) {
		r.drop(int64(len(text)), nil)
		return
	}
	l := &r.lines[s]
	l.at = at
	for len(text) > 0 {
		i := bytes.IndexByte(text, '\n')
		full := i >= 0
		part := text
		if full {
			part, text = text[:i], text[i+1:]
		} else {
			text = nil
		}
		r.addPart(s, l, part, full)
	}
}

// addPart adds to a stream's line, and ends it if full.
func (r *recorder) addPart(s Stream, l *line, part []byte, full bool) {
	for len(l.head)+len(part) > MaxRecord {
		n := MaxRecord - len(l.head)
		if len(l.head) > 0 {
			l.head = append(l.head, part[:n]...)
			r.emit(s, l.at, false, l.head)
			l.head = l.head[:0]
		} else {
			r.emit(s, l.at, false, part[:n])
		}
		l.open = true
		part = part[n:]
	}
	if !full {
		l.head = append(l.head, part...)
		return
	}
	if len(l.head) > 0 {
		part = append(l.head, part...)
	}
	r.emit(s, l.at, true, part)
	l.open = false
	if l.head != nil {
		l.head = l.head[:0]
	}
}

func (r *recorder) emit(s Stream, at time.Time, full bool, text []byte) {
	if len(r.stamp) == 0 || !at.Equal(r.stampAt) {
		r.stamp, r.stampAt = appendTime(r.stamp[:0], at), at
	}
	r.batch = appendRecord(r.batch, r.stamp, s, full, text)
	if len(r.batch) >= r.limit {
		r.flush()
	}
}

// flush writes what was added.
func (r *recorder) flush() {
	if len(r.batch) == 0 {
		return
	}
	n, err := r.write(r.batch)
	if err != nil {
		r.drop(payload(r.batch[n:]), err)
	}
	r.batch = r.batch[:0]
}

// trim gives memory back when nothing is waiting.
func (r *recorder) trim() {
	if cap(r.batch) > bufferSize {
		r.batch = nil
	}
}

// unfinished reports whether text waits for the end of its line.
func (r *recorder) unfinished() bool { return len(r.lines[0].head)+len(r.lines[1].head) > 0 }

// flushPartial writes unfinished lines as pieces.
func (r *recorder) flushPartial() {
	for s := range r.lines {
		l := &r.lines[s]
		if len(l.head) == 0 {
			continue
		}
		if r.lost > 0 && !r.admit(l.at) {
			return // kept; it is small
		}
		if len(l.head) == 0 {
			continue // admit ended the line
		}
		r.emit(Stream(s), l.at, false, l.head)
		l.head, l.open = l.head[:0], true
	}
	r.flush()
}

// finish writes what is left.
func (r *recorder) finish() {
	r.flushPartial()
	if r.lost > 0 {
		r.admit(time.Now())
	}
	r.segs.close()
}

// drop counts bytes that will not be in the log.
func (r *recorder) drop(n int64, why error) {
	if n == 0 {
		return
	}
	r.lost += n
	r.total += n
	if why != nil {
		r.reason = why
	}
}

// admit says in the log what is missing from it. Lines that were open when
// text was lost are ended first, so that what comes later does not look like
// the rest of them.
func (r *recorder) admit(at time.Time) bool {
	r.flush()
	var b []byte
	stamp := appendTime(nil, at)
	for s := range r.lines {
		if l := &r.lines[s]; l.open || len(l.head) > 0 {
			b = appendRecord(b, stamp, Stream(s), true, l.head)
		}
	}
	reason := r.reason
	if pe := new(fs.PathError); errors.As(reason, &pe) {
		reason = pe.Err // the path says nothing to whoever reads the log
	}
	b = appendRecord(b, stamp, StreamShim, true, fmt.Appendf(nil, "dropped %d bytes of output: %v", r.lost, reason))
	if n, err := r.write(b); err != nil {
		if n > 0 {
			// The ends of lines got through, the admission did not: written
			// again, they are only empty lines.
			r.reason = err
		}
		return false
	}
	for s := range r.lines {
		r.lines[s].head, r.lines[s].open = r.lines[s].head[:0], false
	}
	r.lost, r.reason = 0, nil
	return true
}
