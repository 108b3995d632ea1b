package model

import (
	"fmt"
	"slices"
	"strings"
)

// trace tells how a violation comes about: every action from the beginning, with
// what it made happen.
func (s *search) trace(last origin) []string {
	path := []action{last.act}
	for k := last.from; k != s.first; {
		s.seen.mu[k%shards].Lock()
		o := s.seen.get(k)
		s.seen.mu[k%shards].Unlock()
		path = append(path, o.act)
		k = o.from
	}
	slices.Reverse(path)
	return tell(s.sc, path)
}

// tell runs a path again and says what happens.
func tell(sc *Scenario, path []action) []string {
	w := sc.begin()
	out := []string{" 0  " + w.String()}
	for n, a := range path {
		w = w.clone()
		var notes []string
		w.note = func(s string) { notes = append(notes, s) }
		w.do(a)
		out = append(out, fmt.Sprintf("%2d  %s", n+1, a.describe()))
		for _, s := range notes {
			out = append(out, "      "+s)
		}
		if a.kind == actTick {
			out = append(out, "      "+w.String())
		}
	}
	if w.found != "" {
		out = append(out, "    => "+w.found)
	}
	return out
}

func (a action) describe() string {
	id := "?"
	if int(a.node) < nodeCount {
		id = nodeIDs[a.node]
	}
	switch a.kind {
	case actTick:
		if int(a.node) < nodeCount {
			return "a tick passes; the clock of " + id + " misses it"
		}
		return "a tick passes"
	case actCrash:
		if a.arg == 1 {
			return id + "'s agent dies, and the start that it had begun with it"
		}
		return id + "'s agent dies"
	default:
		return fmt.Sprintf(actionTexts[a.kind], id)
	}
}

var actionTexts = map[actionKind]string{
	actWake:    "%s looks at its clock",
	actLook:    "%s is told that x changed",
	actPersist: "%s's identity becomes durable",
	actCommit:  "%s's intent to start is durable",
	actLaunch:  "%s's helper comes to start the workload",
	actDie:     "%s's workload, told to end, is dead",
	actGuard:   "%s's guard looks at the lease file",
	actAnswer:  "%s's request is served and answered",
	actServe:   "%s's request is served; the answer is on its way",
	actHang:    "%s's request takes its time",
	actStop:    "%s's agent is stopped",
	actCont:    "%s's agent goes on",
	actDeliver: "%s gets the late answer",
	actForget:  "%s hears nothing of its put; it may be on its way",
	actLand:    "%s's late put arrives at the store",
	actWipe:    "%s's agent dies and its journal is lost",
	actReboot:  "%s's machine reboots",
	actBoot:    "%s's agent starts",
	actDrain:   "an operator drains %s",
	actUndrain: "the drain of %s is withdrawn",
}

func (r run) String() string {
	how := [...]string{"intended", "starting", "running"}[r.state]
	if r.stopping {
		how += ", told to end"
	}
	return fmt.Sprintf("epoch %d, incarnation %d: %s", r.epoch, r.inc, how)
}

// String is one line about where everything is.
func (w *world) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%v", w.objects[keyX])
	for i := range w.nodes {
		n := &w.nodes[i]
		state := "off"
		if n.m != nil {
			state = n.m.State()
			if n.stopped {
				state += " (stopped)"
			}
			if n.m.Name(theName).Held {
				state += ", holds x"
			}
			if d := n.m.Deadline(); d != 0 {
				state += fmt.Sprintf(", %d ticks left", max(0, d.Sub(n.clock)/unit))
			}
		}
		fmt.Fprintf(&b, " | %s: %s", nodeIDs[i], state)
		if len(n.runs) > 0 {
			fmt.Fprintf(&b, " %v", n.runs)
		}
	}
	return b.String()
}
