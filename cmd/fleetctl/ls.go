package main

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/barista-fleet/barista/pkg/fleet"
)

// minInterval bounds how often a watch asks.
const minInterval = 100 * time.Millisecond

func (a *app) lsCommand() *cli.Command {
	const verb = "ls"
	return &cli.Command{
		Name: verb, Aliases: []string{"list"}, Category: "names", Usage: "list names, where they stand and who owns them", ArgsUsage: "",
		Flags: []cli.Flag{
			boolFlag(verb, "watch", "go on and print what changes", "w"),
			listFlag(verb, "label", "only names with this label: `K=V`, or K for any value", "l"),
			stringFlag(verb, "tenant", "only names of this `TENANT`"),
			listFlag(verb, "phase", "only names in this `STATUS`: running, pending, held, …"),
			boolFlag(verb, "all", "also names that are deleted and released", "a"),
			&cli.DurationFlag{Name: "interval", Value: 2 * time.Second, Usage: "how often a watch looks", Sources: envOf(verb, "interval")},
		},
		Action: a.ls,
	}
}

// selector is which names a listing shows.
type selector struct {
	labels [][2]string // value "" with any set below
	any    []bool
	tenant string
	phases []string
	all    bool
}

func newSelector(cmd *cli.Command) (*selector, error) {
	s := &selector{tenant: cmd.String("tenant"), all: cmd.Bool("all")}
	for _, l := range listOf(cmd, "label") {
		k, v, ok := strings.Cut(l, "=")
		if k == "" {
			return nil, usagef("write -l KEY=VALUE or -l KEY", "%q selects nothing", l)
		}
		s.labels = append(s.labels, [2]string{k, v})
		s.any = append(s.any, !ok)
	}
	for _, p := range listOf(cmd, "phase") {
		word := strings.ToUpper(strings.ReplaceAll(p, "-", "_"))
		if !slices.Contains(fleet.Statuses, fleet.Status(word)) {
			all := make([]string, len(fleet.Statuses))
			for i, st := range fleet.Statuses {
				all[i] = strings.ToLower(string(st))
			}
			return nil, usagef("use "+strings.Join(all, ", "), "there is no phase %q", p)
		}
		s.phases = append(s.phases, word)
	}
	return s, nil
}

func (s *selector) match(v *fleet.View) bool {
	status := v.Status()
	if status == "" || status == fleet.StatusDeleted && !s.all && !slices.Contains(s.phases, string(status)) {
		return false
	}
	if len(s.phases) > 0 && !slices.Contains(s.phases, string(status)) {
		return false
	}
	var labels map[string]string
	tenant := ""
	if v.Desired != nil {
		labels, tenant = v.Desired.Spec.Labels, v.Desired.Spec.WithDefaults().Tenant
	}
	if s.tenant != "" && s.tenant != tenant {
		return false
	}
	for i, kv := range s.labels {
		if got, ok := labels[kv[0]]; !ok || !s.any[i] && got != kv[1] {
			return false
		}
	}
	return true
}

func (a *app) ls(ctx context.Context, cmd *cli.Command) error {
	out, err := formatOf(cmd)
	if err != nil {
		return err
	}
	if _, err := a.names(cmd, 0, 0); err != nil {
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
	if cmd.Bool("watch") {
		return a.watch(ctx, cmd, c, sel, out)
	}
	f, err := c.List(ctx)
	if err != nil {
		return err
	}
	a.problems(f.Problems)
	list := nameList{Version: contract, Names: []nameJSON{}, Problems: problemsJSON(f.Problems)}
	t := a.nameTable(cmd, out)
	for i := range f.Names {
		v := &f.Names[i]
		if !sel.match(v) {
			continue
		}
		switch out {
		case formatJSON, formatYAML:
			list.Names = append(list.Names, newNameJSON(v))
		case formatName:
			if err := a.line("%s", v.Name); err != nil {
				return err
			}
		default:
			addName(t, v, out)
		}
	}
	if done, err := a.emit(out, list); done || out == formatName {
		return err
	}
	if len(t.rows) == 0 {
		a.note("no names in %s", c.Describe())
		return nil
	}
	_, err = t.write(a.stdout, nil, true)
	return err
}

// problems says on stderr what a listing could not use.
func (a *app) problems(list []fleet.Problem) {
	for _, p := range list {
		a.note("warning: skipped %q: %v", p.Key, p.Err)
	}
}

func (a *app) nameTable(cmd *cli.Command, out format) *table {
	t := &table{header: []string{"NAME", "STATUS", "NODE", "EPOCH", "KIND", "TENANT"}, column: 1}
	if out == formatWide {
		t.header = append(t.header, "ENDPOINT", "UID", "GENERATION", "ATTEMPT", "FAILURES", "ASKED", "CREATED", "WHAT")
	}
	if a.colors(cmd) {
		t.paint = paintStatus
	}
	return t
}

func addName(t *table, v *fleet.View, out format) {
	j := newNameJSON(v)
	row := []string{j.Name, string(v.Status()), j.Node, number(j.Epoch), j.Kind, j.Tenant}
	if v.Claim() == fleet.ClaimLost && v.Status() != fleet.StatusLost && v.Status() != fleet.StatusHeld {
		row[2] += " (lost)"
	}
	if out == formatWide {
		created, what := "", ""
		if j.Created != nil {
			created = j.Created.Format(time.RFC3339)
		}
		if d := v.Desired; d != nil {
			what = strings.Join(append(slices.DeleteFunc([]string{d.Spec.Image}, func(s string) bool { return s == "" }), d.Spec.Command...), " ")
		}
		const most = 60
		if r := []rune(what); len(r) > most {
			what = string(r[:most]) + "…"
		}
		row = append(row, j.Endpoint, j.UID, number(j.Generation), number(uint64(j.Attempt)), number(uint64(j.Failures)), j.Asked, created, what)
	}
	t.add(row...)
}

func number(n uint64) string {
	if n == 0 {
		return ""
	}
	return strconv.FormatUint(n, 10)
}

// paintStatus colours a status word: green runs, yellow is on its way or waits,
// red needs somebody.
func paintStatus(s string) string {
	code := ""
	switch fleet.Status(s) {
	case fleet.StatusRunning, fleet.StatusCompleted:
		code = "32"
	case fleet.StatusPending, fleet.StatusStarting, fleet.StatusBackoff, fleet.StatusDeleting, fleet.StatusLost:
		code = "33"
	case fleet.StatusHeld, fleet.StatusFailed, fleet.StatusTimedOut, fleet.StatusOrphaned, fleet.StatusUnreadable:
		code = "31"
	default:
		return s
	}
	return "\x1b[" + code + "m" + s + "\x1b[0m"
}

// watch prints every name, and then each change of one, until it is interrupted.
func (a *app) watch(ctx context.Context, cmd *cli.Command, c *fleet.Client, sel *selector, out format) error {
	if out == formatYAML {
		return usagef("use -o json, table, wide or name", "a watch cannot be YAML")
	}
	lister := c.NewLister()
	shown := map[string]string{} // what each name last looked like
	var widths []int
	header := true
	told := map[string]bool{} // problems
	for {
		f, err := lister.List(ctx)
		if ctx.Err() != nil {
			return nil // interrupted: that is how a watch ends
		}
		if err != nil {
			return err
		}
		for _, p := range f.Problems {
			if !told[p.Key] {
				told[p.Key] = true
				a.problems([]fleet.Problem{p})
			}
		}
		t := a.nameTable(cmd, out)
		now := map[string]string{}
		for i := range f.Names {
			v := &f.Names[i]
			if !sel.match(v) {
				continue
			}
			line, err := toJSON(watchJSON{Version: contract, nameJSON: newNameJSON(v)}, false)
			if err != nil {
				return err
			}
			if now[v.Name] = string(line); shown[v.Name] == now[v.Name] {
				continue
			}
			switch out {
			case formatJSON:
				_, err = a.stdout.Write(line)
			case formatName:
				err = a.line("%s", v.Name)
			default:
				addName(t, v, out)
			}
			if err != nil {
				return err
			}
		}
		if err := a.gone(t, shown, now, out); err != nil {
			return err
		}
		shown = now
		if len(t.rows) > 0 {
			if widths, err = t.write(a.stdout, widths, header); err != nil {
				return err
			}
			header = false
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(max(cmd.Duration("interval"), minInterval)):
		}
	}
}

// gone says which names are not listed any more.
func (a *app) gone(t *table, before, now map[string]string, out format) error {
	var names []string
	for name := range before {
		if _, ok := now[name]; !ok {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		switch out {
		case formatJSON:
			line, err := toJSON(watchJSON{Version: contract, Gone: true, nameJSON: nameJSON{Name: name, Status: "gone"}}, false)
			if err == nil {
				_, err = a.stdout.Write(line)
			}
			if err != nil {
				return err
			}
		case formatName:
		default:
			t.add(name, "GONE", "", "", "", "")
		}
	}
	return nil
}
