package sfq

// Rebase moves the origin of virtual time up to the lowest tag that can still
// decide anything, and every tag down by as much. It is an event of its own:
// tags are never saturated, because saturated tags have lost their order. The
// order of picks is the same with and without it. What lies below the new
// origin becomes the origin: the tags of tenants without a claim on any clock
// (they would be lifted anyway), and the floor under refunds of the others.
//
// A class that nobody uses may have a clock that stands far behind for ever.
// Only when such a clock is all that holds the origin back, and tags have used
// up half of their range, it is raised with the origin; two tenants that meet in
// that class next then start level there, where one might have been ahead.
//
// It returns [Rebased], or [Unchanged] when the origin is where it should be.
func (s *Scheduler) Rebase() Outcome {
	origin := s.origin()
	if origin.isZero() {
		return Unchanged
	}
	for k := range s.cfg.Classes {
		s.clock[k] = s.clock[k].monus(origin)
	}
	s.maxFinish = s.maxFinish.monus(origin)
	for i := range s.tenants {
		t := &s.tenants[i]
		if !t.live {
			continue
		}
		t.acct.shift(origin)
		t.base.shift(origin)
		for at := t.firstOut; at != none; at = s.flights[at].next {
			f := &s.flights[at]
			f.lift, f.start = f.lift.monus(origin), f.start.monus(origin)
		}
		for k := range s.cfg.Classes {
			q := s.queue(uint32(i), Class(k))
			q.lift = q.lift.monus(origin)
		}
		s.refresh(uint32(i))
	}
	if s.cfg.Record != nil {
		s.record(Event{Kind: EventRebase})
	}
	return Rebased
}

// shift moves an account down. Where the finish tag would go below zero, the
// remote debt that stood on it gives way instead, so that their sum, which is
// what unowned work stands on, keeps its distance to all other tags.
func (a *account) shift(origin u128) {
	if short := origin.monus(a.finish); !short.isZero() {
		a.remote = a.remote.monus(short)
	}
	a.finish = a.finish.monus(origin)
}

// rebaseUrgent is the integer part of a tag from which on clocks of unused
// classes do not hold the origin back: half of the range.
const rebaseUrgent = tagLimit / 2

// origin is the lowest start tag or clock, of all classes, or, when that is
// zero and tags are high, of the classes in use. Raising an unused class's clock
// to the latter does not move it ahead of any class in use.
func (s *Scheduler) origin() u128 {
	low := s.lowest(false)
	if low.isZero() && s.maxFinish.hi >= rebaseUrgent {
		low = s.lowest(true)
	}
	return low
}

func (s *Scheduler) lowest(inUse bool) u128 {
	low, found := u128{}, false
	lower := func(v u128) {
		if !found || v.less(low) {
			low, found = v, true
		}
	}
	for k := range s.cfg.Classes {
		used := !inUse
		for i := range s.tenants {
			t := &s.tenants[i]
			if !t.live || !t.hasClass(k) {
				continue
			}
			q := s.queue(uint32(i), Class(k))
			used = used || q.active
			if q.active && q.n > 0 {
				lower(startTag(&t.acct, q.lift, q.firstPinned))
			}
		}
		if used {
			lower(s.clock[k])
		}
	}
	for i := range s.flights {
		if f := &s.flights[i]; f.state == flightPicked {
			lower(f.start)
		}
	}
	return low
}
