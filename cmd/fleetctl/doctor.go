package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/barista-fleet/barista/internal/bucket"
	"github.com/barista-fleet/barista/internal/probe"
	"github.com/barista-fleet/barista/pkg/fleet"
)

// doctorTimeout bounds the examination of a store that answers slowly.
const doctorTimeout = 60 * time.Second

func (a *app) doctorCommand() *cli.Command {
	return &cli.Command{
		Name: "doctor", Category: "setup", Usage: "try whether the bucket does what a fleet rests on, and look for what is odd in it",
		Description: "Writes, races and removes a few small objects under probe/. With credentials that may only read, it says so and looks at the rest.\n" +
			"Exits 0 if the fleet is fit, 1 if the bucket is not.",
		Action: a.doctor,
	}
}

type doctorJSON struct {
	Version int           `json:"version"`
	Store   string        `json:"store"`
	Fit     bool          `json:"fit"`
	Checks  []probe.Check `json:"checks"`
	WriteMs float64       `json:"conditional_write_p50_ms,omitzero"`
}

func (a *app) doctor(ctx context.Context, cmd *cli.Command) error {
	out, err := formatOf(cmd)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, doctorTimeout)
	defer cancel()
	c, err := a.client(ctx, cmd)
	if err != nil {
		return err
	}
	p, err := a.placeOf(cmd)
	if err != nil {
		return err
	}
	var store bucket.Store
	if p.bucket != "" {
		store, err = openBucket(ctx, p.bucket)
	} else {
		store, err = openAgent(p.agent)
	}
	if err != nil {
		return err
	}
	rep, err := probe.Run(ctx, store)
	switch {
	case errors.Is(err, bucket.ErrDenied):
		rep.Checks = append(rep.Checks, probe.Check{
			Name: "may write under probe/", Warning: true,
			Detail: "these credentials may not: conditional writes were not tried. `node-agent doctor` with a node's credentials tries them",
		})
	case err != nil:
		return err
	}
	f, err := c.List(ctx)
	if err != nil {
		return err
	}
	rep.Checks = append(rep.Checks, examine(f)...)
	j := doctorJSON{Version: contract, Store: store.Description(), Fit: len(rep.Defects()) == 0, Checks: rep.Checks, WriteMs: float64(rep.P50.Microseconds()) / 1000}
	if done, err := a.emit(out, j); done {
		return errors.Join(err, unfit(rep))
	}
	t := &table{header: []string{"", "CHECK", "DETAIL"}}
	for _, check := range rep.Checks {
		t.add(verdict(check), check.Name, check.Detail)
	}
	if rep.P50 > 0 {
		t.add("", "median conditional write", rep.P50.Round(10*time.Microsecond).String())
	}
	if _, err := t.write(a.stdout, nil, true); err != nil {
		return err
	}
	return unfit(rep)
}

func verdict(c probe.Check) string {
	switch {
	case c.OK:
		return "ok"
	case c.Warning:
		return "WARN"
	}
	return "FAIL"
}

func unfit(rep probe.Report) error {
	if len(rep.Defects()) == 0 {
		return nil
	}
	return &probe.DefectError{Report: rep}
}

// examine looks for what is odd in what the fleet says of itself.
func examine(f *fleet.Fleet) []probe.Check {
	versions := map[string][]string{}
	for i := range f.Nodes {
		if n := f.Nodes[i].Node; n != nil && n.State == fleet.NodeLive {
			versions[n.Version] = append(versions[n.Version], f.Nodes[i].Called())
		}
	}
	warn := func(name string, bad []string, what string) probe.Check {
		c := probe.Check{Name: name, OK: len(bad) == 0, Warning: true}
		if !c.OK {
			c.Detail = what + ": " + strings.Join(bad[:min(len(bad), 10)], ", ")
		}
		return c
	}
	var mixed, orphans, unreadable []string
	if len(versions) > 1 {
		for v, nodes := range versions {
			mixed = append(mixed, fmt.Sprintf("%q on %s", v, strings.Join(nodes, " ")))
		}
		slices.Sort(mixed)
	}
	for i := range f.Names {
		switch v := &f.Names[i]; v.Status() {
		case fleet.StatusOrphaned:
			orphans = append(orphans, v.Name)
		case fleet.StatusUnreadable:
			unreadable = append(unreadable, v.Name)
		default: // no finding
		}
	}
	for _, p := range f.Problems {
		unreadable = append(unreadable, p.Key)
	}
	return []probe.Check{
		warn("agents are of one version", mixed, "several are live"),
		warn("every owned name is desired", orphans, "owned by a node, desired by nobody; `fleetctl delete` ends them"),
		warn("every record can be read", unreadable, "present but unreadable"),
	}
}
