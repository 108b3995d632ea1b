package sfq

import "math/bits"

// Enqueue admits a job to a flow. It returns [Accepted] or one of
// [InvalidCost] (cost below 1), [FlowNotRegistered], [DuplicateLiveID],
// [LiveLimit], [SequenceExhausted], [NumericLimit].
func (q *Queue[F, J, P]) Enqueue(h FlowHandle, id J, payload P, cost int64) (JobHandle, Outcome) {
	if cost < 1 {
		return JobHandle{}, InvalidCost
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	f := q.flow(h)
	if f == nil {
		return JobHandle{}, FlowNotRegistered
	}
	hint, dup := q.jobByID.reserve(id)
	if dup {
		return JobHandle{}, DuplicateLiveID
	}
	if q.queued+q.running >= q.cfg.MaxLiveJobs {
		return JobHandle{}, LiveLimit
	}
	if q.jobSeq >= maxSequence {
		return JobHandle{}, SequenceExhausted
	}
	start, finish, ok := q.admit(f, cost)
	if !ok {
		if start, finish, ok = q.normalise(f, cost); !ok {
			return JobHandle{}, NumericLimit
		}
	}
	q.jobSeq++
	slot := q.newJob()
	j := &q.jobs[slot]
	j.id, j.payload, j.cost, j.seq = id, payload, cost, q.jobSeq
	j.flow, j.prev, j.next, j.gap = h.slot, none, none, u128{}
	j.cell = q.jobByID.put(id, hint, slot)
	f.accepted = f.accepted.plus(u128{lo: uint64(cost)}) // < 2¹²⁶, see Sum
	f.period = q.period
	f.finish.set(finish)
	if f.queued+f.running == 0 {
		q.active++
	}
	if f.queued == 0 {
		f.head, f.tail, f.gap, f.first = slot, slot, u128{}, q.jobSeq
		f.start.set(start)
		f.leaf = q.heads.insert(h.slot, leadInt(start.n))
	} else {
		if !f.gap.isZero() {
			j.gap, f.gap = f.gap, u128{}
			f.gaps++
		}
		j.prev = f.tail
		last := &q.jobs[f.tail]
		last.next, last.nextSeq = slot, q.jobSeq
		f.tail = slot
	}
	f.queued++
	q.queued++
	return JobHandle{q.owner, q.jobSeq, slot}, Accepted
}

// admit computes the tags the next job of the flow would get, and whether they
// are within the range.
func (q *Queue[F, J, P]) admit(f *queueFlow[F], cost int64) (start, finish tag, ok bool) {
	if f.unit != 0 { // numerators, which refunds cannot bring out of range
		start.n = q.virtual.n
		if f.period == q.period {
			start.n = maxU128(start.n, f.finish.n)
		}
		var over bool
		finish.n.hi, finish.n.lo = bits.Mul64(uint64(cost), f.unit)
		finish.n, over = finish.n.add(start.n)
		return start, finish, !over
	}
	start = maxTag(q.virtual, q.finishOf(f))
	finish, ok = q.cfg.Domain.step(start, u128{lo: uint64(cost)}, f.weight)
	if !ok {
		return start, finish, false
	}
	if q.cfg.Cancellation == RefundCancelledCost {
		base := start
		if f.queued > 0 {
			base = f.start
		}
		ok = q.cfg.Domain.refundSafe(base, finish, f.weight)
	}
	return start, finish, ok
}

// normalise subtracts virtual time from every tag, once, if afterwards every
// tag and the new job's tags are within the range; else it changes nothing.
// All differences between tags ahead of virtual time, and with them every
// later decision, are preserved.
func (q *Queue[F, J, P]) normalise(f *queueFlow[F], cost int64) (start, finish tag, ok bool) {
	type moved struct{ start, finish tag }
	d := q.cfg.Domain
	moves := make([]moved, len(q.flows))
	for i := range q.flows {
		g := &q.flows[i]
		if g.seq == 0 || g.period != q.period {
			continue
		}
		m := &moves[i]
		if m.finish, ok = d.monus(g.finish, q.virtual); !ok {
			return tag{}, tag{}, false
		}
		if g.queued == 0 {
			continue
		}
		if m.start, ok = d.monus(g.start, q.virtual); !ok || !q.chainFits(g, m.start, m.finish) {
			return tag{}, tag{}, false
		}
	}
	old := make([]moved, len(q.flows))
	virtual := q.virtual
	for i := range q.flows {
		g := &q.flows[i]
		old[i] = moved{g.start, g.finish}
		if g.seq != 0 && g.period == q.period {
			g.start, g.finish = moves[i].start, moves[i].finish
		}
	}
	q.virtual = tag{}
	if start, finish, ok = q.admit(f, cost); !ok {
		for i := range q.flows {
			q.flows[i].start, q.flows[i].finish = old[i].start, old[i].finish
		}
		q.virtual = virtual
		return tag{}, tag{}, false
	}
	for i := range q.flows {
		if g := &q.flows[i]; g.seq != 0 && g.queued > 0 {
			q.heads.play(g.leaf, uint32(i), leadInt(g.start.n))
		}
	}
	return start, finish, true
}

// chainFits walks the queued jobs of a flow from a new start tag and reports
// that each tag, and each tag a refund could produce, is within the range.
func (q *Queue[F, J, P]) chainFits(f *queueFlow[F], start, finish tag) bool {
	d := q.cfg.Domain
	if d.kind == domainDivisors {
		return true // tags only became smaller
	}
	if q.cfg.Cancellation == RefundCancelledCost && !d.refundSafe(start, finish, f.weight) {
		return false
	}
	t, ok := start, true
	for i := f.head; i != none; i = q.jobs[i].next {
		j := &q.jobs[i]
		if i != f.head {
			if t, ok = d.step(t, j.gap, f.weight); !ok {
				return false
			}
		}
		if t, ok = d.step(t, u128{lo: uint64(j.cost)}, f.weight); !ok {
			return false
		}
	}
	return true
}

// DispatchUpTo moves up to k of the next jobs to running, at most as many as
// issue slots are free, and appends them to dst in dispatch order. The batch is
// one atomic step and cannot be taken back: each returned job holds a slot
// until it is completed.
func (q *Queue[F, J, P]) DispatchUpTo(k int, dst []Dispatch[F, J, P]) []Dispatch[F, J, P] {
	q.mu.Lock()
	defer q.mu.Unlock()
	for n := min(k, q.cfg.IssueDepth-q.running, q.queued); n > 0; n-- {
		slot := q.heads.root()
		f := &q.flows[slot]
		q.virtual.set(f.start)
		at := f.head
		j := &q.jobs[at]
		dst = append(dst, Dispatch[F, J, P]{
			Job: JobHandle{q.owner, j.seq, at}, FlowID: f.id, JobID: j.id, Payload: j.payload, Cost: j.cost,
		})
		q.jobByID.warm(j.cell)
		var gone P
		j.payload, j.prev = gone, inService
		cost := u128{lo: uint64(j.cost)}
		f.dispatched, f.inRun = f.dispatched.plus(cost), f.inRun.plus(cost)
		q.takeHead(slot, f, j, true)
		f.running++
		q.running++
		q.dispatchN++
		if f.leaf != none {
			q.warmNext(f.leaf)
		}
	}
	return dst
}

// warmNext asks for the memory of those who came forward when the owner of the
// leaf moved back: of who may be next soon, the flow; of who may be sooner, its
// first and last job.
func (q *Queue[F, J, P]) warmNext(leaf uint32) {
	soon, sooner := q.heads.near(leaf)
	if soon != none {
		f := &q.flows[soon]
		warm3(&f.seq, &f.finish.n.hi, &f.accepted.hi)
	}
	if sooner != none {
		f := &q.flows[sooner]
		warm3(&q.jobs[f.head].seq, &q.jobs[f.tail].seq, &f.period)
	}
}

// Complete frees the issue slot of a dispatched job; it dispatches nothing. It
// returns [Completed], [NotDispatched] or [NotLive].
func (q *Queue[F, J, P]) Complete(h JobHandle) Outcome {
	q.mu.Lock()
	defer q.mu.Unlock()
	j := q.job(h)
	if j == nil {
		return NotLive
	}
	if j.prev != inService {
		return NotDispatched
	}
	f := &q.flows[j.flow]
	f.inRun = f.inRun.minus(u128{lo: uint64(j.cost)})
	f.running--
	q.running--
	q.completeN++
	q.freeJobSlot(h.slot, f)
	return Completed
}

// Cancel removes a queued job. It returns [Cancelled],
// [TooLateAlreadyDispatched] while the job runs, or [NotLive], which does not
// tell how the job ended: nothing is kept of jobs that are over. It never fails
// for numeric reasons.
func (q *Queue[F, J, P]) Cancel(h JobHandle) Outcome {
	q.mu.Lock()
	defer q.mu.Unlock()
	j := q.job(h)
	if j == nil {
		return NotLive
	}
	if j.prev == inService {
		return TooLateAlreadyDispatched
	}
	f := &q.flows[j.flow]
	cost := u128{lo: uint64(j.cost)}
	f.cancelled = f.cancelled.plus(cost)
	charged := q.cfg.Cancellation == ChargeReservedCost
	if !charged {
		f.finish = q.cfg.Domain.unstep(f.finish, cost, f.weight)
	}
	if f.head == h.slot {
		q.takeHead(j.flow, f, j, charged)
	} else {
		q.takeOther(f, j, charged)
	}
	q.cancelN++
	q.freeJobSlot(h.slot, f)
	return Cancelled
}

// takeHead takes the next job out of its flow. When charged, its cost stays in
// the chain and moves the start tag of the new head, which is left alone unless
// some job has a gap before it: it would be one more line of memory to wait for.
// The sums here and below stay under the flow's finish tag, which fits.
func (q *Queue[F, J, P]) takeHead(slot uint32, f *queueFlow[F], j *queueJob[J, P], charged bool) {
	f.queued--
	q.queued--
	f.head, f.first = j.next, j.nextSeq
	if f.head == none {
		q.heads.remove(f.leaf)
		f.leaf = none
		return
	}
	moved := u128{}
	if charged {
		moved.lo = uint64(j.cost)
	}
	if f.gaps > 0 {
		if n := &q.jobs[f.head]; !n.gap.isZero() {
			moved, n.gap = moved.plus(n.gap), u128{}
			f.gaps--
		}
	}
	q.advance(f, moved)
	q.heads.play(f.leaf, slot, leadInt(f.start.n))
}

// takeOther takes a job out that has another before it. When charged, its cost
// becomes a gap before the job behind it.
func (q *Queue[F, J, P]) takeOther(f *queueFlow[F], j *queueJob[J, P], charged bool) {
	f.queued--
	q.queued--
	if !j.gap.isZero() {
		f.gaps--
	}
	held := u128{}
	if charged {
		held = j.gap.plus(u128{lo: uint64(j.cost)})
	}
	before := &q.jobs[j.prev]
	before.next, before.nextSeq = j.next, j.nextSeq
	if j.next == none {
		f.gap = f.gap.plus(held)
		f.tail = j.prev
		return
	}
	n := &q.jobs[j.next]
	n.prev = j.prev
	if n.gap.isZero() && !held.isZero() {
		f.gaps++
	}
	n.gap = n.gap.plus(held)
}

// advance moves the flow's start tag by a cost that its finish tag includes.
func (q *Queue[F, J, P]) advance(f *queueFlow[F], cost u128) {
	if f.unit != 0 {
		inc, _ := cost.mul64(f.unit)
		f.start.n = f.start.n.plus(inc)
		return
	}
	f.start, _ = q.cfg.Domain.step(f.start, cost, f.weight)
}

func (q *Queue[F, J, P]) newJob() uint32 {
	if slot := q.freeJob; slot != none {
		q.freeJob = q.jobs[slot].next
		return slot
	}
	q.jobs = append(q.jobs, queueJob[J, P]{})
	return uint32(len(q.jobs) - 1)
}

// freeJobSlot forgets a job that is over.
func (q *Queue[F, J, P]) freeJobSlot(slot uint32, f *queueFlow[F]) {
	j := &q.jobs[slot]
	q.jobByID.del(j.id, j.cell)
	var id J
	var gone P
	j.id, j.payload, j.seq, j.prev, j.next = id, gone, 0, none, q.freeJob
	q.freeJob = slot
	if f.queued+f.running == 0 {
		q.active--
	}
	q.endBusyPeriod()
}
