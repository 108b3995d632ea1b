package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/urfave/cli/v3"

	"github.com/barista-fleet/barista/internal/api"
	"github.com/barista-fleet/barista/pkg/fleet"
)

func (a *app) eventsCommand() *cli.Command {
	const verb = "events"
	return &cli.Command{
		Name: verb, Category: "names", Usage: "what happened: claims, starts, exits, pauses, fences", ArgsUsage: "[NAME]",
		Flags: []cli.Flag{
			boolFlag(verb, "watch", "go on and print what comes", "w"),
			stringFlag(verb, "node", "only events told by this `NODE`"),
			stringFlag(verb, "since", "only events of this `DURATION`: 10m, 1h"),
			&cli.IntFlag{Name: "tail", Value: 200, Usage: "at most this many, the newest (0: all)", Sources: envOf(verb, "tail")},
			&cli.DurationFlag{Name: "interval", Value: time.Second, Usage: "how often a watch looks", Sources: envOf(verb, "interval")},
		},
		Action: a.events, ShellComplete: a.completeNames(1),
	}
}

// eventJSON is one event of the stream; see docs/cli-json.md.
type eventJSON struct {
	Version  int    `json:"version"`
	NodeName string `json:"node_name,omitempty"`
	fleet.Event
}

func (a *app) events(ctx context.Context, cmd *cli.Command) error {
	out, err := formatOf(cmd)
	if err != nil {
		return err
	}
	if out == formatYAML || out == formatName {
		return usagef("use -o json, table or wide", "events have no %s form", out)
	}
	names, err := a.names(cmd, 0, 1)
	if err != nil {
		return err
	}
	var query fleet.EventQuery
	if len(names) == 1 {
		if query.Name = names[0]; fleet.CheckName(query.Name) != nil {
			return fleet.CheckName(query.Name)
		}
	}
	after := time.Time{}
	if since := cmd.String("since"); since != "" {
		ms, err := fleet.ParseMillis(since)
		if err != nil {
			return usagef("", "--since: %v", err)
		}
		after = time.Now().Add(-time.Duration(ms) * time.Millisecond)
	}
	c, err := a.client(ctx, cmd)
	if err != nil {
		return err
	}
	nodes, _, err := c.Nodes(ctx)
	if err != nil {
		return err
	}
	if called := cmd.String("node"); called != "" {
		n, err := fleet.FindNode(nodes, called)
		if err != nil {
			return err
		}
		query.Node = n.ID
	}
	tell := &eventTeller{a: a, cmd: cmd, out: out, after: after, tail: cmd.Int("tail"), lines: eventTable(nodes)}
	p, err := a.placeOf(cmd)
	if err != nil {
		return err
	}
	if p.bucket == "" {
		return a.agentEvents(ctx, p, query, tell)
	}
	return a.bucketEvents(ctx, c.NewEventReader(query), tell)
}

// bucketEvents tells what the nodes have put into the bucket.
func (a *app) bucketEvents(ctx context.Context, reader *fleet.EventReader, tell *eventTeller) error {
	watch := tell.cmd.Bool("watch")
	for first := true; ; first = false {
		events, problems, err := reader.Next(ctx)
		if ctx.Err() != nil && watch {
			return nil // interrupted: that is how a watch ends
		}
		if err != nil {
			return err
		}
		a.problems(problems)
		if first && reader.Skipped > 0 {
			a.note("%d older batches of events were not read", reader.Skipped)
		}
		if err := tell.some(events, first); err != nil || !watch {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(max(tell.cmd.Duration("interval"), minInterval)):
		}
	}
}

// agentReader reads the events that the agent of a single machine keeps, each
// once.
type agentReader struct {
	c     *api.Client
	query fleet.EventQuery
	told  map[string]bool
}

// read calls fn with each event that it has not told before; with follow it goes
// on until ctx ends.
func (r *agentReader) read(ctx context.Context, follow bool, fn func(fleet.Event) error) error {
	return r.c.Events(ctx, api.EventRequest{Name: r.query.Name, Follow: follow}, func(raw api.Event) error {
		var e fleet.Event
		if err := json.Unmarshal(raw, &e); err != nil {
			return fmt.Errorf("the agent sent an event that cannot be read: %w", err)
		}
		if r.told[e.ID] || r.query.Name != "" && e.Name != r.query.Name || r.query.Node != "" && e.Node != r.query.Node {
			return nil
		}
		r.told[e.ID] = true
		return fn(e)
	})
}

// backlog returns what the agent has kept so far, oldest first.
func (r *agentReader) backlog(ctx context.Context) ([]fleet.Event, error) {
	events := []fleet.Event{}
	err := r.read(ctx, false, func(e fleet.Event) error {
		events = append(events, e)
		return nil
	})
	return events, err
}

// agentEvents tells what the agent of a single machine keeps.
func (a *app) agentEvents(ctx context.Context, p place, query fleet.EventQuery, tell *eventTeller) error {
	c, err := openAgent(p.agent)
	if err != nil {
		return err
	}
	defer c.Close()
	r := &agentReader{c: c, query: query, told: make(map[string]bool)}
	events, err := r.backlog(ctx)
	if err == nil {
		err = tell.some(events, true)
	}
	if err != nil || !tell.cmd.Bool("watch") {
		return err
	}
	err = r.read(ctx, true, func(e fleet.Event) error { return tell.some([]fleet.Event{e}, false) })
	if ctx.Err() != nil {
		return nil // interrupted: that is how a watch ends
	}
	return err
}

// eventTeller prints events in the form that was asked for.
type eventTeller struct {
	a     *app
	cmd   *cli.Command
	out   format
	after time.Time
	tail  int
	lines *eventLines
}

// some prints events; the first ones only as far as they are wanted.
func (t *eventTeller) some(events []fleet.Event, first bool) error {
	for len(events) > 0 && events[0].Time.Before(t.after) {
		events = events[1:]
	}
	if first && t.tail > 0 && len(events) > t.tail {
		events = events[len(events)-t.tail:]
	}
	if t.out != formatJSON {
		if len(events) == 0 {
			if first && !t.cmd.Bool("watch") {
				t.a.note("no events")
			}
			return nil
		}
		for _, e := range events {
			t.lines.add(e)
		}
		return t.lines.write(t.a.stdout, t.cmd, t.a)
	}
	for _, e := range events {
		line, err := toJSON(eventJSON{Version: contract, NodeName: t.lines.called(e.Node), Event: e}, false)
		if err == nil {
			_, err = t.a.stdout.Write(line)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// eventLines prints events as they come, aligned with those before.
type eventLines struct {
	names  map[string]string // of nodes, by id
	table  table
	widths []int
	begun  bool
}

func eventTable(nodes []fleet.NodeView) *eventLines {
	t := &eventLines{names: make(map[string]string)}
	for i := range nodes {
		t.names[nodes[i].ID] = nodes[i].Called()
	}
	t.table = table{header: []string{"TIME", "NODE", "TYPE", "NAME", "EPOCH", "MESSAGE"}, column: 2}
	return t
}

func (t *eventLines) called(id string) string {
	if name := t.names[id]; name != "" {
		return name
	}
	return id
}

func (t *eventLines) add(e fleet.Event) {
	t.table.add(e.Time.UTC().Format(time.RFC3339), t.called(e.Node), string(e.Type), e.Name, number(e.Epoch), e.Message)
}

func (t *eventLines) write(w io.Writer, cmd *cli.Command, a *app) (err error) {
	if a.colors(cmd) {
		t.table.paint = paintEvent
	}
	t.widths, err = t.table.write(w, t.widths, !t.begun)
	t.begun, t.table.rows = true, nil
	return err
}

func paintEvent(s string) string {
	switch fleet.EventType(s) {
	case fleet.EventFenced, fleet.EventDegraded, fleet.EventHeld, fleet.EventOrphaned, fleet.EventLapsed, fleet.EventFailed:
		return "\x1b[31m" + s + "\x1b[0m"
	default:
		return s
	}
}
