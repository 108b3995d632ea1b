package sim

import (
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

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

// TestSim runs the schedules of SEEDS seeds, from FROM on, on every processor. A
// schedule is of one goroutine, so how many run at once changes nothing in it.
func TestSim(t *testing.T) {
	n, from := number(t, "SEEDS", 400), number(t, "FROM", 1)
	began := time.Now()
	results := make([]Result, n)
	var next atomic.Uint64
	var wg sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for i := next.Add(1) - 1; i < n; i = next.Add(1) - 1 {
				results[i] = Run(from+i, Options{})
			}
		})
	}
	wg.Wait()
	report(t, results, time.Since(began))
}

// report prints what the schedules came to, and the first failures.
func report(t *testing.T, results []Result, took time.Duration) {
	t.Helper()
	ran, failed := map[string]int{}, map[string]int{}
	events, failures := 0, 0
	for _, r := range results {
		ran[r.Profile]++
		events += r.Stats.Events
		if r.Failure == nil {
			continue
		}
		failed[r.Profile]++
		switch failures++; {
		case failures <= 3:
			t.Error(r.Profile, r.Failure.Report())
		default:
			t.Error(r.Profile, r.Failure.Error())
		}
	}
	for _, p := range slices.Sorted(maps.Keys(ran)) {
		t.Logf("%-10s %6d schedules, %d failed", p, ran[p], failed[p])
	}
	if len(results) == 0 {
		t.Error("no schedule was run")
	}
	t.Logf("%d schedules judged, %d failed, %d events, %.0f schedules/s", len(results), failures, events, float64(len(results))/took.Seconds())
}

// TestHunt runs schedules until one fails, and says which: it is what the mutants
// are run with. It needs HUNT to be set.
func TestHunt(t *testing.T) {
	if os.Getenv("HUNT") == "" {
		t.Skip("HUNT is not set")
	}
	n, from := number(t, "SEEDS", 400), number(t, "FROM", 1)
	for seed := from; seed < from+n; seed++ {
		if f := hunt(seed); f != nil {
			message, _, _ := strings.Cut(f.Message, "\n")
			fmt.Printf("hunt: caught by %q at seed %d: %s\n", f.Invariant, seed, message)
			return
		}
	}
	fmt.Printf("hunt: nothing in %d schedules\n", n)
}

func hunt(seed uint64) (f *Failure) {
	defer func() {
		if r := recover(); r != nil {
			f = &Failure{Seed: seed, Invariant: "panic", Message: fmt.Sprint(r)}
		}
	}()
	w := newWorld(seed)
	return w.run().Failure
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
