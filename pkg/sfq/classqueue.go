package sfq

// classQueue is one tenant's candidates of one class, ordered by (pinned first,
// order key, job number). Candidates mostly arrive in order, so they are kept
// as a sorted run, a doubly linked list that grows at both ends in O(1), and a
// small binary heap for those that arrived between its ends. The head is the
// lesser of the two fronts; removal from either is O(1) or O(log n), and nothing
// removed is remembered.
//
// It is two lines of memory, and says enough of its first and last candidate
// for most operations to leave the candidates alone.
type classQueue struct {
	key          u128 // start tag of the head, while leaf is not none
	tie          uint64
	lift         u128   // the class's clock when active last became true
	leaf         uint32 // in the class's tree, or none
	first        uint32 // the head, or none
	firstCost    int64
	firstCreated uint64

	firstPinned bool
	active      bool      // had a claim on the class's clock at the last refresh
	n           uint32    // queued candidates, run and side
	picked      uint32    // reserved candidates of this class
	runHead     uint32    // first of the run
	runSecond   uint32    // behind runHead: a dispatch loads both at once, not one after the other
	runTail     uint32    // last of the run
	lastCreated uint64    // not below that of runTail
	side        *sideHeap // nil until something arrived out of order
	cost        int64     // estimated cost of the n queued
	maxCost     int64     // highest single estimate since the queue was last empty
	_           uint64
}

// sideHeap is a binary min-heap of candidate slots.
type sideHeap struct{ at []uint32 }

// sides lists the candidates that are not in the run, in heap order.
func (q *classQueue) sides() []uint32 {
	if q.side == nil {
		return nil
	}
	return q.side.at
}

// before orders two candidates of one tenant.
func (c *cand) before(d *cand) bool {
	switch {
	case c.pinned != d.pinned:
		return c.pinned
	case c.order.Created != d.order.Created:
		return c.order.Created < d.order.Created
	case c.order.UID != d.order.UID:
		return c.order.UID < d.order.UID
	}
	return c.id < d.id
}

// push queues a candidate.
func (s *Scheduler) push(q *classQueue, at uint32) {
	c := &s.cands[at]
	if q.n == 0 {
		q.maxCost = 0
	}
	q.n++
	q.cost += c.cost
	q.maxCost = max(q.maxCost, c.cost)
	c.prev, c.next = none, none
	switch {
	case q.runHead == none:
		q.runHead, q.runSecond, q.runTail, c.state = at, none, at, candRun
		q.lastCreated = c.order.Created
	case !c.pinned && q.lastCreated < c.order.Created || s.cands[q.runTail].before(c):
		c.prev, c.state = q.runTail, candRun
		s.cands[q.runTail].next = at
		if q.runTail == q.runHead {
			q.runSecond = at
		}
		q.runTail, q.lastCreated = at, c.order.Created
	case c.before(&s.cands[q.runHead]):
		c.next, c.state = q.runHead, candRun
		s.cands[q.runHead].prev = at
		q.runHead, q.runSecond = at, q.runHead
	default:
		c.state = candSide
		if q.side == nil {
			q.side = new(sideHeap)
		}
		q.side.at = append(q.side.at, at)
		s.sideUp(q.side.at, len(q.side.at)-1)
	}
	// What is behind another of the run is behind the head.
	if q.first == none || (q.runTail != at || q.runHead == at) && c.before(&s.cands[q.first]) {
		s.setHead(q, at)
	}
}

func (s *Scheduler) setHead(q *classQueue, at uint32) {
	q.first = at
	if at != none {
		c := &s.cands[at]
		q.firstPinned, q.firstCost, q.firstCreated = c.pinned, c.cost, c.order.Created
	}
}

// pull takes a queued candidate out, wherever it is.
func (s *Scheduler) pull(q *classQueue, at uint32) {
	c := &s.cands[at]
	q.n--
	q.cost -= c.cost
	if c.state == candSide {
		s.sideRemove(q.side, int(c.aux))
	} else {
		s.unlinkRun(q, c, at)
	}
	if q.first == at {
		first := q.runHead
		if side := q.sides(); len(side) > 0 && (first == none || s.cands[side[0]].before(&s.cands[first])) {
			first = side[0]
		}
		s.setHead(q, first)
	}
}

// unlinkRun takes a candidate out of the sorted run.
func (s *Scheduler) unlinkRun(q *classQueue, c *cand, at uint32) {
	if at == q.runHead {
		q.runHead = q.runSecond
		if q.runHead == none {
			q.runTail = none
			return
		}
		h := &s.cands[q.runHead]
		h.prev, q.runSecond = none, h.next
		return
	}
	s.cands[c.prev].next = c.next
	if c.prev == q.runHead {
		q.runSecond = c.next
	}
	if c.next != none {
		s.cands[c.next].prev = c.prev
	} else {
		q.runTail = c.prev
	}
}

func (s *Scheduler) sideUp(side []uint32, i int) {
	at := side[i]
	for i > 0 {
		p := (i - 1) / 2
		if !s.cands[at].before(&s.cands[side[p]]) {
			break
		}
		side[i] = side[p]
		s.cands[side[i]].aux = uint32(i)
		i = p
	}
	side[i] = at
	s.cands[at].aux = uint32(i)
}

func (s *Scheduler) sideDown(side []uint32, i int) {
	at := side[i]
	for {
		c := 2*i + 1
		if c >= len(side) {
			break
		}
		if c+1 < len(side) && s.cands[side[c+1]].before(&s.cands[side[c]]) {
			c++
		}
		if !s.cands[side[c]].before(&s.cands[at]) {
			break
		}
		side[i] = side[c]
		s.cands[side[i]].aux = uint32(i)
		i = c
	}
	side[i] = at
	s.cands[at].aux = uint32(i)
}

func (s *Scheduler) sideRemove(h *sideHeap, i int) {
	last := len(h.at) - 1
	moved := h.at[last]
	h.at = h.at[:last]
	if i == last {
		return
	}
	h.at[i] = moved
	s.cands[moved].aux = uint32(i)
	s.sideUp(h.at, i)
	s.sideDown(h.at, int(s.cands[moved].aux))
}
