package sfq

import "slices"

import "math/bits"

// idTable maps caller-chosen 64-bit identifiers to slots: open addressing,
// linear probing, deletion by shifting back, so that it holds no tombstones and
// its cost does not depend on history. One line of memory per lookup is what
// makes it worth having beside the built-in map.
//
// Deletions are put off until there are a few of them. Each is a miss of the
// cache in a large table; done together, the misses overlap.
type idTable struct {
	cells []idCell
	used  int
	shift uint // 64 - log2(len(cells))
	gone  [maxGone]uint64
	goneN int // identifiers deleted and still in cells
}

// maxGone is how many deletions wait: enough for their misses to overlap, few
// enough to look through.
const maxGone = 8

type idCell struct {
	id   uint64
	slot uint32 // slot + 1; 0 is empty
}

// minTableBits is the initial size, 16 cells.
const minTableBits = 4

// spread is the home cell of an identifier: groups of four consecutive numbers,
// which are one line of memory, are scattered by multiplication with 2⁶⁴/φ.
// Callers number their jobs one after another, so neighbours arrive together.
func (t *idTable) spread(id uint64) uint64 {
	return (id>>2)*0x9e3779b97f4a7c15>>t.shift&^3 | id&3
}

func (t *idTable) get(id uint64) (uint32, bool) {
	if len(t.cells) == 0 {
		return none, false
	}
	mask := uint64(len(t.cells) - 1)
	for i := t.spread(id); ; i = (i + 1) & mask {
		c := &t.cells[i]
		if c.slot == 0 {
			return none, false
		}
		if c.id == id {
			return c.slot - 1, !t.isGone(id)
		}
	}
}

func (t *idTable) isGone(id uint64) bool {
	return slices.Contains(t.gone[:t.goneN], id)
}

// put adds an identifier that is not in the table.
func (t *idTable) put(id uint64, slot uint32) {
	if t.goneN > 0 && t.isGone(id) {
		t.flush()
	}
	if (t.used+t.goneN)*2 >= len(t.cells) {
		t.flush()
		t.grow()
	}
	t.place(id, slot)
	t.used++
}

func (t *idTable) place(id uint64, slot uint32) {
	mask := uint64(len(t.cells) - 1)
	i := t.spread(id)
	for t.cells[i].slot != 0 {
		i = (i + 1) & mask
	}
	t.cells[i] = idCell{id, slot + 1}
}

func (t *idTable) grow() {
	old := t.cells
	size := max(1<<minTableBits, 2*len(old))
	t.cells = make([]idCell, size)
	t.shift = uint(64 - bits.TrailingZeros(uint(size)))
	for _, c := range old {
		if c.slot != 0 {
			t.place(c.id, c.slot-1)
		}
	}
}

// del removes an identifier that is in the table.
func (t *idTable) del(id uint64) {
	t.used--
	t.gone[t.goneN] = id
	if t.goneN++; t.goneN == maxGone {
		t.flush()
	}
}

// flush carries out the deletions that wait.
func (t *idTable) flush() {
	for _, id := range t.gone[:t.goneN] {
		t.erase(id)
	}
	t.goneN = 0
}

func (t *idTable) erase(id uint64) {
	mask := uint64(len(t.cells) - 1)
	i := t.spread(id)
	for t.cells[i].id != id || t.cells[i].slot == 0 {
		i = (i + 1) & mask
	}
	for j := i; ; {
		j = (j + 1) & mask
		c := t.cells[j]
		if c.slot == 0 {
			break
		}
		// c may fill the hole if its home is not between the hole and it.
		if home := t.spread(c.id); (j-home)&mask >= (j-i)&mask {
			t.cells[i] = c
			i = j
		}
	}
	t.cells[i] = idCell{}
}
