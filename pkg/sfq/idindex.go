package sfq

const (
	pageBits = 4
	pageSize = 1 << pageBits
	pageMask = pageSize - 1
)

// idIndex maps identifiers to slots by way of pages of sixteen consecutive
// identifiers. Whoever numbers things one after another finds the page of the
// last one again, and a thing that remembers its cell is removed without a
// search: both cost one line of memory. Identifiers without any order get a
// page each, which costs one line more than a table of them would. Of what was
// removed nothing is kept but a few empty pages: the one used last, and those
// whose emptiness is yet to be seen, when their line of memory has come.
type idIndex struct {
	table idTable // page number (identifier / 16) → place in pages
	pages []idPage
	keys  []uint64 // of each page: identifier / 16; of a free one freeKey + the next free one
	free  uint32   // the first free page
	used  int      // identifiers
	// last is the page used last, or none; lastKey its key.
	last    uint32
	lastKey uint64
	// unseen are pages that lost an identifier and may be empty.
	unseen  [maxUnseen]uint32
	unseenN uint32 // how many there have been, so that they take turns
}

// maxUnseen is how many removals a page may take to come from memory.
const maxUnseen = 8

// freeKey marks the key of a free page; those of pages in use are lower.
const freeKey = 1 << 63

// idPage holds slot + 1 for each identifier, 0 for those that are not there: one
// line of memory.
type idPage [pageSize]uint32

func (p *idPage) empty() bool {
	return p[0]|p[1]|p[2]|p[3]|p[4]|p[5]|p[6]|p[7]|p[8]|p[9]|p[10]|p[11]|p[12]|p[13]|p[14]|p[15] == 0
}

func newIDIndex() idIndex { return idIndex{free: none, last: none} }

// get finds the slot of an identifier.
func (x *idIndex) get(id uint64) (uint32, bool) {
	at := x.last
	if at == none || id>>pageBits != x.lastKey {
		var ok bool
		if at, ok = x.table.get(id >> pageBits); !ok {
			return none, false
		}
	}
	c := x.pages[at][id&pageMask]
	return c - 1, c != 0
}

// reserve returns the cell of an identifier, to be filled by put, and whether
// it is there already.
func (x *idIndex) reserve(id uint64) (cell uint32, taken bool) {
	at := x.last
	if at == none || id>>pageBits != x.lastKey {
		var ok bool
		if at, ok = x.table.get(id >> pageBits); !ok {
			return none, false
		}
	}
	return at<<pageBits | uint32(id&pageMask), x.pages[at][id&pageMask] != 0
}

// put adds an identifier that is not there, and returns its cell. hint is the
// cell that reserve found, none when there was no page.
func (x *idIndex) put(id uint64, hint, slot uint32) uint32 {
	if hint == none {
		hint = x.newPage(id>>pageBits)<<pageBits | uint32(id&pageMask)
	} else if hint>>pageBits != x.last {
		x.turn(hint >> pageBits)
	}
	x.pages[hint>>pageBits][hint&pageMask] = slot + 1
	x.used++
	return hint
}

// turn makes a page the one used last, and gives the one before back when it is
// empty.
func (x *idIndex) turn(to uint32) {
	from := x.last
	x.last, x.lastKey = to, x.keys[to]
	if from != none {
		x.dropEmpty(from)
	}
}

func (x *idIndex) newPage(key uint64) uint32 {
	at := x.free
	if at == none {
		at = uint32(len(x.pages))
		x.pages = append(x.pages, idPage{})
		x.keys = append(x.keys, key)
	} else {
		x.free = uint32(x.keys[at])
		x.keys[at] = key
	}
	x.table.put(key, at)
	x.turn(at)
	return at
}

// del removes an identifier by its cell. Whether that has left its page empty is
// looked at some removals later.
func (x *idIndex) del(cell uint32) {
	x.pages[cell>>pageBits][cell&pageMask] = 0
	x.used--
	at := &x.unseen[x.unseenN%maxUnseen]
	x.unseenN++
	old := *at
	*at = cell >> pageBits
	if x.unseenN > maxUnseen {
		x.dropEmpty(old)
	}
}

// dropEmpty gives a page back if it is in use and empty.
func (x *idIndex) dropEmpty(at uint32) {
	if at == x.last || !x.pages[at].empty() || x.keys[at] >= freeKey {
		return
	}
	x.table.del(x.keys[at])
	x.keys[at] = freeKey | uint64(x.free)
	x.free = at
}
