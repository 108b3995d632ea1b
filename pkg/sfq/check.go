package sfq

import (
	"errors"
	"fmt"
)

// ErrInvariant is wrapped by every error of [Scheduler.Check].
var ErrInvariant = errors.New("sfq: invariant broken")

func broken(n int, format string, args ...any) error {
	return fmt.Errorf("%w: I%d: %s", ErrInvariant, n, fmt.Sprintf(format, args...))
}

// Check verifies the invariants that doc.go numbers, over the whole state, and
// returns the first that is broken. It changes nothing. Tests run it after
// every step, Restore after decoding.
func (s *Scheduler) Check() error {
	for i := range s.tenants {
		if !s.tenants[i].live {
			continue
		}
		if err := s.checkTenant(uint32(i)); err != nil {
			return err
		}
	}
	if err := s.checkCands(); err != nil {
		return err
	}
	if err := s.checkFlights(); err != nil {
		return err
	}
	for k := range s.cfg.Classes {
		if err := s.checkTree(k); err != nil {
			return err
		}
		if s.clock[k].hi >= tagLimit {
			return broken(7, "clock of class %d out of range", k)
		}
		if s.liveN == 0 && s.clock[k].less(s.maxFinish) {
			return broken(8, "idle, and class %d stands below the highest finish tag", k)
		}
	}
	return nil
}

func (s *Scheduler) checkTenant(ti uint32) error {
	t := &s.tenants[ti]
	if at, ok := s.tenantByID.get(uint64(t.id)); !ok || at != ti {
		return broken(1, "tenant %d is not indexed", t.id)
	}
	if t.running+t.picked > t.spec.MaxRunning+t.over {
		return broken(3, "tenant %d has %d+%d in flight, cap %d", t.id, t.running, t.picked, t.spec.MaxRunning)
	}
	if t.charged < 0 || t.published < t.charged {
		return broken(2, "tenant %d published %d of %d charged", t.id, t.published, t.charged)
	}
	if t.acct.finish.hi >= tagLimit || t.acct.credit.hi >= tagLimit || t.acct.finish.plus(t.acct.remote).hi >= tagLimit {
		return broken(7, "tenant %d has a tag out of range", t.id)
	}
	if err := s.checkChain(t); err != nil {
		return err
	}
	for k := range s.cfg.Classes {
		if err := s.checkQueue(ti, t, k); err != nil {
			return err
		}
	}
	return nil
}

// checkChain verifies that the outstanding picks start with an unresolved one,
// are in ticket order, and lead from the base to the account.
func (s *Scheduler) checkChain(t *tenant) error {
	if t.firstOut == none {
		return nil
	}
	if s.flights[t.firstOut].state != flightPicked {
		return broken(6, "tenant %d has a resolved pick at the front of its chain", t.id)
	}
	a, last := t.base, Ticket(0)
	for at := t.firstOut; at != none; at = s.flights[at].next {
		f := &s.flights[at]
		if f.ticket <= last || !f.chained {
			return broken(6, "tenant %d has its chain out of order", t.id)
		}
		last = f.ticket
		if start := a.dispatchStep(f.lift, f.distance, f.remotePay, f.pinned); start.less(f.start) {
			return broken(6, "ticket %d has a later start tag than its chain", f.ticket)
		}
		if a.finish.hi >= tagLimit {
			return broken(7, "ticket %d leaves the tag range", f.ticket)
		}
	}
	if a != t.acct {
		return broken(6, "tenant %d has another account than its chain", t.id)
	}
	return nil
}

func (s *Scheduler) checkQueue(ti uint32, t *tenant, k int) error {
	q := s.queue(ti, Class(k))
	var n uint32
	var cost int64
	first, prev := none, none
	for at := q.runHead; at != none; at = s.cands[at].next {
		c := &s.cands[at]
		if c.state != candRun || c.prev != prev || (prev != none && !s.cands[prev].before(c)) {
			return broken(4, "tenant %d class %d has its run out of order", t.id, k)
		}
		n, cost, prev = n+1, cost+c.cost, at
	}
	if first = q.runHead; first != none && s.cands[first].next != q.runSecond {
		return broken(4, "tenant %d class %d has another second", t.id, k)
	}
	side := q.sides()
	for i, at := range side {
		c := &s.cands[at]
		if c.state != candSide || int(c.aux) != i || (i > 0 && c.before(&s.cands[side[(i-1)/2]])) {
			return broken(4, "tenant %d class %d has its side heap out of order", t.id, k)
		}
		if first == none || c.before(&s.cands[first]) {
			first = at
		}
		n, cost = n+1, cost+c.cost
	}
	if n != q.n || cost != q.cost || prev != q.runTail || first != q.first {
		return broken(4, "tenant %d class %d has its queue miscounted", t.id, k)
	}
	if q.active != t.claims(q) {
		return broken(5, "tenant %d class %d: claim on the clock is %v", t.id, k, q.active)
	}
	if q.active && s.clock[k].less(q.lift) {
		return broken(5, "tenant %d class %d was lifted above the clock", t.id, k)
	}
	if indexed := q.leaf != none; indexed != t.eligible(q) {
		return broken(5, "tenant %d class %d: eligible is %v, indexed is %v", t.id, k, t.eligible(q), indexed)
	}
	if key, tie := s.headKey(t, q); q.leaf != none && (key != q.key || tie != q.tie) {
		return broken(5, "tenant %d class %d is indexed under another key than its head's", t.id, k)
	}
	return nil
}

// checkTree recounts the leaves and repeats the matches.
func (s *Scheduler) checkTree(k int) error {
	t := &s.trees[k]
	n := 0
	for g := range t.groups {
		p := &t.groups[g]
		lead, owner := t.least(p)
		switch win := (treeNode{lead, owner}); {
		case g == 0 && t.top != win.owner, g > 0 && t.groups[(g-1)/treeFan][(g-1)%treeFan] != win:
			return broken(5, "class %d has the wrong winner of group %d", k, g)
		case g < int(t.base):
			continue
		}
		for i, e := range p {
			if e.owner == none {
				if e != emptyNode {
					return broken(5, "class %d has a key without an owner", k)
				}
				continue
			}
			q := s.queue(e.owner, Class(k))
			if n++; int(q.leaf) != (g-int(t.base))*treeFan+i || e.lead != leadQ64(q.key) {
				return broken(5, "tenant %d class %d has another leaf than it thinks", s.tenants[e.owner].id, k)
			}
		}
	}
	if n != t.n || n+len(t.free) != int(t.fresh) {
		return broken(5, "class %d has its leaves miscounted", k)
	}
	return nil
}

// checkCands recounts what tenants say of their candidates.
func (s *Scheduler) checkCands() error {
	live := 0
	queuedN := make([]uint32, len(s.tenants))
	queued := make([]int64, len(s.tenants))
	for i := range s.cands {
		c := &s.cands[i]
		if c.state == candFree {
			continue
		}
		live++
		if at, ok := s.candByID.get(uint64(c.id)); !ok || at != uint32(i) {
			return broken(1, "job %d is not indexed", c.id)
		}
		if c.state == candFlight {
			if f := &s.flights[c.aux]; f.cand != uint32(i) || f.state == flightFree || f.state == flightOver {
				return broken(1, "job %d is in no flight", c.id)
			}
			continue
		}
		queuedN[c.tenant]++
		queued[c.tenant] += c.cost
	}
	if live != s.liveN || live != s.candByID.used {
		return broken(1, "%d live jobs, counted %d, indexed %d", live, s.liveN, s.candByID.used)
	}
	for i := range s.tenants {
		if t := &s.tenants[i]; t.queuedN != queuedN[i] || t.queued != queued[i] {
			return broken(2, "tenant %d has its queued jobs miscounted", t.id)
		}
	}
	return nil
}

// checkFlights recounts what tenants and slots say of the jobs in flight.
func (s *Scheduler) checkFlights() error {
	type sums struct {
		running, picked     uint32
		inFlight, pickedSum int64
	}
	by := make([]sums, len(s.tenants))
	var used [MaxClasses]uint32
	tickets := 0
	for i := range s.flights {
		f := &s.flights[i]
		if f.state == flightFree || f.state == flightOver {
			continue
		}
		tickets++
		if at, ok := s.byTicket.get(f.ticket); !ok || at != uint32(i) || f.ticket > s.lastTicket {
			return broken(1, "ticket %d is not indexed", f.ticket)
		}
		b := &by[f.tenant]
		b.inFlight += f.est
		used[f.slotClass]++
		if f.state == flightPicked {
			b.picked++
			b.pickedSum += f.est
		} else {
			b.running++
		}
	}
	if tickets != s.byTicket.used || used != s.used {
		return broken(2, "%d tickets, indexed %d; slots used %v, counted %v", tickets, s.byTicket.used, s.used, used)
	}
	for i := range s.tenants {
		t := &s.tenants[i]
		if by[i] != (sums{t.running, t.picked, t.inFlight, t.pickedSum}) {
			return broken(2, "tenant %d has its jobs in flight miscounted", t.id)
		}
	}
	return nil
}
