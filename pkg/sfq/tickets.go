package sfq

// recentTickets is how many of the newest tickets are found without a search; a
// power of two.
const recentTickets = 256

// ticketIndex finds flights by ticket. Tickets are numbered one after another,
// and most of those that are asked for are among the newest.
type ticketIndex struct {
	recent *[recentTickets]uint32 // slot + 1 of a live ticket, at its low bits; 0 elsewhere
	newest uint64                 // highest ticket ever put
	old    idTable                // live tickets that are not recent
	used   int
}

func newTicketIndex() ticketIndex { return ticketIndex{recent: new([recentTickets]uint32)} }

// get finds the flight of a live ticket.
func (x *ticketIndex) get(id Ticket) (uint32, bool) {
	if x.newest-uint64(id) < recentTickets {
		c := x.recent[id%recentTickets]
		return c - 1, c != 0
	}
	return x.old.get(uint64(id))
}

// put adds a ticket, higher than any before. Each number takes the place of the
// one 256 before it, which moves on if it is still live.
func (x *ticketIndex) put(id Ticket, slot uint32) {
	if uint64(id)-x.newest > recentTickets { // only when restoring
		for range recentTickets {
			x.newest++
			x.age(x.newest - recentTickets)
		}
		x.newest = uint64(id) - 1
	}
	for x.newest < uint64(id)-1 {
		x.newest++
		x.age(x.newest - recentTickets)
	}
	x.newest = uint64(id)
	c := &x.recent[id%recentTickets]
	if *c != 0 {
		x.old.put(uint64(id)-recentTickets, *c-1)
	}
	*c = slot + 1
	x.used++
}

// age moves a ticket to the old ones if it is live.
func (x *ticketIndex) age(id uint64) {
	if c := &x.recent[id%recentTickets]; *c != 0 {
		x.old.put(id, *c-1)
		*c = 0
	}
}

// del removes a live ticket.
func (x *ticketIndex) del(id Ticket) {
	x.used--
	if x.newest-uint64(id) < recentTickets {
		x.recent[id%recentTickets] = 0
		return
	}
	x.old.del(uint64(id))
}
