package sfq

import "testing"

// reachable returns every state that events lead to from a new job.
func reachable(maxAttempts, attempts uint32) map[JobState]bool {
	start := JobState{MaxAttempts: maxAttempts}
	seen, todo := map[JobState]bool{start: true}, []JobState{start}
	for len(todo) > 0 {
		s := todo[0]
		todo = todo[1:]
		for k := range jobEventKinds {
			for a := range attempts + 1 {
				n, c := Apply(s, JobEvent{k, a})
				if c == Changed && n.Attempt <= attempts && !seen[n] {
					seen[n] = true
					todo = append(todo, n)
				}
			}
		}
	}
	return seen
}

// TestJobStatesAreTheValidOnes: Valid says of each small state whether events
// can lead to it, no more and no less.
func TestJobStatesAreTheValidOnes(t *testing.T) {
	const attempts = 4
	for maxAttempts := uint32(1); maxAttempts <= 3; maxAttempts++ {
		seen := reachable(maxAttempts, attempts)
		for p := range phaseCount + 1 {
			for stop := range stopReasons + 1 {
				for a := range uint32(attempts + 1) {
					for f := range uint32(attempts + 2) {
						s := JobState{p, stop, a, f, maxAttempts}
						if seen[s] != s.Valid() {
							t.Errorf("%+v: reachable %v, valid %v", s, seen[s], s.Valid())
						}
					}
				}
			}
		}
	}
}

// TestJobTransitions checks the rules on every reachable state and event.
func TestJobTransitions(t *testing.T) {
	const attempts = 4
	for s := range reachable(3, attempts) {
		for k := range jobEventKinds {
			for a := range uint32(attempts + 2) {
				e := JobEvent{k, a}
				n, c := Apply(s, e)
				if (c == Changed) != (n != s) {
					t.Fatalf("%+v %+v: %v but the state is %+v", s, e, c, n)
				}
				if c == Same {
					continue
				}
				again, c2 := Apply(n, e)
				if k != JobDispatched && c2 == Changed && k != JobStop {
					t.Errorf("%+v %+v: the duplicate changed %+v to %+v", s, e, n, again)
				}
				switch {
				case s.Phase.Final():
					t.Errorf("%+v left a final phase", s)
				case n.Attempt < s.Attempt || n.Failures < s.Failures || n.Failures > n.Attempt:
					t.Errorf("%+v %+v: counters %+v", s, e, n)
				case n.Attempt != s.Attempt && k != JobDispatched:
					t.Errorf("%+v %+v moved the fencing token", s, e)
				case k != JobDispatched && k != JobStop && a != s.Attempt:
					t.Errorf("%+v: a stale %+v was accepted", s, e)
				case k == JobNotStarted && n.Failures != s.Failures:
					t.Errorf("%+v: a lost assignment counts as a failure", s)
				case s.Stop != StopNone && n.Phase == Queued:
					t.Errorf("%+v %+v: retried although asked to stop", s, e)
				case s.Stop != StopNone && n.Stop != s.Stop:
					t.Errorf("%+v %+v: the reason to stop changed", s, e)
				}
			}
		}
	}
}

func TestJobStories(t *testing.T) {
	for _, story := range []struct {
		name   string
		events []JobEvent
		want   JobState
	}{
		{"runs", []JobEvent{{JobDispatched, 0}, {JobStarted, 1}, {JobSucceeded, 1}}, JobState{JobCompleted, StopNone, 1, 0, 2}},
		{"start unseen", []JobEvent{{JobDispatched, 0}, {JobSucceeded, 1}}, JobState{JobCompleted, StopNone, 1, 0, 2}},
		{"lost assignment", []JobEvent{{JobDispatched, 0}, {JobNotStarted, 1}}, JobState{Queued, StopNone, 1, 0, 2}},
		{
			"a zombie's result",
			[]JobEvent{{JobDispatched, 0}, {JobStarted, 1}, {JobLost, 1}, {JobDispatched, 0}, {JobSucceeded, 1}},
			JobState{Assigned, StopNone, 2, 1, 2},
		},
		{
			"fails for good",
			[]JobEvent{{JobDispatched, 0}, {JobStarted, 1}, {JobBroke, 1}, {JobDispatched, 0}, {JobStarted, 2}, {JobLost, 2}},
			JobState{JobFailed, StopNone, 2, 2, 2},
		},
		{"cancelled in the queue", []JobEvent{{JobStop, 0}}, JobState{JobCancelled, StopRequested, 0, 0, 2}},
		{
			"cancelled, confirmed",
			[]JobEvent{{JobDispatched, 0}, {JobStarted, 1}, {JobStop, 0}, {JobStop, 0}, {JobStopped, 1}},
			JobState{JobCancelled, StopRequested, 1, 0, 2},
		},
		{
			"cancelled, then lost",
			[]JobEvent{{JobDispatched, 0}, {JobStarted, 1}, {JobStop, 0}, {JobLost, 1}},
			JobState{JobCancelled, StopRequested, 1, 0, 2},
		},
		{
			"timed out is not retried",
			[]JobEvent{{JobDispatched, 0}, {JobStarted, 1}, {JobTimeout, 1}, {JobStop, 0}, {JobBroke, 1}},
			JobState{JobTimedOut, StopTimeout, 1, 0, 2},
		},
		{
			"finished before the stop arrived",
			[]JobEvent{{JobDispatched, 0}, {JobStarted, 1}, {JobStop, 0}, {JobSucceeded, 1}},
			JobState{JobCompleted, StopRequested, 1, 0, 2},
		},
	} {
		s := JobState{MaxAttempts: 2}
		for _, e := range story.events {
			s, _ = Apply(s, e)
		}
		if s != story.want {
			t.Errorf("%s: %+v, want %+v", story.name, s, story.want)
		}
	}
}

func TestJobEdges(t *testing.T) {
	full := JobState{MaxAttempts: 1, Attempt: 1<<32 - 1}
	if n, c := Apply(full, JobEvent{Kind: JobDispatched}); c != Same || n != full {
		t.Error("the fencing token wrapped")
	}
	for _, s := range []JobState{{}, {Phase: 99, MaxAttempts: 1}, {MaxAttempts: 1, Failures: 1}} {
		if n, c := Apply(s, JobEvent{Kind: JobDispatched}); c != Same || n != s {
			t.Errorf("an event moved the invalid state %+v", s)
		}
	}
	s := JobState{MaxAttempts: 1}
	if _, c := Apply(s, JobEvent{Kind: jobEventKinds}); c != Same {
		t.Error("an unknown event changed something")
	}
	names := []string{"queued", "assigned", "running", "completed", "failed", "cancelled", "timed_out", "unknown"}
	for i, n := range names {
		if Phase(i).String() != n {
			t.Errorf("phase %d is %q, want %q", i, Phase(i), n)
		}
	}
	if Same.String() != "Unchanged" || Changed.String() != "Changed" {
		t.Error("names of changes")
	}
}
