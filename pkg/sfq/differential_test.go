package sfq

import (
	"bytes"
	"testing"

	"pgregory.net/rapid"
)

// schedPair drives a Scheduler and its oracle together.
type schedPair struct {
	*rapid.T
	cfg     Config
	real    *Scheduler
	naive   *naive
	journal []byte
	now     int64
	tickets []Ticket
	jobs    JobID
	clocks  [MaxClasses]u128
}

func drawConfig(t *rapid.T) Config {
	cfg := Config{
		MaxTenants: 5, MaxJobs: rapid.IntRange(3, 40).Draw(t, "max jobs"), MaxTypes: 100, MaxRemote: 100,
		Steal:  Steal(rapid.IntRange(0, 1).Draw(t, "steal")),
		Margin: rapid.Uint64Range(0, 50).Draw(t, "margin"),
		Kappa:  rapid.SampledFrom([]uint32{0, KappaOne / 2, KappaOne, 3*KappaOne + 1}).Draw(t, "kappa"),
	}
	for range rapid.IntRange(1, 4).Draw(t, "classes") {
		cfg.Classes = append(cfg.Classes, ClassConfig{
			Slots: rapid.IntRange(0, 4).Draw(t, "slots"), DefaultCost: 10,
			Exclusive: rapid.IntRange(0, 4).Draw(t, "exclusive") == 0,
		})
	}
	if rapid.Bool().Draw(t, "decay") {
		cfg.Decay = &Decay{
			HalfLife: rapid.SampledFrom([]int64{1, 100, 10_000}).Draw(t, "half-life"),
			Norm:     rapid.SampledFrom([]int64{1, 50, 1000}).Draw(t, "norm"),
		}
	}
	return cfg
}

func newSchedPair(t *rapid.T) *schedPair {
	p := &schedPair{T: t, cfg: drawConfig(t)}
	recorded := p.cfg
	recorded.Record = func(ev *Event) { p.journal = AppendEvent(p.journal, ev) }
	s, err := NewScheduler(recorded)
	if err != nil {
		t.Fatal(err)
	}
	p.real, p.naive = s, newNaive(p.cfg)
	return p
}

func (p *schedPair) same(what string, got, want Outcome) {
	if got != want {
		p.Fatalf("%s: got %v, the oracle says %v", what, got, want)
	}
}

func (p *schedPair) tenantID(t *rapid.T) TenantID {
	return TenantID(rapid.IntRange(1, 5).Draw(t, "tenant"))
}

func (p *schedPair) job(t *rapid.T) JobID {
	return JobID(rapid.IntRange(max(0, int(p.jobs)-20), int(p.jobs)).Draw(t, "job"))
}

func (p *schedPair) ticket(t *rapid.T) Ticket {
	if len(p.tickets) == 0 {
		return 1
	}
	return p.tickets[rapid.IntRange(max(0, len(p.tickets)-12), len(p.tickets)-1).Draw(t, "ticket")]
}

func (p *schedPair) setTenant(t *rapid.T) {
	id, spec := p.tenantID(t), drawSpec(t)
	p.same("set", p.real.SetTenant(id, spec), p.naive.setTenant(id, spec))
}

func (p *schedPair) add(t *rapid.T) {
	p.jobs++
	c := Candidate{
		Job: p.jobs, Tenant: p.tenantID(t), Class: Class(rapid.IntRange(0, len(p.cfg.Classes)-1).Draw(t, "class")),
		Cost: rapid.SampledFrom([]int64{0, 1, 2, 3, 10, 10, 16, 97, 1 << 30}).Draw(t, "cost"),
		Type: uint32(rapid.IntRange(0, 2).Draw(t, "type")),
		Order: Order{
			Created: uint64(p.jobs) - rapid.Uint64Range(0, min(3, uint64(p.jobs))).Draw(t, "late"),
			UID:     rapid.Uint64Range(0, 2).Draw(t, "uid"),
		},
		Pinned: rapid.IntRange(0, 5).Draw(t, "pinned") == 0,
		Held:   rapid.IntRange(0, 9).Draw(t, "held") == 0,
	}
	if rapid.IntRange(0, 20).Draw(t, "again") == 0 {
		c.Job = p.job(t)
	}
	p.same("add", p.real.Add(c), p.naive.add(c))
}

func (p *schedPair) pick(t *rapid.T) {
	k := Class(rapid.IntRange(0, len(p.cfg.Classes)-1).Draw(t, "class"))
	got, o := p.real.Pick(k, p.now)
	want, no := p.naive.pick(k, p.now)
	p.same("pick", o, no)
	if got != want {
		p.Fatalf("picked %+v, the oracle %+v", got, want)
	}
	if o == Picked {
		p.tickets = append(p.tickets, got.Ticket)
	}
}

func (p *schedPair) pickCommit(t *rapid.T) {
	n := len(p.tickets)
	if p.pick(t); len(p.tickets) > n {
		id := p.tickets[n]
		p.same("commit", p.real.Commit(id, p.now), p.naive.commit(id, p.now))
	}
}

func (p *schedPair) commit(t *rapid.T) {
	id := p.ticket(t)
	p.same("commit", p.real.Commit(id, p.now), p.naive.commit(id, p.now))
}

func (p *schedPair) abort(t *rapid.T) {
	id := p.ticket(t)
	p.same("abort", p.real.Abort(id), p.naive.abort(id))
}

func (p *schedPair) actual(t *rapid.T) int64 {
	return rapid.SampledFrom([]int64{0, 1, 5, 10, 11, 300, 1 << 20}).Draw(t, "actual")
}

func (p *schedPair) complete(t *rapid.T) {
	id, actual := p.ticket(t), p.actual(t)
	p.same("complete", p.real.Complete(id, actual, p.now), p.naive.end(id, actual, p.now, false))
}

func (p *schedPair) requeue(t *rapid.T) {
	id, actual := p.ticket(t), p.actual(t)
	p.same("requeue", p.real.Requeue(id, actual, p.now), p.naive.end(id, actual, p.now, true))
}

func (p *schedPair) correct(t *rapid.T) {
	id, delta := p.ticket(t), rapid.Int64Range(-30, 100).Draw(t, "delta")
	p.same("correct", p.real.Correct(id, delta, p.now), p.naive.correct(id, delta, p.now))
}

func (p *schedPair) observe(t *rapid.T) {
	peer, id := PeerID(rapid.IntRange(1, 2).Draw(t, "peer")), p.tenantID(t)
	cum := rapid.Int64Range(0, 300).Draw(t, "cumulative")
	p.same("observe", p.real.Observe(peer, id, cum, p.now), p.naive.observe(peer, id, cum, p.now))
}

func (p *schedPair) tick(t *rapid.T) {
	p.now = max(0, p.now+rapid.Int64Range(-20, 500).Draw(t, "time"))
}

// restart replaces the scheduler by one restored from its encoded state.
func (p *schedPair) restart(*rapid.T) {
	state := p.real.AppendState(nil)
	cfg := p.cfg
	cfg.Record = func(ev *Event) { p.journal = AppendEvent(p.journal, ev) }
	s, err := Restore(cfg, state)
	if err != nil {
		p.Fatal(err)
	}
	if !bytes.Equal(s.AppendState(nil), state) {
		p.Fatal("a restored state encodes otherwise")
	}
	p.real = s
}

// check compares every tag and counter and verifies the invariants.
func (p *schedPair) check(*rapid.T) {
	if err := p.real.Check(); err != nil {
		p.Fatal(err)
	}
	for k := range p.cfg.Classes {
		if p.real.clock[k].less(p.clocks[k]) {
			p.Fatalf("the clock of class %d went back", k)
		}
		p.clocks[k] = p.real.clock[k]
		if p.real.clock[k].big().Cmp(p.naive.clock[k]) != 0 {
			p.Fatalf("clock of class %d is %v, the oracle's %v", k, p.real.clock[k].big(), p.naive.clock[k])
		}
	}
	for _, t := range p.naive.tenants {
		ti, ok := p.real.tenantByID.get(uint64(t.id))
		if !ok {
			p.Fatalf("tenant %d is missing", t.id)
		}
		got, want := p.real.tenants[ti].acct, p.naive.account(t)
		if got.finish.big().Cmp(want.finish) != 0 || got.credit.big().Cmp(want.credit) != 0 || got.remote.big().Cmp(want.remote) != 0 {
			p.Fatalf("tenant %d is at %v/%v/%v, the oracle's at %v", t.id, got.finish.big(), got.credit.big(), got.remote.big(), want)
		}
		if s, _ := p.real.Service(t.id); s != t.peak {
			p.Fatalf("tenant %d published %d, the oracle %d", t.id, s, t.peak)
		}
	}
}

// actions are the moves of a history. Repeated names make a move likelier.
func (p *schedPair) actions() map[string]func(*rapid.T) {
	return map[string]func(*rapid.T){
		"":   p.check,
		"t1": p.setTenant, "t2": p.setTenant,
		"remove": func(t *rapid.T) {
			id := p.tenantID(t)
			p.same("remove", p.real.RemoveTenant(id), p.naive.removeTenant(id))
		},
		"a1": p.add, "a2": p.add, "a3": p.add, "a4": p.add, "a5": p.add, "a6": p.add,
		"drop": func(t *rapid.T) { id := p.job(t); p.same("drop", p.real.Drop(id), p.naive.drop(id)) },
		"hold": func(t *rapid.T) { id := p.job(t); p.same("hold", p.real.Hold(id), p.naive.hold(id, true)) },
		"free": func(t *rapid.T) { id := p.job(t); p.same("unhold", p.real.Unhold(id), p.naive.hold(id, false)) },
		"p1":   p.pick, "p2": p.pick, "p3": p.pickCommit, "p4": p.pickCommit,
		"c1": p.commit, "c2": p.commit, "abort": p.abort,
		"d1": p.complete, "d2": p.complete, "d3": p.complete,
		"requeue": p.requeue, "correct": p.correct, "observe": p.observe, "tick": p.tick, "restart": p.restart,
	}
}

// replayed verifies that the journal leads a new scheduler to the same state.
func (p *schedPair) replayed() {
	s, err := NewScheduler(p.cfg)
	if err != nil {
		p.Fatal(err)
	}
	if n, err := s.Replay(p.journal); err != nil {
		p.Fatalf("after %d events: %v", n, err)
	}
	if s.StateHash() != p.real.StateHash() {
		p.Fatal("the journal leads to another state")
	}
}

// TestSchedulerMatchesOracle runs random histories of every operation, with
// picks left open, aborted and committed in any order, caps and weights changed,
// costs corrected, restarts from encoded states, and compares every outcome,
// every choice and every tag with the oracle after each step; at the end the
// journal is replayed.
func TestSchedulerMatchesOracle(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := newSchedPair(t)
		for id := TenantID(1); id <= 3; id++ {
			spec := drawSpec(t)
			p.same("set", p.real.SetTenant(id, spec), p.naive.setTenant(id, spec))
		}
		t.Repeat(p.actions())
		p.replayed()
	})
}
