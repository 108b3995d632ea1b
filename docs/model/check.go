package model

import (
	"fmt"

	"github.com/barista-fleet/barista/pkg/fleet"
	"github.com/barista-fleet/barista/pkg/lease"
)

// checkWrite judges a write of x that the store is about to apply (I1, I2, I3).
func (w *world) checkWrite(writer int, was, is *fleet.Session) {
	if was == nil {
		was = &fleet.Session{}
	}
	switch {
	case is.Epoch < was.Epoch:
		w.fail(fmt.Sprintf("I1: the epoch of x falls from %d to %d", was.Epoch, is.Epoch))
	case is.Epoch == was.Epoch:
		w.checkSameEpoch(writer, was, is)
	case was.Owner != "" && !w.passed(was):
		w.fail(fmt.Sprintf("I3: %s takes x at epoch %d from %s, whose incarnation %d has not passed", nodeIDs[writer], is.Epoch, was.Owner, was.Incarnation))
	case is.Owner != "" && is.Owner != nodeIDs[writer]:
		w.fail(fmt.Sprintf("I2: %s makes %s the owner", nodeIDs[writer], is.Owner))
	}
	if is.Epoch > w.ghost.epoch {
		w.ghost = ghost{epoch: is.Epoch}
	}
	switch {
	case is.Owner == "":
	case w.ghost.owner == "":
		w.ghost.owner, w.ghost.inc = is.Owner, is.Incarnation
	case w.ghost.owner != is.Owner || w.ghost.inc != is.Incarnation:
		w.fail(fmt.Sprintf("I2: epoch %d was of %s under incarnation %d and is of %s under %d", is.Epoch, w.ghost.owner, w.ghost.inc, is.Owner, is.Incarnation))
	}
}

// checkSameEpoch: without a rise, only the owner writes, and only to go on or to
// let go. A burn writes what stands there.
func (w *world) checkSameEpoch(writer int, was, is *fleet.Session) {
	same := was.Owner == is.Owner && was.Incarnation == is.Incarnation
	burn := same && was.Phase == is.Phase && was.Instance == is.Instance && was.Seen == is.Seen
	switch {
	case burn:
		w.goals |= goalRewritten
	case was.Owner != nodeIDs[writer]:
		w.fail(fmt.Sprintf("I3: %s writes x at epoch %d, which is %q's", nodeIDs[writer], is.Epoch, was.Owner))
	case !same && is.Owner != "":
		w.fail(fmt.Sprintf("I1: x changes from %s under %d to %s under %d at one epoch, %d", was.Owner, was.Incarnation, is.Owner, is.Incarnation, is.Epoch))
	}
}

// passed reports that the store shows the owner of a claim under a higher
// incarnation.
func (w *world) passed(claim *fleet.Session) bool {
	for i, id := range nodeIDs {
		if id == claim.Owner {
			rec := w.objects[i].node
			return rec != nil && rec.Incarnation > claim.Incarnation
		}
	}
	return false
}

// checkNodeWrite judges a write of a liveness record: incarnations never go back,
// and nobody but the node and a fencer writes.
func (w *world) checkNodeWrite(writer, key int, is *fleet.Node) {
	was := w.objects[key].node
	switch {
	case was != nil && is.Incarnation < was.Incarnation:
		w.fail(fmt.Sprintf("the incarnation of %s falls from %d to %d", nodeIDs[key], was.Incarnation, is.Incarnation))
	case writer != key && was != nil && is.Incarnation == was.Incarnation:
		w.fail(fmt.Sprintf("%s fences %s without raising its incarnation", nodeIDs[writer], nodeIDs[key]))
	case writer == key && was != nil && was.State != fleet.NodeLive && is.Incarnation == was.Incarnation:
		w.fail(fmt.Sprintf("%s is live again under an incarnation that was fenced", nodeIDs[key]))
	}
}

// checkState judges what must hold between any two actions (I2, I4, I5).
func (w *world) checkState() {
	var holders, actors []int
	alive, current := 0, 0
	for i := range w.nodes {
		n := &w.nodes[i]
		for _, r := range n.runs {
			if r.state == runAlive {
				alive++
				if r.epoch == w.ghost.epoch {
					current++
				}
			}
		}
		if n.m == nil {
			continue
		}
		if v := n.m.Name(theName); v.Held {
			holders = append(holders, i)
			if n.clock < n.m.Deadline() {
				actors = append(actors, i)
			}
		}
	}
	if len(holders) > 1 && w.nodes[holders[0]].m.Name(theName).Rec.Epoch == w.nodes[holders[1]].m.Name(theName).Rec.Epoch {
		w.fail("I2: two nodes hold x at one epoch")
	}
	if len(actors) > 1 {
		w.fail("I2: two nodes hold x, and the deadlines of both are ahead")
	}
	if alive > 1 {
		w.goals |= goalTwoRun
	}
	switch {
	case w.sc.Stop && alive > 1:
		w.fail("I4: two workloads of x run at one instant")
	case current > 1:
		w.fail("I5: two workloads of x run under the current epoch")
	}
}

// checkStart judges a workload that starts: its epoch and incarnation are ones
// that the bucket has said (I2).
func (w *world) checkStart(i int, r run) {
	w.goals |= goalStarted
	switch {
	case r.epoch > w.ghost.epoch:
		w.fail(fmt.Sprintf("I2: %s starts a workload at epoch %d, which nobody has claimed", nodeIDs[i], r.epoch))
	case r.epoch == w.ghost.epoch && (w.ghost.owner != nodeIDs[i] || w.ghost.inc != r.inc):
		w.fail(fmt.Sprintf("I2: %s starts a workload at epoch %d, which is %s's", nodeIDs[i], r.epoch, w.ghost.owner))
	}
}

// checkStop judges a workload that its agent ends: with keep, only the loss of the
// name is a reason (I6).
func (w *world) checkStop(i int, r *run) {
	if rec := w.x(); !w.sc.Stop && rec != nil && rec.Owner == nodeIDs[i] && rec.Epoch == r.epoch {
		w.fail("I6: " + nodeIDs[i] + " stops a workload that is its own, and nobody has asked for it")
	}
}

// checkNotWritten judges what the reconciler is told: a claim that was not written
// cannot be written later (step 3 of the argument).
func (w *world) checkNotWritten(i int, e lease.NotWritten) {
	for _, m := range w.msgs {
		if m.orphan && m.node == i && m.life == w.nodes[i].life && m.key == keyX &&
			m.put.sess.Owner == nodeIDs[i] && e.Kind == lease.WriteClaim && m.cond.Holds(w.objects[keyX].etag) {
			w.fail(fmt.Sprintf("burn: %s is told that its claim at epoch %d was not written, and it may still land", nodeIDs[i], m.put.sess.Epoch))
		}
	}
}
