package sfq

// jobIDs finds the live jobs of a [Queue] by their identifiers. Integers, which
// callers mostly count up, go by an idIndex; everything else by a map, whose
// memory is where the hash says and must be waited for.
type jobIDs[J comparable] struct {
	number func(J) uint64 // nil: use named
	index  idIndex
	named  map[J]uint32
}

func newJobIDs[J comparable]() jobIDs[J] {
	ids := jobIDs[J]{index: newIDIndex()}
	var number any
	var j J
	switch any(j).(type) {
	case int:
		number = func(v int) uint64 { return uint64(v) }
	case int64:
		number = func(v int64) uint64 { return uint64(v) }
	case uint64:
		number = func(v uint64) uint64 { return v }
	case int32:
		number = func(v int32) uint64 { return uint64(uint32(v)) }
	case uint32:
		number = func(v uint32) uint64 { return uint64(v) }
	default:
		ids.named = make(map[J]uint32)
		return ids
	}
	ids.number = number.(func(J) uint64)
	return ids
}

func (x *jobIDs[J]) len() int { return x.index.used + len(x.named) }

// reserve reports whether an identifier is there, and returns what put needs.
func (x *jobIDs[J]) reserve(id J) (hint uint32, taken bool) {
	if x.number != nil {
		return x.index.reserve(x.number(id))
	}
	_, taken = x.named[id]
	return none, taken
}

// put adds an identifier that is not there; del wants the cell it returns.
func (x *jobIDs[J]) put(id J, hint, slot uint32) (cell uint32) {
	if x.number != nil {
		return x.index.put(x.number(id), hint, slot)
	}
	x.named[id] = slot
	return none
}

// del removes an identifier that is there.
func (x *jobIDs[J]) del(id J, cell uint32) {
	if x.number != nil {
		x.index.del(cell)
		return
	}
	delete(x.named, id)
}

// warm asks for the memory that del will need.
func (x *jobIDs[J]) warm(cell uint32) {
	if x.number != nil {
		warmPage(&x.index.pages[cell>>pageBits])
	}
}
