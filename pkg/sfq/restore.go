package sfq

import (
	"cmp"
	"fmt"
)

// Restore returns a scheduler in an encoded state. The configuration must have
// as many classes as the state; slot counts are taken from the state (SetSlots
// changes them), and a changed half-life carries usage over to the new grid.
// It returns an error wrapping [ErrConfig] or [ErrEncoding]; whatever the bytes,
// the scheduler it returns satisfies [Scheduler.Check].
func Restore(cfg Config, state []byte) (*Scheduler, error) {
	s, err := NewScheduler(cfg)
	if err != nil {
		return nil, err
	}
	d := &decoder{b: state}
	if v := d.byte(); d.err == nil && v != stateVersion {
		d.fail("unknown version")
	}
	if n := int(d.byte()); d.err == nil && n != len(s.cfg.Classes) {
		return nil, fmt.Errorf("%w: the state has %d classes, the configuration %d", ErrConfig, n, len(s.cfg.Classes))
	}
	halfLife := int64(d.bounded(MaxTime))
	for k := range s.cfg.Classes {
		s.clock[k] = d.tag()
		s.slots[k] = uint32(d.bounded(maxSlotsLimit))
	}
	s.maxFinish = d.tag()
	s.lastTicket = Ticket(d.bounded(maxSequence))
	s.decodeTenants(d, halfLife)
	s.decodeCands(d)
	s.decodeFlights(d)
	s.decodeMaps(d)
	if d.err == nil && d.off != len(d.b) {
		d.fail("bytes left over")
	}
	if d.err != nil {
		return nil, d.err
	}
	for i := range s.tenants {
		t := &s.tenants[i]
		if t.firstOut != none {
			s.rechain(t)
		}
		s.refresh(uint32(i))
	}
	if err := s.Check(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrEncoding, err)
	}
	return s, nil
}

func (d *decoder) u128() u128 { return u128{d.uvarint(), d.uvarint()} }

// tag is a 128-bit number whose integer part is in range.
func (d *decoder) tag() u128 {
	v := d.u128()
	if v.hi >= tagLimit {
		d.fail("tag out of range")
		return u128{}
	}
	return v
}

func (d *decoder) account() account {
	a := account{finish: d.tag(), credit: d.tag(), remote: d.tag()}
	if a.finish.plus(a.remote).hi >= tagLimit {
		d.fail("tag out of range")
	}
	return a
}

// count reads the length of a list whose entries take at least size bytes, so
// that a false length cannot make the decoder allocate beyond its input.
func (d *decoder) count(size int) int {
	n := d.bounded(uint64(len(d.b)-d.off) / uint64(size))
	return int(n)
}

// ascending checks that list entries are in strictly rising order.
func ascending[T cmp.Ordered](d *decoder, i int, last, v T) T {
	if i > 0 && v <= last {
		d.fail("entries out of order")
	}
	return v
}

func (s *Scheduler) decodeTenants(d *decoder, halfLife int64) {
	var last TenantID
	for i, n := 0, d.count(20); i < n && d.err == nil; i++ {
		id := ascending(d, i, last, TenantID(d.uvarint()))
		last = id
		spec := d.spec()
		if o := spec.check(); o != Unknown {
			d.fail("bad tenant spec")
		}
		if d.err != nil {
			return
		}
		ti := s.newTenant(id)
		t := &s.tenants[ti]
		t.spec, t.weight = spec, spec.baseWeight()
		t.acct = d.account()
		t.base = t.acct
		s.remoteDue = s.remoteDue || !t.acct.remote.isZero()
		t.usage = d.tag()
		t.usageStep = d.bounded(MaxTime << 16)
		if s.cfg.Decay != nil {
			t.usageStep = regrid(t.usageStep, halfLife, s.cfg.Decay.HalfLife)
		}
		t.over = d.uint32()
		t.charged, t.published = int64(d.bounded(maxService)), int64(d.bounded(maxService))
		for k := range s.cfg.Classes {
			switch d.byte() {
			case 0:
			case 1:
				q := s.queue(ti, Class(k))
				q.active, q.lift = true, d.tag()
				t.classes |= 1 << k
			default:
				d.fail("unknown flag")
			}
		}
	}
}

// maxService bounds a restored service counter, far from where adding to it
// could overflow: 2⁶⁰ CPU ms are 36 million core years.
const maxService = 1 << 60

// tenant reads the identifier of a tenant that was decoded before.
func (d *decoder) tenant(s *Scheduler) uint32 {
	ti, ok := s.tenantByID.get(d.uvarint())
	if !ok {
		d.fail("unknown tenant")
		return none
	}
	return ti
}

func (d *decoder) class(s *Scheduler) Class {
	k := Class(d.byte())
	if int(k) >= len(s.cfg.Classes) {
		d.fail("unknown class")
		return 0
	}
	return k
}

func (s *Scheduler) decodeCands(d *decoder) {
	var last JobID
	for i, n := 0, d.count(8); i < n && d.err == nil; i++ {
		id := ascending(d, i, last, JobID(d.uvarint()))
		last = id
		c := cand{id: id, tenant: d.tenant(s), class: d.class(s), prev: none, next: none, state: candHeld}
		flags := d.byte()
		if flags >= flagsEnd {
			d.fail("unknown flags")
		}
		c.pinned = flags&flagPinned != 0
		c.cost = int64(d.bounded(MaxCost))
		c.typ = d.uint32()
		c.order = Order{Created: d.bounded(maxCreated), UID: d.uvarint()}
		if d.err == nil && c.cost < 1 {
			d.fail("cost out of range")
		}
		if d.err == nil && s.liveN >= maxJobsLimit {
			d.fail("too many jobs")
		}
		if d.err != nil {
			return
		}
		at := uint32(len(s.cands))
		s.cands = append(s.cands, c)
		hint, _ := s.candByID.reserve(uint64(id))
		s.cands[at].cell = s.candByID.put(uint64(id), hint, at)
		s.liveN++
		t := &s.tenants[c.tenant]
		t.queuedN++
		t.queued += c.cost
		if flags&flagHeld == 0 {
			t.classes |= 1 << c.class
			s.push(s.queue(c.tenant, c.class), at)
		}
	}
}

func (s *Scheduler) decodeFlights(d *decoder) {
	var last Ticket
	for i, n := 0, d.count(16); i < n && d.err == nil; i++ {
		f := flight{ticket: ascending(d, i, last, Ticket(d.uvarint())), prev: none, next: none, cand: none}
		last = f.ticket
		f.tenant = d.tenant(s)
		job := d.uvarint()
		f.state = flightState(d.byte())
		f.class, f.slotClass = d.class(s), d.class(s)
		flags := d.byte()
		f.pinned, f.chained = flags&flagPinned != 0, flags&flagHeld != 0
		f.est, f.charged = int64(d.bounded(MaxCost)), int64(d.bounded(maxCharged))
		f.weight = d.bounded(1 << 37)
		f.lift, f.start, f.distance, f.remotePay = d.tag(), d.tag(), d.u128(), d.u128()
		// The distances must be what a pick can have computed: they bound the sums
		// that the chain takes without checks.
		maxStep := u128{hi: MaxCost << weightShift}
		switch {
		case d.err != nil:
			return
		case f.state < flightPicked || f.state > flightOver || flags >= flagsEnd, f.weight < 1, f.est < 1,
			f.state == flightPicked && !f.chained:
			d.fail("bad flight")
			return
		case f.distance != charge(f.est, f.weight), u128{hi: maxStep.hi * 16}.less(f.remotePay):
			d.fail("bad distance")
			return
		}
		s.adopt(d, f, JobID(job))
	}
}

// adopt enters a decoded flight into the books of its tenant.
func (s *Scheduler) adopt(d *decoder, f flight, job JobID) {
	t := &s.tenants[f.tenant]
	if f.state == flightOver {
		if !f.chained || job != 0 {
			d.fail("bad flight")
			return
		}
	} else {
		at, ok := s.candByID.get(uint64(job))
		if !ok {
			d.fail("unknown job")
			return
		}
		c := &s.cands[at]
		if c.state != candRun && c.state != candSide || c.tenant != f.tenant || c.class != f.class ||
			c.pinned != f.pinned || c.cost != f.est {
			d.fail("flight and job differ")
			return
		}
		s.pull(s.queue(f.tenant, f.class), at)
		c.state, f.cand = candFlight, at
		t.queuedN--
		t.queued -= c.cost
		t.inFlight += c.cost
		s.used[f.slotClass]++
	}
	switch f.state {
	case flightPicked:
		t.picked++
		t.pickedSum += f.est
		s.queue(f.tenant, f.class).picked++
		t.classes |= 1 << f.class
	case flightRunning:
		t.running++
	default: // one that is over is counted nowhere
	}
	slot := uint32(len(s.flights))
	if f.chained {
		f.prev = t.lastOut
		if t.lastOut == none {
			t.firstOut = slot
		} else {
			s.flights[t.lastOut].next = slot
		}
		t.lastOut = slot
	}
	s.flights = append(s.flights, f)
	if f.state != flightOver {
		s.cands[f.cand].aux = slot
		s.byTicket.put(f.ticket, slot)
	}
}

func (s *Scheduler) decodeMaps(d *decoder) {
	for i, n := 0, d.count(4); i < n && d.err == nil; i++ {
		k := typeKey{TenantID(d.uvarint()), d.uint32()}
		a := average{d.bounded(MaxCost << 16), uint32(d.bounded(averageSamples))}
		if _, dup := s.averages[k]; dup || a.samples < 1 || k.typ == 0 {
			d.fail("bad average")
		}
		s.averages[k] = a
	}
	for i, n := 0, d.count(3); i < n && d.err == nil; i++ {
		k := remoteKey{PeerID(d.uvarint()), TenantID(d.uvarint())}
		if _, dup := s.remotes[k]; dup {
			d.fail("counter twice")
		}
		s.remotes[k] = uint64(d.int64())
	}
}
