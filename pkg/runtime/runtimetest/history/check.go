package history

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// Problem is one way in which a history is not as it should be.
type Problem struct {
	Kind  string // see the Kind constants
	Name  string
	Text  string
	First *Run
	Other *Run // for an overlap and a duplicate
}

func (p Problem) String() string { return p.Kind + ": " + p.Text }

// Kinds of problems.
const (
	// KindOverlap: two processes of one name were alive at one instant.
	KindOverlap = "overlap"
	// KindNoEnd: a process started and never said that it ended.
	KindNoEnd = "missing end"
	// KindNoStart: a process gave signs of life without having started.
	KindNoStart = "missing start"
	// KindDuplicate: one instance was started twice.
	KindDuplicate = "duplicated start"
	// KindEpochBack: a later run of a name had a lower epoch than an earlier one.
	KindEpochBack = "epoch went back"
)

// Rules say what a history may contain.
type Rules struct {
	// MayBeKilled: a run without an end is no problem, for the test kills.
	MayBeKilled bool
	// OverlapUpTo allows two runs of one name to overlap for this long. It is
	// for workloads that go on through an outage, until their node learns of it.
	OverlapUpTo time.Duration
	// OncePerName: each name is run by exactly one process, as a job is.
	OncePerName bool
}

// Check returns the problems of a history, ordered by time.
func Check(lines []Line, rules Rules) []Problem {
	runs := Runs(lines)
	var problems []Problem
	add := func(kind string, first, other *Run, format string, args ...any) {
		problems = append(problems, Problem{kind, first.Name, fmt.Sprintf(format, args...), first, other})
	}
	byName := make(map[string][]*Run)
	byInstance := make(map[string]*Run)
	for _, r := range runs {
		byName[r.Name] = append(byName[r.Name], r)
		if r.Starts == 0 {
			add(KindNoStart, r, nil, "%v shows signs of life and never started", r)
		}
		if r.Stops == 0 && !rules.MayBeKilled {
			add(KindNoEnd, r, nil, "%v never said that it ended", r)
		}
		if r.Starts > 1 {
			add(KindDuplicate, r, r, "%v started %d times", r, r.Starts)
		}
		if r.Instance == "" {
			continue
		}
		if o := byInstance[r.Instance]; o != nil {
			add(KindDuplicate, o, r, "%v was started again with pid %d", o, r.Pid)
		}
		byInstance[r.Instance] = r
	}
	for _, of := range byName {
		checkName(of, rules, add)
	}
	slices.SortStableFunc(problems, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.First.First, b.First.First), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Kind, b.Kind))
	})
	return problems
}

// checkName compares the runs of one name, which are in order of their start.
func checkName(runs []*Run, rules Rules, add func(kind string, first, other *Run, format string, args ...any)) {
	for i, a := range runs {
		if i > 0 && rules.OncePerName {
			add(KindDuplicate, runs[0], a, "%v was run again: %v", runs[0], a)
		}
		for _, b := range runs[i+1:] {
			// b began later. It overlaps if a gave a sign of life since.
			if d := time.Duration(min(a.Last, b.Last) - b.First); d >= 0 && d >= rules.OverlapUpTo {
				add(KindOverlap, a, b, "%v still ran %v after %v had started", a, time.Duration(a.Last-b.First), b)
			}
			if b.Epoch < a.Epoch {
				add(KindEpochBack, a, b, "%v came after %v", b, a)
			}
		}
	}
}
