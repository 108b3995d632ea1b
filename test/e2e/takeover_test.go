package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/barista-fleet/barista/test/cluster"
)

func TestDeadMachinesNameMovesOn(t *testing.T) {
	t.Parallel()
	f := newCluster(t, "file")
	takeover(t, f)
}

// takeover is the story that a fleet exists for; it is told on every store.
func takeover(t *testing.T, f *fixture) {
	t.Helper()
	f.add("n1", "--fleet-advertise", "n1.example:1")
	f.add("n2", "--fleet-advertise", "n2.example:1")
	f.live(2)
	if out := f.ctl("apply", "a1", "--", "sleep", "600"); out != "a1 created\n" {
		t.Errorf("apply printed %q", out)
	}
	before := f.running("a1", nil)
	if before.Endpoint != before.Node+".example:1" || before.Epoch == 0 {
		t.Errorf("resolve says %+v", before)
	}
	status := f.Agent("status", "--data-dir", f.Node(before.Node).Dir, "-o", "json")
	if status.Code != 0 || !strings.Contains(status.Out, fmt.Sprintf("%q: %q", "node", before.Node)) {
		t.Errorf("status of the owner: %d %s%s", status.Code, status.Out, status.Err)
	}
	f.Node(before.Node).KillMachine()
	after := f.running("a1", func(o cluster.Owner) error {
		if o.Node == before.Node {
			return errors.New("not taken")
		}
		return nil
	})
	if after.Epoch <= before.Epoch {
		t.Errorf("epoch went from %d to %d", before.Epoch, after.Epoch)
	}
	if n := len(f.Node(after.Node).Processes()); n == 0 {
		t.Error("nothing runs on the new owner")
	}
	f.ctl("delete", "a1", "--yes")
	f.eventually(func() error {
		if n := len(f.Node(after.Node).Processes()); n > 0 {
			return fmt.Errorf("%d processes are left after delete", n)
		}
		return nil
	})
}

// An agent that was stopped past its lease and goes on finds its names taken: it
// ends its orphans, and takes nothing back.
func TestStoppedAgentFencesItsOrphan(t *testing.T) {
	t.Parallel()
	f := newCluster(t, "file")
	f.add("n1")
	f.add("n2")
	f.live(2)
	f.ctl("apply", "s", "--", "sleep", "600")
	before := f.running("s", nil)
	old := f.Node(before.Node)
	if err := old.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	f.running("s", func(o cluster.Owner) error {
		if o.Node == before.Node {
			return errors.New("not taken")
		}
		return nil
	})
	if len(old.Processes()) == 0 {
		t.Fatal("the workload of a stopped agent ended by itself: nothing is left to fence")
	}
	if err := old.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	f.eventually(func() error {
		if n := len(old.Processes()); n > 0 {
			return fmt.Errorf("%d processes of the old owner are left", n)
		}
		return nil
	})
	f.logged(old, "msg=fenced")
	if after, _ := f.Resolve("s"); after.Node == before.Node {
		t.Error("the old owner took the name back")
	}
}

func TestRestartedAgentFencesBeforeItAcquires(t *testing.T) {
	t.Parallel()
	f := newCluster(t, "file")
	f.add("n1")
	f.add("n2")
	f.live(2)
	f.ctl("apply", "s", "--", "sleep", "600")
	before := f.running("s", nil)
	old := f.Node(before.Node)
	old.KillAgent()
	f.running("s", func(o cluster.Owner) error {
		if o.Node == before.Node {
			return errors.New("not taken")
		}
		return nil
	})
	// Something to acquire is there when it comes back, and only it can have it.
	f.ctl("apply", "new", "--require", "only=old", "--", "sleep", "600")
	old.Args = append(old.Args, "--label", "only=old")
	f.start(old)
	f.running("new", nil)
	log := old.Log()
	fenced, claimed := strings.Index(log, "msg=fenced"), strings.Index(log, "msg=claimed")
	if fenced < 0 || claimed < 0 || claimed < fenced {
		t.Errorf("fenced at %d and claimed at %d of its log", fenced, claimed)
	}
}

// A quick restart, an upgrade say, loses nothing: same epoch, same incarnation,
// same process.
func TestQuickRestartLosesNothing(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"file", "solo"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			f := newCluster(t, kind)
			n := f.add("n1")
			f.eventually(func() error { return ready(f, n) })
			f.ctl("apply", "s", "--", "sleep", "600")
			before := f.running("s", nil)
			pids := n.Processes()
			if err := n.StopAgent(limit); err != nil {
				t.Fatalf("SIGTERM: %v", err)
			}
			if now := n.Processes(); !slices.Equal(pids, now) {
				t.Fatalf("SIGTERM of the agent changed what runs from %v to %v", pids, now)
			}
			f.start(n)
			f.eventually(func() error { return ready(f, n) })
			time.Sleep(3 * cluster.Poll)
			after := f.running("s", nil)
			if after.Epoch != before.Epoch || !slices.Equal(pids, n.Processes()) {
				t.Errorf("epoch %d became %d, processes %v became %v", before.Epoch, after.Epoch, pids, n.Processes())
			}
		})
	}
}

// ready reports an agent that answers and has settled what it had.
func ready(f *fixture, n *cluster.Node) error {
	r := f.Agent("status", "--data-dir", n.Dir, "-o", "json")
	if r.Code != 0 || !(strings.Contains(r.Out, `"state": "joined"`) || strings.Contains(r.Out, `"state": "single"`)) {
		return fmt.Errorf("%s is not ready: %s%s", n.Name, r.Out, r.Err)
	}
	return nil
}

// The bucket goes away under twenty sessions and comes back; agents that were
// stopped meanwhile come back seconds apart. Nothing stops, nothing moves.
func TestOutageStopsAndMovesNothing(t *testing.T) {
	t.Parallel()
	f := newCluster(t, "file")
	n1, n2 := f.add("n1"), f.add("n2")
	f.live(2)
	const names = 20
	for i := range names {
		f.ctl("apply", fmt.Sprintf("s%02d", i), "--", "sleep", "600")
	}
	for i := range names {
		f.running(fmt.Sprintf("s%02d", i), nil)
	}
	before := f.ls()
	pids := append(n1.Processes(), n2.Processes()...)
	away := 3 * cluster.TTL
	if os.Getenv("BARISTA_LONG") != "" {
		away = 30 * time.Second
	}
	bucket := filepath.Join(f.Dir, "bucket")
	if err := os.Rename(bucket, bucket+".away"); err != nil {
		t.Fatal(err)
	}
	if r := f.Ctl("ls"); r.Code != 5 {
		t.Errorf("ls of a bucket that is away exits %d: %s", r.Code, r.Err)
	}
	time.Sleep(away)
	if err := n2.Signal(syscall.SIGSTOP); err != nil { // comes back later than n1
		t.Fatal(err)
	}
	if err := os.Rename(bucket+".away", bucket); err != nil {
		t.Fatal(err)
	}
	time.Sleep(cluster.TTL / 2)
	if err := n2.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	time.Sleep(2 * cluster.TTL)
	f.live(2)
	after := f.ls()
	for name, b := range before {
		if a := after[name]; a != b {
			t.Errorf("%s was %+v and is %+v", name, b, a)
		}
	}
	if now := append(n1.Processes(), n2.Processes()...); !slices.Equal(pids, now) {
		t.Errorf("processes changed from %v to %v", pids, now)
	}
	for _, n := range f.Nodes {
		if c := strings.Count(n.Log(), "msg=lapsed"); c != 1 {
			t.Errorf("%s told of its lapse %d times, want once", n.Name, c)
		}
	}
}

func TestWallClockAnHourAheadTakesNothing(t *testing.T) {
	t.Parallel()
	f := newCluster(t, "file")
	f.add("honest")
	f.live(1)
	for i := range 5 {
		f.ctl("apply", fmt.Sprintf("s%d", i), "--", "sleep", "600")
		f.running(fmt.Sprintf("s%d", i), nil)
	}
	before := f.ls()
	f.add("ahead", "--test-wall-shift", "1h")
	f.add("behind", "--test-wall-shift", "-1h")
	f.live(3)
	time.Sleep(3 * cluster.TTL)
	for name, a := range f.ls() {
		if a != before[name] {
			t.Errorf("%s was %+v and is %+v", name, before[name], a)
		}
	}
}
