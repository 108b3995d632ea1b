package e2e

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/barista-fleet/barista/test/cluster"
)

func TestReadingNeedsNoAgent(t *testing.T) {
	t.Parallel()
	f := newCluster(t, "file")
	f.ctl("apply", "wanted", "--", "sleep", "1")
	if r := f.Ctl("resolve", "nosuch"); r.Code != 7 {
		t.Errorf("resolve of no such name exits %d, want 7: %s", r.Code, r.Err)
	}
	if r := f.Ctl("resolve", "wanted"); r.Code != 1 {
		t.Errorf("resolve of an unowned name exits %d, want 1: %s", r.Code, r.Err)
	}
	if got := f.ls()["wanted"].Status; got != "pending" {
		t.Errorf("status %q, want pending", got)
	}
	if out := f.ctl("describe", "wanted"); !strings.Contains(out, "why:") {
		t.Errorf("describe does not say why it is not running:\n%s", out)
	}
}

func TestThousandNamesInOneFile(t *testing.T) {
	t.Parallel()
	f := newCluster(t, "file")
	var docs strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&docs, "---\nname: n-%04d\ncommand: [sleep, \"1\"]\n", i)
	}
	if r := f.CtlInput(docs.String(), "apply", "-f", "-"); r.Code != 0 {
		t.Fatalf("exit %d: %s", r.Code, r.Err)
	}
	if n := len(f.ls()); n != 1000 {
		t.Errorf("ls shows %d names", n)
	}
	for _, bad := range []string{"UPPER", "-x", "x-", "a/b", "a b", strings.Repeat("x", 64), "..", "ü"} {
		r := f.CtlInput(fmt.Sprintf("name: %q\ncommand: [x]\n", bad), "apply", "-f", "-")
		if r.Code == 0 || !strings.Contains(r.Err, "1 to 63") {
			t.Errorf("name %q: exit %d, %s", bad, r.Code, r.Err)
		}
	}
}

func TestJobs(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"file", "solo"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			f := newCluster(t, kind)
			n := f.add("n1")
			f.eventually(func() error { return ready(f, n) })
			out := filepath.Join(f.Dir, "out")
			f.ctl("apply", "good", "--kind", "job", "--", "sh", "-c", "echo ran >> "+out)
			f.ctl("apply", "bad", "--kind", "job", "--max-attempts", "2", "--", "sh", "-c", "echo tried >> "+out+".bad; exit 7")
			f.ctl("apply", "slow", "--kind", "job", "--timeout", "1s", "--", "sleep", "600")
			f.ctl("apply", "poison", "--kind", "job", "--max-attempts", "1", "--", "/no/such/program")
			f.status("good", "completed")
			f.status("bad", "failed")
			f.status("slow", "timed_out")
			f.status("poison", "failed")
			if l := lines(out); len(l) != 1 {
				t.Errorf("the good job ran %d times", len(l))
			}
			if l := lines(out + ".bad"); len(l) != 2 {
				t.Errorf("the bad job was tried %d times, want 2", len(l))
			}
			if r := f.Ctl("wait", "bad", "--for", "phase=exited", "--exit-code", "--timeout", "5s"); r.Code != 7 {
				t.Errorf("wait --exit-code gives %d, want the job's 7: %s", r.Code, r.Err)
			}
			// The name is the idempotency key, also after the end.
			if got := f.ctl("apply", "good", "--kind", "job", "--", "sh", "-c", "echo ran >> "+out); got != "good unchanged\n" {
				t.Errorf("the same job again: %q", got)
			}
			if r := f.Ctl("apply", "good", "--kind", "job", "--", "other"); r.Code != 3 {
				t.Errorf("another job under the name exits %d, want 3: %s", r.Code, r.Err)
			}
			time.Sleep(time.Second)
			if l := lines(out); len(l) != 1 {
				t.Errorf("the good job ran %d times in the end", len(l))
			}
		})
	}
}

func TestDeleteAndApplyAgainRunsTheNewContent(t *testing.T) {
	t.Parallel()
	f := newCluster(t, "file")
	f.add("n1")
	f.live(1)
	out := filepath.Join(f.Dir, "out")
	f.ctl("apply", "s", "--", "sh", "-c", "echo old >> "+out+"; sleep 600")
	f.running("s", nil)
	f.ctl("delete", "s", "--yes")
	f.ctl("apply", "s", "--", "sh", "-c", "echo new >> "+out+"; sleep 600")
	f.eventually(func() error {
		if l := lines(out); l[len(l)-1] != "new" {
			return fmt.Errorf("wrote %v", l)
		}
		return nil
	})
	time.Sleep(time.Second)
	if l := lines(out); len(l) != 2 {
		t.Errorf("wrote %v, want old and new once each", l)
	}
}

func TestPauseSurvivesTheAgent(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"file", "solo"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			f := newCluster(t, kind)
			n := f.add("n1")
			f.eventually(func() error { return ready(f, n) })
			out := filepath.Join(f.Dir, "count")
			f.ctl("apply", "s", "--", "sh", "-c", "i=0; while :; do i=$((i+1)); echo $i >> "+out+"; sleep 0.05; done")
			before := f.running("s", nil)
			f.ctl("pause", "s")
			f.status("s", "paused")
			at := len(lines(out))
			n.KillAgent()
			f.start(n)
			f.eventually(func() error { return ready(f, n) })
			if now := len(lines(out)); now != at {
				t.Errorf("it counted from %d to %d while paused", at, now)
			}
			f.ctl("resume", "s")
			after := f.running("s", func(cluster.Owner) error {
				if len(lines(out)) <= at {
					return fmt.Errorf("it does not count on from %d", at)
				}
				return nil
			})
			if after.Epoch != before.Epoch {
				t.Errorf("epoch %d became %d", before.Epoch, after.Epoch)
			}
			for i, l := range lines(out) {
				if l != fmt.Sprint(i+1) {
					t.Fatalf("line %d says %s: it did not go on from its memory", i+1, l)
				}
			}
		})
	}
}

func TestTTLPausesAndAnAlarmWakes(t *testing.T) {
	t.Parallel()
	f := newCluster(t, "file")
	n := f.add("n1")
	f.live(1)
	f.ctl("apply", "s", "--ttl", "1", "--", "sleep", "600")
	f.running("s", nil)
	f.status("s", "paused")
	f.ctl("resume", "s")
	f.running("s", nil)
	f.status("s", "paused") // the policy survives a resume
	f.ctl("wake-at", "s", "2s")
	n.KillAgent() // and an alarm that comes while nobody is there is not lost
	time.Sleep(3 * time.Second)
	f.start(n)
	f.eventually(func() error {
		if strings.Count(f.ctl("events", "s"), "RESUMED") < 2 {
			return fmt.Errorf("the alarm did not ring")
		}
		return nil
	})
	f.status("s", "paused")
}

// Agents are killed at random moments under twenty jobs that write a line at
// their start and one at their end. Each must have exactly one of both.
func TestKillsAtRandomMomentsLoseNoJob(t *testing.T) {
	t.Parallel()
	f := newCluster(t, "solo")
	n := f.add("n1", "--slots", "sm=20")
	f.eventually(func() error { return ready(f, n) })
	kills := 20
	if os.Getenv("BARISTA_LONG") != "" {
		kills = 100
	}
	const jobs = 20
	for i := range jobs {
		file := filepath.Join(f.Dir, fmt.Sprintf("j%02d", i))
		f.ctl("apply", fmt.Sprintf("j%02d", i), "--kind", "job", "--", "sh", "-c",
			fmt.Sprintf("echo start >> %s; sleep %d.%d; echo end >> %s", file, 1+i%4, i%10, file))
	}
	for range kills {
		time.Sleep(time.Duration(rand.IntN(250)) * time.Millisecond)
		n.KillAgent()
		f.start(n)
	}
	for i := range jobs {
		name := fmt.Sprintf("j%02d", i)
		f.status(name, "completed")
		if l := lines(filepath.Join(f.Dir, name)); len(l) != 2 || l[0] != "start" || l[1] != "end" {
			t.Errorf("%s wrote %v", name, l)
		}
		if r := f.Ctl("wait", name, "--for", "phase=exited", "--exit-code", "--timeout", "5s"); r.Code != 0 {
			t.Errorf("%s: exit code %d was kept, want 0: %s", name, r.Code, r.Err)
		}
	}
}
