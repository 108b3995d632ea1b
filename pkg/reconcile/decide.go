package reconcile

import (
	"fmt"
	"time"

	"github.com/barista-fleet/barista/pkg/fleet"
	"github.com/barista-fleet/barista/pkg/lease"
	"github.com/barista-fleet/barista/pkg/runtime"
)

// Bounds of the back-off between attempts.
const (
	backoffFirst = time.Second
	backoffMost  = 5 * time.Minute
	// backoffForget is how long a session must have run for its failures to be
	// forgotten: longer than the longest back-off, or it would never be reached.
	backoffForget = 10 * time.Minute
)

// Decide says what is to be done about one name, and why. It is a pure function
// of the views: it is called whenever one of them changes, and after each action
// it finds the next. Nothing that it asks for is undone by asking twice.
//
// The order of the questions is the order of the tick: what may not run is ended
// first; then what is owned and no longer wanted is given up; then what is
// owned is brought to where it should be; at last comes what could be taken.
func Decide(node Node, n Name) Action {
	if n.Op != 0 {
		return wait("an operation is in flight: " + n.Op.String())
	}
	if a, ok := endWhatMayNotRun(node, n); ok {
		return a
	}
	if n.View.Writing != 0 {
		return wait("waits to learn the fate of a write: " + n.View.Writing.String())
	}
	if a, ok := standing(node, n); ok {
		return a
	}
	if n.View.Held {
		return decideHeld(node, n)
	}
	return decideFree(node, n)
}

func wait(reason string) Action { return Action{Kind: Wait, Reason: reason} }

func waitUntil(at lease.Instant, format string, args ...any) Action {
	return Action{Kind: Wait, Reason: fmt.Sprintf(format, args...), Until: at}
}

// endWhatMayNotRun stops, in this order: workloads with on_bucket_loss: stop
// whose time is up, runs of names that are someone else's, runs that are not the
// one the record speaks of. What cannot be judged goes on running.
func endWhatMayNotRun(node Node, n Name) (Action, bool) {
	rec := n.record()
	for _, r := range n.Runs {
		if r.State.Dead() {
			continue
		}
		if r.StopOnLoss && node.StopDue {
			return Action{
				Kind: Fence, Op: OpStop, Instance: r.Instance, Grace: max(node.KillAt.Sub(node.Now), 0), Cause: StopBucketLoss,
				Reason: "the bucket does not confirm this node's lease and the spec says on_bucket_loss: stop",
			}, true
		}
		foreign := false
		switch n.View.Claim {
		case lease.ClaimValid, lease.ClaimInvalid, lease.ClaimFree, lease.ClaimSealed, lease.ClaimUnreadable:
			foreign = !n.View.Held && n.View.Writing == 0
		default: // it may still be this node's
		}
		stale := n.View.Held && (r.Instance != rec.Instance || r.UID != rec.UID)
		if foreign || stale {
			return Action{
				Kind: Fence, Op: OpStop, Instance: r.Instance, Grace: n.grace(), Cause: StopUnwanted,
				Reason: "runs here without a right to: " + owns(rec),
				Event: &Event{
					Type: EventFenced, Name: n.Name, Epoch: r.Epoch,
					Message: fmt.Sprintf("stopped the run of epoch %d: %s", r.Epoch, owns(rec)),
				},
			}, true
		}
	}
	return Action{}, false
}

func (n *Name) grace() time.Duration { return time.Duration(n.spec().StopGraceMs) * time.Millisecond }

func owns(rec *fleet.Session) string {
	switch {
	case rec.Epoch == 0:
		return "no record names this node"
	case rec.Owner == "":
		return fmt.Sprintf("nobody owns the name (epoch %d)", rec.Epoch)
	}
	return fmt.Sprintf("%s owns it at epoch %d", ownerName(rec), rec.Epoch)
}

func ownerName(rec *fleet.Session) string {
	if rec.OwnerName != "" {
		return rec.OwnerName
	}
	return rec.Owner
}

// standing settles whether a name whose record names this node is held. Reading
// is never enough: it takes a write.
func standing(node Node, n Name) (Action, bool) {
	if n.View.Held {
		return Action{}, false
	}
	run, has := n.anyRun()
	rec := n.record().Clone()
	var w lease.Write
	switch {
	case n.View.Claim == lease.ClaimOurs:
		w = lease.WriteTouch
	case n.View.Claim == lease.ClaimOursOld:
		w = lease.WriteReclaim
	case n.View.Claim == lease.ClaimGone && has && !run.State.Dead():
		// The record was deleted by a hand or a rule; the workload is here.
		w = lease.WriteClaim
		if rec.UID == "" {
			rec.UID, rec.Generation, rec.Instance, rec.Attempt = run.UID, run.Generation, run.Instance, run.Attempt
			rec.Phase = fleet.PhaseRunning
			rec.Lineage = fleet.Lineage{UID: run.UID, Epoch: run.Epoch}
		}
	default:
		return Action{}, false
	}
	if !node.CanAct {
		return wait("waits until the bucket confirms this node's lease"), true
	}
	if node.Draining && !has {
		// Nothing of it is here: it is freed without being taken up again.
		return giveUpParked(n), true
	}
	return Action{Kind: Write, Write: w, Record: rec, Reason: "the record names this node; ownership needs a write"}, true
}

func (n *Name) anyRun() (runtime.Workload, bool) {
	if r, ok := n.current(); ok {
		return r, true
	}
	for _, r := range n.Runs {
		return r, true
	}
	return runtime.Workload{}, false
}

// backoff is the wait before the next attempt after failures failures in a row:
// doubling, capped, and spread by up to a quarter, the same on every node.
func backoff(name string, failures int) time.Duration {
	d := backoffMost
	if shift := max(failures-1, 0); shift < 16 {
		d = min(backoffFirst<<shift, backoffMost)
	}
	spread := lease.Rank(name, fmt.Sprint(failures)) % uint64(d/4)
	return d - time.Duration(spread)
}

// fits says why a spec cannot run on this node; empty if it can.
func fits(node Node, spec fleet.Spec) string {
	for k, want := range spec.Require {
		if got, ok := node.Labels[k]; !ok || got != want {
			return fmt.Sprintf("this node has no label %s=%s", k, want)
		}
	}
	switch {
	case spec.Runtime != "" && spec.Runtime != node.Runtime:
		return fmt.Sprintf("it asks for runtime %s, this node has %s", spec.Runtime, node.Runtime)
	case spec.Image != "" && !node.Images:
		return fmt.Sprintf("it needs an image, and the %s runtime of this node runs none", node.Runtime)
	case spec.Image == "" && node.Images:
		return fmt.Sprintf("it has no image, and the %s runtime of this node needs one", node.Runtime)
	}
	return ""
}
