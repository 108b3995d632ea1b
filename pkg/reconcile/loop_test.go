package reconcile

import (
	"context"
	"testing"
	"time"

	"github.com/barista-fleet/barista/pkg/lease"
	"github.com/barista-fleet/barista/pkg/runtime"
)

// recorder is a runtime that notes what it was asked to do.
type recorder struct {
	Runtime
	did []OpKind
}

func (r *recorder) note(k OpKind) error { r.did = append(r.did, k); return nil }

func (r *recorder) Start(_ context.Context, req runtime.StartRequest) (runtime.Workload, error) {
	return runtime.Workload{Ref: req.Ref, State: runtime.StateRunning}, r.note(OpStart)
}

func (r *recorder) Stop(_ context.Context, id string, _ time.Duration) (runtime.Workload, error) {
	return runtime.Workload{Ref: runtime.Ref{Instance: id}, State: runtime.StateExited}, r.note(OpStop)
}

func (r *recorder) Pause(context.Context, string) (string, error) { return "frozen", r.note(OpPause) }
func (r *recorder) Resume(context.Context, string) error          { return r.note(OpResume) }
func (r *recorder) Remove(context.Context, string) error          { return r.note(OpRemove) }
func (r *recorder) SetEpoch(context.Context, string, uint64, uint64) error {
	return r.note(OpSetEpoch)
}

func (r *recorder) List(context.Context) ([]runtime.Workload, error) {
	return []runtime.Workload{{Ref: runtime.Ref{Instance: "i"}}}, nil
}

// What sets a workload going or hands it a token is done only while the token
// holds, looked at right before: the decision may be older than a long pause.
func TestTheTokenIsLookedAtRightBeforeTheEffect(t *testing.T) {
	const now = lease.Instant(100)
	holds := &Publish{Deadline: now + 1, Incarnation: 3}
	for name, tc := range map[string]struct {
		token *Publish
		alone bool
		want  bool // of what needs it
	}{
		"it holds":            {token: holds, want: true},
		"its deadline came":   {token: &Publish{Deadline: now, Incarnation: 3}},
		"another incarnation": {token: &Publish{Deadline: now + 1, Incarnation: 4}},
		"none was published":  {},
		"no fleet":            {alone: true, want: true},
	} {
		for _, kind := range []OpKind{OpStart, OpStop, OpPause, OpResume, OpSetEpoch, OpRemove} {
			t.Run(name+"/"+kind.String(), func(t *testing.T) {
				r := &recorder{}
				l := &Loop{Machine: &Machine{cfg: Config{Fleet: !tc.alone}}, Runtime: r, Now: func() lease.Instant { return now }}
				l.token.Store(tc.token)
				done := l.operate(t.Context(), RunOp{Kind: kind, Instance: "i", Inc: 3})
				want := tc.want || !kind.Needs()
				if got := len(r.did) == 1; got != want || done.Withdrawn == want {
					t.Errorf("done %v, withdrawn %v; want done %v", r.did, done.Withdrawn, want)
				}
			})
		}
	}
}
