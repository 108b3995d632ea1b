package sfq

const (
	pageBits = 3
	pageSize = 1 << pageBits
	pageMask = pageSize - 1
)

// idIndex maps identifiers to slots by way of pages of eight consecutive
// identifiers. Whoever numbers things one after another finds the page of the
// last one again, and a thing that remembers its cell is removed without a
// search: both cost one line of memory. Identifiers without any order get a
// page each, which costs one line more than a table of them would. A page whose
// last identifier is removed is given back, so nothing is kept of the past.
type idIndex struct {
	table idTable // page number (identifier / 8) → place in pages
	pages []idPage
	free  uint32 // the first free page; a free page's first cell leads to the next
	used  int    // identifiers
	// lastKey and lastPage repeat the page used last.
	lastKey  uint64
	lastPage uint32
}

// idPage holds slot + 1 for each identifier, 0 for those that are not there.
type idPage [pageSize]uint32

func newIDIndex() idIndex { return idIndex{free: none, lastPage: none} }

// page finds the page of an identifier.
func (x *idIndex) page(id uint64) (uint32, bool) {
	if key := id >> pageBits; key != x.lastKey || x.lastPage == none {
		at, ok := x.table.get(key)
		if !ok {
			return none, false
		}
		x.lastKey, x.lastPage = key, at
	}
	return x.lastPage, true
}

// get finds the slot of an identifier.
func (x *idIndex) get(id uint64) (uint32, bool) {
	at, ok := x.page(id)
	if !ok {
		return none, false
	}
	c := x.pages[at][id&pageMask]
	return c - 1, c != 0
}

// reserve returns the cell of an identifier, to be filled by set, and whether
// it is there already.
func (x *idIndex) reserve(id uint64) (cell uint32, taken bool) {
	at, ok := x.page(id)
	if !ok {
		return none, false
	}
	return at<<pageBits | uint32(id&pageMask), x.pages[at][id&pageMask] != 0
}

// put adds an identifier that is not there, and returns its cell. hint is the
// cell that reserve found, none when there was no page.
func (x *idIndex) put(id uint64, hint, slot uint32) uint32 {
	if hint == none {
		hint = x.newPage(id>>pageBits)<<pageBits | uint32(id&pageMask)
	}
	x.pages[hint>>pageBits][hint&pageMask] = slot + 1
	x.used++
	return hint
}

func (x *idIndex) newPage(key uint64) uint32 {
	at := x.free
	if at == none {
		at = uint32(len(x.pages))
		x.pages = append(x.pages, idPage{})
	} else {
		x.free = x.pages[at][0]
		x.pages[at][0] = 0
	}
	x.table.put(key, at)
	x.lastKey, x.lastPage = key, at
	return at
}

// del removes an identifier by its cell.
func (x *idIndex) del(id uint64, cell uint32) {
	at := cell >> pageBits
	p := &x.pages[at]
	p[cell&pageMask] = 0
	x.used--
	if *p != (idPage{}) {
		return
	}
	x.table.del(id >> pageBits)
	p[0] = x.free
	x.free = at
	if x.lastPage == at {
		x.lastPage = none
	}
}
