package sfq

// none marks an absent slot or leaf.
const none = ^uint32(0)

// tagTree is a tournament over owners (flows, or tenants in one size class):
// each has a leaf, the least of four goes up, and who comes out at the top is
// next. Beside a heap it has two advantages on a cold cache. The nodes that a
// change touches follow from the leaf alone, so that their loads overlap, where
// a heap knows the next level only after comparing on this one; and nothing else
// moves, so that nobody's position must be written down.
//
// A node holds the leading bits of a key. Two owners whose leading bits are
// equal are compared by before, which knows the whole keys.
type tagTree struct {
	groups []treeGroup // the top one first, then level by level
	base   uint32      // first group of leaves
	levels uint32
	top    uint32   // the owner that goes first; meaningless without groups
	fresh  uint32   // leaves from here on were never used
	n      int      // leaves in use
	free   []uint32 // leaves that were given back, the last one goes first
	// before reports that a goes before b. It must be a strict order on distinct
	// owners that agrees with the order of their leading bits.
	before func(a, b uint32) bool
	// comparisons counts comparisons of keys since creation: the growth tests
	// bound it instead of measuring time.
	comparisons uint64
}

// treeFan is the number of nodes of a group, which are one line of memory. Node
// s of group g repeats the least of group treeFan·g+s+1.
const treeFan = 4

type treeGroup [treeFan]treeNode

type treeNode struct {
	lead  uint64
	owner uint32 // none where nobody waits
}

// emptyNode comes after every owner: between equal leading bits, the one with
// an owner goes first.
var emptyNode = treeNode{^uint64(0), none}

// leadQ64 is the leading bits of a Q64.64 tag: 48 bits of integer part, 16 of
// fraction. Tags beyond (9,000 core years at weight 1) share one value and are
// told apart by their owners' keys.
func leadQ64(key u128) uint64 {
	if key.hi>>48 != 0 {
		return ^uint64(0)
	}
	return key.hi<<16 | key.lo>>48
}

// leadInt is the same for tags that are plain numerators.
func leadInt(key u128) uint64 {
	if key.hi != 0 {
		return ^uint64(0)
	}
	return key.lo
}

// root is the owner that goes first, or none.
func (t *tagTree) root() uint32 {
	if t.n == 0 {
		return none
	}
	return t.top
}

// near returns two owners that a change of the leaf may have brought forward:
// who leads at the second level from the top on the leaf's way, and who does at
// the top level. The one is likely to be next soon, the other sooner. Both are
// none in a tree too small to be worth looking ahead.
func (t *tagTree) near(leaf uint32) (soon, sooner uint32) {
	if t.levels < 3 {
		return none, none
	}
	at := leaf >> (2*t.levels - 4) // node of the second level
	return t.groups[1+at/treeFan][at%treeFan].owner, t.groups[0][at/treeFan].owner
}

// insert gives the owner a leaf.
func (t *tagTree) insert(owner uint32, lead uint64) uint32 {
	leaf := t.fresh
	if last := len(t.free) - 1; last >= 0 {
		leaf, t.free = t.free[last], t.free[:last]
	} else {
		if leaf>>2 == uint32(len(t.groups))-t.base {
			t.grow()
		}
		t.fresh++
	}
	t.n++
	t.play(leaf, owner, lead)
	return leaf
}

// remove takes a leaf back.
func (t *tagTree) remove(leaf uint32) {
	t.n--
	t.free = append(t.free, leaf)
	t.play(leaf, emptyNode.owner, emptyNode.lead)
}

// play enters what a leaf now holds and repeats its matches up to the top. It
// goes all the way also when a match ends as it did before: the winner's key may
// have changed below the leading bits.
//
// Who wins cannot be predicted, so the comparisons are written to compile to
// conditional moves; that leading bits are equal is rare, and a branch.
func (t *tagTree) play(leaf, owner uint32, lead uint64) {
	groups := t.groups
	g, s := uint(t.base)+uint(leaf/treeFan), uint(leaf%treeFan)
	for g < uint(len(groups)) {
		p := &groups[g]
		p[s] = treeNode{lead, owner}
		a, b, c := p[s^1], p[s^2], p[s^3]
		clear := false
		if a.lead != lead && b.lead != c.lead {
			// Two of them first, which does not wait for the level below.
			if c.lead < b.lead {
				b.owner = c.owner
			}
			b.lead = min(b.lead, c.lead)
			if a.lead < lead {
				owner = a.owner
			}
			lead = min(lead, a.lead)
			clear = lead != b.lead
			if b.lead < lead {
				owner = b.owner
			}
			lead = min(lead, b.lead)
		}
		if !clear {
			lead, owner = t.least(p)
		}
		g-- // of the top group, out of range
		g, s = g/treeFan, g%treeFan
	}
	t.top = owner
	t.comparisons += uint64(t.levels) * (treeFan - 1)
}

// grow adds a level below the leaves, which keep their numbers.
func (t *tagTree) grow() {
	old, leaves := t.groups[t.base:], treeFan*max(len(t.groups)-int(t.base), 0)
	if leaves == 0 {
		leaves = 1
	}
	t.base = uint32(leaves-1) / (treeFan - 1)
	t.levels++
	t.groups = make([]treeGroup, int(t.base)+leaves)
	for i := range t.groups {
		t.groups[i] = treeGroup{emptyNode, emptyNode, emptyNode, emptyNode}
	}
	copy(t.groups[t.base:], old)
	for g := len(t.groups) - 1; g > 0; g-- {
		lead, owner := t.least(&t.groups[g])
		t.groups[(g-1)/treeFan][(g-1)%treeFan] = treeNode{lead, owner}
	}
}

// least is the winner of a group, where leading bits may be equal.
//
//go:noinline
func (t *tagTree) least(p *treeGroup) (uint64, uint32) {
	e := p[0]
	for _, f := range p[1:] {
		if f.lead < e.lead || f.lead == e.lead && f.owner != none && (e.owner == none || t.before(f.owner, e.owner)) {
			e = f
		}
	}
	return e.lead, e.owner
}
