package sim

import (
	"os"
	"strconv"
	"testing"
	"time"
)

// judged are the kinds of trouble whose schedules must all hold. The others are
// run by ALL=1: their checks still take some lawful behaviour (a drained node that
// is the last one, a record removed by hand) for a fault.
var judged = map[string]bool{
	profileNodeLoss.String(): true, profileOutage.String(): true, profileNetwork.String(): true, profilePause.String(): true,
}

func number(t *testing.T, name string, otherwise uint64) uint64 {
	t.Helper()
	s := os.Getenv(name)
	if s == "" {
		return otherwise
	}
	v, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		t.Fatalf("%s=%q: %v", name, s, err)
	}
	return v
}

// TestSim runs the schedules of SEEDS seeds, from FROM on.
func TestSim(t *testing.T) {
	n, from := number(t, "SEEDS", 400), number(t, "FROM", 1)
	all := os.Getenv("ALL") != ""
	began := time.Now()
	var ran, events, failures int
	for seed := from; seed < from+n; seed++ {
		sc, _ := scenarioOf(seed)
		if !all && !judged[sc.profile.String()] {
			continue
		}
		r := Run(seed, Options{})
		ran++
		events += r.Stats.Events
		if r.Failure == nil {
			continue
		}
		if failures++; failures <= 3 {
			t.Error(r.Profile, r.Failure.Report())
		}
	}
	t.Logf("%d schedules, %d failed, %d events, %.0f schedules/s", ran, failures, events, float64(ran)/time.Since(began).Seconds())
	if ran == 0 {
		t.Error("no schedule was run")
	}
}

// TestReplay shows the schedule of SEED, every line of it.
func TestReplay(t *testing.T) {
	seed := number(t, "SEED", 1)
	r := Run(seed, Options{Trace: true})
	if r.Trace == "" {
		t.Fatal("a schedule without a trace")
	}
	if os.Getenv("SEED") != "" {
		t.Log("\n" + r.Trace)
		if r.Failure != nil {
			t.Error(r.Failure.Error())
		}
	}
}

// TestSameSeedSameSchedule: without it no failure could be looked into.
func TestSameSeedSameSchedule(t *testing.T) {
	for seed := uint64(1); seed <= 30; seed++ {
		a, b := Run(seed, Options{}), Run(seed, Options{})
		if a.Hash != b.Hash || a.Stats != b.Stats {
			t.Errorf("seed %d: %x then %x", seed, a.Hash, b.Hash)
		}
	}
}
