package sfq

import "math/bits"

// idTable maps 64-bit numbers to slots: open addressing, linear probing,
// deletion by shifting back, so that it holds no tombstones and its cost does
// not depend on history. One line of memory per lookup is what makes it worth
// having beside the built-in map.
type idTable struct {
	cells []idCell
	used  int
	shift uint // 64 - log2(len(cells))
}

type idCell struct {
	id   uint64
	slot uint32 // slot + 1; 0 is empty
}

// minTableBits is the initial size, 16 cells.
const minTableBits = 4

// spread is the home cell of a number: groups of four consecutive numbers,
// which are one line of memory, are scattered by multiplication with 2⁶⁴/φ.
func (t *idTable) spread(id uint64) uint64 {
	return (id>>2)*0x9e3779b97f4a7c15>>t.shift&^3 | id&3
}

func (t *idTable) get(id uint64) (uint32, bool) {
	if len(t.cells) == 0 {
		return none, false
	}
	mask := uint64(len(t.cells) - 1)
	for i := t.spread(id); ; i++ {
		c := &t.cells[i&mask]
		if c.slot == 0 {
			return none, false
		}
		if c.id == id {
			return c.slot - 1, true
		}
	}
}

// put adds a number that is not in the table.
func (t *idTable) put(id uint64, slot uint32) {
	if t.used*2 >= len(t.cells) {
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

// del removes a number that is in the table.
func (t *idTable) del(id uint64) {
	t.used--
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
