package sim

import (
	"fmt"
	"strings"
	"time"

	"github.com/barista-fleet/barista/pkg/fleet"
	"github.com/barista-fleet/barista/pkg/runtime"
)

// heal ends every fault. Machines that were retired stay away, and so do copies
// of data directories; everything else comes back.
func (w *world) heal() {
	w.calm = true
	w.weather = weather{}
	w.note(-1, "calm", "", 0)
	for _, n := range w.nodes {
		n.cutUp, n.cutDown, n.mute = false, false, false
		if n.clone != nil {
			n.retired = true
			n.powerOff()
			continue
		}
		n.thaw()
		n.unpause()
		n.powerOn()
		n.start()
	}
	w.operator.undrain()
	for _, s := range w.names { // what a hand took from desired/ is applied again
		if _, ok := w.store.objects[fleet.PrefixDesired+s.name]; !ok || w.check.unreadable(s) {
			w.operator.write(s, "apply again")
		}
	}
	w.healed = w.now
}

func (c *checker) unreadable(s *subject) bool {
	o, ok := c.w.store.objects[fleet.PrefixDesired+s.name]
	if !ok {
		return false
	}
	d, err := fleet.DecodeDesired(s.name, o.body)
	return err != nil || d.UID != s.desired.UID || d.State != s.desired.State || d.Generation != s.desired.Generation || d.Intent.Seq != s.desired.Intent.Seq
}

// auditEvery is how often the world is looked at as a whole.
const auditEvery = 250 * time.Millisecond

// audit is the periodic check: runs that should have ended, and, once faults have
// ceased, whether the fleet has come to rest.
func (w *world) audit() {
	w.check.auditRuns(auditEvery)
	if w.failure != nil {
		return
	}
	if w.calm {
		why := w.unsettled()
		switch {
		case why == "":
			w.restful++
		default:
			w.restful = 0
		}
		if w.restful >= 8 {
			w.ended = true
			w.stats.Settled = w.now - w.healed
			return
		}
		if w.now-w.healed > w.bound() {
			w.fail(w.liveness(), "not settled %v after the faults ended: %s%s", w.now-w.healed, why, w.opinions())
			return
		}
	}
	w.after(auditEvery, w.audit)
}

func (w *world) liveness() Invariant {
	if w.sc.profile == profileNodeLoss {
		return invariantI7
	}
	return invariantI8
}

// bound is how long the fleet may take to come to rest. In the general case it is
// a sum of everything that may have to be waited for, one after the other; where
// nothing but a node was lost it is the bound of I7.
func (w *world) bound() time.Duration {
	if w.sc.profile == profileNodeLoss {
		return w.boundI7()
	}
	const elsewhereFirst, backoffs = 30 * time.Second, 60 * time.Second
	b := 10*w.sc.longestTTL + 6*w.sc.resync + elsewhereFirst + backoffs
	for _, s := range w.names {
		spec := s.desired.Spec.WithDefaults()
		b += time.Duration(spec.StopGraceMs+spec.OwnerLossGraceMs) * time.Millisecond
		if rec := w.session(s.name); rec != nil && rec.Phase == fleet.PhaseBackoff {
			b += time.Duration(rec.RetryAfterMillis) * time.Millisecond
		}
	}
	return b
}

// unsettled says what is not yet as it should be; empty if everything is.
func (w *world) unsettled() string {
	var why []string
	for _, s := range w.names {
		if x := w.unsettledName(s); x != "" {
			why = append(why, s.name+": "+x)
		}
	}
	return strings.Join(why, "; ")
}

// opinions is what each agent makes of each name, for who has to find out why.
func (w *world) opinions() string {
	var b strings.Builder
	for _, n := range w.nodes {
		if n.agent == nil {
			continue
		}
		snap := n.agent.m.Snapshot()
		fmt.Fprintf(&b, "\n\t%s is %s under incarnation %d", n.host, snap.State, snap.Incarnation)
		for _, st := range snap.Names {
			fmt.Fprintf(&b, "\n\t\t%s: held %v, %v at epoch %d, %s: %v %s", st.Name, st.Held, st.Claim, st.Epoch, st.Phase, st.Decision, st.Reason)
		}
	}
	return b.String()
}

func (w *world) aliveRuns(name string) []*run {
	var out []*run
	for _, n := range w.nodes {
		for _, r := range n.runs {
			if r.alive && r.w.Name == name {
				out = append(out, r)
			}
		}
	}
	return out
}

// ownerOf is the machine that a valid claim names.
func (w *world) ownerOf(rec *fleet.Session) (*node, string) {
	for _, n := range w.nodes {
		if n.agent == nil || n.agent.id != rec.Owner || n.clone != nil {
			continue
		}
		node := w.nodeRecord(rec.Owner)
		if node == nil || node.State != fleet.NodeLive || node.Incarnation != rec.Incarnation {
			return nil, fmt.Sprintf("claimed under incarnation %d of %s, whose record says %+v", rec.Incarnation, n.host, node)
		}
		return n, ""
	}
	return nil, fmt.Sprintf("owned by %s, which is gone", rec.Owner)
}

// unsettledName says what is not as it should be of one name. What a restored
// bucket or a lost node left for people to decide, the operator decides.
func (w *world) unsettledName(s *subject) string {
	if s.rewound && s.desired.State == fleet.DesiredDeleted && len(w.aliveRuns(s.name)) == 0 {
		return "" // nobody wants it and nothing runs: what the record says may wait
	}
	why := w.astray(s)
	if rec := w.session(s.name); why != "" && (s.rewound || rec != nil && (rec.Epoch < s.maxEpoch || w.held(s, rec))) {
		w.operator.letGo(s)
		return "waits for an operator: " + why
	}
	return why
}

func (w *world) astray(s *subject) string {
	d, rec, runs := s.desired, w.session(s.name), w.aliveRuns(s.name)
	if a := s.doneBy; a != nil && !a.dead && rec != nil && rec.Nonce == s.doneNonce {
		return a.n.host + " has stored its completion and does not say so"
	}
	if rec != nil && rec.Phase == fleet.PhaseStopped && rec.UID == d.UID && !wished(d, rec) && len(runs) == 0 && !w.owned(rec) {
		return "" // nobody asks for it to run, and nobody is there to take note of what is asked
	}
	if last := s.last; rec == nil && len(runs) == 0 && last != nil && last.UID == d.UID && (last.Phase.Done() || last.Phase == fleet.PhaseStopped && !wished(d, last)) {
		return "" // a hand removed the record, and whoever has seen it knows that it was over
	}
	if rec == nil {
		if len(runs) > 0 {
			return fmt.Sprintf("%d runs and no record", len(runs))
		}
		if d.State == fleet.DesiredDeleted {
			return ""
		}
		if _, there := w.store.objects[fleet.PrefixSessions+s.name]; there {
			return "its record is unreadable"
		}
		return "nobody has claimed it"
	}
	for _, r := range runs {
		if r.node.disk.nodeID != rec.Owner || r.w.Instance != rec.Instance {
			return fmt.Sprintf("a run of epoch %d on %s, and the record names %q at epoch %d", r.w.Epoch, r.node.host, rec.Owner, rec.Epoch)
		}
	}
	if len(runs) > 1 {
		return fmt.Sprintf("%d runs", len(runs))
	}
	if rec.Owner == "" {
		if d.State == fleet.DesiredDeleted || rec.UID == d.UID && rec.Phase.Done() {
			return ""
		}
		return "free, and wanted: " + string(rec.Phase)
	}
	n, why := w.ownerOf(rec)
	switch {
	case n == nil:
		return why
	case d.State == fleet.DesiredDeleted:
		return "deleted, and still owned"
	case rec.UID != d.UID:
		return "an earlier creation of the name is still owned"
	case d.Intent.Seq > rec.Seen:
		return "an intent or an alarm is not carried out"
	}
	return w.unsettledPhase(s, rec, runs)
}

// wished reports an intent, not carried out yet, for which somebody has to take
// the name. Alarms follow the owner's wall clock, so one that is due by true time
// only may wait.
func wished(d *fleet.Desired, rec *fleet.Session) bool {
	switch d.Intent.Verb {
	case fleet.VerbRun, fleet.VerbRestart, fleet.VerbReleaseHold, fleet.VerbCancel:
		return d.Intent.Seq > rec.Seen
	default: // what is stopped stays stopped
		return false
	}
}

// owned reports a record whose owner is there.
func (w *world) owned(rec *fleet.Session) bool {
	n, _ := w.ownerOf(rec)
	return rec.Owner != "" && n != nil
}

func (w *world) unsettledPhase(s *subject, rec *fleet.Session, runs []*run) string {
	switch rec.Phase {
	case fleet.PhaseStopped:
		if len(runs) != 0 {
			return "stopped, and it runs"
		}
		return ""
	case fleet.PhaseRunning, fleet.PhasePaused:
	default:
		return "still " + string(rec.Phase) + ": " + rec.Reason
	}
	if len(runs) == 0 {
		return string(rec.Phase) + " by its record, and nothing runs"
	}
	r := runs[0]
	switch {
	case s.kind == fleet.KindJob:
		return "a job that has not ended"
	case (r.w.State == runtime.StatePaused) != (rec.Phase == fleet.PhasePaused):
		return fmt.Sprintf("%s by its record, and the run is %s", rec.Phase, r.w.State)
	case r.w.Epoch != rec.Epoch || r.w.Incarnation != rec.Incarnation:
		return fmt.Sprintf("the run has the token of epoch %d, the record epoch %d", r.w.Epoch, rec.Epoch)
	}
	dir, drains := w.store.objects[fleet.PrefixDirectives+rec.Owner]
	if drains && s.desired.Spec.OnOwnerLoss == fleet.OwnerLossHold {
		return "" // it blocks the drain until an operator says so
	}
	if rec.Phase == fleet.PhaseRunning && rec.Generation < s.desired.Generation {
		return "the run has an old spec"
	}
	if drains && rec.Phase == fleet.PhaseRunning {
		return "runs on a node that is to be drained: " + string(dir.etag)
	}
	return ""
}

// held reports a name that waits on a node that will not come back.
func (w *world) held(s *subject, rec *fleet.Session) bool {
	if rec.Owner == "" || s.desired.Spec.OnOwnerLoss != fleet.OwnerLossHold {
		return false
	}
	for _, n := range w.nodes {
		if n.disk.nodeID == rec.Owner && !n.retired {
			return false
		}
	}
	return w.check.incs[rec.Owner] > rec.Incarnation
}

// letGo is the operator's word that a held name, or one on which the bucket is
// behind, may start afresh; said once in a while.
func (o *operator) letGo(s *subject) {
	if o.w.now < s.nextLetGo {
		return
	}
	s.nextLetGo = o.w.now + 4*o.w.sc.longestTTL
	if s.desired.State == fleet.DesiredDeleted {
		o.create(s) // only a name that is there can be spoken of
		return
	}
	o.intend(s, fleet.VerbReleaseHold)
}
