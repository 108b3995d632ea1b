package sfq

import (
	"fmt"
	"math/bits"
)

// Reason is the one reason why a live job is not running.
type Reason uint8

// The reasons, in the order in which they are looked for.
const (
	// ReasonRunning: it is reserved or running.
	ReasonRunning Reason = iota + 1
	// ReasonHeld: it is held.
	ReasonHeld
	// ReasonNoSlotOfSize: no slot of its size or larger exists here.
	ReasonNoSlotOfSize
	// ReasonCappedJobs: its tenant has as many jobs in flight as it may.
	ReasonCappedJobs
	// ReasonCappedCost: with it, its tenant would have too much cost in flight.
	ReasonCappedCost
	// ReasonBehindOwn: an earlier job of its own tenant goes first.
	ReasonBehindOwn
	// ReasonBehindTenant: another tenant is further behind its share.
	ReasonBehindTenant
	// ReasonSlotsBusy: it is the next of its size, and every slot is in use.
	ReasonSlotsBusy
	// ReasonNext: it is the next of its size and a slot is free.
	ReasonNext
)

// Waiting explains a job. Its String is one sentence.
type Waiting struct {
	Reason Reason
	// Tenant and Class are the job's.
	Tenant TenantID
	Class  Class
	// BehindJob and BehindTenant are what goes first, for the two Behind reasons.
	BehindJob    JobID
	BehindTenant TenantID
	// InFlight and Cap are the tenant's jobs, or CPU ms, for the two Capped
	// reasons.
	InFlight, Cap int64
	// CostFirst bounds, in CPU ms, the work of the job's class now queued here
	// that is dispatched before it. It holds as long as nothing is added, held,
	// corrected, aborted or re-weighted, and the job's tenant is not at a cap; of
	// a job that is held or whose tenant is at a cap now, it is all that is queued.
	CostFirst int64
}

// String says it in one sentence.
func (w Waiting) String() string {
	first := fmt.Sprintf("; at most %d CPU ms go first", w.CostFirst)
	switch w.Reason {
	case ReasonRunning:
		return "it is running"
	case ReasonHeld:
		return "it is held back on this node" + first
	case ReasonNoSlotOfSize:
		return fmt.Sprintf("this node has no slot of size %d or larger", w.Class)
	case ReasonCappedJobs:
		return fmt.Sprintf("tenant %d has %d of %d jobs in flight", w.Tenant, w.InFlight, w.Cap) + first
	case ReasonCappedCost:
		return fmt.Sprintf("tenant %d has %d CPU ms in flight and may have %d", w.Tenant, w.InFlight, w.Cap) + first
	case ReasonBehindOwn:
		return fmt.Sprintf("job %d of the same tenant goes first", w.BehindJob) + first
	case ReasonBehindTenant:
		return fmt.Sprintf("tenant %d is further behind its share", w.BehindTenant) + first
	case ReasonSlotsBusy:
		return fmt.Sprintf("it is next for size %d and every slot is busy", w.Class)
	case ReasonNext:
		return "it is next and a slot is free"
	}
	return "unknown"
}

// Why explains why a live job is not running, as of a time; false when no live
// job has that number. It looks at every tenant and at the queue of the job's
// own: a question for people, not for the dispatch path.
func (s *Scheduler) Why(id JobID, now int64) (Waiting, bool) {
	at, ok := s.candByID.get(uint64(id))
	if !ok {
		return Waiting{}, false
	}
	c := &s.cands[at]
	t := &s.tenants[c.tenant]
	w := Waiting{Tenant: t.id, Class: c.class}
	if c.state == candFlight {
		w.Reason = ReasonRunning
		return w, true
	}
	q := s.queue(c.tenant, c.class)
	w.Reason = s.reason(at, c, t, q, &w)
	switch w.Reason {
	case ReasonHeld, ReasonCappedJobs, ReasonCappedCost:
		w.CostFirst = s.allQueued(c, q)
	default:
		w.CostFirst = s.costFirst(c, t, q, min(max(now, 0), MaxTime))
	}
	return w, true
}

func (s *Scheduler) reason(at uint32, c *cand, t *tenant, q *classQueue, w *Waiting) Reason {
	slots, free := s.slotsFor(c.class)
	in := t.running + t.picked
	limit := t.spec.MaxRunningCost
	switch {
	case c.state == candHeld:
		return ReasonHeld
	case slots == 0:
		return ReasonNoSlotOfSize
	case in >= t.spec.MaxRunning:
		w.InFlight, w.Cap = int64(in), int64(t.spec.MaxRunning)
		return ReasonCappedJobs
	case t.capped(0, t.inFlight, q.firstCost):
		// Also when it is the head's cost that does not fit: the head goes first.
		w.InFlight, w.Cap = t.inFlight, limit
		return ReasonCappedCost
	case q.first != at:
		w.BehindJob = s.cands[q.first].id
		return ReasonBehindOwn
	case s.trees[c.class].root() != c.tenant:
		w.BehindTenant = s.tenants[s.trees[c.class].root()].id
		return ReasonBehindTenant
	case free == 0:
		return ReasonSlotsBusy
	}
	return ReasonNext
}

// slotsFor counts the slots that may run a class, and the free ones.
func (s *Scheduler) slotsFor(k Class) (slots, free uint32) {
	for j := int(k); j < len(s.cfg.Classes); j++ {
		if j > int(k) && (s.cfg.Classes[j].Exclusive || s.cfg.Classes[k].Exclusive) {
			continue
		}
		slots += s.slots[j]
		free += max(s.slots[j], s.used[j]) - s.used[j]
	}
	return slots, free
}

// costFirst bounds the queued work of the job's class that goes before it, by
// the starvation bound of doc.go. Every choice errs on the high side: the job's
// own tag counts all other queued work of its tenant that may go before it at
// the least weight it can come to; others are taken at their undecayed weight.
func (s *Scheduler) costFirst(c *cand, t *tenant, q *classQueue, now int64) int64 {
	own := s.ownBefore(c, q)
	mine := own
	// A dispatch in another class first lifts the tag to that class's clock.
	start := maxU128(q.lift, t.acct.finish)
	for k := range s.cfg.Classes {
		if p := s.queue(c.tenant, Class(k)); k != int(c.class) && p.n > 0 {
			mine += p.cost
			start = maxU128(start, p.lift)
		}
	}
	weight := t.weight
	if d := s.cfg.Decay; d != nil {
		usage := d.usageAt(t.usage, t.usageStep, now)
		sum, over := usage.add(u128{hi: uint64(mine + t.pickedSum)})
		if over {
			sum = u128{hi: maxUsage}
		}
		weight = effectiveWeight(t.weight, sum, d.norm(t.spec.Tier))
	}
	// Pinned work goes ahead of the tenant's remote debt; work behind it may meet
	// the debt on top of the lift. The sum of two tags fits.
	start = start.plus(t.acct.remote)
	tagAt, over := start.add(chargeSum(mine, weight))
	if over {
		tagAt = u128{hi: tagLimit}
	}
	total := own
	for i := range s.tenants {
		g := &s.tenants[i]
		if !g.live || uint32(i) == c.tenant {
			continue
		}
		if p := s.queue(uint32(i), c.class); p.n > 0 {
			total += min(p.cost, ahead(g, p, tagAt))
		}
	}
	return total
}

// allQueued is the queued work of the class that can go before the job at all:
// its tenant's earlier jobs, and all of everybody else's.
func (s *Scheduler) allQueued(c *cand, q *classQueue) int64 {
	total := s.ownBefore(c, q)
	for i := range s.tenants {
		if s.tenants[i].live && uint32(i) != c.tenant {
			total += s.queue(uint32(i), c.class).cost
		}
	}
	return total
}

// ahead is what tenant g can be dispatched before its tag passes tagAt:
// w·(tagAt - S + credit) + its largest job.
func ahead(g *tenant, p *classQueue, tagAt u128) int64 {
	s := startTag(&g.acct, p.lift, p.firstPinned)
	if tagAt.less(s) {
		return 0
	}
	room, over := tagAt.minus(s).add(g.acct.credit)
	// room is Q64.64 and the weight has 16 fraction bits: the product's integer
	// part, shifted down by 16, is CPU ms; rounded up by one.
	hi, lo := bits.Mul64(room.hi, g.weight)
	fr, _ := bits.Mul64(room.lo, g.weight)
	lo, carry := bits.Add64(lo, fr, 0)
	if hi += carry; over || hi>>weightShift != 0 {
		return p.cost
	}
	cost := hi<<(64-weightShift) | lo>>weightShift
	if cost > uint64(p.cost) {
		return p.cost
	}
	return int64(cost) + 1 + p.maxCost
}

// chargeSum is charge for sums of costs, rounded up by a whole unit, so that it
// also covers the rounding of each of the charges summed.
func chargeSum(cost int64, weight uint64) u128 {
	if cost == 0 {
		return u128{}
	}
	hi, lo := bits.Mul64(uint64(cost), 1<<weightShift)
	if hi >= weight {
		return u128{hi: tagLimit}
	}
	q, _ := bits.Div64(hi, lo, weight)
	return u128{hi: q}.plus(u128{hi: 1})
}

// ownBefore sums the tenant's queued candidates of the class that are before c.
func (s *Scheduler) ownBefore(c *cand, q *classQueue) int64 {
	var sum int64
	for at := q.runHead; at != none && s.cands[at].before(c); at = s.cands[at].next {
		sum += s.cands[at].cost
	}
	for _, at := range q.sides() {
		if s.cands[at].before(c) {
			sum += s.cands[at].cost
		}
	}
	return sum
}
