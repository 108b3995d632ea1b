package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/barista-fleet/barista/internal/api"
	"github.com/barista-fleet/barista/pkg/reconcile"
	"github.com/barista-fleet/barista/pkg/runtime"
)

var _ api.Agent = (*Agent)(nil)

// eventPage is how many events are read from the journal at a time.
const eventPage = 256

// Status implements api.Agent.
func (a *Agent) Status(ctx context.Context) (api.Status, error) {
	info := a.driver.Info()
	s := api.Status{
		Version: a.cfg.Version, Pid: os.Getpid(), DataDir: a.cfg.DataDir, Node: a.cfg.NodeName,
		Fleet: "single machine", Endpoint: a.cfg.Advertise,
		Driver:  api.Driver{Name: info.Driver, Isolation: info.Isolation, Capabilities: info.Capabilities, Notes: info.Notes},
		Journal: a.journalStatus(),
		Names:   []api.Name{},
	}
	if a.local == nil {
		s.Fleet = a.store.Description()
		s.Guard = a.keeper.status.Load()
		s.Requests = map[string]api.Requests{}
		for class, c := range a.meter.Counts() {
			s.Requests[class] = api.Requests{Total: c.Total, Failed: c.Failed, Conflicts: c.Conflicts}
		}
	}
	err := a.loop.Do(ctx, func(m *reconcile.Machine) { a.fill(&s, m.Snapshot()) })
	if err != nil {
		return s, err
	}
	fenced, err := a.driver.Fenced()
	if err != nil {
		s.Notes = append(s.Notes, "what is kept of lost runs cannot be listed: "+err.Error())
	}
	for _, f := range fenced {
		s.Fenced = append(s.Fenced, api.Fenced{Name: f.Ref.Name, Epoch: f.Ref.Epoch, Path: f.Path, Since: f.Since})
	}
	if state, err := a.j.Load(); err == nil {
		s.Counts.EventsPending, s.Counts.EventsDropped = state.Events, state.EventsDropped
	}
	return s, nil
}

func (a *Agent) fill(s *api.Status, snap reconcile.Snapshot) {
	s.NodeID, s.FleetID, s.Incarnation = snap.NodeID, snap.FleetID, snap.Incarnation
	s.State = map[string]api.State{
		"single machine": api.StateSingle, "live": api.StateJoined, "lapsed": api.StateLapsed, "raising": api.StateFenced,
		"leaving": api.StateDraining, "left": api.StateLeft, "halted": api.StateFailed,
	}[snap.State]
	if s.State == "" {
		s.State = api.StateStarting
	}
	s.Reason = snap.Reason
	if a.local == nil {
		left := max(snap.Deadline.Sub(snap.Now), -time.Hour).Milliseconds()
		s.DeadlineMillis = &left
	}
	s.Counts.Operations = snap.Operations
	s.Counts.Phases = map[string]int{}
	for _, n := range snap.Names {
		if !n.Held {
			continue
		}
		s.Counts.Owned++
		s.Counts.Phases[string(n.Phase)]++
		s.Names = append(s.Names, api.Name{
			Name: n.Name, Phase: string(n.Phase), Epoch: n.Epoch, Incarnation: n.Incarnation, Instance: n.Instance,
			Operation: n.Operation, Reason: n.Reason,
		})
	}
}

func (a *Agent) journalStatus() api.Journal {
	st := a.j.Stats()
	out := api.Journal{
		Batches: st.Batches, Transactions: st.Transactions, Syncs: st.Syncs, FileBytes: st.FileBytes, UsedBytes: st.UsedBytes,
		ReserveShort: st.ReserveShort, Failed: st.Failed,
	}
	if q := a.opened.Quarantined; q != nil {
		out.Quarantined = q.Path
	}
	for _, d := range a.opened.Damaged {
		out.Damaged = append(out.Damaged, d.Bucket+"/"+d.Key+": "+d.Reason)
	}
	return out
}

// Logs implements api.Agent.
func (a *Agent) Logs(ctx context.Context, req api.LogRequest, stdout, stderr io.Writer) error {
	err := a.driver.Logs(ctx, runtime.LogRequest{
		Name: req.Name, Instance: req.Instance, Previous: req.Previous, Tail: req.Tail, Follow: req.Follow, Stdout: stdout, Stderr: stderr,
	})
	if errors.Is(err, reconcile.ErrNoInstance) {
		return &api.Error{
			Code: api.CodeNotFound, Message: fmt.Sprintf("no run of %s has logs on node %s", req.Name, a.cfg.NodeName),
			Hint: "`fleetctl resolve " + req.Name + "` names the node that runs it; logs are read there",
		}
	}
	return err
}

// Events implements api.Agent: what the journal still keeps, and with Follow
// what comes.
func (a *Agent) Events(ctx context.Context, req api.EventRequest, send func(api.Event) error) error {
	next := max(req.From, 1)
	for {
		batch, err := a.j.Events(next, eventPage)
		if err != nil {
			return err
		}
		for _, e := range batch {
			next = e.Seq + 1
			if !about(e.Data, req.Name) {
				continue
			}
			if err := send(api.Event(e.Data)); err != nil {
				return err
			}
		}
		if len(batch) == eventPage {
			continue
		}
		if !req.Follow {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(a.cfg.Poll):
		}
	}
}

// Do implements api.Agent.
func (a *Agent) Do(ctx context.Context, req api.DoRequest) (any, error) {
	return nil, &api.Error{
		Code: api.CodeUnsupported, Message: fmt.Sprintf("this agent does not know the verb %q", req.Verb),
		Hint: "node-agent --help lists what it can do; the program and the agent may be of different versions",
	}
}
