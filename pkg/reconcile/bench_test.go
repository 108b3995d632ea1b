package reconcile

import (
	"fmt"
	"testing"
	"time"

	"github.com/barista-fleet/barista/internal/bucket"
	"github.com/barista-fleet/barista/internal/bucket/buckettest"
	"github.com/barista-fleet/barista/pkg/fleet"
)

// owning returns a node that runs n sessions.
func owning(b *testing.B, n int) *rig {
	b.Helper()
	w := newWorld(b)
	a := w.node("n-a")
	for i := range n {
		w.want(fmt.Sprintf("s%05d", i), fleet.KindSession)
	}
	w.ring(nil, nil)
	for range 200 {
		if run2(time.Second, a); a.starts == n {
			return a
		}
	}
	b.Fatalf("%d of %d started", a.starts, n)
	return nil
}

// BenchmarkHeartbeat is a node between two heartbeats. requests/beat must not
// grow with the names; ns/op is what they cost in time.
func BenchmarkHeartbeat(b *testing.B) {
	for _, names := range []int{1, 1000, 4000} {
		b.Run(fmt.Sprintf("names=%d", names), func(b *testing.B) {
			a := owning(b, names)
			before := total(a.store)
			b.ResetTimer()
			for range b.N {
				run2(testBeat, a)
			}
			b.ReportMetric(float64(total(a.store)-before)/float64(b.N), "requests/beat")
		})
	}
}

func total(m *bucket.Meter) (n uint64) {
	for _, c := range m.Counts() {
		n += c.Total
	}
	return n
}

// BenchmarkClaims is two nodes that claim and start a thousand new names, beside
// as many raw conditional writes to the same store.
func BenchmarkClaims(b *testing.B) {
	const names = 1000
	raw := time.Duration(0)
	var spent time.Duration
	var writes, wasted uint64
	for range b.N {
		w := newWorld(b)
		x, y := w.node("n-x"), w.node("n-y")
		run2(time.Second, x, y)
		for i := range names {
			w.want(fmt.Sprintf("s%05d", i), fleet.KindSession)
		}
		w.ring(nil, nil)
		began := time.Now()
		for range 100 {
			if run2(time.Second, x, y); x.starts+y.starts == names {
				break
			}
		}
		spent += time.Since(began)
		if x.starts+y.starts != names {
			b.Fatalf("%d starts", x.starts+y.starts)
		}
		c := w.store.Counts()["put-if-absent sessions"]
		writes, wasted = writes+c.Total, wasted+c.Conflicts
		raw += rawWrites(b, names)
	}
	n := float64(b.N * names)
	b.ReportMetric(float64(writes)/n, "writes/claim")
	b.ReportMetric(float64(wasted)/n, "wasted/claim")
	b.ReportMetric(float64(spent)/float64(raw), "x-raw-writes")
}

func rawWrites(b *testing.B, n int) time.Duration {
	b.Helper()
	store := buckettest.NewMem()
	body := make([]byte, 500) // about an ownership record
	began := time.Now()
	for i := range n {
		if r := store.Put(b.Context(), fmt.Sprintf("sessions/s%05d", i), body, bucket.IfAbsent()); r.Outcome != bucket.Applied {
			b.Fatal(r.Err)
		}
	}
	return time.Since(began)
}

// BenchmarkRestart is an agent's new life over a thousand names, until each has
// its standing again. Nothing is started, nothing changes its epoch.
func BenchmarkRestart(b *testing.B) {
	const names = 1000
	a := owning(b, names)
	before := total(a.store)
	b.ResetTimer()
	for i := range b.N {
		a.boot(a.config("n-a", fmt.Sprintf("life-%d", i)))
		for range 100 {
			if run2(50*time.Millisecond, a); a.m.Head().Recovering == 0 {
				break
			}
		}
		if got := a.m.Head().Recovering; got != 0 || a.starts != names {
			b.Fatalf("%d names without standing, %d starts", got, a.starts)
		}
	}
	b.ReportMetric(float64(total(a.store)-before)/float64(b.N*names), "requests/name")
}
