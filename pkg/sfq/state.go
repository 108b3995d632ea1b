package sfq

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"math/bits"
	"slices"
)

// stateVersion is the first byte of an encoded state.
const stateVersion = 1

// AppendState appends a canonical encoding of the whole state to dst: two
// schedulers in the same state encode to the same bytes, whatever the history
// and layout that led there. A node checkpoints it and then needs only the
// events recorded after it. Numbers are varints, 128-bit numbers two of them;
// tenants, candidates, flights, averages and counters each are a count and then
// the entries, ordered by identifier.
func (s *Scheduler) AppendState(dst []byte) []byte {
	e := encoder{dst}
	e.b = append(e.b, stateVersion, byte(len(s.cfg.Classes)))
	halfLife := int64(0)
	if s.cfg.Decay != nil {
		halfLife = s.cfg.Decay.HalfLife
	}
	e.u64(uint64(halfLife))
	for k := range s.cfg.Classes {
		e.u128(s.clock[k])
		e.u64(uint64(s.slots[k]))
	}
	e.u128(s.maxFinish)
	e.u64(uint64(s.lastTicket))
	s.encodeTenants(&e)
	s.encodeCands(&e)
	s.encodeFlights(&e)
	s.encodeMaps(&e)
	return e.b
}

// StateHash is the SHA-256 of the encoded state.
func (s *Scheduler) StateHash() [sha256.Size]byte { return sha256.Sum256(s.AppendState(nil)) }

type encoder struct{ b []byte }

func (e *encoder) u64(v uint64) { e.b = binary.AppendUvarint(e.b, v) }
func (e *encoder) u128(v u128)  { e.u64(v.hi); e.u64(v.lo) }

func (e *encoder) account(a *account) {
	e.u128(a.finish)
	e.u128(a.credit)
	e.u128(a.remote)
}

func (s *Scheduler) encodeTenants(e *encoder) {
	var order []uint32
	for i := range s.tenants {
		if s.tenants[i].live {
			order = append(order, uint32(i))
		}
	}
	slices.SortFunc(order, func(a, b uint32) int { return cmp.Compare(s.tenants[a].id, s.tenants[b].id) })
	e.u64(uint64(len(order)))
	for _, i := range order {
		t := &s.tenants[i]
		e.u64(uint64(t.id))
		e.b = appendSpec(e.b, &t.spec)
		// With outstanding picks the account follows from the base; without
		// them there is no base. One of the two is enough.
		if t.firstOut != none {
			e.account(&t.base)
		} else {
			e.account(&t.acct)
		}
		e.u128(t.usage)
		e.u64(t.usageStep)
		e.u64(uint64(t.over))
		e.u64(uint64(t.charged))
		e.u64(uint64(t.published))
		for k := range s.cfg.Classes {
			q := s.queue(i, Class(k))
			if !q.active {
				e.b = append(e.b, 0)
				continue
			}
			e.b = append(e.b, 1)
			e.u128(q.lift)
		}
	}
}

func (s *Scheduler) encodeCands(e *encoder) {
	var order []uint32
	for i := range s.cands {
		if s.cands[i].state != candFree {
			order = append(order, uint32(i))
		}
	}
	slices.SortFunc(order, func(a, b uint32) int { return cmp.Compare(s.cands[a].id, s.cands[b].id) })
	e.u64(uint64(len(order)))
	for _, i := range order {
		c := &s.cands[i]
		e.u64(uint64(c.id))
		e.u64(uint64(s.tenants[c.tenant].id))
		e.b = append(e.b, byte(c.class), flagByte(c.pinned, c.state == candHeld))
		e.u64(uint64(c.cost))
		e.u64(uint64(c.typ))
		e.u64(c.order.Created)
		e.u64(c.order.UID)
	}
}

func (s *Scheduler) encodeFlights(e *encoder) {
	var order []uint32
	for i := range s.flights {
		if s.flights[i].state != flightFree {
			order = append(order, uint32(i))
		}
	}
	slices.SortFunc(order, func(a, b uint32) int { return cmp.Compare(s.flights[a].ticket, s.flights[b].ticket) })
	e.u64(uint64(len(order)))
	for _, i := range order {
		f := &s.flights[i]
		e.u64(uint64(f.ticket))
		e.u64(uint64(s.tenants[f.tenant].id))
		job := JobID(0)
		if f.cand != none {
			job = s.cands[f.cand].id
		}
		e.u64(uint64(job))
		e.b = append(e.b, byte(f.state), byte(f.class), byte(f.slotClass), flagByte(f.pinned, f.chained))
		e.u64(uint64(f.est))
		e.u64(uint64(f.charged))
		e.u64(f.weight)
		e.u128(f.lift)
		e.u128(f.start)
		e.u128(f.distance)
		e.u128(f.remotePay)
	}
}

func (s *Scheduler) encodeMaps(e *encoder) {
	types := make([]typeKey, 0, len(s.averages))
	for k := range s.averages {
		types = append(types, k)
	}
	slices.SortFunc(types, func(a, b typeKey) int {
		return cmp.Or(cmp.Compare(a.tenant, b.tenant), cmp.Compare(a.typ, b.typ))
	})
	e.u64(uint64(len(types)))
	for _, k := range types {
		a := s.averages[k]
		e.u64(uint64(k.tenant))
		e.u64(uint64(k.typ))
		e.u64(a.mean)
		e.u64(uint64(a.samples))
	}
	peers := make([]remoteKey, 0, len(s.remotes))
	for k := range s.remotes {
		peers = append(peers, k)
	}
	slices.SortFunc(peers, func(a, b remoteKey) int {
		return cmp.Or(cmp.Compare(a.peer, b.peer), cmp.Compare(a.tenant, b.tenant))
	})
	e.u64(uint64(len(peers)))
	for _, k := range peers {
		e.u64(uint64(k.peer))
		e.u64(uint64(k.tenant))
		e.u64(s.remotes[k])
	}
}

// regrid translates a decay step of one half-life to the grid of another.
func regrid(step uint64, from, to int64) uint64 {
	if from == 0 || from == to {
		return step
	}
	hi, lo := bits.Mul64(step, uint64(from))
	if hi >= uint64(to) {
		return 0
	}
	q, _ := bits.Div64(hi, lo, uint64(to))
	return q
}
