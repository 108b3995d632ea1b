package sfq

import "math/bits"

// none marks an absent slot or heap position.
const none = ^uint32(0)

// heapArity is the branching of the tag heaps. Four children of 32 bytes are
// two cache lines, and the tree over 10,000 owners is 7 levels instead of 14.
const heapArity = 4

// heapRoot is the index of the first entry. With the root at 3 every group of
// four siblings starts at a multiple of four entries, that is on a line of its
// own.
const heapRoot = heapArity - 1

func heapParent(i int) int { return i/heapArity + heapRoot - 1 }
func heapChild(i int) int  { return heapArity * (i - heapRoot + 1) }

// heapEntry is one owner (a flow, or a tenant in one size class) and the key
// it waits with. The key is kept beside the owner's slot so that a sift touches
// the heap's own memory only.
type heapEntry struct {
	key   u128   // start tag
	tie   uint64 // first tie-break, lower first
	owner uint32 // slot in the owner's slab
}

// tagHeap is an indexed min-heap of owners by (key, tie, after). Every owner
// appears at most once; pos finds it in O(1), so that an owner can be re-keyed
// or removed in O(log n) and nothing dead is ever left inside.
type tagHeap struct {
	entries []heapEntry // from heapRoot
	pos     []uint32    // owner slot → index in entries, or none
	// after reports that a orders after b when key and tie are equal. It must
	// be a strict order on distinct owners.
	after func(a, b uint32) bool
	// comparisons counts key comparisons since creation: the growth tests bound
	// it instead of measuring time.
	comparisons uint64
}

func (h *tagHeap) len() int { return max(len(h.entries), heapRoot) - heapRoot }

func (h *tagHeap) root() *heapEntry { return &h.entries[heapRoot] }

func (h *tagHeap) has(owner uint32) bool {
	return int(owner) < len(h.pos) && h.pos[owner] != none
}

// keyLess compares key and tie as one 192-bit number, by the borrow of a
// subtraction: there is no branch to mispredict, and it is inlined.
func keyLess(a, b *heapEntry) bool {
	_, c := bits.Sub64(a.tie, b.tie, 0)
	_, c = bits.Sub64(a.key.lo, b.key.lo, c)
	_, c = bits.Sub64(a.key.hi, b.key.hi, c)
	return c != 0
}

// tiedLess decides between two entries of which neither is keyLess than the
// other's key: it is worth a call only because it is rare.
func (h *tagHeap) tiedLess(a, b *heapEntry) bool {
	return a.key == b.key && a.tie == b.tie && h.after(b.owner, a.owner)
}

// entryLess orders two entries.
func (h *tagHeap) entryLess(a, b *heapEntry) bool { return keyLess(a, b) || h.tiedLess(a, b) }

// grow makes room for owner slots below n.
func (h *tagHeap) grow(n int) {
	for len(h.pos) < n {
		h.pos = append(h.pos, none)
	}
}

// set inserts the owner with a key, or moves it to a new key, or, where after
// changed its mind about the owner, to its new place.
func (h *tagHeap) set(owner uint32, key u128, tie uint64) {
	e := heapEntry{key: key, tie: tie, owner: owner}
	i := h.pos[owner]
	if i == none {
		if len(h.entries) == 0 {
			h.entries = append(h.entries, make([]heapEntry, heapRoot)...)
		}
		h.entries = append(h.entries, e)
		h.up(len(h.entries)-1, e)
		return
	}
	if h.up(int(i), e) == int(i) {
		h.down(int(i), e)
	}
}

// remove takes the owner out, if it is in.
func (h *tagHeap) remove(owner uint32) {
	i := h.pos[owner]
	if i == none {
		return
	}
	h.pos[owner] = none
	last := len(h.entries) - 1
	moved := h.entries[last]
	h.entries = h.entries[:last]
	if int(i) == last {
		return
	}
	if h.up(int(i), moved) == int(i) {
		h.down(int(i), moved)
	}
}

// up places e at or above index i and returns where it came to rest.
func (h *tagHeap) up(i int, e heapEntry) int {
	for i > heapRoot {
		p := heapParent(i)
		h.comparisons++
		if !h.entryLess(&e, &h.entries[p]) {
			break
		}
		h.entries[i] = h.entries[p]
		h.pos[h.entries[i].owner] = uint32(i)
		i = p
	}
	h.entries[i] = e
	h.pos[e.owner] = uint32(i)
	return i
}

// down places e at or below index i.
func (h *tagHeap) down(i int, e heapEntry) {
	n := len(h.entries)
	for {
		c := heapChild(i)
		if c >= n {
			break
		}
		best := c
		if c+heapArity <= n {
			// A tournament of four, the usual case, without bounds checks.
			g := (*[heapArity]heapEntry)(h.entries[c:])
			x, y := 0, 2
			if h.entryLess(&g[1], &g[0]) {
				x = 1
			}
			if h.entryLess(&g[3], &g[2]) {
				y = 3
			}
			if h.entryLess(&g[y&3], &g[x&3]) {
				x = y
			}
			best = c + x
		} else {
			for j := c + 1; j < n; j++ {
				if h.entryLess(&h.entries[j], &h.entries[best]) {
					best = j
				}
			}
		}
		h.comparisons += heapArity
		if !h.entryLess(&h.entries[best], &e) {
			break
		}
		h.entries[i] = h.entries[best]
		h.pos[h.entries[i].owner] = uint32(i)
		i = best
	}
	h.entries[i] = e
	h.pos[e.owner] = uint32(i)
}
