package journal

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
)

// This file reads the bbolt format (version 2) by itself, with every offset
// checked and no memory map. bbolt trusts its file: on a damaged one it
// dereferences what it finds, in goroutines of its own where nobody can recover
// a panic, and a page beyond the end of the file is a SIGBUS that ends the
// process. So no file is given to bbolt before this walk found it sound.

const (
	boltMagic   = 0xED0CDAED
	boltVersion = 2

	pageHeader = 16 // id u64, flags u16, count u16, overflow u32
	elemSize   = 16 // of branch and leaf elements alike
	bucketHead = 16 // root page u64, sequence u64
	metaSize   = 64 // after the page header; the last 8 bytes are its checksum

	flagBranch   = 0x01
	flagLeaf     = 0x02
	flagMeta     = 0x04
	flagFreelist = 0x10
	flagBucket   = 0x01 // of a leaf element: its value is a bucket

	minPageSize = 1 << 10
	maxPageSize = 64 << 10
	// maxDepth bounds the height of a tree: with two keys a page, 48 levels
	// address more pages than a file can have, so a higher one is a cycle.
	maxDepth = 48
	// noFreelist marks a file whose free list was not written. This package
	// never makes one, and opening it runs bbolt's own unguarded scan.
	noFreelist = ^uint64(0)
)

// damage is a structural fault of the file.
type damage struct {
	where string
	err   error
}

func (d damage) String() string { return fmt.Sprintf("%s: %v", d.where, d.err) }

// walker checks one bbolt file and shows its records to visit. It goes on
// after a fault wherever the rest can still be read.
type walker struct {
	r     io.ReaderAt
	size  int64
	visit func(bucket, key, value []byte) // slices are valid during the call only

	buckets map[string]bool
	meta    boltMeta
	used    []bool // by page: reachable, or part of the free list itself
	free    []bool // by page
	faults  []damage
	lost    int // faults beyond maxFaults
	torn    error
	leaked  int
}

// maxFaults bounds a report: a zeroed file has one fault a page.
const maxFaults = 100

func (w *walker) fault(where, format string, args ...any) {
	if len(w.faults) >= maxFaults {
		w.lost++
		return
	}
	w.faults = append(w.faults, damage{where: where, err: fmt.Errorf(format, args...)})
}

// walk checks the whole file. The file is sound if it leaves no faults.
func (w *walker) walk() {
	if !w.readMeta() {
		return
	}
	w.used = make([]bool, w.meta.high)
	w.free = make([]bool, w.meta.high)
	w.used[0], w.used[1] = true, true
	w.readFreelist()
	w.tree(w.meta.root, "root", nil, nil, 0, nil)
	for id := range w.used {
		if !w.used[id] && !w.free[id] {
			w.leaked++
		}
	}
}

// page reads page id with its overflow, checks its header and marks it used.
func (w *walker) page(id uint64, where string) (p []byte, flags, count int, ok bool) {
	ps := int(w.meta.pageSize)
	head := make([]byte, pageHeader)
	if id < 2 || id >= w.meta.high {
		w.fault(where, "page %d is outside the file's %d", id, w.meta.high)
		return nil, 0, 0, false
	}
	if _, err := w.r.ReadAt(head, int64(id)*int64(ps)); err != nil {
		w.fault(where, "page %d: %w", id, err)
		return nil, 0, 0, false
	}
	ne := binary.NativeEndian
	if got := ne.Uint64(head); got != id {
		w.fault(where, "page %d calls itself %d", id, got)
		return nil, 0, 0, false
	}
	pages := uint64(ne.Uint32(head[12:])) + 1
	if pages > w.meta.high-id {
		w.fault(where, "page %d is %d pages long and leaves the file", id, pages)
		return nil, 0, 0, false
	}
	for i := id; i < id+pages; i++ {
		if w.used[i] {
			w.fault(where, "page %d is referenced twice", i)
			return nil, 0, 0, false
		}
		if w.free[i] {
			w.fault(where, "page %d is in use and in the free list", i)
			return nil, 0, 0, false
		}
		w.used[i] = true
	}
	p = make([]byte, int(pages)*ps)
	if _, err := w.r.ReadAt(p, int64(id)*int64(ps)); err != nil {
		w.fault(where, "page %d: %w", id, err)
		return nil, 0, 0, false
	}
	return p, int(ne.Uint16(head[8:])), int(ne.Uint16(head[10:])), true
}

func (w *walker) readFreelist() {
	const where = "free list"
	p, flags, count, ok := w.page(w.meta.freelist, where)
	if !ok {
		return
	}
	if flags != flagFreelist {
		w.fault(where, "page %d has flags %#x", w.meta.freelist, flags)
		return
	}
	ids := p[pageHeader:]
	n := uint64(count)
	if n == 0xFFFF { // the true count did not fit and stands first
		n, ids = binary.NativeEndian.Uint64(ids), ids[8:]
	}
	if n > uint64(len(ids)/8) {
		w.fault(where, "%d entries do not fit its page", n)
		return
	}
	for i := range n {
		id := binary.NativeEndian.Uint64(ids[i*8:])
		switch {
		case id < 2 || id >= w.meta.high:
			w.fault(where, "names page %d of %d", id, w.meta.high)
		case w.free[id] || w.used[id]:
			w.fault(where, "page %d is free twice, or in use", id)
		default:
			w.free[id] = true
		}
	}
}

// tree walks a subtree whose keys must lie in [lo, hi). bucket is nil in the
// root tree, whose values are buckets.
func (w *walker) tree(id uint64, where string, lo, hi []byte, depth int, bucket []byte) {
	if depth > maxDepth {
		w.fault(where, "page %d is deeper than %d levels", id, maxDepth)
		return
	}
	p, flags, count, ok := w.page(id, where)
	if !ok {
		return
	}
	switch flags {
	case flagLeaf:
		w.leaf(p, count, fmt.Sprintf("%s, page %d", where, id), lo, hi, bucket)
	case flagBranch:
		w.branch(p, count, id, where, lo, hi, depth, bucket)
	default:
		w.fault(where, "page %d has flags %#x", id, flags)
	}
}

func (w *walker) branch(p []byte, count int, id uint64, where string, lo, hi []byte, depth int, bucket []byte) {
	at := fmt.Sprintf("%s, page %d", where, id)
	if count == 0 {
		w.fault(at, "a branch without children")
		return
	}
	keys, children := make([][]byte, count), make([]uint64, count)
	for i := range count {
		elem := pageHeader + i*elemSize
		if elem+elemSize > len(p) {
			w.fault(at, "%d elements do not fit", count)
			return
		}
		ne := binary.NativeEndian
		key, ok := slice(p, elem, uint64(ne.Uint32(p[elem:])), uint64(ne.Uint32(p[elem+4:])))
		if !ok || !ordered(i, key, lo, hi, keys) {
			w.fault(at, "element %d: its key is outside the page or out of order", i)
			return
		}
		keys[i], children[i] = key, ne.Uint64(p[elem+8:])
	}
	for i, child := range children {
		next := hi
		if i+1 < count {
			next = keys[i+1]
		}
		w.tree(child, where, keys[i], next, depth+1, bucket)
	}
}

// leaf checks a leaf page, or the inline page in a bucket's value.
func (w *walker) leaf(p []byte, count int, at string, lo, hi, bucket []byte) {
	if count == 0 && lo != nil {
		w.fault(at, "an empty leaf below a branch")
		return
	}
	keys := make([][]byte, count)
	for i := range count {
		elem := pageHeader + i*elemSize
		if elem+elemSize > len(p) {
			w.fault(at, "%d elements do not fit", count)
			return
		}
		ne := binary.NativeEndian
		flags, pos := ne.Uint32(p[elem:]), uint64(ne.Uint32(p[elem+4:]))
		ksize, vsize := uint64(ne.Uint32(p[elem+8:])), uint64(ne.Uint32(p[elem+12:]))
		key, ok := slice(p, elem, pos, ksize)
		if !ok || !ordered(i, key, lo, hi, keys) {
			w.fault(at, "element %d: its key is outside the page or out of order", i)
			return
		}
		keys[i] = key
		value, ok := slice(p, elem, pos+ksize, vsize)
		switch isBucket := flags == flagBucket; {
		case !ok:
			w.fault(at, "element %d: its value is outside the page", i)
		case flags != 0 && !isBucket, isBucket != (bucket == nil):
			w.fault(at, "element %d has flags %#x", i, flags)
		case isBucket:
			w.bucket(key, value)
		case w.visit != nil:
			w.visit(bucket, key, value)
		}
	}
}

func (w *walker) bucket(name, value []byte) {
	where := fmt.Sprintf("bucket %q", name)
	if w.buckets == nil {
		w.buckets = map[string]bool{}
	}
	w.buckets[string(name)] = true
	if len(value) < bucketHead {
		w.fault(where, "a header of %d bytes", len(value))
		return
	}
	root := binary.NativeEndian.Uint64(value)
	if root != 0 {
		w.tree(root, where, nil, nil, 0, name)
		return
	}
	inline := value[bucketHead:]
	if len(inline) < pageHeader {
		w.fault(where, "an inline page of %d bytes", len(inline))
		return
	}
	ne := binary.NativeEndian
	if flags := ne.Uint16(inline[8:]); flags != flagLeaf || ne.Uint64(inline) != 0 {
		w.fault(where, "an inline page with id %d and flags %#x", ne.Uint64(inline), flags)
		return
	}
	w.leaf(inline, int(ne.Uint16(inline[10:])), where, nil, nil, name)
}

// ordered reports whether key, the i-th of its page, is not empty, follows its
// predecessor and lies in [lo, hi); nil bounds are open. The first key of a page
// must be the very key under which its parent names it: bbolt finds the parent's
// entry by it when it rewrites the page, and adds a second one if it does not.
func ordered(i int, key, lo, hi []byte, keys [][]byte) bool {
	switch {
	case len(key) == 0:
		return false
	case i > 0 && bytes.Compare(keys[i-1], key) >= 0:
		return false
	case i == 0 && lo != nil && !bytes.Equal(key, lo):
		return false
	case hi != nil && bytes.Compare(key, hi) >= 0:
		return false
	}
	return true
}

// slice returns p[elem+pos:][:n] if that is inside p.
func slice(p []byte, elem int, pos, n uint64) ([]byte, bool) {
	start := uint64(elem) + pos
	if start > uint64(len(p)) || n > uint64(len(p))-start {
		return nil, false
	}
	return p[start : start+n : start+n], true
}
