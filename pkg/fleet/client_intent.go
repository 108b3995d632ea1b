package fleet

import (
	"context"
	"fmt"
	"time"

	"github.com/barista-fleet/barista/internal/bucket"
)

// IntentResult is what a verb did.
type IntentResult struct {
	Name    string
	Verb    Verb
	Seq     uint64 // the verb's number; the owner has carried it out when its Seen is not below it
	Changed bool   // false: it was already so, or asked for, and nothing was written
	Waiting bool   // it was asked for before, and its owner has not carried it out yet
	Epoch   uint64 // for evict: the ownership that is to end
}

// SetIntent asks the owner of a name for verb, once: the last verb asked for
// wins. op is what the operator typed ("resume" and "start" are both VerbRun).
// A verb that cannot apply to the name as it stands is a *RefusedError; one that
// is already true changes nothing.
func (c *Client) SetIntent(ctx context.Context, name string, verb Verb, op string) (IntentResult, error) {
	res := IntentResult{Name: name, Verb: verb}
	if err := CheckName(name); err != nil {
		return res, err
	}
	tried := uint64(0) // the number of the last attempt's intent
	_, err := c.update(ctx, op, name, PrefixDesired+name, func(obj bucket.Object, att attempt) (record, error) {
		v, err := c.viewOf(ctx, name, obj)
		if err != nil {
			return nil, err
		}
		if err := v.editable(op); err != nil {
			return nil, err
		}
		d := v.Desired
		// An attempt with an unknown outcome may have been applied and then
		// overwritten: asking again would do a restart twice.
		if att.unsure && d.Intent.Seq >= tried {
			if d.Intent.Verb == verb {
				res.Seq, res.Changed = d.Intent.Seq, true
				return nil, nil
			}
			return nil, &ConflictError{Op: op, Name: name, Message: fmt.Sprintf("%s was asked for at the same time", d.Intent.Verb), Hint: "see what came of it: fleetctl describe " + name}
		}
		needed, err := v.applicable(verb, op)
		if err != nil {
			return nil, err
		}
		res.Seq, res.Changed = d.Intent.Seq, needed
		if !needed {
			asked, pending := v.PendingIntent()
			res.Waiting = pending && asked == verb
			return nil, nil
		}
		next := *d
		next.Head = Head{Schema: Schema, Nonce: att.nonce}
		next.Intent = Intent{Seq: d.Intent.Seq + 1, Verb: verb, Unknown: d.Intent.Unknown}
		if v.Session != nil {
			// Above what an owner has seen, also where a backup brought back an
			// older desired record.
			next.Intent.Seq = max(next.Intent.Seq, v.Session.Seen+1)
		}
		if verb == VerbEvict {
			next.Intent.Epoch = v.Session.Epoch
			res.Epoch = v.Session.Epoch
		}
		tried, res.Seq = next.Intent.Seq, next.Intent.Seq
		return &next, nil
	})
	if err == nil && res.Changed {
		c.Signal(ctx, []string{name}, nil)
	}
	return res, err
}

// SetAlarm arms the name's one alarm; a zero time clears it.
func (c *Client) SetAlarm(ctx context.Context, name string, at time.Time) (changed bool, err error) {
	const op = "wake-at"
	if err := CheckName(name); err != nil {
		return false, err
	}
	w, err := c.update(ctx, op, name, PrefixDesired+name, func(obj bucket.Object, att attempt) (record, error) {
		v, err := c.viewOf(ctx, name, obj)
		if err != nil {
			return nil, err
		}
		if err := v.editable(op); err != nil {
			return nil, err
		}
		d := v.Desired
		if d.Spec.Kind == KindJob {
			return nil, &RefusedError{Op: op, Name: name, Message: "it is a job, and a job is never paused"}
		}
		if v.Session != nil && v.current() && v.Session.Phase.Done() {
			return nil, &RefusedError{Op: op, Name: name, Message: fmt.Sprintf("it is %s", v.Session.Phase)}
		}
		fired := v.Session != nil && v.Session.WakeSeen >= d.WakeAt.Seq
		if d.WakeAt.At.Equal(at) && (at.IsZero() || !fired) {
			return nil, nil
		}
		next := *d
		next.Head = Head{Schema: Schema, Nonce: att.nonce}
		next.WakeAt = Alarm{Seq: d.WakeAt.Seq + 1, At: at.UTC(), Unknown: d.WakeAt.Unknown}
		if v.Session != nil {
			next.WakeAt.Seq = max(next.WakeAt.Seq, v.Session.WakeSeen+1)
		}
		return &next, nil
	})
	if err == nil && w.written {
		c.Signal(ctx, []string{name}, nil)
	}
	return w.written, err
}

// viewOf completes a desired record that was just read to a View.
func (c *Client) viewOf(ctx context.Context, name string, obj bucket.Object) (*View, error) {
	v := &View{Name: name}
	v.setDesired(obj)
	sess, err := c.get(ctx, PrefixSessions+name)
	if err != nil {
		return nil, err
	}
	v.setSession(sess)
	if v.Session == nil || v.Session.Owner == "" {
		return v, nil
	}
	n, err := c.nodeRecord(ctx, v.Session.Owner)
	if err != nil {
		return nil, err
	}
	v.Owner = n
	return v, nil
}

// editable refuses what has no desired record that could be changed.
func (v *View) editable(op string) error {
	switch {
	case v.DesiredErr != nil:
		return v.DesiredErr
	case v.Desired == nil && v.Session != nil && v.Session.Owner != "":
		return &RefusedError{
			Op: op, Name: v.Name, Message: "its desired record is gone, although " + v.NodeName() + " owns it",
			Hint: "apply it again first, or: fleetctl delete " + v.Name,
		}
	case v.Desired == nil:
		return &NotFoundError{What: "name", Name: v.Name, Hint: "list the names: fleetctl ls"}
	case v.Desired.State == DesiredDeleted:
		return &NotFoundError{What: "name", Name: v.Name, Hint: "it was deleted; apply it again to make it anew"}
	}
	return v.SessionErr
}

// applicable reports whether verb has anything to change, or why it cannot
// apply. It judges by one look: the owner judges again when it carries it out.
func (v *View) applicable(verb Verb, op string) (needed bool, err error) {
	refuse := func(hint, format string, args ...any) (bool, error) {
		return false, &RefusedError{Op: op, Name: v.Name, Message: fmt.Sprintf(format, args...), Hint: hint}
	}
	job := v.Desired.Spec.Kind == KindJob
	phase := PhasePending
	if v.current() {
		phase = v.Session.Phase
	}
	asked, pending := v.PendingIntent()
	switch {
	case phase.Done() && verb == VerbCancel && phase == PhaseCancelled:
		return false, nil
	case phase.Done():
		return refuse("apply it under another name, or first: fleetctl delete "+v.Name, "it has ended (%s), which is final", phase)
	case v.Status() == StatusHeld && (verb == VerbRun || verb == VerbRestart || verb == VerbPause):
		return false, &RefusedError{
			Op: op, Name: v.Name, Held: true,
			Message: "it is held: its node " + v.NodeName() + " is lost, and with it the memory it would go on with",
			Hint:    "wait for the node, or let it start afresh: fleetctl release-hold " + v.Name,
		}
	}
	if pending && asked == verb && verb != VerbRestart && verb != VerbEvict {
		return false, nil // asked for already, and not carried out yet
	}
	switch verb {
	case VerbPause, VerbStop, VerbRestart:
		if job {
			return refuse("end it with: fleetctl cancel "+v.Name, "it is a job: it runs to its end, once")
		}
		if verb == VerbPause && phase == PhaseStopped {
			return refuse("start it with: fleetctl start "+v.Name, "it is stopped: there is nothing to pause")
		}
		already := verb == VerbPause && phase == PhasePaused || verb == VerbStop && phase == PhaseStopped
		return !already || pending, nil
	case VerbRun:
		if job {
			return refuse("", "it is a job: nodes start it by themselves")
		}
		return phase.Parked() || pending, nil
	case VerbCancel:
		if !job {
			return refuse("end it with: fleetctl stop "+v.Name+", or fleetctl delete "+v.Name, "it is a session, and only a job can be cancelled")
		}
		return true, nil
	case VerbReleaseHold:
		if v.Desired.Spec.OnOwnerLoss != OwnerLossHold {
			return refuse("", "it is not held: its policy on a lost node is coldboot")
		}
		if v.Status() != StatusHeld && v.Claim() != ClaimUnknown {
			return refuse("see where it stands: fleetctl describe "+v.Name, "it is not held: its node is not lost")
		}
		return true, nil
	case VerbEvict:
		if v.Session == nil || v.Session.Owner == "" {
			return refuse("see where it stands: fleetctl describe "+v.Name, "nobody owns it")
		}
		return true, nil
	}
	return refuse("", "%q is no verb", verb)
}
