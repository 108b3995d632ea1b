package journal_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"

	"github.com/barista-fleet/barista/pkg/journal"
)

// gate holds the committer until it is opened, so that a test decides what is
// in a group.
type gate struct {
	entered chan struct{} // a value for each group about to be taken
	open    chan struct{} // a value lets one pass; closed: all pass
}

func gated(t *testing.T, dir string) (*journal.Journal, *gate) {
	t.Helper()
	j, _ := open(t, dir)
	g := &gate{entered: make(chan struct{}, 1000), open: make(chan struct{})}
	j.SetGroupGate(func() { g.entered <- struct{}{}; <-g.open })
	return j, g
}

// A burst of a thousand starts, each an intent, a result and an event, costs
// three transactions and six fsyncs if it arrives together.
func TestGroupCommit(t *testing.T) {
	const starts = 1000
	j, g := gated(t, t.TempDir())
	before := j.Stats()
	for step := range 3 {
		var wg sync.WaitGroup
		for i := range starts {
			name := fmt.Sprintf("job-%04d", i)
			b := journal.Batch{PutOps: []journal.Op{{Name: name, Kind: "start"}}}
			switch step {
			case 1:
				b = journal.Batch{DelOps: []string{name}, PutOwned: []journal.Owned{{Name: name, Epoch: 1, Phase: "running"}}}
			case 2:
				b = journal.Batch{Events: [][]byte{[]byte("STARTED " + name)}}
			}
			ticket := j.Submit(b)
			wg.Go(func() {
				if _, err := ticket.Wait(t.Context()); err != nil {
					t.Errorf("step %d of %s: %v", step, name, err)
				}
			})
		}
		<-g.entered // the committer waits here since before the step, or began with it
		g.open <- struct{}{}
		wg.Wait()
	}
	close(g.open)
	after := j.Stats()
	if n := after.Batches - before.Batches; n != 3*starts {
		t.Errorf("%d batches, want %d", n, 3*starts)
	}
	if n := after.Transactions - before.Transactions; n != 3 {
		t.Errorf("%d transactions for three bursts, want 3", n)
	}
	// Two each, and at most one more for each time the file grew.
	if n := after.Syncs - before.Syncs; n < 6 || n > 9 {
		t.Errorf("%d fsyncs for three bursts, want 6 to 9", n)
	}
	if s := load(t, j); len(s.Owned) != starts || len(s.Ops) != 0 || s.Events != starts {
		t.Errorf("%d owned, %d operations, %d events", len(s.Owned), len(s.Ops), s.Events)
	}
}

// Without a gate the grouping comes from the disk's pace alone.
func TestConcurrentCommitsAreGrouped(t *testing.T) {
	const writers, each = 100, 10
	j, _ := open(t, t.TempDir())
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := range each {
				o := journal.Owned{Name: fmt.Sprintf("n%d", w), Epoch: uint64(i + 1)}
				if err := j.Commit(t.Context(), journal.Batch{PutOwned: []journal.Owned{o}}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	s := j.Stats()
	if s.Batches != writers*each {
		t.Errorf("%d batches, want %d", s.Batches, writers*each)
	}
	if s.Transactions > writers*each/4 {
		t.Errorf("%d transactions for %d batches of %d writers: hardly grouped", s.Transactions, writers*each, writers)
	}
	for _, o := range load(t, j).Owned {
		if o.Epoch != each {
			t.Errorf("%s at epoch %d, its last commit was %d", o.Name, o.Epoch, each)
		}
	}
}

// Batches of one group see those before them, and one that fails leaves
// neither a trace nor a scratch on its companions.
func TestGroupOrderAndIsolation(t *testing.T) {
	j, g := gated(t, t.TempDir())
	op := func(kind string) []journal.Op { return []journal.Op{{Name: "a", Kind: kind}} }
	object := func(body string, c journal.ObjectCond) []journal.ObjectPut {
		return []journal.ObjectPut{{Key: "k", Body: []byte(body), Cond: c}}
	}
	steps := []struct {
		b    journal.Batch
		want error
	}{
		{journal.Batch{PutOps: op("start")}, nil},
		{journal.Batch{PutOps: op("stop"), Events: [][]byte{[]byte("x")}}, journal.ErrOpInFlight},
		{journal.Batch{DelOps: []string{"a"}}, nil},
		{journal.Batch{PutOps: op("pause")}, nil},
		{journal.Batch{PutObjects: object("one", journal.IfAbsent())}, nil},
		{journal.Batch{PutObjects: object("two", journal.IfAbsent()), Seen: map[string]uint64{"z": 1}}, journal.ErrConflict},
		{journal.Batch{PutObjects: object("three", journal.IfVersion(1))}, nil},
		{journal.Batch{PutObjects: object("four", journal.IfVersion(1))}, journal.ErrConflict},
		{journal.Batch{Events: [][]byte{[]byte("last")}}, nil},
	}
	var tickets []*journal.Ticket
	for _, s := range steps {
		tickets = append(tickets, j.Submit(s.b))
	}
	close(g.open)
	for i, s := range steps {
		if _, err := tickets[i].Wait(t.Context()); !errors.Is(err, s.want) {
			t.Errorf("batch %d: %v, want %v", i, err, s.want)
		}
	}
	st := j.Stats()
	if st.Transactions != 1 || st.Rejected != 3 || st.Batches != 6 {
		t.Errorf("stats %+v, want one transaction, three rejected, six applied", st)
	}
	s := load(t, j)
	if len(s.Ops) != 1 || s.Ops[0].Kind != "pause" || len(s.Seen) != 0 || s.Events != 1 {
		t.Errorf("state %+v", s)
	}
	if o, _, err := j.GetObject("k"); err != nil || string(o.Body) != "three" {
		t.Errorf("object %q, %v", o.Body, err)
	}
}

func TestWaitEnds(t *testing.T) {
	j, g := gated(t, t.TempDir())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	ended := errors.New("my reason")
	why, stop := context.WithCancelCause(t.Context())
	stop(ended)

	// Withdrawn while it waits: certainly not applied.
	queued := j.Submit(journal.Batch{Seen: map[string]uint64{"withdrawn": 1}})
	<-g.entered
	if _, err := queued.Wait(why); !errors.Is(err, ended) || errors.Is(err, journal.ErrUnknown) {
		t.Errorf("withdrawn: %v", err)
	}
	if n := j.Queued(); n != 0 {
		t.Errorf("%d batches still queued", n)
	}
	kept := j.Submit(journal.Batch{Seen: map[string]uint64{"kept": 1}})
	close(g.open)
	if _, err := kept.Wait(t.Context()); err != nil {
		t.Error(err)
	}
	// Done already: the result counts, not the context.
	if _, err := kept.Wait(ctx); err != nil {
		t.Errorf("wait for a finished batch with an ended context: %v", err)
	}
	if s := load(t, j); s.Seen["withdrawn"] != 0 || s.Seen["kept"] != 1 {
		t.Errorf("seen %v", s.Seen)
	}
}

// Once a batch is in a transaction nobody can say what becomes of it before it
// has ended, and a caller that gives up is told so at once.
func TestWaitForACommitUnderWay(t *testing.T) {
	j, _ := open(t, t.TempDir())
	release := j.HoldTransactions()
	ticket := j.Submit(journal.Batch{Seen: map[string]uint64{"a": 1}})
	for j.Queued() > 0 {
		runtime.Gosched()
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := ticket.Wait(ctx); !errors.Is(err, journal.ErrUnknown) || !errors.Is(err, context.Canceled) {
		t.Errorf("given up in the middle: %v", err)
	}
	release()
	if _, err := ticket.Wait(t.Context()); err != nil {
		t.Errorf("asked again: %v", err)
	}
	if s := load(t, j); s.Seen["a"] != 1 {
		t.Errorf("seen %v", s.Seen)
	}
}

// Whatever moment a caller gives up at, a definite answer is true.
func TestWaitIsDefiniteOrUnknown(t *testing.T) {
	j, _ := open(t, t.TempDir())
	var wg sync.WaitGroup
	outcomes := make([]error, 400)
	for i := range outcomes {
		ctx, cancel := context.WithCancel(t.Context())
		ticket := j.Submit(journal.Batch{Seen: map[string]uint64{fmt.Sprint(i): 1}})
		wg.Go(func() { _, outcomes[i] = ticket.Wait(ctx) })
		wg.Go(func() {
			for range i {
				runtime.Gosched()
			}
			cancel()
		})
	}
	wg.Wait()
	commit(t, j, journal.Batch{}) // everything before it has been decided
	seen := load(t, j).Seen
	for i, err := range outcomes {
		_, applied := seen[fmt.Sprint(i)]
		switch {
		case errors.Is(err, journal.ErrUnknown):
		case err == nil && !applied:
			t.Errorf("batch %d was acknowledged and is missing", i)
		case err != nil && applied:
			t.Errorf("batch %d was withdrawn (%v) and is there", i, err)
		}
	}
}

func TestCloseFinishesWhatWasSubmitted(t *testing.T) {
	dir := t.TempDir()
	j, _, err := journal.Open(dir, journal.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var tickets []*journal.Ticket
	for i := range 50 {
		tickets = append(tickets, j.Submit(journal.Batch{Seen: map[string]uint64{fmt.Sprint(i): 1}}))
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	for i, ticket := range tickets {
		if _, err := ticket.Wait(t.Context()); err != nil {
			t.Errorf("batch %d: %v", i, err)
		}
	}
	if err := j.Commit(t.Context(), journal.Batch{}); !errors.Is(err, journal.ErrClosed) {
		t.Errorf("commit after close: %v", err)
	}
	if _, err := j.Load(); !errors.Is(err, journal.ErrClosed) {
		t.Errorf("load after close: %v", err)
	}
	if err := j.Close(); err != nil {
		t.Errorf("second close: %v", err)
	}
	j, _ = open(t, dir)
	if n := len(load(t, j).Seen); n != 50 {
		t.Errorf("%d of 50 batches after reopening", n)
	}
}
