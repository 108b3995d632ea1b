package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/barista-fleet/barista/test/cluster"
	"github.com/barista-fleet/barista/test/need"
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
	return stopAndTakeAfter(f, name, func(*cluster.Node) error { return nil })
}

// stopAndTakeAfter is stopAndTake, with something that happens to the node right
// before.
func stopAndTakeAfter(f *fixture, name string, before func(*cluster.Node) error) error {
	out := filepath.Join(f.Dir, name+".lines")
	f.ctl("apply", name, "--kind", "job", "--max-attempts", "9", "--", "sh", "-c",
		"while :; do echo $BARISTA_EPOCH >> "+out+"; sleep 0.01; done")
	first := f.running(name, nil)
	old := f.Node(first.Node)
	if err := before(old); err != nil {
		return err
	}
	if err := old.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	f.running(name, func(o cluster.Owner) error {
		if o.Node == first.Node {
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

// The guard is killed, and the agent is stopped as soon as there is another: the new
// one ends the job in time.
func TestGuardIsReplacedAtOnce(t *testing.T) {
	t.Parallel()
	f := newCluster(t, "file")
	f.add("n1")
	f.add("n2")
	f.live(2)
	err := stopAndTakeAfter(f, "j", func(n *cluster.Node) error {
		first := n.Guards()
		if len(first) != 1 {
			return fmt.Errorf("guards %v", first)
		}
		if err := syscall.Kill(first[0], syscall.SIGKILL); err != nil {
			return err
		}
		for deadline := time.Now().Add(limit); ; {
			if now := n.Guards(); len(now) == 1 && now[0] != first[0] {
				return nil
			}
			if time.Now().After(deadline) {
				return errors.New("no other guard")
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
}

// Where no guard can be started, what needs one does not run; and it runs again
// when one can.
func TestNothingThatNeedsAGuardRunsWithoutOne(t *testing.T) {
	t.Parallel()
	f := newCluster(t, "file")
	n := f.add("n1")
	f.live(1)
	f.ctl("apply", "j", "--kind", "job", "--max-attempts", "9", "--", "sleep", "600")
	f.ctl("apply", "s", "--", "sleep", "600")
	f.running("j", nil)
	f.running("s", nil)
	// A guard writes a log: where it cannot, it cannot be started.
	log := filepath.Join(n.Dir, "guard.log")
	if err := errors.Join(os.Remove(log), os.Mkdir(log, 0o700)); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(n.Guards()[0], syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	f.status("j", "starting") // ended, and its next attempt waits
	f.logged(n, "no guard stands beside the agent")
	if r := f.ls()["s"]; r.Status != "running" {
		t.Errorf("the session is %s", r.Status)
	}
	if strings.Contains(n.Log(), "msg=lapsed") {
		t.Error("the agent did not renew")
	}
	if err := os.Remove(log); err != nil {
		t.Fatal(err)
	}
	f.running("j", nil)
}

// What ends the cgroup of the agent's unit does not reach the guard.
func TestGuardHasACgroupOfItsOwn(t *testing.T) {
	t.Parallel()
	f := newCluster(t, "file")
	n := f.add("n1")
	f.live(1)
	stands := regexp.MustCompile(`(?m)^guard +pid \d+ .*$`)
	said := ""
	f.eventually(func() error {
		r := f.Agent("status", "--data-dir", n.Dir)
		if said = stands.FindString(r.Out); said == "" {
			return fmt.Errorf("no guard stands: %s%s", r.Out, r.Err)
		}
		return nil
	})
	if !strings.Contains(n.Log(), "cgroup:v2") {
		need.Missing(t, "this machine has no writable cgroup v2 hierarchy")
	}
	if !strings.HasSuffix(said, "/guard") {
		t.Errorf("the guard is in no group of its own: %s", said)
	}
	for _, pid := range append(n.Guards(), n.Pid()) {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
		if err != nil {
			t.Fatal(err)
		}
		if own := strings.Contains(string(b), "/guard\n"); own != (pid != n.Pid()) {
			t.Errorf("process %d (agent %d) is in\n%s", pid, n.Pid(), b)
		}
	}
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
