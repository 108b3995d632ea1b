package main

import (
	"context"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/barista-fleet/barista/pkg/fleet"
)

func (a *app) cordonCommand() *cli.Command {
	const verb = "cordon"
	return &cli.Command{
		Name: verb, Category: "nodes", Usage: "let a node claim nothing new; what it owns stays", ArgsUsage: "NODE",
		Flags: []cli.Flag{stringFlag(verb, "reason", "why, for others to read")},
		Action: func(ctx context.Context, cmd *cli.Command) error {
			yes := true
			_, err := a.direct(ctx, cmd, fleet.DirectiveChange{Cordon: &yes, Reason: cmd.String("reason")}, "cordoned")
			return err
		},
		ShellComplete: a.completeNodes(),
	}
}

func (a *app) uncordonCommand() *cli.Command {
	return &cli.Command{
		Name: "uncordon", Category: "nodes", Usage: "end a cordon or a drain: the node may claim again", ArgsUsage: "NODE",
		Action: func(ctx context.Context, cmd *cli.Command) error {
			no := false
			_, err := a.direct(ctx, cmd, fleet.DirectiveChange{Cordon: &no, Drain: &no}, "uncordoned")
			return err
		},
		ShellComplete: a.completeNodes(),
	}
}

func (a *app) drainCommand() *cli.Command {
	const verb = "drain"
	return &cli.Command{
		Name: verb, Category: "nodes", Usage: "let a node give its names up and claim nothing; says what keeps it", ArgsUsage: "NODE",
		Description: "Sessions are stopped, freed and start afresh elsewhere. Running jobs, paused sessions, running ones with\n" +
			"on_owner_loss: hold, and orphans keep the node, until the deadline if one is given. The node stays in the\n" +
			"fleet and claims again after `fleetctl uncordon`; `node-agent leave` takes it out.",
		Flags: []cli.Flag{
			stringFlag(verb, "deadline", "after this `DURATION` the node no longer waits for what keeps it"),
			stringFlag(verb, "reason", "why, for others to read"),
		},
		Action: a.drain, ShellComplete: a.completeNodes(),
	}
}

// direct writes what a node is asked for, and prints it.
func (a *app) direct(ctx context.Context, cmd *cli.Command, change fleet.DirectiveChange, word string) (*fleet.NodeView, error) {
	called, out, c, err := a.one(ctx, cmd)
	if err != nil {
		return nil, err
	}
	nodes, _, err := c.Nodes(ctx)
	if err != nil {
		return nil, err
	}
	n, err := fleet.FindNode(nodes, called)
	if err != nil {
		return nil, err
	}
	d, changed, err := c.Direct(ctx, n.ID, cmd.Name, change)
	if err != nil {
		return nil, err
	}
	return n, a.printDirective(out, n, d, changed, word)
}

func (a *app) printDirective(out format, n *fleet.NodeView, d *fleet.Directive, changed bool, word string) error {
	done, err := a.emit(out, struct {
		Version   int            `json:"version"`
		ID        string         `json:"id"`
		Node      string         `json:"node"`
		Changed   bool           `json:"changed"`
		Directive *directiveJSON `json:"directive"`
	}{contract, n.ID, n.Called(), changed, newDirectiveJSON(d)})
	switch {
	case done:
		return err
	case out == formatName:
		return a.line("%s", n.Called())
	case !changed:
		return a.line("%s unchanged", n.Called())
	}
	return a.line("%s %s", n.Called(), word)
}

// drainedName is one name that a draining node owns, and how it will go.
type drainedName struct {
	Name   string `json:"name"`
	Status string `json:"status"`
	Blocks bool   `json:"blocks"`
	How    string `json:"how"`
}

func (a *app) drain(ctx context.Context, cmd *cli.Command) error {
	out, err := formatOf(cmd)
	if err != nil {
		return err
	}
	args, err := a.names(cmd, 1, 1)
	if err != nil {
		return err
	}
	yes := true
	change := fleet.DirectiveChange{Cordon: &yes, Drain: &yes, Reason: cmd.String("reason")}
	if s := cmd.String("deadline"); s != "" {
		ms, err := fleet.ParseMillis(s)
		if err != nil || ms == 0 {
			return usagef("write 30s, 10m or 1h", "--deadline: %q is no duration", s)
		}
		change.Deadline = time.Duration(ms) * time.Millisecond
	}
	c, err := a.client(ctx, cmd)
	if err != nil {
		return err
	}
	f, err := c.List(ctx)
	if err != nil {
		return err
	}
	n, err := fleet.FindNode(f.Nodes, args[0])
	if err != nil {
		return err
	}
	d, changed, err := c.Direct(ctx, n.ID, cmd.Name, change)
	if err != nil {
		return err
	}
	names := []drainedName{}
	for i := range f.Names {
		v := &f.Names[i]
		if v.Session == nil || v.Session.Owner != n.ID || v.Claim() == fleet.ClaimLost || v.Session.Phase.Done() {
			continue
		}
		names = append(names, drainOf(v))
	}
	done, err := a.emit(out, struct {
		Version   int            `json:"version"`
		ID        string         `json:"id"`
		Node      string         `json:"node"`
		Changed   bool           `json:"changed"`
		Directive *directiveJSON `json:"directive"`
		Names     []drainedName  `json:"names"`
	}{contract, n.ID, n.Called(), changed, newDirectiveJSON(d), names})
	if done {
		return err
	}
	if err := a.printDirective(out, n, d, changed, "draining"); err != nil || out == formatName {
		return err
	}
	t := &table{header: []string{"NAME", "STATUS", "HOW IT GOES"}, column: 1}
	if a.colors(cmd) {
		t.paint = paintStatus
	}
	for _, x := range names {
		t.add(x.Name, x.Status, x.How)
	}
	if len(t.rows) == 0 {
		return a.line("nothing keeps it: it owns no name")
	}
	_, err = t.write(a.stdout, nil, true)
	return err
}

// drainOf says how a name leaves a draining node, and whether it keeps the node.
func drainOf(v *fleet.View) drainedName {
	x := drainedName{Name: v.Name, Status: string(v.Status())}
	alive := v.Session.Phase == fleet.PhaseRunning || v.Session.Phase == fleet.PhaseStarting
	switch {
	case v.Status() == fleet.StatusOrphaned:
		x.Blocks, x.How = true, "has no desired record, and runs until the deadline or fleetctl delete "+v.Name
	case v.Session.Phase == fleet.PhasePaused:
		x.Blocks, x.How = true, "its memory is here: fleetctl resume, evict or delete "+v.Name
	case v.Desired != nil && v.Desired.Spec.OnOwnerLoss == fleet.OwnerLossHold && alive:
		x.Blocks, x.How = true, "its policy keeps its memory: fleetctl evict or stop "+v.Name
	case v.Desired != nil && v.Desired.Spec.Kind == fleet.KindJob && alive:
		x.Blocks, x.How = true, "runs to its end, or until the deadline"
	default:
		x.How = "moves"
	}
	return x
}
