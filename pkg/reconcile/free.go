package reconcile

import (
	"fmt"
	"time"

	"github.com/barista-fleet/barista/pkg/fleet"
	"github.com/barista-fleet/barista/pkg/lease"
	"github.com/barista-fleet/barista/pkg/runtime"
)

// elsewhereFirst is how long a node leaves a name that was evicted from it to the
// others: a few polls of the slowest sensible configuration.
const elsewhereFirst = 30 * time.Second

// decideFree looks at a name that this node does not hold: may it be taken, is
// it wanted, and does it fit here?
func decideFree(node Node, n Name) Action {
	if r, ok := n.leftover(); ok {
		return operate(OpRemove, r, "its run is over and the name is not ours", nil)
	}
	claim := n.View.Claim
	switch {
	case n.Known == Unknown:
		return wait("its desired record was not read yet")
	case n.Known == Unreadable:
		return wait("its desired record is present but unreadable")
	case claim == lease.ClaimUnknown:
		return wait("its ownership record was not read yet")
	case claim == lease.ClaimValid:
		return wait(owns(n.record()))
	case claim == lease.ClaimBehind:
		return behind(node, n)
	case !claim.Takeable():
		return wait("its ownership record is " + claim.String())
	case n.Known == Absent || n.Desired == nil:
		return wait("nobody desires it")
	}
	return candidate(node, n)
}

// leftover returns a dead run of a name that is not held and does not name us.
func (n *Name) leftover() (runtime.Workload, bool) {
	switch n.View.Claim {
	case lease.ClaimUnknown, lease.ClaimOurs, lease.ClaimOursOld, lease.ClaimMissing, lease.ClaimBehind:
		return runtime.Workload{}, false
	default: // it is not this node's, and its runs may go
	}
	for _, r := range n.Runs {
		if r.State.Dead() {
			return r, true
		}
	}
	return runtime.Workload{}, false
}

// outlived reports a run that ended under an epoch that has passed: the name went on
// without it.
func (n *Name) outlived(instance string) bool {
	rec := n.record()
	for _, r := range n.Runs {
		if r.Instance == instance {
			return r.UID == rec.UID && r.Epoch < rec.Epoch
		}
	}
	return false
}

// behind refuses to act on a name whose record is older than what this node
// has seen, unless an operator says that the bucket is right.
func behind(node Node, n Name) Action {
	const why = "the bucket is behind what this node has seen (a restored backup?): `fleetctl restart` of the name says that the bucket is right"
	rec := n.record()
	if n.Desired != nil && n.Desired.UID != rec.UID {
		rec = &fleet.Session{Name: n.Name} // of another creation: nothing carries over, its count of intents neither
	}
	in, ok := n.word()
	if !ok || in.Seq <= rec.Seen || !node.CanAct {
		return Action{Kind: Wait, Reason: why, Event: n.event(EventBehind, "%s", why)}
	}
	a := claimIt(node, n, rec, "taken over a bucket that is behind, on request")
	a.Override, a.Record.Seen = true, in.Seq
	return a
}

// candidate decides about a name that may be taken.
func candidate(node Node, n Name) Action {
	if n.View.Rec != nil && n.DesiredAt < n.View.Seen {
		// What is known of the wish is older than the record. The name may have been
		// deleted, or deleted and made again, and the record may be of the newer
		// creation: taking it by the old wish would run old content again.
		a := wait("its ownership record changed: whether it is still wanted is looked up first")
		a.Look = true
		return a
	}
	rec, spec, d := n.record(), n.spec(), n.Desired
	lost := n.View.Claim == lease.ClaimInvalid
	if d.State == fleet.DesiredDeleted {
		if lost {
			return n.finish(node, fleet.PhasePending, "deleted; its owner is gone", EventDeleted)
		}
		return wait("deleted")
	}
	if rec.UID != d.UID {
		rec = &fleet.Session{Name: n.Name} // another creation of the name: nothing carries over
		lost = false
	}
	in, asked := n.asked()
	switch {
	case rec.Phase.Done():
		return wait(string(rec.Phase) + ": a job's name is used once")
	case asked && in.Verb == fleet.VerbCancel:
		return n.finish(node, fleet.PhaseCancelled, "cancelled on request", EventCancelled)
	case lost && attemptLost(rec, spec) && spec.TimeoutMs > 0 && node.Now >= n.View.Seen.Add(millis(spec.TimeoutMs)):
		// By this node's own clock, from when it saw that the job runs: the start in
		// the record is by the clock of another machine.
		return n.finish(node, fleet.PhaseTimedOut, fmt.Sprintf("ran longer than its time-out of %v on lost node %s", millis(spec.TimeoutMs), ownerName(rec)), EventTimedOut)
	case lost && attemptLost(rec, spec) && rec.Failures+1 >= spec.MaxAttempts:
		a := n.finish(node, fleet.PhaseFailed, fmt.Sprintf("its node was lost; %d of %d attempts failed", rec.Failures+1, spec.MaxAttempts), EventFailed)
		if a.Record != nil {
			a.Record.Failures++
		}
		return a
	}
	if a, no := leaveIt(node, n, rec, spec, lost); no {
		return a
	}
	return claimIt(node, n, rec, takeover(rec, spec, lost))
}

// leaveIt says why a name that could be taken is left where it is.
func leaveIt(node Node, n Name, rec *fleet.Session, spec fleet.Spec, lost bool) (Action, bool) {
	in, asked := n.asked()
	wanted := n.alarmDue(node.Wall) || asked && (in.Verb == fleet.VerbRun || in.Verb == fleet.VerbRestart || in.Verb == fleet.VerbReleaseHold)
	graceOver := n.View.Lost.Add(millis(spec.OwnerLossGraceMs))
	retryAt := n.View.Seen.Add(millis(rec.RetryAfterMillis))
	misfit := fits(node, spec)
	switch {
	case lost && spec.OnOwnerLoss == fleet.OwnerLossHold && rec.Phase != fleet.PhasePending && (!asked || in.Verb != fleet.VerbReleaseHold):
		return Action{
			Kind: Wait, Reason: fmt.Sprintf("held: its owner %s is lost and the spec says on_owner_loss: hold; `fleetctl release-hold %s` lets it start afresh", ownerName(rec), n.Name),
			Event: n.event(EventHeld, "held on lost node %s", ownerName(rec)),
		}, true
	case rec.Phase == fleet.PhaseStopped && !wanted:
		return wait("stopped; `fleetctl start " + n.Name + "` starts it"), true
	case rec.Phase == fleet.PhasePaused && !wanted && node.Now < graceOver:
		return waitUntil(graceOver, "paused on lost node %s, which may come back; `fleetctl resume %s` takes it now, without its memory", ownerName(rec), n.Name), true
	case node.Now < retryAt && rec.RetryAfterMillis > 0:
		return waitUntil(retryAt, "%s; the next attempt waits %v", rec.Reason, millis(rec.RetryAfterMillis)), true
	case misfit != "":
		return wait(misfit), true
	case node.Draining:
		return wait("this node is draining"), true
	case node.Cordoned:
		return wait("this node is cordoned"), true
	case node.Recovering:
		return wait("this node first settles what it owned before its restart"), true
	case !node.CanAct:
		return wait("waits until the bucket confirms this node's lease"), true
	case !node.Fresh:
		return wait("the bucket did not answer the last look: nothing is acquired on an old view"), true
	}
	// A name that was evicted from here, or that failed here, should meet another
	// node first, if there is one.
	if node.Peers > 0 && rec.LastNode == node.ID && rec.Phase == fleet.PhasePending && rec.Reason != "" {
		if at := n.View.Seen.Add(elsewhereFirst); node.Now < at {
			return waitUntil(at, "%s; another node may take it first", rec.Reason), true
		}
	}
	return Action{}, false
}

// attemptLost reports that an attempt of a job is lost with its owner. One that
// was not known to run yet was none: its node's loss is not the job's failure.
func attemptLost(rec *fleet.Session, spec fleet.Spec) bool {
	return spec.Kind == fleet.KindJob && rec.Phase == fleet.PhaseRunning
}

// takeover says what taking this name means, for its event.
func takeover(rec *fleet.Session, spec fleet.Spec, lost bool) string {
	switch {
	case !lost:
		return ""
	case spec.Kind == fleet.KindJob:
		return fmt.Sprintf("its attempt on %s is declared lost", ownerName(rec))
	case rec.Phase == fleet.PhasePaused:
		return fmt.Sprintf("its paused memory stays on lost node %s: it starts afresh", ownerName(rec))
	}
	return fmt.Sprintf("its node %s was lost: it starts afresh, without its memory", ownerName(rec))
}

// claimIt makes the candidate's claim. rec is what carries over from the last owner.
func claimIt(node Node, n Name, rec *fleet.Session, degraded string) Action {
	d := n.Desired
	c := rec.Clone()
	c.UID, c.Generation = d.UID, d.Generation
	c.Phase, c.Reason, c.Exit, c.Snapshot, c.RetryAfterMillis = fleet.PhaseStarting, degraded, nil, fleet.Snapshot{}, 0
	c.LastNode, c.LastName = rec.Owner, rec.OwnerName
	c.Attempt = rec.Attempt + 1
	if rec.Owner != "" && attemptLost(rec, d.Spec.WithDefaults()) {
		c.Failures = rec.Failures + 1
	}
	if in, ok := n.asked(); ok && (in.Verb == fleet.VerbRun || in.Verb == fleet.VerbRestart || in.Verb == fleet.VerbReleaseHold) {
		c.Seen = in.Seq
	}
	if n.alarmDue(node.Wall) {
		c.WakeSeen = d.WakeAt.Seq
	}
	c.Lineage = fleet.Lineage{UID: d.UID, Epoch: n.View.Next}
	c.Instance = runtime.InstanceID(n.Name, d.UID, n.View.Next, c.Attempt)
	a := Action{Kind: Acquire, Write: lease.WriteClaim, Record: c, Reason: "free and wanted"}
	if degraded != "" {
		a.Reason = degraded
		a.Event = &Event{Type: EventDegraded, Name: n.Name, Epoch: n.View.Next, Message: degraded}
	} else if n.alarmDue(node.Wall) {
		a.Event = &Event{Type: EventAlarm, Name: n.Name, Epoch: n.View.Next, Message: "its alarm has come: it is started"}
	}
	return a
}

// finish writes the last word about a name that nobody owns, starting nothing.
func (n *Name) finish(node Node, phase fleet.Phase, why string, t EventType) Action {
	if !node.CanAct || !node.Fresh {
		return wait(why + "; that is written when the bucket confirms this node's lease")
	}
	rec := n.record().Clone()
	if n.Desired.State == fleet.DesiredPresent {
		rec.UID, rec.Generation = n.Desired.UID, n.Desired.Generation
		rec.Seen = n.Desired.Intent.Seq
	}
	rec.LastNode, rec.LastName = rec.Owner, rec.OwnerName
	rec.Phase, rec.Reason, rec.Instance, rec.RetryAfterMillis = phase, why, "", 0
	return Action{Kind: Write, Write: lease.WriteFinal, Record: rec, Reason: why, Event: n.event(t, "%s", why)}
}
