package sim

import (
	"time"

	"github.com/barista-fleet/barista/pkg/fleet"
)

// operator is everyone who uses fleetctl: it writes desired/ and the signal, each
// write at one instant, by the rules that the client keeps (a sequence number is
// above what an owner has seen; deletion is a write; a name made anew has a new
// uid).
type operator struct{ w *world }

func (w *world) head() fleet.Head { return fleet.Head{Schema: fleet.Schema, Nonce: w.unique("op-")} }

func (o *operator) loop() {
	w := o.w
	if w.sc.operatorEvery == never {
		return
	}
	w.after(w.between(w.sc.operatorEvery/2, w.sc.operatorEvery*2), func() {
		if w.calm {
			return
		}
		o.act(w.names[w.pick(len(w.names))])
		o.loop()
	})
}

// create makes a name, or makes it anew.
func (o *operator) create(s *subject) {
	w := o.w
	s.kind = fleet.KindSession
	if w.chance(0.35) {
		s.kind = fleet.KindJob
	}
	s.desired = &fleet.Desired{
		Name: s.name, UID: w.unique("u"), Generation: 1, State: fleet.DesiredPresent,
		Created: epoch.Add(w.now), Spec: w.newSpec(s.kind),
	}
	o.write(s, "create")
}

// write stores the desired record as the operator has it, and rings.
func (o *operator) write(s *subject, what string) {
	w := o.w
	s.desired.Head = w.head()
	body, err := fleet.Encode(s.desired)
	if err != nil {
		w.fail(invariantSim, "operator: %v", err)
		return
	}
	w.store.plant(fleet.PrefixDesired+s.name, body)
	s.touched = w.now
	w.note(-1, "operator", what+" "+s.name, s.desired.Intent.Seq)
	if w.chance(0.8) {
		w.after(w.between(0, 50*time.Millisecond), func() { w.signal(fleet.Signal{Names: []string{s.name}}) })
	}
}

func (o *operator) intend(s *subject, verb fleet.Verb) {
	seq := s.desired.Intent.Seq + 1
	rec := o.w.session(s.name)
	if rec != nil {
		seq = max(seq, rec.Seen+1)
	}
	in := fleet.Intent{Seq: seq, Verb: verb}
	if verb == fleet.VerbEvict && rec != nil {
		in.Epoch = rec.Epoch
	}
	s.desired.Intent = in
	o.write(s, string(verb))
}

// act does one thing to a name.
func (o *operator) act(s *subject) {
	w := o.w
	d := s.desired
	if d.State == fleet.DesiredDeleted {
		o.create(s)
		return
	}
	switch p := w.pick(100); {
	case p < 10:
		d.State = fleet.DesiredDeleted
		o.write(s, "delete")
		if w.chance(0.5) {
			o.create(s) // before anyone can have looked
		}
	case s.kind == fleet.KindJob && p < 20:
		o.intend(s, fleet.VerbCancel)
	case s.kind == fleet.KindJob && p < 30:
		o.intend(s, fleet.VerbEvict)
	case s.kind == fleet.KindJob:
	case p < 25:
		d.Generation++
		o.write(s, "apply")
	case p < 40:
		o.intend(s, fleet.VerbPause)
	case p < 50:
		o.intend(s, fleet.VerbStop)
	case p < 70:
		o.intend(s, fleet.VerbRun)
	case p < 80:
		o.intend(s, fleet.VerbRestart)
	case p < 86:
		o.intend(s, fleet.VerbEvict)
	case p < 90:
		o.intend(s, fleet.VerbReleaseHold)
	default:
		seq := d.WakeAt.Seq + 1
		if rec := w.session(s.name); rec != nil {
			seq = max(seq, rec.WakeSeen+1)
		}
		d.WakeAt = fleet.Alarm{Seq: seq, At: epoch.Add(w.now + w.between(0, 2*w.sc.baseTTL))}
		o.write(s, "wake-at")
	}
}

// undrain takes every drain back if nobody is left to take what is given up.
func (o *operator) undrain() {
	w := o.w
	for _, n := range w.nodes {
		if _, drains := w.store.objects[fleet.PrefixDirectives+n.disk.nodeID]; !n.retired && !drains {
			return
		}
	}
	for _, n := range w.nodes {
		w.store.remove(fleet.PrefixDirectives + n.disk.nodeID)
	}
	w.note(-1, "operator", "undrain", 0)
}

// session is the ownership record as it stands in the bucket; nil if there is
// none that can be read.
func (w *world) session(name string) *fleet.Session {
	o, ok := w.store.objects[fleet.PrefixSessions+name]
	if !ok {
		return nil
	}
	rec, err := fleet.DecodeSession(name, o.body)
	if err != nil {
		return nil
	}
	return rec
}

func (w *world) nodeRecord(id string) *fleet.Node {
	o, ok := w.store.objects[fleet.PrefixNodes+id]
	if !ok {
		return nil
	}
	rec, err := fleet.DecodeNode(id, o.body)
	if err != nil {
		return nil
	}
	return rec
}
