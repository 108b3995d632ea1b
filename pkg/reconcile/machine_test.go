package reconcile

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/barista-fleet/barista/internal/bucket"
	"github.com/barista-fleet/barista/pkg/fleet"
	"github.com/barista-fleet/barista/pkg/lease"
)

func TestJobRunsOnceToItsEnd(t *testing.T) {
	w := newWorld(t)
	a, b := w.node("n-a"), w.node("n-b")
	w.want("j", fleet.KindJob)
	w.ring(nil, nil)
	run2(time.Second, a, b)
	if a.alive("j")+b.alive("j") != 1 {
		t.Fatalf("%d + %d runs", a.alive("j"), b.alive("j"))
	}
	a.exit("j", 0)
	b.exit("j", 0)
	run2(2*time.Minute, a, b) // a resync, too
	s := w.session("j")
	if s.Phase != fleet.PhaseCompleted || s.Owner != "" || a.starts+b.starts != 1 || len(a.runs)+len(b.runs) != 0 {
		t.Errorf("phase %s, owner %q, %d starts, %d runs left", s.Phase, s.Owner, a.starts+b.starts, len(a.runs)+len(b.runs))
	}
}

func TestDeadNodesNamesMoveOn(t *testing.T) {
	w := newWorld(t)
	a, b := w.node("n-a"), w.node("n-b")
	w.want("s", fleet.KindSession)
	w.ring(nil, nil)
	run2(time.Second, a, b)
	dead, other := a, b
	if b.alive("s") == 1 {
		dead, other = b, a
	}
	run2(7*time.Second, other) // the dead one does nothing any more
	if s := w.session("s"); s.Owner != other.m.cfg.NodeID || s.Epoch != 2 || other.alive("s") != 1 {
		t.Fatalf("owner %s epoch %d, %d runs", s.Owner, s.Epoch, other.alive("s"))
	}
	if other.told(EventDegraded, "s") != 1 {
		t.Error("a cold boot was not told loudly")
	}
	// The node comes back with its workload still running: it ends it.
	cfg := w.config(dead.m.cfg.NodeID, "second-life")
	w.want("new", fleet.KindSession)
	w.ring(nil, nil)
	dead.boot(cfg)
	run2(2*time.Second, dead, other)
	if dead.alive("s") != 0 || dead.told(EventFenced, "s") != 1 {
		t.Errorf("orphan: %d alive, told %d times", dead.alive("s"), dead.told(EventFenced, "s"))
	}
}

func TestRestartWithinTheTTLKeepsEverything(t *testing.T) {
	w := newWorld(t)
	a := w.node("n-a")
	for i := range 20 {
		w.want(fmt.Sprintf("s%02d", i), fleet.KindSession)
	}
	w.ring(nil, nil)
	run2(2*time.Second, a)
	if a.starts != 20 {
		t.Fatalf("%d starts", a.starts)
	}
	a.boot(w.config("n-a", "second-life"))
	run2(2*time.Second, a)
	if a.starts != 20 || a.m.own.Incarnation() != 1 {
		t.Errorf("%d starts, incarnation %d; want nothing restarted, nothing freed", a.starts, a.m.own.Incarnation())
	}
	for i := range 20 {
		if s := w.session(fmt.Sprintf("s%02d", i)); s.Epoch != 1 || !a.m.own.Name(s.Name).Held {
			t.Errorf("%s: epoch %d, held %v", s.Name, s.Epoch, a.m.own.Name(s.Name).Held)
		}
	}
}

func TestOutageStopsAndTakesNothing(t *testing.T) {
	w := newWorld(t)
	a, b := w.node("n-a"), w.node("n-b")
	run2(time.Second, a, b) // they know each other, and share the names
	for i := range 20 {
		w.want(fmt.Sprintf("s%02d", i), fleet.KindSession)
	}
	w.ring(nil, nil)
	run2(2*time.Second, a, b)
	if a.starts == 0 || b.starts == 0 {
		t.Fatalf("%d and %d starts: a test of taking needs two owners", a.starts, b.starts)
	}
	before := map[string]uint64{}
	for i := range 20 {
		s := w.session(fmt.Sprintf("s%02d", i))
		before[s.Name+s.Owner] = s.Epoch
	}
	b.down = true
	run2(2*testBeat, a, b) // a has seen b's last beat
	a.down = true
	run2(10*testTTL, a, b)
	a.down = false // one comes back seconds before the other
	run2(testTTL, a, b)
	b.down = false
	run2(3*testTTL, a, b)
	after := map[string]uint64{}
	for i := range 20 {
		s := w.session(fmt.Sprintf("s%02d", i))
		after[s.Name+s.Owner] = s.Epoch
	}
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("ownership moved over an outage (-before +after):\n%s", diff)
	}
	if a.starts+b.starts != 20 {
		t.Errorf("%d starts, want 20", a.starts+b.starts)
	}
	if a.told(EventLapsed, "") != 1 || b.told(EventLapsed, "") != 1 {
		t.Errorf("lapse told %d and %d times, want once an episode", a.told(EventLapsed, ""), b.told(EventLapsed, ""))
	}
}

// Requests that arrive and are never answered (a one-way partition, a store that
// is slower than any call may take). A renewal that cannot be confirmed cannot be
// followed by another, so to the fleet the node is silent, and its names move on.
// What must stop is dead before; what may go on is ended at first contact.
func TestOneWayOutage(t *testing.T) {
	w := newWorld(t)
	a, b := w.node("n-a"), w.node("n-b")
	run2(time.Second, a, b)
	w.want("j", fleet.KindJob)
	for i := range 10 {
		w.want(fmt.Sprintf("s%d", i), fleet.KindSession)
	}
	w.ring(nil, nil)
	run2(2*time.Second, a, b)
	deaf, other := a, b
	if w.session("j").Owner == "n-b" {
		deaf, other = b, a
	}
	starts := other.starts
	deaf.deaf = true
	for end := w.now.Add(3 * testTTL); w.now < end; {
		run2(testPoll/2, a, b)
		if n := a.alive("j") + b.alive("j"); n > 1 {
			t.Fatalf("the job runs %d times at once", n)
		}
	}
	if other.starts == starts || deaf.told(EventLapsed, "") != 1 {
		t.Fatalf("%d names moved, lapse told %d times: a test of nothing", other.starts-starts, deaf.told(EventLapsed, ""))
	}
	deaf.deaf = false
	run2(3*testTTL, a, b)
	for name := range w.owners() {
		if n := a.alive(name) + b.alive(name); n != 1 {
			t.Errorf("%s: %d alive after the outage", name, n)
		}
	}
	if s := w.session("j"); s.Owner != other.m.cfg.NodeID || s.Failures > 1 {
		t.Errorf("job at %s with %d failures", s.Owner, s.Failures)
	}
}

func TestStopWorkloadsEndBeforeTheirNameCanBeTaken(t *testing.T) {
	w := newWorld(t)
	a := w.node("n-a")
	w.want("j", fleet.KindJob) // jobs stop by default
	w.ring(nil, nil)
	run2(time.Second, a)
	if a.alive("j") != 1 {
		t.Fatal("not started")
	}
	a.down = true
	run2(testTTL/2-2*testBeat, a)
	if a.alive("j") != 1 {
		t.Error("ended before half of the ttl had passed")
	}
	run2(3*testBeat, a)
	if a.alive("j") != 0 {
		t.Error("still alive after half of the ttl without a confirmed renewal")
	}
}

func TestDeleteAndApplyAgainNeverRunsOldContent(t *testing.T) {
	w := newWorld(t)
	a := w.node("n-a")
	w.want("s", fleet.KindSession)
	w.ring(nil, nil)
	run2(time.Second, a)
	w.want("s", fleet.KindSession, func(d *fleet.Desired) { d.UID = "second"; d.Spec.Command = []string{"y"} })
	w.ring(nil, nil)
	run2(2*time.Second, a)
	for _, r := range a.runs {
		if r.UID != "second" {
			t.Errorf("a run of the old creation is here: %+v", r)
		}
	}
	if s := w.session("s"); s.UID != "second" || a.alive("s") != 1 || s.Epoch < 2 {
		t.Errorf("uid %s epoch %d, %d alive", s.UID, s.Epoch, a.alive("s"))
	}
}

func TestDesiredWipedStopsNothing(t *testing.T) {
	w := newWorld(t)
	a := w.node("n-a")
	w.want("s", fleet.KindSession)
	w.ring(nil, nil)
	run2(time.Second, a)
	if err := w.store.Store.Delete(t.Context(), "desired/s"); err != nil {
		t.Fatal(err)
	}
	w.ring(nil, nil)
	run2(2*time.Minute, a)
	if a.alive("s") != 1 || a.told(EventOrphaned, "s") != 1 {
		t.Errorf("%d alive, told %d times", a.alive("s"), a.told(EventOrphaned, "s"))
	}
	a.exit("s", 1) // and it is kept running from the copy in the journal
	run2(10*time.Second, a)
	if a.alive("s") != 1 {
		t.Error("not started again")
	}
	if n := a.told(EventOrphaned, "s"); n != 1 {
		t.Errorf("told %d times after its restart", n)
	}
}

// A list of the runtime's that began before a start, and comes after it, does not
// have the new run. It must not be started a second time for that.
func TestOldListDoesNotUndoAStart(t *testing.T) {
	w := newWorld(t)
	a := w.node("n-a")
	asked := w.now
	w.want("s", fleet.KindSession)
	w.ring(nil, nil)
	run2(time.Second, a)
	a.inbox = append(a.inbox, Runs{Asked: asked})
	a.settle()
	run2(5*time.Second, a)
	if a.starts != 1 || a.alive("s") != 1 {
		t.Errorf("%d starts, %d alive; want one", a.starts, a.alive("s"))
	}
	// A list that began later is believed: the run is gone.
	clear(a.runs)
	a.inbox = append(a.inbox, Runs{Asked: w.now.Add(time.Millisecond)})
	a.settle()
	run2(10*time.Second, a)
	if a.starts != 2 || a.alive("s") != 1 {
		t.Errorf("%d starts, %d alive after the run was lost; want a second", a.starts, a.alive("s"))
	}
}

// The protocol's promise: what a node costs does not depend on what it owns.
func TestSteadyStateRequests(t *testing.T) {
	cost := func(names int) map[string]bucket.Count {
		w := newWorld(t)
		a := w.node("n-a")
		for i := range names {
			w.want(fmt.Sprintf("s%04d", i), fleet.KindSession)
		}
		w.ring(nil, nil)
		run2(5*time.Second, a)
		if a.starts != names {
			t.Fatalf("%d of %d started", a.starts, names)
		}
		run2(2*time.Second, a)
		before := w.store.Counts()
		run2(10*testBeat, a) // 10 heartbeats, 25 polls, no resync
		after := w.store.Counts()
		for class, c := range after {
			c.Total -= before[class].Total
			c.Conflicts -= before[class].Conflicts
			if after[class] = c; c.Total == 0 {
				delete(after, class)
			}
		}
		return after
	}
	want := map[string]bucket.Count{
		"put-if-match nodes": {Total: 10},
		"list nodes":         {Total: 10},
		"get-304 signals":    {Total: 25},
	}
	for _, names := range []int{1, 1000} {
		if diff := cmp.Diff(want, cost(names)); diff != "" {
			t.Errorf("%d names (-want +got):\n%s", names, diff)
		}
	}
}

func TestClaimsCostOneConditionalWriteEach(t *testing.T) {
	w := newWorld(t)
	a, b := w.node("n-a"), w.node("n-b")
	run2(time.Second, a, b)
	const names = 200
	for i := range names {
		w.want(fmt.Sprintf("s%04d", i), fleet.KindSession)
	}
	w.ring(nil, nil)
	run2(5*time.Second, a, b)
	if a.starts+b.starts != names {
		t.Fatalf("%d starts", a.starts+b.starts)
	}
	if c := w.store.Counts()["put-if-absent sessions"]; c.Total != names || c.Conflicts != 0 {
		t.Errorf("%d claims sent for %d names, %d lost", c.Total, names, c.Conflicts)
	}
}

// Without a guard nothing that must end with the lease is started; what runs goes on
// until the agent says that there will be none, and starts again when there is one.
func TestGuardIsNeededByWhatMustStop(t *testing.T) {
	w := newWorld(t)
	n := w.node("n1")
	n.inbox = append(n.inbox, Guard{Missing: true})
	w.want("j", fleet.KindJob)
	w.want("s", fleet.KindSession)
	run2(2*time.Second, n)
	if n.starts != 1 {
		t.Fatalf("%d starts without a guard, want that of the session", n.starts)
	}
	tell := func(g Guard) (starts int) {
		before := n.starts
		n.inbox = append(n.inbox, g)
		run2(2*time.Second, n)
		return n.starts - before
	}
	alive := func() (names []string) {
		for _, r := range n.runs {
			if !r.State.Dead() {
				names = append(names, r.Name)
			}
		}
		slices.Sort(names)
		return names
	}
	if got := tell(Guard{}); got != 1 {
		t.Errorf("%d starts once a guard stands, want the job's", got)
	}
	if tell(Guard{Missing: true}); len(alive()) != 2 {
		t.Errorf("%v go on when the guard is missed, want both", alive())
	}
	if tell(Guard{Missing: true, End: true}); !slices.Equal(alive(), []string{"s"}) {
		t.Errorf("%v go on when there will be no guard, want the session", alive())
	}
	if tell(Guard{}); len(alive()) != 2 {
		t.Errorf("%v run when a guard stands again, want both", alive())
	}
}

// A restart has a sixth of the TTL to confirm its lease before it ends what must
// not outlive it, as long as another sixth is left for ending it.
func TestRestartOfANodeWithStopWorkloads(t *testing.T) {
	for name, tc := range map[string]struct {
		away time.Duration // since the last confirmed renewal
		down bool          // the bucket is away too
		want int           // alive after a third of a sixth
	}{
		"within half of the ttl":                   {testTTL / 3, false, 1},
		"after more than half, the bucket answers": {testTTL * 7 / 12, false, 1},
		"after more than half, no answer yet":      {testTTL * 7 / 12, true, 1},
		"after more than two thirds, no answer":    {testTTL*2/3 + testTTL/50, true, 0},
		"after the deadline, the bucket answers":   {testTTL + time.Second, false, 0},
		"after more than two thirds, quick answer": {testTTL*2/3 + testTTL/50, false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			a := w.node("n-a")
			w.want("j", fleet.KindJob)
			w.ring(nil, nil)
			run2(time.Second, a)
			w.now = a.kept.Confirmed.Add(tc.away)
			a.down = tc.down
			a.boot(w.config("n-a", "second-life"))
			run2(testTTL/18, a)
			if got := a.alive("j"); got != tc.want {
				t.Fatalf("%d alive, want %d", got, tc.want)
			}
			if tc.down {
				run2(testTTL/5, a)
				if a.alive("j") != 0 {
					t.Error("still alive when the guard is about to kill it")
				}
			}
		})
	}
}

// A restart with another TTL goes by what the last life published.
func TestRestartWithALongerTTLKeepsTheOldTimes(t *testing.T) {
	w := newWorld(t)
	a := w.node("n-a")
	w.want("j", fleet.KindJob)
	w.ring(nil, nil)
	run2(time.Second, a)
	a.down = true
	cfg := w.config("n-a", "second-life")
	cfg.Lease.TTL *= 10
	a.boot(cfg)
	run2(testTTL*5/6, a)
	if a.alive("j") != 0 {
		t.Error("alive past five sixths of the ttl that its name can be taken by")
	}
}

// What the vocabulary has a word for is told.
func TestTransitionsAreTold(t *testing.T) {
	w := newWorld(t)
	a := w.node("n-a")
	w.want("s", fleet.KindSession)
	w.ring(nil, nil)
	run2(time.Second, a)
	if a.told(EventStarting, "s") != 1 || a.told(EventStarted, "s") != 1 {
		t.Errorf("a start: STARTING %d times, STARTED %d", a.told(EventStarting, "s"), a.told(EventStarted, "s"))
	}
	w.want("s", fleet.KindSession, func(d *fleet.Desired) { d.WakeAt = fleet.Alarm{Seq: 1, At: a.wall()} })
	w.ring(nil, nil)
	run2(time.Second, a)
	if a.told(EventAlarm, "s") != 1 {
		t.Errorf("an alarm: told %d times", a.told(EventAlarm, "s"))
	}
	// Fenced by another while the name is not taken: it is this node's again.
	b := w.node("n-b")
	w.want("s", fleet.KindSession, func(d *fleet.Desired) { d.Spec.Require = map[string]string{"zone": "none"} })
	a.down = true
	run2(3*testTTL, a, b)
	a.down = false
	run2(2*testTTL, a, b)
	if a.told(EventReclaimed, "s") == 0 {
		t.Errorf("a re-claim was not told: %+v", a.events)
	}
	a.inbox = append(a.inbox, Drain{On: true, Leave: true})
	run2(2*testTTL, a)
	if a.told(EventLeft, "") != 1 {
		t.Errorf("leaving: told %d times", a.told(EventLeft, ""))
	}
	body, err := fleet.Encode(&fleet.Directive{Head: fleet.Head{Schema: fleet.Schema, Nonce: "x"}, Node: "n-b", Seq: 1, Cordon: true, Reason: "new kernel"})
	if err != nil {
		t.Fatal(err)
	}
	w.store.Store.Put(t.Context(), fleet.PrefixDirectives+"n-b", body, bucket.IfAbsent())
	w.ring(nil, nil)
	run2(2*time.Minute, b)
	if b.told(EventCordoned, "") != 1 {
		t.Errorf("a cordon: told %d times", b.told(EventCordoned, ""))
	}
}

// Two nodes take over the names of a third: each name costs one conditional
// write, but for a few that both went for.
func TestMassTakeover(t *testing.T) {
	const names = 1000
	w := newWorld(t)
	a := w.node("n-a")
	for i := range names {
		w.want(fmt.Sprintf("s%04d", i), fleet.KindSession)
	}
	w.ring(nil, nil)
	run2(5*time.Second, a)
	if a.starts != names {
		t.Fatalf("%d starts on the first node", a.starts)
	}
	b, c := w.node("n-b"), w.node("n-c")
	run2(2*time.Second, a, b, c)
	before := sessionPuts(w)
	took := w.now
	for b.starts+c.starts < names && w.now.Sub(took) < 10*testTTL {
		run2(testPoll, b, c) // n-a is gone
	}
	elapsed := w.now.Sub(took)
	if b.starts+c.starts != names {
		t.Fatalf("%d of %d names started again after %v", b.starts+c.starts, names, elapsed)
	}
	// One write takes a name, one says that it runs.
	puts := sessionPuts(w) - before
	if most := uint64(names * 205 / 100); puts > most {
		t.Errorf("%d conditional writes for %d names, want at most %d", puts, names, most)
	}
	t.Logf("%d conditional writes for %d names, in %v", puts, names, elapsed)
	if limit := lease.ContenderWait(testTTL, lease.DefaultKillTime) + testBeat + 5*time.Second; elapsed > limit {
		t.Errorf("took %v of the fleet's time, want at most %v", elapsed, limit)
	}
	for i := range names {
		if s := w.session(fmt.Sprintf("s%04d", i)); s.Epoch != 2 {
			t.Fatalf("%s at epoch %d", s.Name, s.Epoch)
		}
	}
}

func sessionPuts(w *world) uint64 {
	c := w.store.Counts()
	return c["put-if-match sessions"].Total + c["put-if-absent sessions"].Total
}

// owners says who owns each name that has a record.
func (w *world) owners() map[string]string {
	out := map[string]string{}
	l, err := w.store.List(context.Background(), fleet.PrefixSessions)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, e := range l.Entries {
		name := strings.TrimPrefix(e.Key, fleet.PrefixSessions)
		out[name] = w.session(name).Owner
	}
	return out
}

// What a fenced run left is kept; what any other run left is not.
func TestFencedRunIsKept(t *testing.T) {
	w := newWorld(t)
	a := w.node("n-a")
	w.want("s", fleet.KindSession)
	w.want("j", fleet.KindJob)
	w.ring(nil, nil)
	run2(time.Second, a)
	a.exit("j", 0)
	run2(2*time.Second, a)
	if len(a.runs) != 1 || a.keeps != 0 {
		t.Fatalf("%d runs, %d kept after a job's end", len(a.runs), a.keeps)
	}
	b := w.node("n-b")
	a.down = true
	run2(3*testTTL, a, b)
	if b.alive("s") != 1 {
		t.Fatal("not taken")
	}
	a.down = false
	run2(2*testTTL, a, b)
	if len(a.runs) != 0 || a.keeps != 1 {
		t.Errorf("%d runs here, %d kept; want the fenced one kept", len(a.runs), a.keeps)
	}
}
