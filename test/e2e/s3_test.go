package e2e

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/barista-fleet/barista/test/cluster"
	"github.com/barista-fleet/barista/test/minio/s3server"
)

// onS3 makes a cluster whose bucket is on a real S3 server.
func onS3(t *testing.T) (*fixture, *s3server.Server) {
	t.Helper()
	srv := s3server.Start(t)
	f := newCluster(t, "solo")
	f.Bucket, f.Env = srv.URL(srv.NewBucket(t), ""), srv.Env()
	f.ctl("init")
	return f, srv
}

func TestTakeoverOnS3(t *testing.T) {
	t.Parallel()
	f, _ := onS3(t)
	takeover(t, f)
}

// The server is killed with -9 under running sessions and comes back: nothing
// stops, nothing moves, and what was asked meanwhile is done afterwards.
func TestServerKilledUnderSessions(t *testing.T) {
	t.Parallel()
	f, srv := onS3(t)
	if !srv.CanKill() {
		t.Log("SKIP: the server under test was not started by this test")
		return
	}
	n1, n2 := f.add("n1"), f.add("n2")
	f.live(2)
	const names = 6
	for i := range names {
		f.ctl("apply", fmt.Sprintf("s%d", i), "--", "sleep", "600")
	}
	for i := range names {
		f.running(fmt.Sprintf("s%d", i), nil)
	}
	before := f.ls()
	pids := append(n1.Processes(), n2.Processes()...)
	srv.Kill9()
	if r := f.Ctl("ls"); r.Code != 5 {
		t.Errorf("ls without the server exits %d: %s", r.Code, r.Err)
	}
	time.Sleep(2 * cluster.TTL)
	if err := srv.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.live(2)
	time.Sleep(2 * cluster.TTL)
	after := f.ls()
	for name, b := range before {
		if a := after[name]; a != b {
			t.Errorf("%s was %+v and is %+v", name, b, a)
		}
	}
	if now := append(n1.Processes(), n2.Processes()...); !slices.Equal(pids, now) {
		t.Errorf("processes changed from %v to %v", pids, now)
	}
	f.ctl("apply", "late", "--", "sleep", "600")
	f.running("late", nil)
}

func TestProcessRuntimeMustBeAskedForOnS3(t *testing.T) {
	t.Parallel()
	f, _ := onS3(t)
	n := f.add("n1", "--runtime", "auto")
	if err := n.Wait(limit); err == nil || !strings.Contains(n.Log(), "--runtime process") {
		t.Errorf("an agent that fell to no isolation by itself: %v\n%s", err, n.Log())
	}
}

// What a workload itself writes shows that the fencing token only rises.
func TestEpochNeverGoesBackInWhatAWorkloadWrites(t *testing.T) {
	t.Parallel()
	f := newCluster(t, "file")
	f.add("n1", "--slots", "sm=1")
	f.add("n2", "--slots", "sm=1")
	f.live(2)
	out := f.Dir + "/lines"
	// One line each 20 ms with who wrote it: two writers at one time would mix.
	f.ctl("apply", "j", "--kind", "job", "--max-attempts", "5", "--", "sh", "-c",
		"while :; do echo $BARISTA_EPOCH >> "+out+"; sleep 0.02; done")
	before := f.running("j", nil)
	f.Node(before.Node).KillMachine()
	f.running("j", func(o cluster.Owner) error {
		if o.Node == before.Node {
			return errors.New("not taken")
		}
		return nil
	})
	last := ""
	for _, l := range lines(out) {
		if l < last {
			t.Fatalf("epoch %s wrote after epoch %s", l, last)
		}
		last = l
	}
}
