package e2e

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/barista-fleet/barista/test/cluster"
)

func TestSecondAgentOnOneDirectoryIsRefused(t *testing.T) {
	t.Parallel()
	f := newCluster(t, "solo")
	n := f.add("n1")
	f.eventually(func() error { return ready(f, n) })
	began := time.Now()
	r := f.Agent("--data-dir", n.Dir, "--node-name", "other")
	if r.Code == 0 || !strings.Contains(r.Err, fmt.Sprint(n.Pid())) {
		t.Errorf("exit %d, %q: want a refusal that names pid %d", r.Code, r.Err, n.Pid())
	}
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("refused after %v", took)
	}
	if n.Ended() {
		t.Error("the first agent ended")
	}
}

// A copy of a data directory in use is a second agent with the same identity. It
// watches, sees the other beat, and refuses to go on; the first is undisturbed.
func TestCopiedDataDirectoryIsRefused(t *testing.T) {
	t.Parallel()
	f := newCluster(t, "file")
	n := f.add("n1")
	f.live(1)
	f.ctl("apply", "s", "--", "sleep", "600")
	before := f.running("s", nil)
	copyDir := filepath.Join(f.Dir, "copy")
	if out, err := exec.Command("cp", "-a", n.Dir, copyDir).CombinedOutput(); err != nil && !strings.Contains(string(out), "agent.sock") {
		t.Fatalf("cp: %v\n%s", err, out)
	}
	c := f.add("copy")
	for _, start := range []string{"first", "second"} { // the second is its supervisor's: it is a copy still
		if start == "second" {
			f.start(c)
		}
		if err := c.Wait(limit); err == nil || !c.Ended() || !strings.Contains(c.Log(), "copy") {
			t.Errorf("the copy went on at its %s start: %v", start, err)
		}
	}
	after := f.running("s", nil)
	if after != before {
		t.Errorf("%+v became %+v", before, after)
	}
}

func TestDataDirectoryBelongsToItsFleet(t *testing.T) {
	t.Parallel()
	f := newCluster(t, "file")
	n := f.add("n1")
	f.live(1)
	f.ctl("apply", "s", "--", "sleep", "600")
	f.running("s", nil)
	if err := n.StopAgent(limit); err != nil {
		t.Fatal(err)
	}
	own := f.Bucket
	pids := n.Processes()

	f.Bucket = ""
	f.start(n)
	if err := n.Wait(limit); err == nil || !strings.Contains(n.Log(), own) {
		t.Errorf("without a bucket: %v\n%s", err, n.Log())
	}
	f.Bucket = "file://" + filepath.Join(f.Dir, "another")
	f.ctl("init")
	f.start(n)
	if err := n.Wait(limit); err == nil || !strings.Contains(n.Log(), own) || !strings.Contains(n.Log(), f.Bucket) {
		t.Errorf("with another bucket: %v\n%s", err, n.Log())
	}
	if now := n.Processes(); !slices.Equal(pids, now) {
		t.Errorf("a refused start changed what runs: %v became %v", pids, now)
	}
	f.Bucket = own
	f.start(n)
	f.live(1)
	f.running("s", nil)
}

func TestWipedOrDamagedJournalAdoptsWhatRuns(t *testing.T) {
	t.Parallel()
	for name, damage := range map[string]func(path string) error{
		"removed":   os.Remove,
		"truncated": func(p string) error { return os.Truncate(p, 5000) },
		"empty":     func(p string) error { return os.Truncate(p, 0) },
		"garbage":   func(p string) error { return os.WriteFile(p, []byte(strings.Repeat("garbage ", 8192)), 0o600) },
		"zeroed":    func(p string) error { return os.WriteFile(p, make([]byte, 64<<10), 0o600) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newCluster(t, "file")
			n := f.add("n1")
			f.live(1)
			f.ctl("apply", "s", "--", "sleep", "600")
			f.running("s", nil)
			pids := n.Processes()
			n.KillAgent()
			if err := damage(filepath.Join(n.Dir, "journal.db")); err != nil {
				t.Fatal(err)
			}
			f.start(n)
			f.running("s", func(cluster.Owner) error { return ready(f, n) })
			if now := n.Processes(); !slices.Equal(pids, now) {
				t.Errorf("processes %v became %v: what runs was not adopted", pids, now)
			}
		})
	}
}

func TestLeaveFreesEverything(t *testing.T) {
	t.Parallel()
	f := newCluster(t, "file")
	n := f.add("n1")
	f.live(1)
	f.ctl("apply", "s", "--", "sleep", "600")
	f.running("s", nil)
	if r := f.Agent("leave", "--data-dir", n.Dir, "--fleet-bucket", f.Bucket); r.Code == 0 {
		t.Error("left under a running agent")
	}
	if err := n.StopAgent(limit); err != nil {
		t.Fatal(err)
	}
	if r := f.Agent("leave", "--data-dir", n.Dir, "--fleet-bucket", f.Bucket); r.Code != 0 {
		t.Fatalf("leave: exit %d: %s", r.Code, r.Err)
	}
	if left := n.Processes(); len(left) > 0 {
		t.Errorf("%d processes are left", len(left))
	}
	if r := f.Ctl("resolve", "s"); r.Code != 1 {
		t.Errorf("the name is still owned: exit %d %s", r.Code, r.Out)
	}
	if out := f.ctl("nodes", "-o", "json"); !strings.Contains(out, "left") {
		t.Errorf("nodes does not say left:\n%s", out)
	}
	if out := f.ctl("nodes"); !strings.HasPrefix(strings.Split(out, "\n")[1], "n1 ") {
		t.Errorf("the node that left is not called n1:\n%s", out)
	}
	if out := f.ctl("events"); !strings.Contains(out, "LEFT") {
		t.Errorf("nobody told that it left:\n%s", out)
	}
	n2 := f.add("n2")
	f.running("s", nil)
	if n2.Ended() {
		t.Error("the next node did not take the name")
	}
}

func TestDrainMovesNamesAndSaysWhatBlocksIt(t *testing.T) {
	t.Parallel()
	f := newCluster(t, "file")
	f.add("n1")
	f.live(1)
	f.ctl("apply", "s", "--", "sleep", "600")
	f.ctl("apply", "p", "--", "sleep", "600")
	f.running("s", nil)
	f.running("p", nil)
	f.ctl("pause", "p")
	f.status("p", "paused")
	f.add("n2")
	f.live(2)
	f.ctl("drain", "n1")
	after := f.running("s", func(o cluster.Owner) error {
		if o.Node != "n2" {
			return errors.New("not moved")
		}
		return nil
	})
	if after.Epoch < 2 {
		t.Errorf("epoch %d", after.Epoch)
	}
	if got := f.ls()["p"]; got.Status != "paused" || got.Node != "n1" {
		t.Errorf("the paused one is %+v: a drain must not throw memory away", got)
	}
	status := f.Agent("status", "--data-dir", f.Node("n1").Dir)
	if !strings.Contains(status.Out, "blocks the drain") {
		t.Errorf("status does not say what blocks the drain:\n%s", status.Out)
	}
	f.ctl("uncordon", "n1")
	f.ctl("resume", "p")
	if o := f.running("p", nil); o.Node != "n1" {
		t.Errorf("resumed on %s", o.Node)
	}
}

func TestHeldNameWaitsForItsOwnerOrAnOperator(t *testing.T) {
	t.Parallel()
	f := newCluster(t, "file")
	f.add("n1")
	f.live(1)
	f.ctl("apply", "h", "--on-owner-loss", "hold", "--", "sleep", "600")
	f.running("h", nil)
	f.add("n2")
	f.live(2)
	f.Node("n1").KillMachine()
	f.status("h", "held")
	time.Sleep(cluster.TTL)
	if len(f.Node("n2").Processes()) > 0 {
		t.Error("a held name was started elsewhere")
	}
	f.ctl("release-hold", "h")
	if o := f.running("h", nil); o.Node != "n2" {
		t.Errorf("runs on %s", o.Node)
	}
}

// What is deleted or overwritten by a hand stops nothing that runs.
func TestObjectsRemovedByHand(t *testing.T) {
	t.Parallel()
	for _, prefix := range []string{"sessions", "desired", "nodes", "signals"} {
		for how, do := range map[string]func(string) error{
			"deleted": os.Remove,
			"emptied": func(p string) error { return os.WriteFile(p, nil, 0o600) },
		} {
			t.Run(prefix+" "+how, func(t *testing.T) {
				t.Parallel()
				f := newCluster(t, "file")
				n := f.add("n1")
				f.live(1)
				f.ctl("apply", "s", "--", "sleep", "600")
				before := f.running("s", nil)
				pids := n.Processes()
				var hit int
				err := filepath.WalkDir(filepath.Join(f.Dir, "bucket"), func(p string, d os.DirEntry, err error) error {
					if err == nil && !d.IsDir() && strings.Contains(p, prefix) {
						hit++
						return do(p)
					}
					return nil
				})
				if err != nil || hit == 0 {
					t.Fatalf("hit %d objects of %s: %v", hit, prefix, err)
				}
				f.ctl("apply", "nudge", "--", "sleep", "600") // rings the signal
				f.running("nudge", nil)
				time.Sleep(cluster.TTL)
				if prefix != "desired" {
					after := f.running("s", nil)
					if after.Node != "n1" || after.Epoch < before.Epoch {
						t.Errorf("%+v became %+v", before, after)
					}
				}
				for _, pid := range pids {
					if !slices.Contains(n.Processes(), pid) {
						t.Errorf("process %d of a name that nobody gave up has ended", pid)
					}
				}
			})
		}
	}
}
