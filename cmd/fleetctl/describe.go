package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/barista-fleet/barista/pkg/fleet"
)

// describeBatches and describeEvents bound what describe reads and shows of a
// name's history.
const (
	describeBatches = 40
	describeEvents  = 10
)

func (a *app) describeCommand() *cli.Command {
	return &cli.Command{
		Name: "describe", Category: "names", Usage: "everything about a name, and why it is not running", ArgsUsage: "NAME",
		Action: a.describe, ShellComplete: a.completeNames(1),
	}
}

// describedJSON is one name with everything; see docs/cli-json.md.
type describedJSON struct {
	Version int `json:"version"`
	nameJSON
	Why      string          `json:"why,omitempty"`
	Next     string          `json:"next,omitempty"`
	Manifest *fleet.Manifest `json:"manifest,omitempty"`
	Desired  *fleet.Desired  `json:"desired,omitempty"`
	Session  *fleet.Session  `json:"session,omitempty"`
	Events   []fleet.Event   `json:"events"`
}

func (a *app) describe(ctx context.Context, cmd *cli.Command) error {
	name, out, c, err := a.one(ctx, cmd)
	if err != nil {
		return err
	}
	v, err := c.Get(ctx, name)
	if err != nil {
		return err
	}
	nodes, _, err := c.Nodes(ctx)
	if err != nil {
		return err
	}
	events, err := a.lastEvents(ctx, cmd, c, v)
	if err != nil {
		return err
	}
	why := fleet.Explain(v, nodes)
	if out == formatName {
		return a.line("%s", v.Name)
	}
	j := describedJSON{Version: contract, nameJSON: newNameJSON(v), Why: why.Reason, Next: why.Next, Desired: v.Desired, Session: v.Session, Events: events}
	if v.Desired != nil {
		j.Manifest = v.Desired.Manifest()
	}
	if done, err := a.emit(out, j); done {
		return err
	}
	return a.describeText(cmd, v, nodes, why, events)
}

// lastEvents reads the newest events of a name from its owner and the owner
// before, and no other node; on a single machine from its agent.
func (a *app) lastEvents(ctx context.Context, cmd *cli.Command, c *fleet.Client, v *fleet.View) ([]fleet.Event, error) {
	all := []fleet.Event{}
	if v.Session == nil {
		return all, nil
	}
	p, err := a.placeOf(cmd)
	if err != nil {
		return nil, err
	}
	if p.bucket == "" {
		agent, err := openAgent(p.agent)
		if err != nil {
			return nil, err
		}
		defer agent.Close()
		r := &agentReader{c: agent, query: fleet.EventQuery{Name: v.Name}, told: make(map[string]bool)}
		all, err = r.backlog(ctx)
		return all[max(0, len(all)-describeEvents):], err
	}
	for i, node := range []string{v.Session.LastNode, v.Session.Owner} {
		if fleet.CheckName(node) != nil || i == 1 && node == v.Session.LastNode {
			continue
		}
		events, problems, err := c.NewEventReader(fleet.EventQuery{Name: v.Name, Node: node, Batches: describeBatches}).Next(ctx)
		if err != nil {
			return nil, err
		}
		a.problems(problems)
		all = append(all, events...)
	}
	slices.SortStableFunc(all, func(a, b fleet.Event) int { return a.Time.Compare(b.Time) })
	return all[max(0, len(all)-describeEvents):], nil
}

// fields prints "key: value" lines with aligned values.
type fields struct {
	rows [][2]string
}

func (f *fields) add(key, format string, args ...any) {
	if value := fmt.Sprintf(format, args...); value != "" {
		f.rows = append(f.rows, [2]string{key, value})
	}
}

func (f *fields) print(a *app) error {
	width := 0
	for _, r := range f.rows {
		width = max(width, len(r[0]))
	}
	for _, r := range f.rows {
		if err := a.line("%-*s  %s", width+1, r[0]+":", r[1]); err != nil {
			return err
		}
	}
	return nil
}

func (a *app) describeText(cmd *cli.Command, v *fleet.View, nodes []fleet.NodeView, why fleet.Explanation, events []fleet.Event) error {
	var f fields
	f.add("name", "%s", v.Name)
	f.add("status", "%s", v.Status())
	f.add("why", "%s", why.Reason)
	f.add("next", "%s", why.Next)
	if d := v.Desired; d != nil {
		f.add("uid", "%s, generation %d", d.UID, d.Generation)
		if !d.Created.IsZero() {
			f.add("created", "%s", d.Created.Format(time.RFC3339))
		}
		f.add("etag", "%s", v.DesiredETag)
		if verb, pending := v.PendingIntent(); pending {
			f.add("asked", "%s (number %d, not carried out yet)", verb, d.Intent.Seq)
		}
		if !d.WakeAt.At.IsZero() && (v.Session == nil || v.Session.WakeSeen < d.WakeAt.Seq) {
			f.add("wakes at", "%s", d.WakeAt.At.Format(time.RFC3339))
		}
	}
	if v.Session != nil {
		describeOwner(&f, v, nodes)
		describeRun(&f, v.Session, nodes)
	}
	if err := f.print(a); err != nil {
		return err
	}
	if d := v.Desired; d != nil {
		if err := a.line("spec:"); err != nil {
			return err
		}
		m := d.Manifest()
		m.Name = ""
		for _, p := range m.Pairs() {
			if err := a.line("  %s: %s", p.Name, showValue(p.Value)); err != nil {
				return err
			}
		}
		if len(d.Spec.Unknown) > 0 {
			a.note("warning: the spec has settings of a newer version that this fleetctl does not know")
		}
	}
	if len(events) == 0 {
		return nil
	}
	if err := a.line("events:"); err != nil {
		return err
	}
	t := eventTable(nodes)
	for _, e := range events {
		t.add(e)
	}
	return t.write(a.stdout, cmd, a)
}

func describeOwner(f *fields, v *fleet.View, nodes []fleet.NodeView) {
	s := v.Session
	if s.Owner != "" {
		owner := fmt.Sprintf("%s (%s, incarnation %d)", v.NodeName(), s.Owner, s.Incarnation)
		switch v.Claim() {
		case fleet.ClaimLost:
			owner += ", lost: its incarnation has passed"
		case fleet.ClaimUnknown:
			owner += ", whose record cannot be judged"
		default: // nothing to add
		}
		f.add("node", "%s", owner)
		f.add("endpoint", "%s", s.Endpoint)
	} else {
		f.add("node", "none")
		if s.LastNode != "" {
			f.add("last node", "%s", calledIn(nodes, s.LastNode))
		}
	}
	f.add("epoch", "%d", s.Epoch)
	f.add("phase", "%s", s.Phase)
	f.add("reason", "%s", s.Reason)
}

func describeRun(f *fields, s *fleet.Session, nodes []fleet.NodeView) {
	if s.Attempt > 0 || s.Failures > 0 {
		f.add("attempts", "%d, of which %d failed", s.Attempt, s.Failures)
	}
	if e := s.Exit; e != nil {
		how := fmt.Sprintf("code %d", e.Code)
		switch {
		case e.Lost:
			how = "nobody knows how"
		case e.Signal != 0:
			how = fmt.Sprintf("signal %d", e.Signal)
		}
		if e.OOM {
			how += ", out of memory"
		}
		if e.Reason != "" {
			how += ", " + e.Reason
		}
		if !e.At.IsZero() {
			how += " at " + e.At.UTC().Format(time.RFC3339)
		}
		f.add("last exit", "%s", how)
	}
	if snap := s.Snapshot; snap.Kind != "" {
		text := fmt.Sprintf("%s on %s", snap.Kind, calledIn(nodes, snap.Node))
		if !snap.Since.IsZero() {
			text += " since " + snap.Since.UTC().Format(time.RFC3339)
		}
		f.add("snapshot", "%s, of the cold boot at epoch %d", text, snap.Lineage.Epoch)
	}
}

// calledIn is how people call the node with this id.
func calledIn(nodes []fleet.NodeView, id string) string {
	for i := range nodes {
		if nodes[i].ID == id {
			return nodes[i].Called()
		}
	}
	return id
}

// showValue writes a manifest's value on one line.
func showValue(v any) string {
	if s, ok := v.(string); ok {
		return s
	}
	b, err := toJSON(v, false)
	if err != nil {
		return fmt.Sprint(v)
	}
	return strings.TrimSpace(string(b))
}
