package main

import (
	"context"
	"fmt"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/barista-fleet/barista/pkg/fleet"
)

func (a *app) schemaCommand() *cli.Command {
	return &cli.Command{
		Name: "schema", Category: "names", Usage: "print the JSON schema of a manifest, for editors and checks",
		Action: func(_ context.Context, cmd *cli.Command) error {
			if _, err := a.names(cmd, 0, 0); err != nil {
				return err
			}
			b, err := fleet.SchemaJSON()
			if err != nil {
				return err
			}
			_, err = a.stdout.Write(b)
			return err
		},
	}
}

func (a *app) exportCommand() *cli.Command {
	const verb = "export"
	return &cli.Command{
		Name: verb, Category: "names", Usage: "print manifests that apply -f reads: one machine's names move into a fleet this way", ArgsUsage: "[NAME…]",
		Description: "fleetctl export | fleetctl --fleet-bucket s3://fleet apply -f -\n\nJobs that have ended are left out unless they are named: applied elsewhere they would run again.",
		Flags: []cli.Flag{
			listFlag(verb, "label", "only names with this label: `K=V`, or K for any value", "l"),
			stringFlag(verb, "tenant", "only names of this `TENANT`"),
			listFlag(verb, "phase", "only names in this `STATUS`"),
			boolFlag(verb, "all", "also jobs that have ended", "a"),
		},
		Action: a.export, ShellComplete: a.completeNames(-1),
	}
}

func (a *app) export(ctx context.Context, cmd *cli.Command) error {
	out, err := formatOf(cmd)
	if err != nil {
		return err
	}
	names, err := a.names(cmd, 0, -1)
	if err != nil {
		return err
	}
	sel, err := newSelector(cmd)
	if err != nil {
		return err
	}
	c, err := a.client(ctx, cmd)
	if err != nil {
		return err
	}
	views, err := a.exported(ctx, c, names, sel, cmd.Bool("all"))
	if err != nil {
		return err
	}
	manifests := []fleet.Manifest{}
	for i := range views {
		v := &views[i]
		m := *v.Desired.Manifest()
		if v.Session != nil && v.Session.WakeSeen >= v.Desired.WakeAt.Seq {
			m.WakeAt = time.Time{} // it has rung
		}
		if len(v.Desired.Spec.Unknown) > 0 {
			a.note("warning: %s has settings of a newer version, which a manifest of this one cannot say", v.Name)
		}
		manifests = append(manifests, m)
	}
	switch out {
	case formatJSON:
		for i := range manifests {
			b, err := toJSON(&manifests[i], false)
			if err == nil {
				_, err = a.stdout.Write(b)
			}
			if err != nil {
				return err
			}
		}
		return nil
	case formatName:
		for i := range manifests {
			if err := a.line("%s", manifests[i].Name); err != nil {
				return err
			}
		}
		return nil
	default: // YAML, below
	}
	b, err := fleet.WriteYAML(manifests)
	if err != nil {
		return fmt.Errorf("encode manifests: %w", err)
	}
	_, err = a.stdout.Write(safeYAML(b))
	return err
}

// exported picks the names to export, each with a desired record.
func (a *app) exported(ctx context.Context, c *fleet.Client, names []string, sel *selector, all bool) ([]fleet.View, error) {
	if len(names) > 0 {
		var views []fleet.View
		for _, name := range names {
			v, err := c.Get(ctx, name)
			if err != nil {
				return nil, err
			}
			if v.DesiredErr != nil {
				return nil, v.DesiredErr
			}
			if v.Desired == nil {
				return nil, &fleet.NotFoundError{What: "name", Name: name, Hint: "a node owns it, but its desired record is gone: there is nothing to export"}
			}
			views = append(views, *v)
		}
		return views, nil
	}
	f, err := c.List(ctx)
	if err != nil {
		return nil, err
	}
	a.problems(f.Problems)
	var views []fleet.View
	for i := range f.Names {
		v := &f.Names[i]
		switch {
		case v.DesiredErr != nil:
			a.note("warning: %s is not exported: %v", v.Name, v.DesiredErr)
		case v.Desired == nil || v.Desired.State != fleet.DesiredPresent || !sel.match(v):
		case v.Session != nil && v.Session.Phase.Done() && v.Session.UID == v.Desired.UID && !all && len(sel.phases) == 0:
		default:
			views = append(views, *v)
		}
	}
	return views, nil
}

func (a *app) diffCommand() *cli.Command {
	const verb = "diff"
	return &cli.Command{
		Name: verb, Category: "names", Usage: "say what apply would change; exits 0 for nothing, 1 for something, more for an error",
		Flags: []cli.Flag{
			&cli.StringSliceFlag{Name: "file", Aliases: []string{"f"}, TakesFile: true, Usage: "manifests: `FILE|DIR|-`", Sources: envOf(verb, "file")},
		},
		Action: func(ctx context.Context, cmd *cli.Command) error {
			changes, err := a.diff(ctx, cmd)
			switch {
			case err != nil && worstOf(err) == exitFailed:
				return &codeError{code: exitUsage, err: err} // 1 means "it would change something"
			case err != nil:
				return err
			case changes:
				return &codeError{code: 1}
			}
			return nil
		},
	}
}

func (a *app) diff(ctx context.Context, cmd *cli.Command) (changes bool, err error) {
	out, err := formatOf(cmd)
	if err != nil {
		return false, err
	}
	if _, err := a.names(cmd, 0, 0); err != nil {
		return false, err
	}
	files := listOf(cmd, "file")
	if len(files) == 0 {
		return false, usagef("usage: fleetctl diff -f FILE", "-f is missing")
	}
	items, err := a.readManifests(files)
	if err != nil {
		return false, err
	}
	c, err := a.client(ctx, cmd)
	if err != nil {
		return false, err
	}
	var good []fleet.Manifest
	var failed manyErrors
	for _, it := range items {
		if failed = append(failed, it.errs...); len(it.errs) == 0 {
			good = append(good, it.manifest)
		}
	}
	results, errs := c.ApplyAll(ctx, good, fleet.ApplyOptions{DryRun: true}, nil)
	list := resultsJSON[appliedJSON]{Version: contract, Results: []appliedJSON{}}
	for i, r := range results {
		if errs[i] != nil {
			failed = append(failed, errs[i])
			continue
		}
		list.Results = append(list.Results, newAppliedJSON(r, true, false))
		changes = changes || r.Outcome != fleet.OutcomeUnchanged
		if out != formatJSON && out != formatYAML {
			if err := a.diffText(r, &good[i]); err != nil {
				return false, err
			}
		}
	}
	if _, err := a.emit(out, list); err != nil {
		return false, err
	}
	if len(failed) > 0 {
		return false, failed
	}
	return changes, nil
}

func (a *app) diffText(r fleet.Applied, m *fleet.Manifest) error {
	switch r.Outcome {
	case fleet.OutcomeUnchanged:
		return nil
	case fleet.OutcomeConfigured:
		if err := a.line("~ %s", r.Name); err != nil {
			return err
		}
		for _, ch := range r.Changes {
			text := "  ~ %[1]s: %[2]s -> %[3]s"
			if ch.From == nil {
				text = "  + %[1]s: %[3]s"
			} else if ch.To == nil {
				text = "  - %[1]s: %[2]s"
			}
			if err := a.line(text, ch.Field, showValue(ch.From), showValue(ch.To)); err != nil {
				return err
			}
		}
		return nil
	default: // a name that comes or goes, below
	}
	if err := a.line("+ %s", r.Name); err != nil {
		return err
	}
	for _, p := range m.Pairs()[1:] { // the first is the name
		if err := a.line("  + %s: %s", p.Name, showValue(p.Value)); err != nil {
			return err
		}
	}
	return nil
}
