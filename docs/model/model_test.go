package model

import (
	"os"
	"strings"
	"testing"
)

// full says that everything is to be explored, as `make model` does.
func full() bool { return os.Getenv("MODEL") == "full" }

func explore(t *testing.T, sc *Scenario) Result {
	t.Helper()
	r := Explore(sc, sc.Limit)
	how := "explored to its end"
	if r.Unfinished {
		how = "explored to a limit of states"
	}
	if r.Violation != "" {
		t.Errorf("%s: %s\n%s", sc.Name, r.Violation, strings.Join(r.Trace, "\n"))
		return r
	}
	t.Logf("%-34s %8d states %9d transitions, depth %3d, %6d at a bound, %s: no violation", sc.Name, r.States, r.Transitions, r.Depth, r.Cut, how)
	if missing := sc.Goals &^ r.Goals; missing != 0 {
		t.Errorf("%s: never seen: %v; a scenario that does not show it checks nothing", sc.Name, missing)
	}
	return r
}

// TestModel explores the scenarios: the quick ones, or with MODEL=full all.
func TestModel(t *testing.T) {
	var sum Result
	skipped := false // by -run
	for i := range Scenarios {
		sc := &Scenarios[i]
		if !full() && !sc.Quick {
			continue
		}
		if raced {
			sc = &Scenario{Name: sc.Name, Stop: sc.Stop, Start: sc.Start, Budget: sc.Budget, MaxEpoch: sc.MaxEpoch, MaxInc: sc.MaxInc, Limit: 500}
		}
		var r Result
		t.Run(strings.ReplaceAll(sc.Name, " ", "_"), func(t *testing.T) { r = explore(t, sc) })
		skipped = skipped || r.States == 0
		sum.States += r.States
		sum.Transitions += r.Transitions
		sum.Depth = max(sum.Depth, r.Depth)
	}
	if !t.Failed() {
		t.Logf("%-34s %8d states %9d transitions, depth %3d: no violation", "all", sum.States, sum.Transitions, sum.Depth)
	}
	if full() && !skipped && !t.Failed() && sum.States < 1_000_000 {
		t.Errorf("%d states are not a million", sum.States)
	}
}

// TestMergedStatesAgree holds the encoding to its promise: where two paths lead to
// one key, what may follow is the same. Something that was left out of the encoding
// and matters would show here.
func TestMergedStatesAgree(t *testing.T) {
	for _, sc := range []Scenario{Scenarios[1], Scenarios[2], {Name: "mixed", Stop: true, Updates: true, Budget: Budget{Late: 1, Lost: 1, Stop: 1}, MaxEpoch: 3, MaxInc: 3}} {
		limit := 20_000
		if raced {
			limit = 500
		}
		pairs, wrong := compareMerged(&sc, limit)
		if pairs < limit/10 {
			t.Errorf("%s: only %d pairs were compared", sc.Name, pairs)
		}
		if wrong != "" {
			t.Errorf("%s: %s", sc.Name, wrong)
		}
	}
}
