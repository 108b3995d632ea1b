package fleet

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/barista-fleet/barista/internal/bucket"
	"github.com/barista-fleet/barista/internal/bucket/buckettest"
)

func session(name string, change func(*Spec)) *Manifest {
	m := &Manifest{Name: name, Spec: Spec{Command: []string{"sleep", "300"}}}
	if change != nil {
		change(&m.Spec)
	}
	return m
}

func job(name string) *Manifest { return session(name, func(s *Spec) { s.Kind = KindJob }) }

func plantRecord(t *testing.T, s *buckettest.Mem, key string, rec record) {
	t.Helper()
	b, err := Encode(rec)
	noError(t, err)
	s.Plant(key, b)
}

func head() Head { return Head{Schema: Schema, Nonce: NewNonce()} }

func plantNode(t *testing.T, s *buckettest.Mem, id string, incarnation uint64) {
	t.Helper()
	plantRecord(t, s, PrefixNodes+id, &Node{Head: head(), ID: id, Name: "host-" + id, Incarnation: incarnation, State: NodeLive, TTLMillis: 30000})
}

func plantSession(t *testing.T, s *buckettest.Mem, name, uid string, phase Phase, change func(*Session)) {
	t.Helper()
	rec := &Session{Head: head(), Name: name, Owner: "n1", Incarnation: 1, Epoch: 5, UID: uid, Generation: 1, Phase: phase}
	if change != nil {
		change(rec)
	}
	plantRecord(t, s, PrefixSessions+name, rec)
}

func desired(t *testing.T, s bucket.Store, name string) *Desired {
	t.Helper()
	obj, err := s.Get(t.Context(), PrefixDesired+name, "")
	noError(t, err)
	d, err := DecodeDesired(name, obj.Body)
	noError(t, err)
	return d
}

func TestInitIsOnce(t *testing.T) {
	s := newFaulty()
	c := NewClient(s, ClientConfig{})
	var none *NoFleetError
	if _, err := c.Meta(t.Context()); !asError(err, &none) {
		t.Errorf("an empty bucket: %v", err)
	}
	first, created, err := c.Init(t.Context())
	noError(t, err)
	again, createdAgain, err := c.Init(t.Context())
	noError(t, err)
	if !created || createdAgain || first.FleetID != again.FleetID || first.Created.IsZero() {
		t.Errorf("created %v as %+v, then %v as %+v", created, first, createdAgain, again)
	}
}

func TestApply(t *testing.T) {
	s := newFaulty()
	c := NewClient(s, ClientConfig{})
	ctx := t.Context()
	apply := func(m *Manifest, want Outcome) Applied {
		t.Helper()
		a, err := c.Apply(ctx, m, ApplyOptions{})
		noError(t, err)
		if a.Outcome != want {
			t.Fatalf("%s is %s, want %s", m.Name, a.Outcome, want)
		}
		return a
	}
	made := apply(session("a1", nil), OutcomeCreated)
	d := desired(t, s, "a1")
	if d.UID != made.UID || d.Generation != 1 || d.State != DesiredPresent || time.Since(d.Created).Abs() > time.Minute {
		t.Errorf("created as %+v", d)
	}
	writes := s.puts[PrefixDesired+"a1"]
	apply(session("a1", nil), OutcomeUnchanged)
	// A default that is spelled out is no change.
	apply(session("a1", func(s *Spec) { s.Kind, s.OnOwnerLoss = KindSession, OwnerLossColdBoot }), OutcomeUnchanged)
	if s.puts[PrefixDesired+"a1"] != writes {
		t.Error("an unchanged apply wrote")
	}
	conf := apply(session("a1", func(s *Spec) { s.CPUMillis = 500 }), OutcomeConfigured)
	if conf.UID != made.UID || conf.Generation != 2 || conf.ETag == made.ETag {
		t.Errorf("configured as %+v, created as %+v", conf, made)
	}
	if diff := cmp.Diff([]Change{{Field: "cpu", To: "500m"}}, conf.Changes); diff != "" {
		t.Error(diff)
	}
	alarm := session("a1", func(s *Spec) { s.CPUMillis = 500 })
	alarm.WakeAt = day
	if a := apply(alarm, OutcomeConfigured); a.Generation != 2 {
		t.Errorf("an alarm raised the generation to %d", a.Generation)
	}
	apply(alarm, OutcomeUnchanged)
}

// TestApplyDoesNotWake: applying a paused session again does not resume it, and
// configuring it leaves the operator's last verb alone.
func TestApplyDoesNotWake(t *testing.T) {
	s := newFaulty()
	c := NewClient(s, ClientConfig{})
	a, err := c.Apply(t.Context(), session("a1", nil), ApplyOptions{})
	noError(t, err)
	plantNode(t, s.Mem, "n1", 1)
	plantSession(t, s.Mem, "a1", a.UID, PhaseRunning, nil)
	_, err = c.SetIntent(t.Context(), "a1", VerbPause, "pause")
	noError(t, err)
	_, err = c.Apply(t.Context(), session("a1", func(s *Spec) { s.CPUMillis = 1 }), ApplyOptions{})
	noError(t, err)
	if d := desired(t, s, "a1"); d.Intent.Seq != 1 || d.Intent.Verb != VerbPause {
		t.Errorf("the intent became %+v", d.Intent)
	}
}

func TestApplyJobs(t *testing.T) {
	s := newFaulty()
	c := NewClient(s, ClientConfig{})
	a, err := c.Apply(t.Context(), job("j"), ApplyOptions{})
	noError(t, err)
	plantSession(t, s.Mem, "j", a.UID, PhaseCompleted, func(s *Session) { s.Owner, s.Incarnation = "", 0 })
	again, err := c.Apply(t.Context(), job("j"), ApplyOptions{})
	noError(t, err)
	if again.Outcome != OutcomeUnchanged || again.UID != a.UID {
		t.Errorf("a finished job applied again is %+v", again)
	}
	other := job("j")
	other.Spec.Command = []string{"other"}
	var conflict *ConflictError
	if _, err := c.Apply(t.Context(), other, ApplyOptions{}); !asError(err, &conflict) {
		t.Errorf("another spec under a job's name: %v", err)
	}
	if _, err := c.Apply(t.Context(), session("j", nil), ApplyOptions{}); !asError(err, &conflict) {
		t.Errorf("a job became a session: %v", err)
	}
}

// TestDeleteThenApply is the field's "destroy, then create the same name: the
// old content runs": the name begins anew under another uid, and a verb that
// was pending at its end does not reach the new one.
func TestDeleteThenApply(t *testing.T) {
	s := newFaulty()
	c := NewClient(s, ClientConfig{})
	ctx := t.Context()
	old, err := c.Apply(ctx, session("a1", nil), ApplyOptions{})
	noError(t, err)
	plantNode(t, s.Mem, "n1", 1)
	plantSession(t, s.Mem, "a1", old.UID, PhaseRunning, func(s *Session) { s.Seen = 3 })
	_, err = c.SetIntent(ctx, "a1", VerbStop, "stop") // number 4, above what was seen
	noError(t, err)
	outcome, err := c.Delete(ctx, "a1", DeleteOptions{})
	noError(t, err)
	if d := desired(t, s, "a1"); outcome != OutcomeDeleted || d.State != DesiredDeleted || d.UID != old.UID {
		t.Fatalf("%s as %+v", outcome, d)
	}
	outcome, err = c.Delete(ctx, "a1", DeleteOptions{})
	noError(t, err)
	if outcome != OutcomeUnchanged {
		t.Errorf("deleted twice: %s", outcome)
	}
	fresh, err := c.Apply(ctx, session("a1", nil), ApplyOptions{})
	noError(t, err)
	d := desired(t, s, "a1")
	if fresh.Outcome != OutcomeCreated || d.UID == old.UID || d.Generation != 1 || d.State != DesiredPresent {
		t.Errorf("made anew as %+v", d)
	}
	if d.Intent.Seq <= 4 || d.Intent.Verb != VerbRun {
		t.Errorf("the old life's stop is still asked for: %+v", d.Intent)
	}
	v, err := c.Get(ctx, "a1")
	noError(t, err)
	if v.Status() != StatusPending {
		t.Errorf("while the old one is torn down it is %s", v.Status())
	}
}

// TestApplyRestoresLostRecord: a desired record that vanished is written around
// what runs. Another uid would tear it down, and run a finished job again.
func TestApplyRestoresLostRecord(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*Session)
		want   Outcome
	}{
		{"running", nil, OutcomeAdopted},
		{"done", func(s *Session) { s.Phase, s.Owner, s.Incarnation = PhaseCompleted, "", 0 }, OutcomeAdopted},
		{"sealed for removal", func(s *Session) { s.Phase, s.Owner, s.Incarnation, s.Sealed = PhaseCompleted, "", 0, true }, OutcomeCreated},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newFaulty()
			plantSession(t, s.Mem, "a1", "u-old", PhaseRunning, func(s *Session) {
				s.Seen, s.WakeSeen, s.Generation = 7, 2, 4
				if c.change != nil {
					c.change(s)
				}
			})
			a, err := NewClient(s, ClientConfig{}).Apply(t.Context(), session("a1", nil), ApplyOptions{})
			noError(t, err)
			d := desired(t, s, "a1")
			if a.Outcome != c.want || (d.UID == "u-old") != (c.want == OutcomeAdopted) {
				t.Fatalf("%s as %+v", a.Outcome, d)
			}
			if c.want == OutcomeAdopted && (d.Generation != 4 || d.Intent.Seq != 7) {
				t.Errorf("adopted as %+v: neither generation nor intent may move what runs", d)
			}
		})
	}
}

// TestUnknownSettingsSurviveApply: an older fleetctl must not strip what a newer
// one wrote.
func TestUnknownSettingsSurviveApply(t *testing.T) {
	s := newFaulty()
	s.Plant(PrefixDesired+"a1", []byte(`{"schema":1,"nonce":"x","name":"a1","uid":"u","generation":1,"state":"present","later":true,
		"spec":{"kind":"session","command":["sleep","300"],"gpu":2,"mounts":[{"source":"/a","target":"/b","propagation":"slave"}]},
		"intent":{"seq":1,"verb":"run","why":"x"}}`))
	c := NewClient(s, ClientConfig{})
	m := session("a1", func(s *Spec) { s.Mounts = []Mount{{Source: "/a", Target: "/b"}} })
	a, err := c.Apply(t.Context(), m, ApplyOptions{})
	noError(t, err)
	if a.Outcome != OutcomeUnchanged || !a.Unknown {
		t.Errorf("got %+v", a)
	}
	m.Spec.CPUMillis = 5
	_, err = c.Apply(t.Context(), m, ApplyOptions{})
	noError(t, err)
	for _, want := range []string{`"later":true`, `"gpu":2`, `"propagation":"slave"`, `"why":"x"`, `"cpu_milli":5`} {
		if body := string(s.Snapshot()[PrefixDesired+"a1"]); !strings.Contains(body, want) {
			t.Errorf("%s is gone from %s", want, body)
		}
	}
}

func TestApplyIfUnchangedAndDryRun(t *testing.T) {
	s := newFaulty()
	c := NewClient(s, ClientConfig{})
	dry, err := c.Apply(t.Context(), session("a1", nil), ApplyOptions{DryRun: true})
	noError(t, err)
	if _, there := s.Snapshot()[PrefixDesired+"a1"]; there || dry.Outcome != OutcomeCreated || len(s.puts) > 0 {
		t.Errorf("a dry run wrote: %+v, %v", dry, s.puts)
	}
	var conflict *ConflictError
	if _, err := c.Apply(t.Context(), session("a1", nil), ApplyOptions{IfUnchanged: `"x"`}); !asError(err, &conflict) {
		t.Errorf("if-unchanged on an absent name: %v", err)
	}
	a, err := c.Apply(t.Context(), session("a1", nil), ApplyOptions{})
	noError(t, err)
	b, err := c.Apply(t.Context(), session("a1", func(s *Spec) { s.CPUMillis = 1 }), ApplyOptions{IfUnchanged: a.ETag})
	noError(t, err)
	if _, err := c.Apply(t.Context(), session("a1", nil), ApplyOptions{IfUnchanged: a.ETag}); !asError(err, &conflict) {
		t.Errorf("if-unchanged with a stale etag (now %s): %v", b.ETag, err)
	}
}

func TestApplyAll(t *testing.T) {
	const n = 200
	s := newFaulty()
	c := NewClient(s, ClientConfig{})
	s.put = func(key string, apply func() bucket.PutResult) bucket.PutResult {
		if key == PrefixDesired+"m007" {
			return bucket.PutResult{Outcome: bucket.Rejected, Err: &bucket.Error{Op: "put", Key: key, Kind: bucket.ErrDenied}}
		}
		return apply()
	}
	var ms []Manifest
	for i := range n {
		ms = append(ms, *session(fmt.Sprintf("m%03d", i), nil))
	}
	told := map[int]bool{}
	results, errs := c.ApplyAll(t.Context(), ms, ApplyOptions{}, func(i int, _ Applied, _ error) { told[i] = true })
	for i := range n {
		if (errs[i] != nil) != (i == 7) || i != 7 && (results[i].Name != ms[i].Name || results[i].Outcome != OutcomeCreated) {
			t.Errorf("%d: %+v, %v", i, results[i], errs[i])
		}
	}
	if len(told) != n || s.puts[KeySignal] != 1 {
		t.Errorf("told of %d, rang %d times", len(told), s.puts[KeySignal])
	}
	// The order of the file is the order of the queue.
	last := time.Time{}
	for i := range n {
		if i == 7 {
			continue
		}
		d := desired(t, s, ms[i].Name)
		if !d.Created.After(last) {
			t.Fatalf("%s was created at %s, the one before at %s", d.Name, d.Created, last)
		}
		last = d.Created
	}
	sig, err := DecodeSignal(s.Snapshot()[KeySignal])
	noError(t, err)
	if len(sig.Names) != 0 {
		t.Errorf("a signal for %d names lists %d", n-1, len(sig.Names))
	}
}

func TestApplyAllInterrupted(t *testing.T) {
	s := newFaulty()
	ctx, cancel := context.WithCancel(t.Context())
	c := NewClient(s, ClientConfig{Writes: 1})
	var ms []Manifest
	for i := range 20 {
		ms = append(ms, *session(fmt.Sprintf("m%02d", i), nil))
	}
	_, errs := c.ApplyAll(ctx, ms, ApplyOptions{}, func(i int, _ Applied, _ error) {
		if i == 4 {
			cancel()
		}
	})
	for i, err := range errs {
		_, there := s.Snapshot()[PrefixDesired+ms[i].Name]
		if err == nil && !there || err != nil && there {
			t.Errorf("%s: there %v, reported %v", ms[i].Name, there, err)
		}
	}
	if errs[19] == nil || errs[0] != nil {
		t.Errorf("first %v, last %v", errs[0], errs[19])
	}
	if s.puts[KeySignal] != 1 {
		t.Error("what was applied before the interruption was not signalled")
	}
}
