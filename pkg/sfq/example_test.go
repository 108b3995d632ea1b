package sfq_test

import (
	"fmt"

	"github.com/barista-fleet/barista/pkg/sfq"
)

// A pool of two connections is shared by two tenants. The rules of the
// lifecycle: the issue depth is the size of the pool; ask only for as much as
// is free; every dispatch is completed exactly once, also when starting it
// fails; every freed connection is offered again.
func Example_boundedPool() {
	const connections = 2
	q, err := sfq.NewQueue[string, int, func() error](sfq.QueueConfig{
		IssueDepth: connections, MaxFlows: 100, MaxLiveJobs: 10_000, Domain: sfq.DivisorsOf(16),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	gold, _ := q.RegisterFlow("gold", 8)
	free, _ := q.RegisterFlow("free", 1)
	for i := range 3 {
		q.Enqueue(gold, i, func() error { return nil }, 80)
		q.Enqueue(free, 10+i, func() error { return fmt.Errorf("connection refused") }, 80)
	}
	idle := connections
	pump := func() { // after every enqueue, every completion, every change of the pool
		for _, d := range q.DispatchUpTo(idle, nil) {
			idle--
			err := d.Payload()
			fmt.Printf("%s job %d: %v\n", d.FlowID, d.JobID, err)
			if o := q.Complete(d.Job); o != sfq.Completed {
				fmt.Println(o)
			}
			idle++
		}
	}
	for q.Snapshot().Queued > 0 {
		pump()
	}
	f, _ := q.FlowSnapshot(gold)
	fmt.Println("gold completed", f.CompletedCost)
	// Output:
	// gold job 0: <nil>
	// free job 10: connection refused
	// gold job 1: <nil>
	// gold job 2: <nil>
	// free job 11: connection refused
	// free job 12: connection refused
	// gold completed 240
}

// A Gold tenant of weight 8 and a Free one of weight 1 share one slot. The
// history is recorded and replayed: it leads to the same state.
func Example_goldAndFree() {
	const gold, free = 1, 2
	var journal []byte
	cfg := sfq.Config{
		Classes:    []sfq.ClassConfig{{Slots: 1, DefaultCost: 1000}},
		MaxTenants: 10, MaxJobs: 100,
		Record: func(ev *sfq.Event) { journal = sfq.AppendEvent(journal, ev) },
	}
	s, err := sfq.NewScheduler(cfg)
	if err != nil {
		fmt.Println(err)
		return
	}
	s.SetTenant(gold, sfq.TenantSpec{Tier: sfq.Gold, Multiplier: 1, MaxRunning: 4})
	s.SetTenant(free, sfq.TenantSpec{Tier: sfq.Free, Multiplier: 1, MaxRunning: 4})
	for i := range uint64(20) {
		s.Add(sfq.Candidate{Job: sfq.JobID(i), Tenant: gold, Cost: 1000, Order: sfq.Order{Created: i}})
		s.Add(sfq.Candidate{Job: sfq.JobID(100 + i), Tenant: free, Cost: 1000, Order: sfq.Order{Created: i}})
	}
	for range 18 {
		p, _ := s.Pick(0, 0)
		s.Commit(p.Ticket, 0)
		s.Complete(p.Ticket, 1000, 0)
		fmt.Print(map[sfq.TenantID]string{gold: "G", free: "f"}[p.Tenant])
	}
	fmt.Println()

	cfg.Record = nil
	again, _ := sfq.NewScheduler(cfg)
	n, err := again.Replay(journal)
	fmt.Println(n, "events,", err, "- same state:", again.StateHash() == s.StateHash())
	// Output:
	// GfGGGGGGGGfGGGGGGG
	// 96 events, <nil> - same state: true
}

// A node claims a name only when a slot is free for it, and a claim takes a
// round trip to the store: the pick is reserved, then kept or undone.
func Example_twoPhaseClaim() {
	s, err := sfq.NewScheduler(sfq.DefaultConfig(2, 1, 1, 50))
	if err != nil {
		fmt.Println(err)
		return
	}
	names := map[sfq.JobID]string{1: "report", 2: "thumbnails", 3: "index"}
	s.SetTenant(7, sfq.TenantSpec{Tier: sfq.Silver, Multiplier: 1, MaxRunning: 2})
	for id := range sfq.JobID(3) {
		s.Add(sfq.Candidate{Job: id + 1, Tenant: 7, Cost: 60_000, Order: sfq.Order{Created: uint64(id)}})
	}
	claim := func(name string) bool { return name != "report" } // another node has it
	const small, now = 0, 1_000
	for {
		p, o := s.Pick(small, now)
		if o != sfq.Picked {
			fmt.Println("no more:", o)
			break
		}
		if !claim(names[p.Job]) {
			s.Abort(p.Ticket) // as if it had never been picked
			s.Drop(p.Job)
			fmt.Println("lost", names[p.Job])
			continue
		}
		s.Commit(p.Ticket, now) // charged; start it
		fmt.Println("started", names[p.Job])
	}
	s.Add(sfq.Candidate{Job: 4, Tenant: 7, Cost: 60_000, Order: sfq.Order{Created: 9}})
	why, _ := s.Why(4, now)
	fmt.Println("job 4:", why)
	s.Correct(2, 15_000, now+60_000)  // it used more than was estimated so far
	s.Complete(3, 20_000, now+90_000) // and this one less
	p, _ := s.Pick(small, now+90_000) // a slot and a unit of the cap are free
	fmt.Println("next:", p.Job, "of tenant", p.Tenant)
	// Output:
	// lost report
	// started thumbnails
	// started index
	// no more: NO_FREE_SLOT
	// job 4: tenant 7 has 2 of 2 jobs in flight; at most 0 CPU ms go first
	// next: 4 of tenant 7
}

// A job's life as a pure function: the result of an attempt that is no longer
// the live one changes nothing.
func ExampleApply() {
	s := sfq.JobState{MaxAttempts: 3}
	for _, e := range []sfq.JobEvent{
		{Kind: sfq.JobDispatched},
		{Kind: sfq.JobStarted, Attempt: 1},
		{Kind: sfq.JobLost, Attempt: 1},      // the node went silent
		{Kind: sfq.JobDispatched},            // another node
		{Kind: sfq.JobSucceeded, Attempt: 1}, // the first one wakes up
		{Kind: sfq.JobSucceeded, Attempt: 2},
		{Kind: sfq.JobSucceeded, Attempt: 2}, // told twice
	} {
		var c sfq.Change
		s, c = sfq.Apply(s, e)
		fmt.Println(c, s.Phase, "attempt", s.Attempt, "failures", s.Failures)
	}
	// Output:
	// Changed assigned attempt 1 failures 0
	// Changed running attempt 1 failures 0
	// Changed queued attempt 1 failures 1
	// Changed assigned attempt 2 failures 1
	// Unchanged assigned attempt 2 failures 1
	// Changed completed attempt 2 failures 1
	// Unchanged completed attempt 2 failures 1
}
