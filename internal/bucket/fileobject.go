package bucket

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
	"syscall"
	"time"
)

// An object's file starts with one line of fixed length that holds its ETag, a
// random number minted by each write. So a listing reads the first bytes of
// each file only, and two writes never share an ETag, whatever their bodies.
//
// A file without that line was put there by hand. It is an object all the same,
// so that a damaged record is seen as damaged and can be overwritten: all of
// the file is its body, and its ETag is a hash.
const (
	headerStart = "barista-object 1 "
	headerLen   = len(headerStart) + 2*16 + 1
)

func newHeader() (header []byte, etag ETag) {
	id := randomHex()
	return []byte(headerStart + id + "\n"), ETag(`"` + id + `"`)
}

func parseHeader(b []byte) (ETag, bool) {
	if len(b) < headerLen || string(b[:len(headerStart)]) != headerStart || b[headerLen-1] != '\n' {
		return "", false
	}
	id := b[len(headerStart) : headerLen-1]
	for _, c := range id {
		if ('0' > c || c > '9') && ('a' > c || c > 'f') {
			return "", false
		}
	}
	return ETag(`"` + string(id) + `"`), true
}

// errNotFile is a directory, a pipe or the like in an object's place. Only hands
// put one there.
var errNotFile = errors.New("not a regular file")

// stat reads what a listing says of an object, but for its key, and no body.
func stat(root *os.Root, path string) (Entry, error) {
	obj, info, err := read(root, path, false)
	return Entry{ETag: obj.ETag, Size: info.size, Modified: info.modified}, err
}

// fileInfo is what an object's file says beside its contents. A file is written
// once, under a temporary name, so its time is that of the version in it.
type fileInfo struct {
	size     int64
	modified time.Time
}

// read reads an object. A missing one answers an error that is fs.ErrNotExist.
func read(root *os.Root, path string, withBody bool) (obj Object, is fileInfo, err error) {
	f, err := root.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a pipe put there by hand must not hold us
	if err != nil {
		return Object{}, is, notThere(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return Object{}, is, err
	}
	is.modified = info.ModTime()
	if !info.Mode().IsRegular() {
		return Object{}, is, errNotFile
	}
	head := make([]byte, headerLen)
	n, err := io.ReadFull(f, head)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) {
		return Object{}, is, err
	}
	head = head[:n]
	etag, ours := parseHeader(head)
	obj = Object{Status: Found, ETag: etag}
	is.size = info.Size()
	if ours {
		is.size -= int64(headerLen)
		if !withBody {
			return obj, is, nil
		}
		head = nil
	}
	rest, err := io.ReadAll(io.LimitReader(f, MaxBody+1))
	if err != nil {
		return Object{}, is, err
	}
	obj.Body = append(head, rest...)
	if !ours {
		sum := sha256.Sum256(obj.Body)
		obj.ETag = ETag(`"sha256-` + hex.EncodeToString(sum[:16]) + `"`)
	}
	if is.size > MaxBody || len(obj.Body) > MaxBody {
		obj.Body, obj.Oversize = nil, true
	} else if obj.Body == nil {
		obj.Body = []byte{}
	}
	if !withBody {
		obj.Body = nil
	}
	return obj, is, nil
}

// notThere turns the errors of a path that leads nowhere into fs.ErrNotExist.
func notThere(err error) error {
	if errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.ELOOP) {
		return fs.ErrNotExist
	}
	return err
}
