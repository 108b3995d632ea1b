package sfq

import "math/bits"

// none marks an absent slot or leaf.
const none = ^uint32(0)

// tagTree is a tournament over owners (flows, or tenants in one size class):
// each has a leaf, each inner node repeats the lesser of its two children, and
// the root is who goes next. Beside a heap it has two advantages on a cold cache.
// The nodes that a change touches follow from the leaf alone, so that their
// loads overlap, where a heap knows the next level only after comparing on this
// one; and nothing else moves, so that nobody's position must be written down.
//
// A node holds the leading bits of a key. Two owners whose leading bits are
// equal are compared by before, which knows the whole keys.
type tagTree struct {
	nodes []treeNode // [1] is the root, the children of i are 2i and 2i+1
	free  []uint32   // leaves that were given back, the last one goes first
	fresh uint32     // leaves from here on were never used
	n     int        // leaves in use
	// before reports that a goes before b. It must be a strict order on distinct
	// owners that agrees with the order of their leading bits.
	before func(a, b uint32) bool
	// comparisons counts comparisons of keys since creation: the growth tests
	// bound it instead of measuring time.
	comparisons uint64
}

type treeNode struct {
	lead  uint64
	owner uint32 // none where nobody waits
}

// emptyNode comes after every owner: between equal leading bits, the one with
// an owner goes first.
var emptyNode = treeNode{^uint64(0), none}

// minLeaves is the number of leaves of a new tree, a power of two.
const minLeaves = 8

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
	if len(t.nodes) == 0 {
		return none
	}
	return t.nodes[1].owner
}

// insert gives the owner a leaf.
func (t *tagTree) insert(owner uint32, lead uint64) uint32 {
	leaf := t.fresh
	if last := len(t.free) - 1; last >= 0 {
		leaf, t.free = t.free[last], t.free[:last]
	} else {
		if int(leaf) == len(t.nodes)/2 {
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

// play enters what a leaf now holds and repeats its matches up to the root. It
// goes all the way also when a match ends as it did before: the winner's key may
// have changed below the leading bits.
func (t *tagTree) play(leaf, owner uint32, lead uint64) {
	nodes := t.nodes
	i := uint(len(nodes)/2) + uint(leaf)
	for i > 1 && i < uint(len(nodes)) {
		nodes[i] = treeNode{lead, owner}
		rival := &nodes[i^1]
		r, other := rival.lead, rival.owner
		if r == lead && other != none && (owner == none || t.before(other, owner)) {
			owner = other
		}
		// Who wins cannot be predicted, so there is no branch: less is all ones
		// when the rival's bits are lower.
		_, borrow := bits.Sub64(r, lead, 0)
		less := -borrow
		lead ^= (lead ^ r) & less
		owner ^= (owner ^ other) & uint32(less)
		i >>= 1
	}
	nodes[1] = treeNode{lead, owner}
	t.comparisons += uint64(bits.Len(uint(len(nodes)))) - 2
}

// earlier reports that a wins a match against b.
func (t *tagTree) earlier(a, b treeNode) bool {
	if a.lead != b.lead || a.owner == none || b.owner == none {
		return a.lead < b.lead || a.lead == b.lead && a.owner != none && b.owner == none
	}
	return a.owner != b.owner && t.before(a.owner, b.owner)
}

// grow doubles the leaves; each keeps its number.
func (t *tagTree) grow() {
	leaves := max(minLeaves, len(t.nodes))
	nodes := make([]treeNode, 2*leaves)
	for i := range nodes {
		nodes[i] = emptyNode
	}
	copy(nodes[leaves:], t.nodes[len(t.nodes)/2:])
	for i := leaves - 1; i > 0; i-- {
		a, b := nodes[2*i], nodes[2*i+1]
		if t.earlier(b, a) {
			a = b
		}
		nodes[i] = a
	}
	t.nodes = nodes
}
