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

func TestVerbs(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"file", "solo"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			f := newCluster(t, kind)
			n := f.add("n1")
			f.eventually(func() error { return ready(f, n) })
			out := filepath.Join(f.Dir, "out")
			f.ctl("apply", "s", "--", "sh", "-c", "echo start $BARISTA_EPOCH >> "+out+"; echo hello from $BARISTA_NAME; sleep 600")
			f.running("s", nil)
			f.ctl("stop", "s")
			f.status("s", "stopped")
			if p := n.Processes(); len(p) > 0 {
				t.Errorf("%d processes run although the name is stopped", len(p))
			}
			time.Sleep(5 * cluster.Poll)
			if l := lines(out); len(l) != 1 {
				t.Errorf("stopped, and started %d times", len(l))
			}
			f.ctl("start", "s")
			f.running("s", nil)
			f.ctl("restart", "s")
			f.eventually(func() error {
				if l := lines(out); len(l) != 3 {
					return fmt.Errorf("started %d times, want 3", len(l))
				}
				return nil
			})
			f.running("s", nil)
			r := f.Ctl("--agent", n.Dir, "logs", "s")
			if r.Code != 0 || r.Out != "hello from s\n" {
				t.Errorf("logs: exit %d %q %s", r.Code, r.Out, r.Err)
			}
			if r := f.Ctl("--agent", n.Dir, "logs", "s", "--previous"); r.Code != 0 || r.Out != "hello from s\n" {
				t.Errorf("logs of the run before: exit %d %q %s", r.Code, r.Out, r.Err)
			}
			f.ctl("apply", "j", "--kind", "job", "--", "sleep", "600")
			f.running("j", nil)
			f.ctl("cancel", "j")
			f.status("j", "cancelled")
			// A paused session that is deleted ends at once: it is not thawed to be told.
			f.ctl("pause", "s")
			f.status("s", "paused")
			f.ctl("delete", "s", "--yes")
			f.eventually(func() error {
				if p := n.Processes(); len(p) > 0 {
					return fmt.Errorf("%d processes are left", len(p))
				}
				return nil
			})
			f.eventually(func() error { // batches of events reach a bucket about once a second
				if out := f.ctl("events", "s"); !strings.Contains(out, "PAUSED") || !strings.Contains(out, "DELETED") {
					return fmt.Errorf("events:\n%s", out)
				}
				return nil
			})
		})
	}
}

func TestEvictMovesAName(t *testing.T) {
	t.Parallel()
	f := newCluster(t, "file")
	f.add("n1")
	f.add("n2")
	f.live(2)
	f.ctl("apply", "s", "--", "sleep", "600")
	before := f.running("s", nil)
	time.Sleep(3 * cluster.Renew) // each node has seen the other by now
	f.ctl("evict", "s", "--yes")
	after := f.running("s", func(o cluster.Owner) error {
		if o.Node == before.Node {
			return errors.New("not moved")
		}
		return nil
	})
	if after.Epoch <= before.Epoch {
		t.Errorf("epoch %d became %d", before.Epoch, after.Epoch)
	}
}

// What one machine runs on its own moves into a fleet by its manifests.
func TestExportIntoAFleet(t *testing.T) {
	t.Parallel()
	solo := newCluster(t, "solo")
	n := solo.add("n1")
	solo.eventually(func() error { return ready(solo, n) })
	solo.ctl("apply", "a", "--env", "X=1", "--memory", "64Mi", "--", "sleep", "600")
	solo.ctl("apply", "b", "--kind", "job", "--timeout", "5m", "--", "sleep", "600")
	solo.running("a", nil)
	docs := solo.ctl("export")

	fleet := newCluster(t, "file")
	if r := fleet.CtlInput(docs, "apply", "-f", "-"); r.Code != 0 {
		t.Fatalf("apply: exit %d %s", r.Code, r.Err)
	}
	if got := fleet.ctl("export"); got != docs {
		t.Errorf("exported again:\n%s\nwant\n%s", got, docs)
	}
	fleet.add("n1")
	fleet.running("a", nil)
	fleet.running("b", nil)

	if err := n.StopAgent(limit); err != nil {
		t.Fatal(err)
	}
	solo.Bucket = fleet.Bucket
	solo.start(n)
	if err := n.Wait(limit); err == nil || !strings.Contains(n.Log(), "export") {
		t.Errorf("a machine with names of its own joined a fleet: %v\n%s", err, n.Log())
	}
}

// With on_bucket_loss: stop a workload is dead before its lease ends; with keep
// it does not notice.
func TestBucketLossPolicies(t *testing.T) {
	t.Parallel()
	f := newCluster(t, "file")
	n := f.add("n1")
	f.live(1)
	f.ctl("apply", "keeper", "--", "sleep", "600")
	f.ctl("apply", "stopper", "--on-bucket-loss", "stop", "--", "sleep", "600")
	f.running("keeper", nil)
	f.running("stopper", nil)
	all := n.Processes()
	bucket := filepath.Join(f.Dir, "bucket")
	if err := os.Rename(bucket, bucket+".away"); err != nil {
		t.Fatal(err)
	}
	f.eventually(func() error {
		if p := n.Processes(); len(p) != len(all)/2 {
			return fmt.Errorf("%d of %d processes run", len(p), len(all))
		}
		return nil
	})
	time.Sleep(cluster.TTL)
	if p := n.Processes(); len(p) != len(all)/2 {
		t.Errorf("%d processes, want the keeper's %d alone", len(p), len(all)/2)
	}
	if err := os.Rename(bucket+".away", bucket); err != nil {
		t.Fatal(err)
	}
	f.running("stopper", nil)
	if o := f.running("keeper", nil); o.Epoch != 1 {
		t.Errorf("the keeper is at epoch %d", o.Epoch)
	}
}

// An agent that starts while its bucket is away stops nothing and acquires
// nothing; when the bucket is back it goes on.
func TestStartWhileTheBucketIsAway(t *testing.T) {
	t.Parallel()
	f := newCluster(t, "file")
	n := f.add("n1")
	f.live(1)
	f.ctl("apply", "s", "--", "sleep", "600")
	f.running("s", nil)
	pids := n.Processes()
	n.KillAgent()
	bucket := filepath.Join(f.Dir, "bucket")
	if err := os.Rename(bucket, bucket+".away"); err != nil {
		t.Fatal(err)
	}
	f.start(n)
	time.Sleep(2 * cluster.TTL)
	if n.Ended() {
		t.Fatalf("the agent ended:\n%s", n.Log())
	}
	if now := n.Processes(); !slices.Equal(pids, now) {
		t.Errorf("processes %v became %v", pids, now)
	}
	if err := os.Rename(bucket+".away", bucket); err != nil {
		t.Fatal(err)
	}
	f.running("s", func(cluster.Owner) error { return ready(f, n) })
	if now := n.Processes(); !slices.Equal(pids, now) {
		t.Errorf("processes %v became %v after the bucket came back", pids, now)
	}
}

// removeObjects removes the objects under a prefix of a directory bucket by hand.
func removeObjects(t *testing.T, bucket, prefix string) {
	t.Helper()
	hit := 0
	err := filepath.WalkDir(filepath.Join(bucket, "objects"), func(p string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() && strings.Contains(p, prefix) {
			hit++
			return os.Remove(p)
		}
		return err
	})
	if err != nil || hit == 0 {
		t.Fatalf("removed %d objects of %s: %v", hit, prefix, err)
	}
}

// A bucket that was restored from a backup is older than what the node knows. It
// stops nothing and claims nothing by the old record, and says so.
func TestRestoredBucketIsNotBelieved(t *testing.T) {
	t.Parallel()
	f := newCluster(t, "file")
	n := f.add("n1")
	f.live(1)
	f.ctl("apply", "s", "--", "sleep", "600")
	f.running("s", nil)
	bucket, backup := filepath.Join(f.Dir, "bucket"), filepath.Join(f.Dir, "backup")
	if out, err := exec.Command("cp", "-a", bucket, backup).CombinedOutput(); err != nil {
		t.Fatalf("cp: %v %s", err, out)
	}
	// After the backup the node is fenced and re-claims the name: its epoch rises.
	removeObjects(t, bucket, "nodes")
	f.running("s", func(o cluster.Owner) error {
		if o.Epoch < 2 {
			return fmt.Errorf("epoch %d", o.Epoch)
		}
		return nil
	})
	pids := n.Processes()
	if err := os.Rename(bucket, bucket+".newer"); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(backup, bucket); err != nil {
		t.Fatal(err)
	}
	f.logged(n, "msg=behind")
	if now := n.Processes(); !slices.Equal(pids, now) {
		t.Errorf("processes %v became %v", pids, now)
	}
	f.ctl("restart", "s") // an operator says that the bucket is right
	f.running("s", func(o cluster.Owner) error {
		if o.Epoch < 3 {
			return fmt.Errorf("epoch %d", o.Epoch)
		}
		return nil
	})
}

// The end of a run's output is in the bucket once the run has ended, where the spec
// asks for it, and can be read where no agent is.
func TestKeptLogs(t *testing.T) {
	t.Parallel()
	f := newCluster(t, "file")
	f.add("n1")
	f.live(1)
	f.ctl("apply", "j", "--kind", "job", "--keep-logs", "--", "sh", "-c", "echo one; echo two >&2")
	f.ctl("apply", "quiet", "--kind", "job", "--", "echo", "three")
	f.status("j", "completed")
	f.status("quiet", "completed")
	f.eventually(func() error {
		r := f.Ctl("logs", "j")
		if r.Code != 0 || !strings.Contains(r.Out, "one\n") || !strings.Contains(r.Out, "two\n") || !strings.Contains(r.Err, "epoch 1 on n1") {
			return fmt.Errorf("exit %d, %q, %q", r.Code, r.Out, r.Err)
		}
		return nil
	})
	if r := f.Ctl("logs", "quiet"); r.Code == 0 {
		t.Errorf("output that nobody asked to keep: %q", r.Out)
	}
}
