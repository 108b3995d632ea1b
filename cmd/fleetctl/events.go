package main

import (
	"context"
	"io"
	"time"

	"github.com/urfave/cli/v3"

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
	return a.tellEvents(ctx, cmd, c, query, nodes, after, out)
}

func (a *app) tellEvents(ctx context.Context, cmd *cli.Command, c *fleet.Client, query fleet.EventQuery, nodes []fleet.NodeView, after time.Time, out format) error {
	reader := c.NewEventReader(query)
	t := eventTable(nodes)
	for first := true; ; first = false {
		events, problems, err := reader.Next(ctx)
		if ctx.Err() != nil && cmd.Bool("watch") {
			return nil // interrupted: that is how a watch ends
		}
		if err != nil {
			return err
		}
		a.problems(problems)
		for len(events) > 0 && events[0].Time.Before(after) {
			events = events[1:]
		}
		if tail := cmd.Int("tail"); first && tail > 0 && len(events) > tail {
			events = events[len(events)-tail:]
		}
		if first && reader.Skipped > 0 {
			a.note("%d older batches of events were not read", reader.Skipped)
		}
		for _, e := range events {
			if out != formatJSON {
				t.add(e)
				continue
			}
			line, err := toJSON(eventJSON{Version: contract, NodeName: t.called(e.Node), Event: e}, false)
			if err == nil {
				_, err = a.stdout.Write(line)
			}
			if err != nil {
				return err
			}
		}
		if out != formatJSON && len(events) > 0 {
			if err := t.write(a.stdout, cmd, a); err != nil {
				return err
			}
		}
		if !cmd.Bool("watch") {
			if first && len(events) == 0 && out != formatJSON {
				a.note("no events")
			}
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(max(cmd.Duration("interval"), minInterval)):
		}
	}
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
	}
	return s
}
