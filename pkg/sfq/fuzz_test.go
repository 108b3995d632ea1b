package sfq

import (
	"bytes"
	"math/big"
	"testing"
)

// FuzzDecodeEvent: whatever decodes encodes back to the same bytes.
func FuzzDecodeEvent(f *testing.F) {
	for k := range EventKind(eventKinds) {
		f.Add(AppendEvent(nil, &Event{
			Kind: k, Class: 1, Pinned: true, Tenant: 300, Job: 1 << 40, Ticket: 7, Peer: 9, Cost: -5, Now: 1 << 30,
			Type: 3, Order: Order{5, 1 << 63}, Spec: TenantSpec{Gold, 2, 3, 4, 5, 6},
		}))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var ev Event
		n, err := DecodeEvent(b, &ev)
		if err != nil {
			return
		}
		if again := AppendEvent(nil, &ev); !bytes.Equal(again, b[:n]) {
			t.Fatalf("%x decodes to %+v, which encodes to %x", b[:n], ev, again)
		}
	})
}

// FuzzReplay: any bytes are a journal. Whatever of them is accepted leaves the
// invariants intact, and rejected events leave the state as it was.
func FuzzReplay(f *testing.F) {
	seed := newFixture(f, decayingSizes())
	history(seed)
	f.Add(seed.journal)
	f.Add(seed.journal[:len(seed.journal)/2])
	f.Fuzz(func(t *testing.T, journal []byte) {
		const maxEvents = 200 // Check is linear in the state
		s, err := NewScheduler(decayingSizes())
		if err != nil {
			t.Fatal(err)
		}
		var ev Event
		for n := 0; len(journal) > 0 && n < maxEvents; n++ {
			size, err := DecodeEvent(journal, &ev)
			if err != nil {
				journal = journal[1:]
				continue
			}
			journal = journal[size:]
			before := s.StateHash()
			o := s.Apply(&ev)
			if !o.OK() && o != NumericLimit && s.StateHash() != before {
				t.Fatalf("%+v was refused (%v) and changed the state", ev, o)
			}
			if err := s.Check(); err != nil {
				t.Fatalf("after %+v (%v): %v", ev, o, err)
			}
		}
	})
}

// FuzzRestore: any bytes are a state. What is restored satisfies the invariants
// and survives another round.
func FuzzRestore(f *testing.F) {
	seed := newFixture(f, decayingSizes())
	f.Add(seed.AppendState(nil))
	history(seed)
	f.Add(seed.AppendState(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := Restore(decayingSizes(), b)
		if err != nil {
			return
		}
		state := s.AppendState(nil)
		r, err := Restore(decayingSizes(), state)
		if err != nil {
			t.Fatalf("a restored state is refused: %v", err)
		}
		if !bytes.Equal(r.AppendState(nil), state) {
			t.Fatal("a restored state encodes otherwise")
		}
		for k := range s.cfg.Classes { // and it can go on
			if p, o := s.Pick(Class(k), 1<<40); o == Picked {
				s.Commit(p.Ticket, 1<<40)
				s.Complete(p.Ticket, 5, 1<<40)
			}
			if err := s.Check(); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// FuzzQueue drives a Queue and its oracle by bytes.
func FuzzQueue(f *testing.F) {
	f.Add([]byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}, false)
	f.Add([]byte("enqueue dispatch cancel complete close register"), true)
	f.Fuzz(func(t *testing.T, b []byte, refund bool) {
		const maxOps = 300
		cfg := QueueConfig{IssueDepth: 3, MaxFlows: 4, MaxLiveJobs: 12, Domain: DivisorsOf(60)}
		if refund {
			cfg.Cancellation = RefundCancelledCost
		}
		q, err := NewQueue[int, int, int](cfg)
		if err != nil {
			t.Fatal(err)
		}
		n := &naiveQueue{depth: 3, maxLive: 12, maxFlows: 4, refund: refund, v: new(big.Rat)}
		var flows []FlowHandle
		var nflows []*naiveFlow
		var jobs []JobHandle
		var njobs []*naiveJob
		for i := 0; i+1 < len(b) && i < 2*maxOps; i += 2 {
			arg := int(b[i+1])
			var got, want Outcome
			switch b[i] % 8 {
			case 0:
				w := []int64{1, 2, 3, 4, 5, 6, 10, 60}[arg%8]
				h, o := q.RegisterFlow(arg%5, w)
				nf, no := n.register(arg%5, w)
				if got, want = o, no; o == Registered {
					flows, nflows = append(flows, h), append(nflows, nf)
				}
			case 1:
				if len(flows) > 0 {
					k := arg % len(flows)
					got, want = q.CloseFlow(flows[k]), n.close(nflows[k])
				}
			case 2, 3, 4:
				if len(flows) > 0 {
					k := arg % len(flows)
					h, o := q.Enqueue(flows[k], arg%20, arg%20, int64(1+arg%7))
					j, no := n.enqueue(nflows[k], arg%20, int64(1+arg%7))
					if got, want = o, no; o == Accepted {
						jobs, njobs = append(jobs, h), append(njobs, j)
					}
				}
			case 5:
				ds := q.DispatchUpTo(1, nil)
				j := n.dispatch()
				if (j == nil) != (len(ds) == 0) || j != nil && ds[0].JobID != j.id {
					t.Fatalf("step %d: dispatched %+v, the oracle %+v", i, ds, j)
				}
			case 6:
				if len(jobs) > 0 {
					k := arg % len(jobs)
					got, want = q.Cancel(jobs[k]), n.cancel(njobs[k])
				}
			case 7:
				if len(jobs) > 0 {
					k := arg % len(jobs)
					got, want = q.Complete(jobs[k]), n.complete(njobs[k])
				}
			}
			if got != want {
				t.Fatalf("step %d: %v, the oracle says %v", i, got, want)
			}
		}
	})
}
