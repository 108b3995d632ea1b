package journal

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
)

// boltMeta is one of the two meta pages.
type boltMeta struct {
	pageSize uint32
	root     uint64
	freelist uint64
	high     uint64 // pages from here on are unused
	txid     uint64
}

// parseMeta reads a meta page, starting at its page header. It fails exactly
// where bbolt does not accept the page; what the page says may still be absurd.
func parseMeta(p []byte) (boltMeta, error) {
	if len(p) < pageHeader+metaSize {
		return boltMeta{}, fmt.Errorf("%d bytes are too few for a meta page", len(p))
	}
	m := p[pageHeader : pageHeader+metaSize]
	ne := binary.NativeEndian
	switch {
	case ne.Uint32(m) != boltMagic:
		return boltMeta{}, fmt.Errorf("magic %#08x is not bbolt's", ne.Uint32(m))
	case ne.Uint32(m[4:]) != boltVersion:
		return boltMeta{}, fmt.Errorf("bbolt format %d, want %d", ne.Uint32(m[4:]), boltVersion)
	}
	h := fnv.New64a()
	_, _ = h.Write(m[:metaSize-8]) // a hash never fails
	if want := ne.Uint64(m[metaSize-8:]); h.Sum64() != want {
		return boltMeta{}, fmt.Errorf("meta checksum %016x, recorded %016x", h.Sum64(), want)
	}
	return boltMeta{
		pageSize: ne.Uint32(m[8:]), root: ne.Uint64(m[16:]), freelist: ne.Uint64(m[32:]),
		high: ne.Uint64(m[40:]), txid: ne.Uint64(m[48:]),
	}, nil
}

// readMeta finds the valid meta page with the higher transaction number, as
// bbolt does, and checks it against the size of the file.
func (w *walker) readMeta() bool {
	if w.size == 0 {
		w.fault("file", "is empty")
		return false
	}
	meta, err := w.findMeta()
	if err != nil {
		w.fault("meta pages", "%w", err)
		return false
	}
	w.meta = meta
	ps := int64(meta.pageSize)
	switch {
	case meta.high > uint64(w.size/ps):
		w.fault("file", "has %d bytes, its %d pages of %d need more", w.size, meta.high, ps)
	case meta.high < 4:
		w.fault("meta pages", "%d pages are too few", meta.high)
	case meta.root < 2 || meta.root >= meta.high:
		w.fault("meta pages", "root page %d of %d", meta.root, meta.high)
	case meta.freelist == noFreelist:
		w.fault("meta pages", "no free list was written")
	case meta.freelist < 2 || meta.freelist >= meta.high:
		w.fault("meta pages", "free list page %d of %d", meta.freelist, meta.high)
	}
	return len(w.faults) == 0
}

// findMeta chooses between the two meta pages. One of them may be torn; one
// that is whole and absurd is worse than that, because bbolt would believe it.
func (w *walker) findMeta() (boltMeta, error) {
	first, err0 := w.metaAt(0)
	if err0 == nil {
		if !first.sane() {
			return boltMeta{}, fmt.Errorf("page size %d", first.pageSize)
		}
		second, err1 := w.metaAt(int64(first.pageSize))
		switch {
		case err1 != nil:
			w.torn = fmt.Errorf("meta page 1: %w", err1)
			return first, nil
		case second.pageSize != first.pageSize:
			return boltMeta{}, fmt.Errorf("page sizes %d and %d", first.pageSize, second.pageSize)
		case second.txid > first.txid:
			return second, nil
		}
		return first, nil
	}
	// The page size stands in the page that is missing: look where the second
	// may be, in bbolt's order.
	for ps := int64(minPageSize); ps <= maxPageSize; ps <<= 1 {
		second, err := w.metaAt(ps)
		if err != nil {
			continue
		}
		if int64(second.pageSize) != ps {
			return boltMeta{}, fmt.Errorf("page size %d in a meta page at %d", second.pageSize, ps)
		}
		w.torn = fmt.Errorf("meta page 0: %w", err0)
		return second, nil
	}
	return boltMeta{}, fmt.Errorf("none is valid: %w", err0)
}

// sane reports a page size that bbolt can have used.
func (m boltMeta) sane() bool {
	return m.pageSize >= minPageSize && m.pageSize <= maxPageSize && m.pageSize&(m.pageSize-1) == 0
}

func (w *walker) metaAt(off int64) (boltMeta, error) {
	buf := make([]byte, pageHeader+metaSize)
	if _, err := w.r.ReadAt(buf, off); err != nil {
		return boltMeta{}, err
	}
	return parseMeta(buf)
}
