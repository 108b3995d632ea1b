package fleet

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Explanation is the answer to "why is it not running".
type Explanation struct {
	Reason string // one sentence; empty if the name runs
	Next   string // the command to type next; empty if there is nothing to do
}

// Explain says why a name is not running and what to type next. It is a pure
// function of what was read.
func Explain(v *View, nodes []NodeView) Explanation {
	name := v.Name
	say := func(next, format string, args ...any) Explanation {
		return Explanation{Reason: fmt.Sprintf(format, args...), Next: next}
	}
	verb, pending := v.PendingIntent()
	switch v.Status() {
	case "":
		return say("fleetctl ls", "there is no name %s", name)
	case StatusUnreadable:
		return explainUnreadable(v)
	case StatusOrphaned:
		return say("fleetctl delete "+name, "%s owns it but its desired record is gone: it goes on as it is; apply it again to keep it, or delete it", v.NodeName())
	case StatusDeleted:
		return say("", "it was deleted")
	case StatusDeleting:
		return explainDeleting(v)
	case StatusHeld:
		return say("fleetctl release-hold "+name, "its node %s is lost and with it the memory: it is held until the node returns or you let it start afresh elsewhere", v.NodeName())
	case StatusLost:
		return explainWaiting(v, nodes, fmt.Sprintf("its node %s is lost", v.NodeName()))
	case StatusPending:
		return explainPending(v, nodes)
	case StatusStarting:
		return say("fleetctl events "+name, "%s has claimed it and is starting it%s", v.NodeName(), because(v.Session.Reason))
	case StatusRunning:
		return Explanation{}
	case StatusBackoff:
		return explainBackoff(v)
	case StatusPaused:
		return explainPaused(v, verb, pending)
	case StatusStopped:
		if pending && (verb == VerbRun || verb == VerbRestart) {
			return say("fleetctl events "+name, "it is stopped, and its owner has not carried out the start yet")
		}
		return say("fleetctl start "+name, "it was stopped by request")
	case StatusCompleted:
		return say("", "the job has ended%s", exited(v.Session.Exit))
	case StatusFailed:
		return say("fleetctl events "+name, "it failed for good after %s%s%s", times(max(v.Session.Failures, v.Session.Attempt)), exited(v.Session.Exit), because(v.Session.Reason))
	case StatusCancelled:
		return say("", "it was cancelled")
	case StatusTimedOut:
		return say("fleetctl events "+name, "it ran longer than its timeout of %s", FormatMillis(v.Desired.Spec.TimeoutMs))
	}
	return say("fleetctl describe "+name, "its phase is %q, which this version does not know", v.Session.Phase)
}

func explainUnreadable(v *View) Explanation {
	err, key := v.DesiredErr, PrefixDesired
	if err == nil {
		err, key = v.SessionErr, PrefixSessions
	}
	if Newer(err) {
		return Explanation{Reason: fmt.Sprintf("%s%s was written by a newer version", key, v.Name), Next: "upgrade fleetctl"}
	}
	e := Explanation{Reason: fmt.Sprintf("%s%s cannot be understood, and no node acts on what it cannot understand", key, v.Name)}
	if v.DesiredErr != nil {
		e.Next = "fleetctl apply --replace-damaged -f FILE"
	}
	return e
}

func explainDeleting(v *View) Explanation {
	if v.Claim() == ClaimLost {
		return Explanation{Reason: fmt.Sprintf("it was deleted while its node %s is lost: the node tears it down when it returns, or another clears it away", v.NodeName())}
	}
	return Explanation{Reason: fmt.Sprintf("it was deleted, and %s is tearing it down", v.NodeName()), Next: "fleetctl wait " + v.Name + " --for deleted"}
}

func explainPending(v *View, nodes []NodeView) Explanation {
	s := v.Session
	if s != nil && s.Owner != "" && !v.current() {
		return Explanation{
			Reason: fmt.Sprintf("an earlier %s is still being torn down on %s", v.Name, v.NodeName()),
			Next:   "fleetctl node describe " + v.NodeName(),
		}
	}
	what := "nobody owns it yet"
	if v.current() && s.Reason != "" {
		what = s.Reason
	}
	return explainWaiting(v, nodes, what)
}

// explainWaiting says what keeps nodes from claiming a name that is free.
func explainWaiting(v *View, nodes []NodeView, what string) Explanation {
	if verb, pending := v.PendingIntent(); pending && (verb == VerbStop || verb == VerbCancel) {
		return Explanation{Reason: fmt.Sprintf("%s, and %s was asked for", what, verb)}
	}
	if len(nodes) == 0 {
		return Explanation{
			Reason: what + ", and no node has joined this fleet",
			Next:   "node-agent --fleet-bucket URL --data-dir DIR",
		}
	}
	var taking []NodeView
	for _, n := range nodes {
		if n.Takes() {
			taking = append(taking, n)
		}
	}
	if len(taking) == 0 {
		return Explanation{
			Reason: fmt.Sprintf("%s, and of %s none takes names: each is fenced, gone, cordoned or draining", what, count(len(nodes), "node")),
			Next:   "fleetctl nodes",
		}
	}
	spec := v.Desired.Spec.WithDefaults()
	blocked := map[string]int{}
	for _, n := range taking {
		if why := unfit(&spec, n.Node); why != "" {
			blocked[why]++
		}
	}
	total := 0
	for _, k := range blocked {
		total += k
	}
	if total == len(taking) {
		whys := sortedKeys(blocked)
		slices.SortStableFunc(whys, func(a, b string) int { return blocked[b] - blocked[a] })
		parts := make([]string, len(whys))
		for i, why := range whys {
			parts[i] = fmt.Sprintf("%s %s", count(blocked[why], "node"), why)
		}
		return Explanation{Reason: fmt.Sprintf("%s, and it fits no node: %s", what, strings.Join(parts, "; ")), Next: "fleetctl nodes -o wide"}
	}
	return Explanation{
		Reason: fmt.Sprintf("%s, and waits for one of %s that could take it", what, count(len(taking)-total, "node")),
		Next:   "fleetctl nodes",
	}
}

// unfit says why a node could never run a spec, in words that follow "2 nodes …".
func unfit(s *Spec, n *Node) string {
	for _, k := range sortedKeys(s.Require) {
		if got, ok := n.Labels[k]; !ok || got != s.Require[k] {
			return fmt.Sprintf("without the label %s=%s", k, s.Require[k])
		}
	}
	switch c := &n.Capacity; {
	case s.Runtime != "" && n.Runtime != "" && n.Runtime != s.Runtime && !slices.Contains(n.Capabilities, "runtime:"+s.Runtime):
		return "without the runtime " + s.Runtime
	case s.MemoryBytes > 0 && c.MemoryBytes > 0 && s.MemoryBytes > c.MemoryBytes:
		return fmt.Sprintf("with less than %s of memory", FormatMemory(s.MemoryBytes))
	case s.CPUMillis > 0 && c.CPUMillis > 0 && s.CPUMillis > c.CPUMillis:
		return fmt.Sprintf("with fewer than %s CPUs", FormatCPU(s.CPUMillis))
	case s.Kind == KindSession && c.MaxSessions > 0 && c.Sessions >= c.MaxSessions:
		return "with as many sessions as allowed"
	}
	return ""
}

func explainBackoff(v *View) Explanation {
	s := v.Session
	text := fmt.Sprintf("it failed %s and waits before the next attempt", times(max(s.Failures, 1)))
	if s.RetryAfterMillis > 0 {
		text = fmt.Sprintf("it failed %s and waits %s before the next attempt", times(max(s.Failures, 1)), FormatMillis(s.RetryAfterMillis))
	}
	return Explanation{Reason: text + exited(s.Exit) + because(s.Reason), Next: "fleetctl events " + v.Name}
}

func explainPaused(v *View, verb Verb, pending bool) Explanation {
	s := v.Session
	if pending && (verb == VerbRun || verb == VerbRestart) {
		word := "resume"
		if verb == VerbRestart {
			word = "restart"
		}
		return Explanation{
			Reason: fmt.Sprintf("it is paused, and %s has not carried out the %s yet", v.NodeName(), word),
			Next:   "fleetctl node describe " + v.NodeName(),
		}
	}
	where := "on " + v.NodeName()
	if v.Claim() == ClaimLost {
		grace := FormatMillis(v.Desired.Spec.WithDefaults().OwnerLossGraceMs)
		return Explanation{
			Reason: fmt.Sprintf("it is paused on a lost node, %s: it waits for the node's return, and after %s for any other", v.NodeName(), grace),
			Next:   "fleetctl resume " + v.Name,
		}
	}
	text := "it is paused " + where
	if s.Snapshot.Kind != "" {
		text = fmt.Sprintf("it is paused %s (%s", where, s.Snapshot.Kind)
		if !s.Snapshot.Since.IsZero() {
			text += " since " + s.Snapshot.Since.UTC().Format(time.RFC3339)
		}
		text += ")"
	}
	if at := v.Desired.WakeAt; !at.At.IsZero() && at.Seq > s.WakeSeen {
		text += " and wakes at " + at.At.UTC().Format(time.RFC3339)
	}
	return Explanation{Reason: text + because(s.Reason), Next: "fleetctl resume " + v.Name}
}

func exited(e *Exit) string {
	switch {
	case e == nil:
		return ""
	case e.Lost:
		return ", nobody knows how"
	case e.OOM:
		return ", out of memory"
	case e.Signal != 0:
		return fmt.Sprintf(", by signal %d", e.Signal)
	}
	return fmt.Sprintf(", with code %d", e.Code)
}

func because(reason string) string {
	if reason == "" {
		return ""
	}
	return ": " + reason
}

func times(n int) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
