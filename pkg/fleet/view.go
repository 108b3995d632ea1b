package fleet

import (
	"strings"
	"time"

	"github.com/barista-fleet/barista/internal/bucket"
)

// Status is where a name stands, as one word for people. It is made from the
// desired record, the ownership record and the owner's liveness record, as they
// were read; nothing is decided by it.
type Status string

// The statuses. Those of a phase are the phase's name.
const (
	StatusPending   Status = "PENDING"
	StatusStarting  Status = "STARTING"
	StatusRunning   Status = "RUNNING"
	StatusBackoff   Status = "BACKOFF"
	StatusPaused    Status = "PAUSED"
	StatusStopped   Status = "STOPPED"
	StatusCompleted Status = "COMPLETED"
	StatusFailed    Status = "FAILED"
	StatusCancelled Status = "CANCELLED"
	StatusTimedOut  Status = "TIMED_OUT"

	StatusHeld       Status = "HELD"       // its node is lost and it waits for an operator
	StatusOrphaned   Status = "ORPHANED"   // owned, but there is no desired record
	StatusDeleting   Status = "DELETING"   // deleted, and its owner has not let go yet
	StatusDeleted    Status = "DELETED"    // deleted and released
	StatusLost       Status = "LOST"       // its owner was fenced and nobody has retaken it
	StatusUnreadable Status = "UNREADABLE" // a record is there and cannot be understood
)

// Statuses lists every status, for messages and completion.
var Statuses = []Status{
	StatusPending, StatusStarting, StatusRunning, StatusBackoff, StatusPaused, StatusStopped,
	StatusCompleted, StatusFailed, StatusCancelled, StatusTimedOut,
	StatusHeld, StatusOrphaned, StatusDeleting, StatusDeleted, StatusLost, StatusUnreadable,
}

// Claim is what one look at the records says of an ownership. It cannot say
// whether the owner is silent: that takes watching over time, which is for nodes.
type Claim string

// The claims.
const (
	ClaimNone    Claim = "none"    // nobody owns the name
	ClaimHolds   Claim = "holds"   // the owner's record bears the claim's incarnation
	ClaimLost    Claim = "lost"    // the owner's incarnation has passed: anyone may take the name
	ClaimUnknown Claim = "unknown" // the owner's record is missing, unreadable or older than the claim
)

// JudgeClaim compares a claim with its owner's liveness record, nil if that
// could not be read. Only a higher incarnation ends a claim: the node's state is
// not consulted, and a lower one means that an old record was read.
func JudgeClaim(s *Session, owner *Node) Claim {
	switch {
	case s == nil || s.Owner == "":
		return ClaimNone
	case owner == nil || owner.ID != s.Owner || owner.Incarnation < s.Incarnation:
		return ClaimUnknown
	case owner.Incarnation > s.Incarnation:
		return ClaimLost
	}
	return ClaimHolds
}

// View is one name with everything that the bucket says of it.
type View struct {
	Name        string
	Desired     *Desired    // nil if absent or unreadable
	DesiredETag bucket.ETag // also when unreadable
	DesiredErr  error       // why it is unreadable
	Session     *Session    // nil if absent or unreadable
	SessionETag bucket.ETag
	SessionErr  error
	Owner       *Node // the owner's record; nil if there is none or it is unreadable
}

// Exists reports a name that is desired, or owned, or both, or of which a
// record is there that cannot be read.
func (v *View) Exists() bool {
	switch v.Status() {
	case "", StatusDeleted:
		return false
	default:
		return true
	}
}

// Claim judges the name's ownership.
func (v *View) Claim() Claim { return JudgeClaim(v.Session, v.Owner) }

// current reports that the ownership record speaks of the desired record's
// content, and not of an earlier one of the same name.
func (v *View) current() bool {
	return v.Session != nil && v.Desired != nil && v.Session.UID == v.Desired.UID
}

// PendingIntent returns the operator's last verb if no owner has carried it out.
func (v *View) PendingIntent() (Verb, bool) {
	if v.Desired == nil || v.Desired.Intent.Seq == 0 {
		return "", false
	}
	if v.Session != nil && v.Session.Seen >= v.Desired.Intent.Seq {
		return "", false
	}
	return v.Desired.Intent.Verb, true
}

// Status sums the name up; "" means that there is nothing under it.
func (v *View) Status() Status {
	d, s := v.Desired, v.Session
	owned := s != nil && s.Owner != ""
	switch {
	case v.DesiredErr != nil || v.SessionErr != nil:
		return StatusUnreadable
	case d == nil && !owned:
		return ""
	case d == nil:
		return StatusOrphaned
	case d.State == DesiredDeleted && owned:
		return StatusDeleting
	case d.State == DesiredDeleted:
		return StatusDeleted
	case !v.current():
		return StatusPending // new, or made again while the old one is torn down
	case s.Phase.Done():
		return phaseStatus(s.Phase)
	case v.Claim() == ClaimLost:
		return v.lostStatus()
	}
	return phaseStatus(s.Phase)
}

// lostStatus is the status of a name whose owner was fenced.
func (v *View) lostStatus() Status {
	verb, pending := v.PendingIntent()
	switch {
	case pending && verb == VerbStop:
		return StatusStopped // nothing runs, and nothing should: there is nothing to decide
	case v.Desired.Spec.OnOwnerLoss == OwnerLossHold && v.Session.Phase != PhaseStopped && (!pending || verb != VerbReleaseHold):
		return StatusHeld
	case v.Session.Phase.Parked() && (!pending || verb != VerbRun && verb != VerbRestart):
		return phaseStatus(v.Session.Phase) // not urgent: it waits for its node, or to be wanted
	}
	return StatusLost
}

func phaseStatus(p Phase) Status { return Status(strings.ToUpper(string(p))) }

// NodeName is how people call the owner, "" without one.
func (v *View) NodeName() string {
	switch {
	case v.Session == nil || v.Session.Owner == "":
		return ""
	case v.Owner != nil && v.Owner.Name != "":
		return v.Owner.Name
	case v.Session.OwnerName != "":
		return v.Session.OwnerName
	}
	return v.Session.Owner
}

// NodeView is one node with what operators ask of it.
type NodeView struct {
	ID           string
	Node         *Node // nil if the record is unreadable or absent
	ETag         bucket.ETag
	Err          error // why it is unreadable
	Directive    *Directive
	DirectiveErr error
	// Owned counts the names whose ownership record names this node and its
	// present incarnation; it is counted only by List.
	Owned int
	// Unrenewed is how long ago the record was last written, by the store's clock
	// alone; 0 if the store does not say.
	Unrenewed time.Duration
}

// silenceSlack is what two whole-second times of one clock, and a listing on its
// way, can make a record look older than it is.
const silenceSlack = 5 * time.Second

// Silent reports a node whose record says live and that did not renew it for
// longer than it may. That is for people: whether its names can be taken is for
// nodes, which have watched it.
func (n *NodeView) Silent() bool {
	return n.Node != nil && n.Node.State == NodeLive && n.Unrenewed > n.Node.TTL()*9/8+silenceSlack
}

// Called is how people call the node.
func (n *NodeView) Called() string {
	if n.Node != nil && n.Node.Name != "" {
		return n.Node.Name
	}
	return n.ID
}

// Takes reports a node that says it would claim names.
func (n *NodeView) Takes() bool {
	return n.Node != nil && n.Node.State == NodeLive && !n.Node.Cordoned && !n.Node.Draining &&
		(n.Directive == nil || !n.Directive.Cordon && !n.Directive.Drain)
}
