package main

import (
	"context"
	"fmt"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/barista-fleet/barista/pkg/fleet"
)

// applyFiles applies every document that can be applied, names every one that
// cannot, and prints the results in the order of the documents.
func (a *app) applyFiles(ctx context.Context, cmd *cli.Command, files []string, opt fleet.ApplyOptions, out format) error {
	if err := a.onlyFiles(cmd); err != nil {
		return err
	}
	items, err := a.readManifests(files)
	if err != nil {
		return err
	}
	if opt.IfUnchanged != "" && len(items) != 1 {
		return usagef("", "--if-unchanged is for one document, and there are %d", len(items))
	}
	c, err := a.client(ctx, cmd)
	if err != nil {
		return err
	}
	var good []fleet.Manifest
	var index []int // of good[k] in items
	for i, it := range items {
		if len(it.errs) == 0 {
			good = append(good, it.manifest)
			index = append(index, i)
		}
	}
	p := a.newApplyPrinter(len(good), out, opt.DryRun)
	results, errs := c.ApplyAll(ctx, good, opt, p.done)
	if err := p.end(); err != nil {
		return err
	}
	failures := make([]error, len(items)) // one for each that failed, in order
	for k, err := range errs {
		if err != nil {
			failures[index[k]] = fmt.Errorf("%s: %w", items[index[k]].where, err)
		}
	}
	var all manyErrors
	for i, it := range items {
		all = append(all, it.errs...)
		if failures[i] != nil {
			all = append(all, failures[i])
		}
	}
	list := resultsJSON[appliedJSON]{Version: contract, Results: []appliedJSON{}}
	for k, r := range results {
		if errs[k] == nil {
			list.Results = append(list.Results, newAppliedJSON(r, opt.DryRun, false))
		}
	}
	if _, err := a.emit(out, list); err != nil {
		return err
	}
	if len(all) > 0 {
		return all
	}
	return nil
}

// onlyFiles refuses -f together with anything that makes a manifest.
func (a *app) onlyFiles(cmd *cli.Command) error {
	if args := append(cmd.Args().Slice(), a.tail...); len(args) > 0 {
		return usagef("give NAME and COMMAND, or -f", "unexpected argument %q beside -f", args[0])
	}
	names := []string{"payload", "wake-at"}
	for _, f := range fleet.Fields() {
		names = append(names, f.Flag)
	}
	for _, name := range names {
		if name != "" && cmd.IsSet(name) {
			return usagef("write it into the manifest", "--%s beside -f", name)
		}
	}
	return nil
}

// applyPrinter prints results as they come, each in its turn.
type applyPrinter struct {
	a       *app
	out     format
	dry     bool
	ready   []bool
	lines   []string
	next    int
	count   int
	started time.Time
	shown   bool // the progress line is on the screen
	live    bool // stderr is a terminal, and results are not going to one
	err     error
}

func (a *app) newApplyPrinter(n int, out format, dry bool) *applyPrinter {
	return &applyPrinter{
		a: a, out: out, dry: dry, ready: make([]bool, n), lines: make([]string, n), started: time.Now(),
		live: terminal(a.stderr) && !(terminal(a.stdout) && out != formatJSON && out != formatYAML),
	}
}

func (p *applyPrinter) done(i int, r fleet.Applied, err error) {
	p.count++
	p.ready[i] = true
	if err == nil {
		p.lines[i] = appliedLine(r, p.dry, p.out)
	}
	for ; p.next < len(p.ready) && p.ready[p.next]; p.next++ {
		p.print(p.next)
	}
	if p.live && time.Since(p.started) > time.Second {
		_, _ = fmt.Fprintf(p.a.stderr, "\r%d of %d applied", p.count, len(p.ready))
		p.shown = true
	}
}

func (p *applyPrinter) print(i int) {
	if p.lines[i] == "" || p.out == formatJSON || p.out == formatYAML || p.err != nil {
		return
	}
	p.err = p.a.line("%s", p.lines[i])
}

// end prints what an interruption left waiting for its turn.
func (p *applyPrinter) end() error {
	if p.shown {
		_, _ = fmt.Fprintln(p.a.stderr)
	}
	for ; p.next < len(p.ready); p.next++ {
		p.print(p.next)
	}
	return p.err
}
