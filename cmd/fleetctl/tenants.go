package main

import (
	"context"
	"strconv"
	"strings"

	"github.com/urfave/cli/v3"

	"github.com/barista-fleet/barista/pkg/fleet"
)

func (a *app) tenantsCommand() *cli.Command {
	const set = "tenants set"
	return &cli.Command{
		Name: "tenants", Category: "tenants", Usage: "who may have how much of the fleet",
		Commands: []*cli.Command{
			{Name: "ls", Aliases: []string{"list"}, Usage: "list tenants", Action: a.tenantsLs},
			{
				Name: "set", Usage: "make a tenant, or change what is given", ArgsUsage: "TENANT",
				Flags: []cli.Flag{
					stringFlag(set, "tier", "`free|bronze|silver|gold|diamond`: shares of 1, 2, 4, 8, 16"),
					&cli.Uint64Flag{Name: "multiplier", Usage: "multiplies the tier's share", Sources: envOf(set, "multiplier")},
					&cli.IntFlag{Name: "cap", Usage: "most names that run at once, in the fleet (0: any number)", Sources: envOf(set, "cap")},
					&cli.IntFlag{Name: "cap-per-node", Usage: "most names that run at once on one node (0: any number)", Sources: envOf(set, "cap-per-node")},
					&cli.Int64Flag{Name: "cost-cap", Usage: "most expected CPU milliseconds in flight on one node (0: any)", Sources: envOf(set, "cost-cap")},
					&cli.IntFlag{Name: "max-queued", Usage: "most names that wait on one node (0: the node's default)", Sources: envOf(set, "max-queued")},
					&cli.Int64Flag{Name: "max-queued-cost", Usage: "most expected CPU milliseconds that wait on one node (0: the node's default)", Sources: envOf(set, "max-queued-cost")},
					stringFlag(set, "prefix", "names that begin with this `PREFIX` are this tenant's alone"),
				},
				Action: a.tenantsSet, ShellComplete: a.completeTenants(),
			},
			{
				Name: "rm", Aliases: []string{"delete"}, Usage: "remove a tenant's record: its names go on as Free, without caps", ArgsUsage: "TENANT",
				Flags:  []cli.Flag{boolFlag("tenants rm", "yes", "do not ask", "y")},
				Action: a.tenantsRm, ShellComplete: a.completeTenants(),
			},
		},
	}
}

func (a *app) completeTenants() cli.ShellCompleteFunc {
	return a.complete(1, func(ctx context.Context, cmd *cli.Command) ([]string, error) {
		c, err := a.client(ctx, cmd)
		if err != nil {
			return nil, err
		}
		tenants, _, err := c.Tenants(ctx)
		var names []string
		for i := range tenants {
			names = append(names, tenants[i].Name)
		}
		return names, err
	})
}

// tenantJSON is one tenant; see docs/cli-json.md.
type tenantJSON struct {
	Name            string `json:"name"`
	Tier            string `json:"tier"`
	Multiplier      uint64 `json:"multiplier"`
	Weight          uint64 `json:"weight"`
	Cap             int    `json:"cap"`
	CapPerNode      int    `json:"cap_per_node"`
	CostCapMs       int64  `json:"cost_cap_ms"`
	MaxQueued       int    `json:"max_queued"`
	MaxQueuedCostMs int64  `json:"max_queued_cost_ms"`
	Prefix          string `json:"prefix,omitempty"`
}

func newTenantJSON(t *fleet.Tenant) tenantJSON {
	return tenantJSON{
		Name: t.Name, Tier: string(t.Tier), Multiplier: max(t.Multiplier, 1), Weight: t.Weight(),
		Cap: t.Cap, CapPerNode: t.CapPerNode, CostCapMs: t.CostCapMs,
		MaxQueued: t.MaxQueued, MaxQueuedCostMs: t.MaxQueuedCostMs, Prefix: t.Prefix,
	}
}

func (a *app) tenantsLs(ctx context.Context, cmd *cli.Command) error {
	out, err := formatOf(cmd)
	if err != nil {
		return err
	}
	if _, err := a.names(cmd, 0, 0); err != nil {
		return err
	}
	c, err := a.client(ctx, cmd)
	if err != nil {
		return err
	}
	tenants, problems, err := c.Tenants(ctx)
	if err != nil {
		return err
	}
	a.problems(problems)
	list := struct {
		Version  int           `json:"version"`
		Tenants  []tenantJSON  `json:"tenants"`
		Problems []problemJSON `json:"problems"`
	}{contract, []tenantJSON{}, problemsJSON(problems)}
	t := &table{header: []string{"TENANT", "TIER", "WEIGHT", "CAP", "PER NODE", "COST CAP", "PREFIX"}}
	for i := range tenants {
		j := newTenantJSON(&tenants[i])
		list.Tenants = append(list.Tenants, j)
		if out == formatName {
			if err := a.line("%s", j.Name); err != nil {
				return err
			}
		}
		t.add(j.Name, j.Tier, strconv.FormatUint(j.Weight, 10), limit(int64(j.Cap)), limit(int64(j.CapPerNode)), limit(j.CostCapMs), j.Prefix)
	}
	if done, err := a.emit(out, list); done || out == formatName {
		return err
	}
	if len(t.rows) == 0 {
		a.note("no tenants: every name has the share of a Free one")
		return nil
	}
	_, err = t.write(a.stdout, nil, true)
	return err
}

func limit(n int64) string {
	if n == 0 {
		return ""
	}
	return strconv.FormatInt(n, 10)
}

func (a *app) tenantsSet(ctx context.Context, cmd *cli.Command) error {
	id, out, c, err := a.one(ctx, cmd)
	if err != nil {
		return err
	}
	t, outcome, err := c.SetTenant(ctx, id, func(t *fleet.Tenant) {
		set(cmd, "tier", func(n string) { t.Tier = fleet.Tier(strings.ToLower(cmd.String(n))) })
		set(cmd, "multiplier", func(n string) { t.Multiplier = cmd.Uint64(n) })
		set(cmd, "cap", func(n string) { t.Cap = cmd.Int(n) })
		set(cmd, "cap-per-node", func(n string) { t.CapPerNode = cmd.Int(n) })
		set(cmd, "cost-cap", func(n string) { t.CostCapMs = cmd.Int64(n) })
		set(cmd, "max-queued", func(n string) { t.MaxQueued = cmd.Int(n) })
		set(cmd, "max-queued-cost", func(n string) { t.MaxQueuedCostMs = cmd.Int64(n) })
		set(cmd, "prefix", func(n string) { t.Prefix = cmd.String(n) })
	})
	if err != nil {
		return err
	}
	if done, err := a.emit(out, struct {
		Version int    `json:"version"`
		Result  string `json:"result"`
		tenantJSON
	}{contract, string(outcome), newTenantJSON(t)}); done {
		return err
	}
	if out == formatName {
		return a.line("%s", t.Name)
	}
	return a.line("tenant %s %s", t.Name, outcome)
}

// set calls apply for a flag that was given.
func set(cmd *cli.Command, flag string, apply func(flag string)) {
	if cmd.IsSet(flag) {
		apply(flag)
	}
}

func (a *app) tenantsRm(ctx context.Context, cmd *cli.Command) error {
	out, err := formatOf(cmd)
	if err != nil {
		return err
	}
	args, err := a.names(cmd, 1, 1)
	if err != nil {
		return err
	}
	if err := a.confirm(cmd, "Remove tenant "+args[0]+"?"); err != nil {
		return err
	}
	c, err := a.client(ctx, cmd)
	if err != nil {
		return err
	}
	if err := c.RemoveTenant(ctx, args[0]); err != nil {
		return err
	}
	if done, err := a.emit(out, struct {
		Version int    `json:"version"`
		Name    string `json:"name"`
		Result  string `json:"result"`
	}{contract, args[0], "removed"}); done {
		return err
	}
	if out == formatName {
		return a.line("%s", args[0])
	}
	return a.line("tenant %s removed", args[0])
}
