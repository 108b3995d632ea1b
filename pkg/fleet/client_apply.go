package fleet

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/barista-fleet/barista/internal/bucket"
)

// Outcome is what a write of an operator's object changed.
type Outcome string

// The outcomes.
const (
	OutcomeCreated    Outcome = "created"
	OutcomeAdopted    Outcome = "adopted" // created again around a name that nodes still knew
	OutcomeConfigured Outcome = "configured"
	OutcomeUnchanged  Outcome = "unchanged"
	OutcomeDeleted    Outcome = "deleted"
)

// ApplyOptions modifies an apply.
type ApplyOptions struct {
	// IfUnchanged, if set, refuses to write over any other version.
	IfUnchanged bucket.ETag
	// DryRun says what would change and writes nothing.
	DryRun bool
	// ReplaceDamaged allows writing over a record that cannot be read, unless a
	// newer version wrote it.
	ReplaceDamaged bool

	// created, if set, is used instead of the store's clock: it keeps the order
	// of a file's documents.
	created time.Time
}

// Applied is what an apply did.
type Applied struct {
	Name       string
	Outcome    Outcome
	UID        string
	Generation uint64
	ETag       bucket.ETag
	Changes    []Change // when configured
	Unknown    bool     // the record keeps fields that this version does not know
}

// Apply makes the desired record of m.Name say what m says, and rings the bell
// if that changed anything.
//
// It is idempotent: an equal spec is left alone, whatever has happened to the
// name since, so applying again neither resumes what was paused nor repeats a
// job that has ended. A job whose spec differs is a *ConflictError.
//
// A name that was deleted begins anew, with another uid: nodes tear down what is
// left of the old one before they start it, and its pending verbs are void. A
// name whose record is gone although nodes still know it (a lifecycle rule, a
// wiped prefix) keeps its uid and generation: the record is restored around what
// runs, which goes on as it is until a later apply configures it.
func (c *Client) Apply(ctx context.Context, m *Manifest, opt ApplyOptions) (Applied, error) {
	a, err := c.apply(ctx, m, opt)
	if err == nil && a.Outcome != OutcomeUnchanged && !opt.DryRun {
		c.Signal(ctx, []string{m.Name}, nil)
	}
	return a, err
}

func (c *Client) apply(ctx context.Context, m *Manifest, opt ApplyOptions) (Applied, error) {
	if err := m.Validate(); err != nil {
		return Applied{}, fmt.Errorf("%s: %w", m.Name, err)
	}
	if m.Spec.Kind == "" {
		// Nodes read the record as it stands: what decides how it is run is
		// written down, not left to a reader's default.
		explicit := *m
		explicit.Spec.Kind = KindSession
		m = &explicit
	}
	var out Applied
	w, err := c.update(ctx, "apply", m.Name, PrefixDesired+m.Name, func(obj bucket.Object, att attempt) (record, error) {
		out = Applied{Name: m.Name, ETag: obj.ETag}
		if opt.IfUnchanged != "" && obj.ETag != opt.IfUnchanged {
			return nil, &ConflictError{Op: "apply", Name: m.Name, Message: "it has changed since it was read", Hint: fmt.Sprintf("see what is there: fleetctl describe %s", m.Name)}
		}
		next, err := c.planApply(ctx, m, obj, opt, &out)
		if err != nil || next == nil {
			return nil, err
		}
		next.Head = Head{Schema: Schema, Nonce: att.nonce}
		if opt.DryRun {
			_, err := Encode(next)
			return nil, err
		}
		return next, nil
	})
	if err != nil {
		return Applied{Name: m.Name}, err
	}
	if w.written {
		out.ETag = w.etag
	}
	return out, nil
}

// planApply returns the record that the manifest asks for in the place of obj,
// nil if obj is it, and notes in out what that is.
func (c *Client) planApply(ctx context.Context, m *Manifest, obj bucket.Object, opt ApplyOptions, out *Applied) (*Desired, error) {
	next := &Desired{Name: m.Name, State: DesiredPresent, Spec: m.Spec, Generation: 1, Created: opt.created}
	if next.Created.IsZero() {
		next.Created = storeTime(obj.Date)
	}
	var old *Desired
	if obj.Status == bucket.Found {
		var err error
		if old, err = DecodeDesired(m.Name, obj.Body); err != nil {
			if !opt.ReplaceDamaged || Newer(err) {
				return nil, err
			}
			old = nil
		}
	}
	if old != nil && old.State == DesiredPresent {
		return planConfigure(m, old, out)
	}
	out.Outcome = OutcomeCreated
	next.UID = NewUID()
	seen, wakeSeen := uint64(0), uint64(0)
	if old != nil {
		seen, wakeSeen = old.Intent.Seq, old.WakeAt.Seq
		next.Unknown = old.Unknown
	} else {
		s, err := c.session(ctx, m.Name)
		if err != nil {
			return nil, err
		}
		if s != nil && s.UID != "" && !s.Sealed {
			// The same generation: restoring a record restarts nothing.
			next.UID, next.Generation = s.UID, max(s.Generation, 1)
			seen, wakeSeen = s.Seen, s.WakeSeen
			out.Outcome = OutcomeAdopted
		}
	}
	// Numbers only rise within a name's life, or its next verb would look like
	// one that was carried out long ago. A verb of the earlier life that nobody
	// has carried out yet is overtaken by "run".
	if old != nil && seen > 0 {
		next.Intent = Intent{Seq: seen + 1, Verb: VerbRun}
	} else if seen > 0 {
		next.Intent = Intent{Seq: seen, Verb: VerbRun}
	}
	if wakeSeen > 0 {
		next.WakeAt.Seq = wakeSeen + 1
	}
	if !m.WakeAt.IsZero() {
		next.WakeAt = Alarm{Seq: wakeSeen + 1, At: m.WakeAt}
	}
	out.UID, out.Generation = next.UID, next.Generation
	return next, nil
}

// planConfigure compares the manifest with a record that is present.
func planConfigure(m *Manifest, old *Desired, out *Applied) (*Desired, error) {
	next := *old
	next.Spec = keepUnknown(m.Spec, &old.Spec)
	out.UID, out.Generation, out.Unknown = old.UID, old.Generation, len(old.Spec.Unknown) > 0
	out.Outcome = OutcomeUnchanged
	if !m.WakeAt.IsZero() && !m.WakeAt.Equal(old.WakeAt.At) {
		next.WakeAt = Alarm{Seq: old.WakeAt.Seq + 1, At: m.WakeAt, Unknown: old.WakeAt.Unknown}
		out.Outcome = OutcomeConfigured
	}
	same, err := SameSpec(&next.Spec, &old.Spec)
	if err != nil {
		return nil, err
	}
	if !same {
		if err := reconfigurable(m, old); err != nil {
			return nil, err
		}
		next.Generation++
		out.Outcome = OutcomeConfigured
	}
	if out.Outcome == OutcomeUnchanged {
		return nil, nil
	}
	out.Generation = next.Generation
	out.Changes = Diff(old.Manifest(), m)
	return &next, nil
}

func reconfigurable(m *Manifest, old *Desired) error {
	was, is := old.Spec.WithDefaults().Kind, m.Spec.WithDefaults().Kind
	switch {
	case was != is:
		return &ConflictError{
			Op: "apply", Name: m.Name, Message: fmt.Sprintf("it is a %s and cannot become a %s", was, is),
			Hint: fmt.Sprintf("use another name, or first: fleetctl delete %s", m.Name),
		}
	case was == KindJob:
		return &ConflictError{
			Op: "apply", Name: m.Name,
			Message: "the job exists with another spec, and a job's name stands for one piece of work",
			Hint:    fmt.Sprintf("use another name, or first: fleetctl delete %s", m.Name),
		}
	}
	return nil
}

// keepUnknown carries over what a newer version has written into the old spec
// and this one cannot say.
func keepUnknown(s Spec, old *Spec) Spec {
	s.Unknown = old.Unknown
	mounts := append([]Mount(nil), s.Mounts...)
	for i := range mounts {
		for _, o := range old.Mounts {
			if o.Source == mounts[i].Source && o.Target == mounts[i].Target {
				mounts[i].Unknown = o.Unknown
			}
		}
	}
	s.Mounts = mounts
	return s
}

// SameSpec reports two specs that mean the same: policies left open are
// compared as their defaults.
func SameSpec(a, b *Spec) (bool, error) {
	x, err := json.Marshal(a.WithDefaults(), json.Deterministic(true))
	if err != nil {
		return false, err
	}
	y, err := json.Marshal(b.WithDefaults(), json.Deterministic(true))
	return bytes.Equal(x, y), err
}

// Manifest returns what an operator would write to get this record.
func (d *Desired) Manifest() *Manifest {
	return &Manifest{Name: d.Name, Spec: d.Spec, WakeAt: d.WakeAt.At}
}

// ApplyAll applies manifests, several at a time, and rings the bell once. The
// results are in the manifests' order; errs[i] is what became of manifests[i].
// One that fails does not keep the others from being applied.
func (c *Client) ApplyAll(ctx context.Context, manifests []Manifest, opt ApplyOptions, done func(i int, a Applied, err error)) ([]Applied, []error) {
	results := make([]Applied, len(manifests))
	errs := make([]error, len(manifests))
	started := make([]bool, len(manifests))
	if date, err := c.clock(ctx); err == nil {
		opt.created = storeTime(date)
	}
	first := opt.created
	var mu sync.Mutex // done is called by one at a time
	each(ctx, len(manifests), c.writes, func(i int) {
		started[i] = true
		opt := opt
		if !first.IsZero() {
			// Names of one file keep its order in their tenant's queue.
			opt.created = first.Add(time.Duration(i) * time.Microsecond)
		}
		results[i], errs[i] = c.apply(ctx, &manifests[i], opt)
		if done != nil {
			mu.Lock()
			defer mu.Unlock()
			done(i, results[i], errs[i])
		}
	})
	var touched []string
	for i := range manifests {
		switch {
		case !started[i]:
			errs[i] = fmt.Errorf("apply %s: not tried: %w", manifests[i].Name, context.Cause(ctx))
		case errs[i] == nil && results[i].Outcome != OutcomeUnchanged:
			touched = append(touched, manifests[i].Name)
		}
	}
	if len(touched) > 0 && !opt.DryRun {
		c.Signal(ctx, touched, nil)
	}
	return results, errs
}

// clock asks the store what time it is.
func (c *Client) clock(ctx context.Context) (time.Time, error) {
	obj, err := c.get(ctx, KeyMeta)
	return obj.Date, err
}

// DeleteOptions modifies a delete.
type DeleteOptions struct {
	// ReplaceDamaged allows deleting a name whose record cannot be read, unless
	// a newer version wrote it.
	ReplaceDamaged bool
}

// Delete says that a name shall not be any more. Its owner tears it down and
// then releases it. It is a write: a record that merely vanishes deletes
// nothing. Deleting a deleted name is OutcomeUnchanged; one that never was is a
// *NotFoundError.
func (c *Client) Delete(ctx context.Context, name string, opt DeleteOptions) (Outcome, error) {
	outcome, err := c.delete(ctx, name, opt)
	if err == nil && outcome == OutcomeDeleted {
		c.Signal(ctx, []string{name}, nil)
	}
	return outcome, err
}

// DeleteAll deletes several names and rings the bell once.
func (c *Client) DeleteAll(ctx context.Context, names []string, opt DeleteOptions) ([]Outcome, []error) {
	outcomes := make([]Outcome, len(names))
	errs := make([]error, len(names))
	started := make([]bool, len(names))
	each(ctx, len(names), c.writes, func(i int) {
		started[i] = true
		outcomes[i], errs[i] = c.delete(ctx, names[i], opt)
	})
	var touched []string
	for i, name := range names {
		if !started[i] {
			errs[i] = fmt.Errorf("delete %s: not tried: %w", name, context.Cause(ctx))
		} else if errs[i] == nil && outcomes[i] == OutcomeDeleted {
			touched = append(touched, name)
		}
	}
	if len(touched) > 0 {
		c.Signal(ctx, touched, nil)
	}
	return outcomes, errs
}

func (c *Client) delete(ctx context.Context, name string, opt DeleteOptions) (Outcome, error) {
	if err := CheckName(name); err != nil {
		return "", err
	}
	outcome := OutcomeDeleted
	_, err := c.update(ctx, "delete", name, PrefixDesired+name, func(obj bucket.Object, att attempt) (record, error) {
		var old *Desired
		if obj.Status == bucket.Found {
			var err error
			if old, err = DecodeDesired(name, obj.Body); err != nil && (!opt.ReplaceDamaged || Newer(err)) {
				return nil, err
			} else if err != nil {
				old = nil
			}
		}
		if old == nil {
			return c.planDeleteUnknown(ctx, name, obj, att)
		}
		if old.State == DesiredDeleted {
			outcome = OutcomeUnchanged
			return nil, nil
		}
		next := *old
		next.Head = Head{Schema: Schema, Nonce: att.nonce}
		next.State = DesiredDeleted
		return &next, nil
	})
	return outcome, err
}

// planDeleteUnknown deletes a name of which only the owner's record is left. It
// is deleted under the uid that the owner knows, so that the owner obeys.
func (c *Client) planDeleteUnknown(ctx context.Context, name string, obj bucket.Object, att attempt) (record, error) {
	s, err := c.session(ctx, name)
	if err != nil {
		return nil, err
	}
	d := &Desired{
		Head: Head{Schema: Schema, Nonce: att.nonce}, Name: name, Generation: 1,
		Created: storeTime(obj.Date), State: DesiredDeleted, UID: NewUID(),
	}
	if s == nil || s.Owner == "" || s.UID == "" {
		if obj.Status == bucket.Found {
			return d, nil // damaged, and nobody owns it
		}
		return nil, &NotFoundError{What: "name", Name: name, Hint: "list the names: fleetctl ls"}
	}
	d.UID, d.Generation = s.UID, s.Generation
	d.Intent.Seq, d.WakeAt.Seq = s.Seen, s.WakeSeen
	if s.Seen > 0 {
		d.Intent.Verb = VerbRun
	}
	return d, nil
}

// session reads one ownership record; nil if there is none.
func (c *Client) session(ctx context.Context, name string) (*Session, error) {
	obj, err := c.get(ctx, PrefixSessions+name)
	if err != nil || obj.Status != bucket.Found {
		return nil, err
	}
	return DecodeSession(name, obj.Body)
}
