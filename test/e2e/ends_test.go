package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/barista-fleet/barista/test/cluster"
)

// described is the part of `fleetctl describe -o json` that these tests look at.
type described struct {
	Epoch    uint64 `json:"epoch"`
	Attempt  int    `json:"attempt"`
	Failures int    `json:"failures"`
	Status   string `json:"status"`
}

func (f *fixture) describe(name string) (d described) {
	f.t.Helper()
	if err := json.Unmarshal([]byte(f.ctl("describe", name, "-o", "json")), &d); err != nil {
		f.t.Fatal(err)
	}
	return d
}

// movedFrom waits until a name runs elsewhere.
func (f *fixture) movedFrom(name, node string) cluster.Owner {
	f.t.Helper()
	return f.running(name, func(o cluster.Owner) error {
		if o.Node == node {
			return errors.New("not moved")
		}
		return nil
	})
}

// A drain lets a job end, and one that its deadline stops is nobody's failure:
// not even the last attempt is used up.
func TestDrainCostsAJobNoAttempt(t *testing.T) {
	t.Parallel()
	f := newCluster(t, "file")
	f.add("n1")
	f.live(1)
	f.ctl("apply", "j", "--kind", "job", "--max-attempts", "1", "--", "sleep", "600")
	f.running("j", nil)
	f.add("n2")
	f.live(2)
	if out := f.ctl("drain", "n1"); !strings.Contains(out, "runs to its end") {
		t.Errorf("drain does not say that the job keeps the node:\n%s", out)
	}
	f.eventually(func() error {
		if s := f.Agent("status", "--data-dir", f.Node("n1").Dir); !strings.Contains(s.Out, "blocks the drain") {
			return fmt.Errorf("status does not say what blocks the drain:\n%s", s.Out)
		}
		return nil
	})
	if o := f.running("j", nil); o.Node != "n1" {
		t.Fatalf("the job is on %s: a drain without a deadline must let it end", o.Node)
	}
	f.ctl("drain", "n1", "--deadline", "1s")
	f.movedFrom("j", "n1")
	if d := f.describe("j"); d.Failures != 0 || d.Attempt < 2 {
		t.Errorf("failures %d, attempt %d; want no failure and another attempt", d.Failures, d.Attempt)
	}
}

// A changed ttl waits for a new registration where names are owned, and takes
// effect at once where none are.
func TestChangedTTLTakesEffectWithANewRegistration(t *testing.T) {
	t.Parallel()
	f := newCluster(t, "file")
	n := f.add("n1")
	f.live(1)
	f.ctl("apply", "s", "--", "sleep", "600")
	before := f.running("s", nil)
	restart := func(ttl string) {
		t.Helper()
		if err := n.StopAgent(limit); err != nil {
			t.Fatal(err)
		}
		n.Args = []string{"--lease-ttl", ttl, "--lease-renew", "1s"}
		if err := n.Start(); err != nil {
			t.Fatal(err)
		}
	}
	type record struct {
		Incarnation uint64 `json:"incarnation"`
		TTLMillis   int64  `json:"ttl_ms"`
		Beat        uint64 `json:"beat"`
	}
	node := func() (r record) {
		t.Helper()
		if err := json.Unmarshal([]byte(f.ctl("node", "describe", "n1", "-o", "json")), &r); err != nil {
			t.Fatal(err)
		}
		return r
	}
	old := node()
	restart("20s")
	f.eventually(func() error {
		if got := node(); got.Beat <= old.Beat {
			return errors.New("no renewal yet")
		}
		return nil
	})
	if got := node(); got.Incarnation != old.Incarnation || got.TTLMillis != cluster.TTL.Milliseconds() {
		t.Errorf("after a restart with a name: %+v, want incarnation %d and its ttl", got, old.Incarnation)
	}
	if o := f.running("s", nil); o.Epoch != before.Epoch {
		t.Errorf("epoch %d, want %d: the restart freed the name", o.Epoch, before.Epoch)
	}
	if !strings.Contains(n.Log(), "takes effect when this node registers anew") {
		t.Error("the log does not say that the ttl waits")
	}
	f.ctl("delete", "s", "--yes")
	f.eventually(func() error {
		if len(n.Processes()) > 0 {
			return errors.New("still there")
		}
		return nil
	})
	f.eventually(func() error {
		if _, ok := f.Resolve("s"); ok {
			return errors.New("still owned")
		}
		return nil
	})
	restart("20s")
	f.eventually(func() error {
		if got := node(); got.Incarnation <= old.Incarnation || got.TTLMillis != 20_000 {
			return fmt.Errorf("idle restart: %+v", got)
		}
		return nil
	})
}

// A session that was paused for longer than its grace before its node was lost is
// left for its grace all the same.
func TestGraceOfAPausedNameBeginsWithTheLoss(t *testing.T) {
	t.Parallel()
	f := newCluster(t, "file")
	f.add("n1")
	f.live(1)
	f.ctl("apply", "p", "--owner-loss-grace", "8s", "--", "sleep", "600")
	f.running("p", nil)
	f.ctl("pause", "p")
	f.status("p", "paused")
	f.add("n2")
	f.live(2)
	time.Sleep(9 * time.Second) // paused, and seen by n2, for longer than the grace
	f.Node("n1").KillMachine()
	f.eventually(func() error {
		out := f.ctl("nodes", "-o", "json")
		if !strings.Contains(out, "fenced") {
			return errors.New("not fenced yet")
		}
		return nil
	})
	fenced := time.Now()
	f.movedFrom("p", "n1")
	// The test sees the fence later than n2 does, by a call of fleetctl at most.
	if left := time.Since(fenced); left < 4*time.Second {
		t.Errorf("taken %v after the fence was seen, want nearly the grace of 8s", left)
	}
}

// A job that ran longer than it may on a node that is lost has timed out.
func TestJobPastItsTimeoutOnALostNodeIsNotRunAgain(t *testing.T) {
	t.Parallel()
	f := newCluster(t, "file")
	f.add("n1")
	f.live(1)
	f.ctl("apply", "j", "--kind", "job", "--timeout", "6s", "--on-bucket-loss", "keep", "--", "sleep", "600")
	f.running("j", nil)
	f.add("n2")
	f.live(2)
	f.eventually(func() error { // n2 knows that it runs
		if s := f.Agent("status", "--data-dir", f.Node("n2").Dir, "-o", "json"); s.Code != 0 {
			return errors.New(s.Err)
		}
		return nil
	})
	time.Sleep(time.Second)
	if err := f.Node("n1").Signal(syscall.SIGSTOP); err != nil { // it cannot end the job any more
		t.Fatal(err)
	}
	time.Sleep(7 * time.Second)
	f.status("j", "timed_out")
	if len(f.Node("n2").Processes()) > 0 {
		t.Error("it was run again")
	}
	if err := f.Node("n1").Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
}

// A configured session starts again at once, and its old run is no failure.
func TestReconfiguredSessionHasNoFailure(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"file", "solo"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			f := newCluster(t, kind)
			f.add("n1")
			if kind == "file" {
				f.live(1)
			}
			f.eventually(func() error {
				if r := f.Ctl("apply", "s", "--", "sleep", "600"); r.Code != 0 {
					return errors.New(r.Err)
				}
				return nil
			})
			f.running("s", nil)
			for i := range 3 {
				f.ctl("apply", "s", "--", "sleep", fmt.Sprint(700+i))
				f.eventually(func() error {
					if d := f.describe("s"); d.Attempt != 2+i || d.Status != "running" || d.Failures != 0 {
						return fmt.Errorf("%+v", d)
					}
					return nil
				})
			}
		})
	}
}
