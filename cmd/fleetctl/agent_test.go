package main

import (
	"context"
	"io"
	"os"
	"path/filepath"

	"github.com/go-json-experiment/json"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/barista-fleet/barista/internal/api"
	"github.com/barista-fleet/barista/internal/bucket"
	"github.com/barista-fleet/barista/internal/localstore"
	"github.com/barista-fleet/barista/pkg/fleet"
	"github.com/barista-fleet/barista/pkg/journal"
)

// cmdAgent serves the local API of a machine without a bucket until the script
// ends, and makes it what fleetctl speaks to:
//
//	agent           a single machine's, which owns the name a2
//	agent fleet     a fleet member's, which has no objects of its own
func cmdAgent(ts *testscript.TestScript, _ bool, args []string) {
	dir, err := os.MkdirTemp("", "agent") // $WORK may be too long for a socket
	ts.Check(err)
	j, _, err := journal.Open(dir, journal.Options{})
	ts.Check(err)
	l, err := api.Listen(j, "")
	ts.Check(err)
	store := localstore.New(j, nil)
	owned, err := fleet.Encode(&fleet.Session{Head: fleet.Head{Schema: fleet.Schema, Nonce: "x"}, Name: "a2", Owner: "here", Incarnation: 1, Epoch: 1, UID: "u", Phase: fleet.PhaseRunning})
	ts.Check(err)
	ts.Check(store.Put(context.Background(), fleet.PrefixSessions+"a2", owned, bucket.IfAbsent()).Err)
	cfg := api.Config{Store: store}
	if len(args) > 0 {
		cfg = api.Config{Fleet: "s3://acme-fleet"}
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- api.NewServer(scriptAgent{}, cfg).Serve(ctx, l) }()
	ts.Defer(func() {
		cancel()
		if err := <-done; err != nil {
			ts.Logf("agent: %v", err)
		}
		_ = j.Close()
		_ = os.RemoveAll(dir)
	})
	ts.Setenv("BARISTA_AGENT", filepath.Join(dir, api.SocketName))
	ts.Setenv("AGENT_DIR", dir)
	ts.Setenv("BARISTA_FLEET_BUCKET", "")
}

// scriptAgent is an agent that has three events to tell, one of them twice.
type scriptAgent struct{}

func (scriptAgent) Status(context.Context) (api.Status, error) { return api.Status{Node: "here"}, nil }

func (scriptAgent) Logs(context.Context, api.LogRequest, io.Writer, io.Writer) error { return nil }

func (scriptAgent) Events(_ context.Context, req api.EventRequest, send func(api.Event) error) error {
	day := "2026-12-24T18:00:00Z"
	for _, e := range []string{
		`{"id":"1","time":"` + day + `","node":"here","name":"a1","type":"CLAIMED"}`,
		`{"id":"2","time":"` + day + `","node":"here","name":"a2","type":"STARTED"}`,
		`{"id":"1","time":"` + day + `","node":"here","name":"a1","type":"CLAIMED"}`,
	} {
		var ev fleet.Event
		if err := json.Unmarshal([]byte(e), &ev); err != nil {
			return err
		}
		if req.Name != "" && req.Name != ev.Name {
			continue
		}
		if err := send(api.Event(e)); err != nil {
			return err
		}
	}
	return nil
}

func (scriptAgent) Do(context.Context, api.DoRequest) (any, error) {
	return nil, &api.Error{Code: api.CodeUnsupported, Message: "no verbs here"}
}
