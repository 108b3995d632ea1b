package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/barista-fleet/barista/test/cluster"
)

// An agent is stopped, which does not stop its workloads. With the guard, the
// last line that its job writes comes before the first line of the run that takes
// over, each time.
func TestGuardEndsWorkloadsOfAStoppedAgent(t *testing.T) {
	t.Parallel()
	rounds := 5
	if os.Getenv("BARISTA_LONG") != "" {
		rounds = 100
	}
	f := newCluster(t, "file")
	f.add("n1")
	f.add("n2")
	f.live(2)
	for i := range rounds {
		if err := stopAndTake(f, fmt.Sprintf("j%d", i)); err != nil {
			t.Fatal(err)
		}
	}
}

// The same without the guard shows two at once: the check can fail.
func TestWithoutTheGuardTwoRunAtOnce(t *testing.T) {
	t.Parallel()
	f := newCluster(t, "file")
	f.add("n1", "--test-no-guard")
	f.add("n2", "--test-no-guard")
	f.live(2)
	if err := stopAndTake(f, "j"); !errors.Is(err, errTwoAtOnce) {
		t.Errorf("without the guard: %v, want two at once", err)
	}
}

var errTwoAtOnce = errors.New("an earlier epoch wrote after a later one")

// stopAndTake runs a job that writes its epoch all the time, stops the agent of
// its node until another has taken it, and checks the order of what was written.
func stopAndTake(f *fixture, name string) error {
	out := filepath.Join(f.Dir, name+".lines")
	f.ctl("apply", name, "--kind", "job", "--max-attempts", "9", "--", "sh", "-c",
		"while :; do echo $BARISTA_EPOCH >> "+out+"; sleep 0.01; done")
	before := f.running(name, nil)
	old := f.Node(before.Node)
	if err := old.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	f.running(name, func(o cluster.Owner) error {
		if o.Node == before.Node {
			return errors.New("not taken")
		}
		return nil
	})
	time.Sleep(200 * time.Millisecond) // both write for a while, if both run
	if err := old.Signal(syscall.SIGCONT); err != nil {
		return err
	}
	f.ctl("cancel", name)
	f.status(name, "cancelled")
	f.live(2)
	last := 0
	for i, l := range lines(out) {
		epoch, err := strconv.Atoi(strings.TrimSpace(l))
		if err != nil {
			return fmt.Errorf("line %d is %q", i+1, l)
		}
		if epoch < last {
			return fmt.Errorf("%w: line %d says %d after %d", errTwoAtOnce, i+1, epoch, last)
		}
		last = epoch
	}
	if last < 2 {
		return fmt.Errorf("the job ran at epoch %d only", last)
	}
	return nil
}

// A guard that is killed is replaced.
func TestGuardIsReplaced(t *testing.T) {
	t.Parallel()
	f := newCluster(t, "file")
	n := f.add("n1")
	f.live(1)
	var first []int
	f.eventually(func() error {
		if first = n.Guards(); len(first) != 1 {
			return fmt.Errorf("%d guards", len(first))
		}
		return nil
	})
	if err := syscall.Kill(first[0], syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	f.eventually(func() error {
		if now := n.Guards(); len(now) != 1 || now[0] == first[0] {
			return fmt.Errorf("guards %v after %v was killed", now, first)
		}
		return nil
	})
	// It outlives its agent, and there is one after a restart.
	n.KillAgent()
	if now := n.Guards(); len(now) != 1 {
		t.Errorf("guards %v after the agent was killed", now)
	}
	f.start(n)
	f.eventually(func() error { return ready(f, n) })
	if now := n.Guards(); len(now) != 1 {
		t.Errorf("guards %v after a restart", now)
	}
}
