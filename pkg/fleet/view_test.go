package fleet

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestJudgeClaim(t *testing.T) {
	s := &Session{Owner: "n1", Incarnation: 5}
	node := func(id string, inc uint64, state NodeState) *Node {
		return &Node{ID: id, Incarnation: inc, State: state}
	}
	for _, c := range []struct {
		name  string
		s     *Session
		owner *Node
		want  Claim
	}{
		{"no record", nil, node("n1", 5, NodeLive), ClaimNone},
		{"free", &Session{}, nil, ClaimNone},
		{"same incarnation", s, node("n1", 5, NodeLive), ClaimHolds},
		{"passed", s, node("n1", 6, NodeLive), ClaimLost},
		{"passed and fenced", s, node("n1", 6, NodeFenced), ClaimLost},
		{"same incarnation, whatever the state says", s, node("n1", 5, NodeFenced), ClaimHolds},
		{"an older record of the node was read", s, node("n1", 4, NodeLive), ClaimUnknown},
		{"node's record missing", s, nil, ClaimUnknown},
		{"another node's record", s, node("n2", 9, NodeLive), ClaimUnknown},
	} {
		if got := JudgeClaim(c.s, c.owner); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

// at builds a view: a session of uid u, owned by n1 at incarnation 5, whose
// owner's record bears inc (0: no record).
func viewAt(phase Phase, inc uint64, change func(*View)) *View {
	v := &View{
		Name:    "a1",
		Desired: &Desired{Name: "a1", UID: "u", State: DesiredPresent, Spec: Spec{Kind: KindSession, Command: []string{"x"}}},
		Session: &Session{Name: "a1", UID: "u", Owner: "n1", OwnerName: "host1", Incarnation: 5, Epoch: 7, Phase: phase},
	}
	if inc > 0 {
		v.Owner = &Node{ID: "n1", Name: "host1", Incarnation: inc, State: NodeLive}
	}
	if change != nil {
		change(v)
	}
	return v
}

func free(v *View) { v.Session.Owner, v.Session.Incarnation, v.Owner = "", 0, nil }

func hold(v *View) { v.Desired.Spec.OnOwnerLoss = OwnerLossHold }

func asked(verb Verb) func(*View) {
	return func(v *View) { v.Desired.Intent = Intent{Seq: 1, Verb: verb} }
}

func both(fs ...func(*View)) func(*View) {
	return func(v *View) {
		for _, f := range fs {
			f(v)
		}
	}
}

var errBad = &UnreadableError{Key: "desired/a1", Err: errors.New("garbage")}

// TestStatusAndExplain goes through everything a name can look like. Each row
// gives the word, what the sentence must say and the command that must follow.
func TestStatusAndExplain(t *testing.T) {
	live := []NodeView{{ID: "n1", Node: &Node{ID: "n1", Name: "host1", State: NodeLive, Incarnation: 5, Labels: map[string]string{"zone": "a"}, Runtime: "process", Capacity: Capacity{CPUMillis: 2000, MemoryBytes: 1 << 30, MaxSessions: 5}}}}
	spec := func(change func(*Spec)) func(*View) {
		return func(v *View) { free(v); change(&v.Desired.Spec) }
	}
	for _, c := range []struct {
		name   string
		v      *View
		nodes  []NodeView
		status Status
		reason string
		next   string
	}{
		{"runs", viewAt(PhaseRunning, 5, nil), live, StatusRunning, "", ""},
		{"runs, node's record unknown", viewAt(PhaseRunning, 0, nil), live, StatusRunning, "", ""},
		{"starts", viewAt(PhaseStarting, 5, nil), live, StatusStarting, "host1 has claimed it", "fleetctl events a1"},
		{"fresh", viewAt("", 0, func(v *View) { v.Session = nil }), live, StatusPending, "waits for one of 1 node", "fleetctl nodes"},
		{"released", viewAt(PhasePending, 0, free), live, StatusPending, "nobody owns it yet", "fleetctl nodes"},
		{"released with a reason", viewAt(PhasePending, 0, both(free, func(v *View) { v.Session.Reason = "n9 could not start it" })), live, StatusPending, "n9 could not start it", "fleetctl nodes"},
		{"no nodes", viewAt(PhasePending, 0, free), nil, StatusPending, "no node has joined", "node-agent"},
		{"all cordoned", viewAt(PhasePending, 0, free), []NodeView{
			{ID: "n1", Node: &Node{State: NodeLive, Cordoned: true}},
			{ID: "n2", Node: &Node{State: NodeLive}, Directive: &Directive{Drain: true}},
			{ID: "n3", Node: &Node{State: NodeFenced}},
			{ID: "n4", Err: errBad},
		}, StatusPending, "of 4 nodes none takes names", "fleetctl nodes"},
		{"label", viewAt(PhasePending, 0, spec(func(s *Spec) { s.Require = map[string]string{"zone": "b"} })), live, StatusPending, "1 node without the label zone=b", "fleetctl nodes -o wide"},
		{"runtime", viewAt(PhasePending, 0, spec(func(s *Spec) { s.Runtime = "runsc" })), live, StatusPending, "without the runtime runsc", "fleetctl nodes -o wide"},
		{"memory", viewAt(PhasePending, 0, spec(func(s *Spec) { s.MemoryBytes = 2 << 30 })), live, StatusPending, "with less than 2Gi of memory", "fleetctl nodes -o wide"},
		{"cpu", viewAt(PhasePending, 0, spec(func(s *Spec) { s.CPUMillis = 2500 })), live, StatusPending, "with fewer than 2500m CPUs", "fleetctl nodes -o wide"},
		{"sessions", viewAt(PhasePending, 0, free), []NodeView{{ID: "n1", Node: &Node{State: NodeLive, Capacity: Capacity{MaxSessions: 1, Sessions: 1}}}}, StatusPending, "as many sessions as allowed", "fleetctl nodes -o wide"},
		{"made anew over the old one", viewAt(PhaseRunning, 5, func(v *View) { v.Desired.UID = "u2" }), live, StatusPending, "an earlier a1 is still being torn down on host1", "fleetctl node describe host1"},
		{"made anew after the old one", viewAt(PhaseCompleted, 5, both(free, func(v *View) { v.Desired.UID = "u2" })), live, StatusPending, "nobody owns it yet", "fleetctl nodes"},
		{"fails", viewAt(PhaseBackoff, 5, func(v *View) {
			v.Session.Failures, v.Session.RetryAfterMillis, v.Session.Exit = 3, 8000, &Exit{Code: 2}
		}), live, StatusBackoff, "it failed 3 times and waits 8s before the next attempt, with code 2", "fleetctl events a1"},
		{"paused", viewAt(PhasePaused, 5, func(v *View) {
			v.Session.Snapshot = Snapshot{Kind: "frozen", Node: "n1", Since: day}
			v.Desired.WakeAt = Alarm{Seq: 1, At: day}
		}), live, StatusPaused, "paused on host1 (frozen since 2026-12-24T18:00:00Z) and wakes at", "fleetctl resume a1"},
		{"paused, resume asked", viewAt(PhasePaused, 5, asked(VerbRun)), live, StatusPaused, "host1 has not carried out the resume yet", "fleetctl node describe host1"},
		{"paused on a lost node", viewAt(PhasePaused, 6, nil), live, StatusPaused, "paused on a lost node, host1: it waits for the node's return, and after 10m", "fleetctl resume a1"},
		{"paused on a lost node and wanted", viewAt(PhasePaused, 6, asked(VerbRun)), live, StatusLost, "its node host1 is lost", "fleetctl nodes"},
		{"stopped", viewAt(PhaseStopped, 5, nil), live, StatusStopped, "stopped by request", "fleetctl start a1"},
		{"stopped on a lost node", viewAt(PhaseStopped, 6, hold), live, StatusStopped, "stopped by request", "fleetctl start a1"},
		{"lost", viewAt(PhaseRunning, 6, nil), live, StatusLost, "its node host1 is lost, and waits for one of 1 node", "fleetctl nodes"},
		{"lost, nobody left", viewAt(PhaseRunning, 6, nil), nil, StatusLost, "no node has joined", "node-agent"},
		{"held", viewAt(PhaseRunning, 6, hold), live, StatusHeld, "held until the node returns", "fleetctl release-hold a1"},
		{"held, and to be stopped", viewAt(PhaseRunning, 6, both(hold, asked(VerbStop))), live, StatusStopped, "it was stopped by request", "fleetctl start a1"},
		{"held while paused", viewAt(PhasePaused, 6, hold), live, StatusHeld, "held until", "fleetctl release-hold a1"},
		{"hold released", viewAt(PhaseRunning, 6, both(hold, asked(VerbReleaseHold))), live, StatusLost, "its node host1 is lost", "fleetctl nodes"},
		{"hold on a live node", viewAt(PhaseRunning, 5, hold), live, StatusRunning, "", ""},
		{"completed", viewAt(PhaseCompleted, 5, func(v *View) { v.Session.Exit = &Exit{} }), live, StatusCompleted, "the job has ended, with code 0", ""},
		{"completed on a lost node", viewAt(PhaseCompleted, 6, nil), live, StatusCompleted, "has ended", ""},
		{"failed", viewAt(PhaseFailed, 5, func(v *View) { v.Session.Failures, v.Session.Exit = 1, &Exit{Signal: 9, OOM: true} }), live, StatusFailed, "failed for good after once, out of memory", "fleetctl events a1"},
		{"lost exit", viewAt(PhaseFailed, 5, func(v *View) { v.Session.Exit = &Exit{Lost: true} }), live, StatusFailed, "nobody knows how", "fleetctl events a1"},
		{"cancelled", viewAt(PhaseCancelled, 5, nil), live, StatusCancelled, "was cancelled", ""},
		{"timed out", viewAt(PhaseTimedOut, 5, func(v *View) { v.Desired.Spec.TimeoutMs = 60000 }), live, StatusTimedOut, "timeout of 1m", "fleetctl events a1"},
		{"orphaned", viewAt(PhaseRunning, 5, func(v *View) { v.Desired = nil }), live, StatusOrphaned, "its desired record is gone", "fleetctl delete a1"},
		{"being deleted", viewAt(PhaseRunning, 5, func(v *View) { v.Desired.State = DesiredDeleted }), live, StatusDeleting, "host1 is tearing it down", "fleetctl wait a1 --for deleted"},
		{"deleted on a lost node", viewAt(PhaseRunning, 6, func(v *View) { v.Desired.State = DesiredDeleted }), live, StatusDeleting, "while its node host1 is lost", ""},
		{"deleted", viewAt(PhaseRunning, 0, both(free, func(v *View) { v.Desired.State = DesiredDeleted })), live, StatusDeleted, "it was deleted", ""},
		{"nothing", &View{Name: "a1"}, live, "", "there is no name a1", "fleetctl ls"},
		{"released remains", viewAt(PhasePending, 0, func(v *View) { v.Desired = nil; v.Session.Owner = "" }), live, "", "there is no name a1", "fleetctl ls"},
		{"damaged", viewAt(PhaseRunning, 5, func(v *View) { v.Desired, v.DesiredErr = nil, errBad }), live, StatusUnreadable, "desired/a1 cannot be understood", "fleetctl apply --replace-damaged -f FILE"},
		{"damaged ownership", viewAt(PhaseRunning, 5, func(v *View) { v.Session, v.SessionErr = nil, errBad }), live, StatusUnreadable, "sessions/a1 cannot be understood", ""},
		{"newer", viewAt(PhaseRunning, 5, func(v *View) { v.Desired, v.DesiredErr = nil, &UnreadableError{Err: ErrNewerSchema} }), live, StatusUnreadable, "written by a newer version", "upgrade fleetctl"},
		{"a phase of the future", viewAt("hibernating", 5, nil), live, "HIBERNATING", `its phase is "hibernating"`, "fleetctl describe a1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := c.v.Status(); got != c.status {
				t.Errorf("status %q, want %q", got, c.status)
			}
			e := Explain(c.v, c.nodes)
			if c.reason == "" && e.Reason != "" || !strings.Contains(e.Reason, c.reason) {
				t.Errorf("reason %q, want %q", e.Reason, c.reason)
			}
			if c.next == "" && e.Next != "" || !strings.HasPrefix(e.Next, c.next) {
				t.Errorf("next %q, want %q", e.Next, c.next)
			}
			if strings.Contains(e.Reason, "\n") || strings.HasSuffix(e.Reason, ".") {
				t.Errorf("not one sentence to build on: %q", e.Reason)
			}
		})
	}
}

// TestVerbsApply is the whole matrix: each verb against each state of a session
// and of a job. "write" means that the verb is asked for, "as is" that it is
// true already, anything else is why it is refused.
func TestVerbsApply(t *testing.T) {
	type row map[string]string
	session := map[string]*View{
		"pending": viewAt(PhasePending, 0, free),
		"running": viewAt(PhaseRunning, 5, nil),
		"paused":  viewAt(PhasePaused, 5, nil),
		"stopped": viewAt(PhaseStopped, 5, nil),
		"held":    viewAt(PhaseRunning, 6, hold),
		"lost":    viewAt(PhaseRunning, 6, nil),
		"failed":  viewAt(PhaseFailed, 5, nil),
	}
	jobView := func(phase Phase, change func(*View)) *View {
		return viewAt(phase, 5, both(func(v *View) { v.Desired.Spec.Kind = KindJob }, func(v *View) {
			if change != nil {
				change(v)
			}
		}))
	}
	jobs := map[string]*View{
		"pending":   jobView(PhasePending, free),
		"running":   jobView(PhaseRunning, nil),
		"completed": jobView(PhaseCompleted, nil),
		"cancelled": jobView(PhaseCancelled, nil),
	}
	for kind, table := range map[string]struct {
		views map[string]*View
		want  map[Verb]row
	}{
		"session": {session, map[Verb]row{
			VerbPause:       {"pending": "write", "running": "write", "paused": "as is", "stopped": "there is nothing to pause", "held": "it is held", "lost": "write", "failed": "it has ended (failed)"},
			VerbRun:         {"pending": "as is", "running": "as is", "paused": "write", "stopped": "write", "held": "it is held", "lost": "as is", "failed": "it has ended (failed)"},
			VerbStop:        {"pending": "write", "running": "write", "paused": "write", "stopped": "as is", "held": "write", "lost": "write", "failed": "it has ended (failed)"},
			VerbRestart:     {"pending": "write", "running": "write", "paused": "write", "stopped": "write", "held": "it is held", "lost": "write", "failed": "it has ended (failed)"},
			VerbCancel:      {"pending": "only a job", "running": "only a job", "paused": "only a job", "stopped": "only a job", "held": "only a job", "lost": "only a job", "failed": "it has ended (failed)"},
			VerbReleaseHold: {"pending": "policy on a lost node is coldboot", "running": "policy on a lost node is coldboot", "held": "write", "failed": "it has ended (failed)"},
			VerbEvict:       {"pending": "nobody owns it", "running": "write", "paused": "write", "stopped": "write", "held": "write", "lost": "write", "failed": "it has ended (failed)"},
		}},
		"job": {jobs, map[Verb]row{
			VerbPause:   {"pending": "it is a job", "running": "it is a job", "completed": "it has ended (completed)", "cancelled": "it has ended (cancelled)"},
			VerbRun:     {"pending": "it is a job", "running": "it is a job", "completed": "it has ended (completed)"},
			VerbStop:    {"running": "it is a job", "completed": "it has ended (completed)"},
			VerbRestart: {"running": "it is a job", "completed": "it has ended (completed)"},
			VerbCancel:  {"pending": "write", "running": "write", "completed": "it has ended (completed)", "cancelled": "as is"},
			VerbEvict:   {"pending": "nobody owns it", "running": "write", "completed": "it has ended (completed)"},
		}},
	} {
		for verb, row := range table.want {
			for state, want := range row {
				needed, err := table.views[state].applicable(verb, string(verb))
				got := "as is"
				if err != nil {
					got = err.Error()
				} else if needed {
					got = "write"
				}
				if got != want && (err == nil || !strings.Contains(got, want)) {
					t.Errorf("%s of a %s that is %s: %q, want %q", verb, kind, state, got, want)
				}
				var refused *RefusedError
				if err != nil && !asError(err, &refused) {
					t.Errorf("%s of a %s that is %s: %v is no RefusedError", verb, kind, state, err)
				}
				if err != nil && state == "held" && strings.Contains(got, "held") && !refused.Held {
					t.Errorf("%s of a held %s does not say that it is held", verb, kind)
				}
			}
		}
	}
}

// TestPendingVerbs: a verb that waits to be carried out is not asked for twice,
// but a verb that undoes a waiting one is needed although it looks true.
func TestPendingVerbs(t *testing.T) {
	for _, c := range []struct {
		name string
		v    *View
		verb Verb
		want bool
	}{
		{"pause while a pause waits", viewAt(PhaseRunning, 5, asked(VerbPause)), VerbPause, false},
		{"resume while a pause waits", viewAt(PhaseRunning, 5, asked(VerbPause)), VerbRun, true},
		{"pause while a resume waits", viewAt(PhasePaused, 5, asked(VerbRun)), VerbPause, true},
		{"restart while a restart waits", viewAt(PhaseRunning, 5, asked(VerbRestart)), VerbRestart, true},
		{"pause after a pause was carried out", viewAt(PhaseRunning, 5, both(asked(VerbPause), func(v *View) { v.Session.Seen = 1 })), VerbPause, true},
	} {
		needed, err := c.v.applicable(c.verb, string(c.verb))
		noError(t, err)
		if needed != c.want {
			t.Errorf("%s: needed %v, want %v", c.name, needed, c.want)
		}
	}
}

func TestSetIntentNumbers(t *testing.T) {
	s := newFaulty()
	c := NewClient(s, ClientConfig{})
	a, err := c.Apply(t.Context(), session("a1", nil), ApplyOptions{})
	noError(t, err)
	plantNode(t, s.Mem, "n1", 1)
	// The owner has seen more than the desired record knows: a backup was restored.
	plantSession(t, s.Mem, "a1", a.UID, PhaseRunning, func(s *Session) { s.Seen = 41 })
	r, err := c.SetIntent(t.Context(), "a1", VerbEvict, "evict")
	noError(t, err)
	if r.Seq != 42 || r.Epoch != 5 {
		t.Errorf("got %+v, want number 42 for epoch 5", r)
	}
	if diff := cmp.Diff(Intent{Seq: 42, Verb: VerbEvict, Epoch: 5}, desired(t, s, "a1").Intent); diff != "" {
		t.Error(diff)
	}
	var missing *NotFoundError
	if _, err := c.SetIntent(t.Context(), "nosuch", VerbPause, "pause"); !asError(err, &missing) {
		t.Errorf("nosuch: %v", err)
	}
	plantSession(t, s.Mem, "orphan", "u", PhaseRunning, nil)
	var refused *RefusedError
	if _, err := c.SetIntent(t.Context(), "orphan", VerbPause, "pause"); !asError(err, &refused) {
		t.Errorf("orphan: %v", err)
	}
	_, err = c.Delete(t.Context(), "orphan", DeleteOptions{})
	noError(t, err)
	if d := desired(t, s, "orphan"); d.State != DesiredDeleted || d.UID != "u" {
		t.Errorf("the orphan was deleted as %+v, which its owner does not obey", d)
	}
	if _, err := c.SetIntent(t.Context(), "orphan", VerbPause, "pause"); !asError(err, &missing) {
		t.Errorf("deleted: %v", err)
	}
}

func TestFindNode(t *testing.T) {
	nodes := []NodeView{{ID: "n1", Node: &Node{Name: "host"}}, {ID: "n2", Node: &Node{Name: "twin"}}, {ID: "n3", Node: &Node{Name: "twin"}}, {ID: "n4", Err: errBad}}
	for called, want := range map[string]string{"n1": "n1", "host": "n1", "n3": "n3", "n4": "n4"} {
		n, err := FindNode(nodes, called)
		noError(t, err)
		if n.ID != want {
			t.Errorf("%s is %s, want %s", called, n.ID, want)
		}
	}
	var conflict *ConflictError
	if _, err := FindNode(nodes, "twin"); !asError(err, &conflict) || !strings.Contains(conflict.Hint, "n2, n3") {
		t.Errorf("twin: %v", err)
	}
	var missing *NotFoundError
	for _, called := range []string{"n", "hos", ""} { // no prefixes
		if _, err := FindNode(nodes, called); !asError(err, &missing) {
			t.Errorf("%q: %v", called, err)
		}
	}
}
