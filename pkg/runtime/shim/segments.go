//go:build linux

package shim

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

const segmentSuffix = ".log"

// SegmentPath returns where segment n of a log directory is.
func SegmentPath(dir string, n int) string {
	return filepath.Join(dir, fmt.Sprintf("%08d%s", n, segmentSuffix))
}

// SegmentNumber is the reverse of SegmentPath: 0 for any other file.
func SegmentNumber(path string) int {
	digits, ok := strings.CutSuffix(filepath.Base(path), segmentSuffix)
	if !ok {
		return 0
	}
	n, err := strconv.Atoi(digits)
	if err != nil || n < 0 {
		return 0
	}
	return n
}

// segments writes records to a bounded number of bounded files.
type segments struct {
	dir      string
	maxBytes int64
	maxFiles int

	n   int // number of the current segment
	f   *os.File
	off int64 // end of its last whole record
}

func newSegments(dir string, maxBytes int64, maxFiles int) (*segments, error) {
	s := &segments{dir: dir, maxBytes: maxBytes, maxFiles: maxFiles}
	if err := s.next(); err != nil {
		return nil, err
	}
	return s, nil
}

// next begins the next segment. It makes room before it asks for more, so
// that a disk filled by nothing but this log still rotates.
func (s *segments) next() error {
	n := s.n + 1
	if old := n - s.maxFiles; old > 0 {
		if err := os.Remove(SegmentPath(s.dir, old)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	f, err := os.OpenFile(SegmentPath(s.dir, n), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	if s.f != nil {
		s.f.Close() // every record is written already; what close has to say changes nothing
	}
	s.n, s.f, s.off = n, f, 0
	return nil
}

// write appends whole records. When it fails, n is how many bytes of them,
// again whole records, are in the log; of the rest nothing is.
func (s *segments) write(records []byte) (n int, err error) {
	if s.off > 0 && s.off+int64(len(records)) > s.maxBytes {
		if err := s.next(); err != nil {
			return 0, err
		}
	}
	n, err = s.f.WriteAt(records, s.off)
	if err == nil && n < len(records) {
		err = io.ErrShortWrite
	}
	if err != nil {
		n = bytes.LastIndexByte(records[:n], '\n') + 1
		// A torn record would swallow the one after it. If even this fails,
		// the next write goes over it: it starts at off.
		_ = s.f.Truncate(s.off + int64(n))
	}
	s.off += int64(n)
	return n, err
}

func (s *segments) close() error { return s.f.Close() }
