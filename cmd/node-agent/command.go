package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/barista-fleet/barista/internal/agent"
	"github.com/barista-fleet/barista/pkg/lease"
	"github.com/barista-fleet/barista/pkg/reconcile"
	"github.com/barista-fleet/barista/pkg/runtime/process"
)

func env(name string) cli.ValueSourceChain { return cli.EnvVars("BARISTA_" + name) }

// outputFlags are those of the commands that print something.
func outputFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "output", Aliases: []string{"o"}, Usage: "table or json", Value: "table", Sources: env("OUTPUT")},
		&cli.BoolFlag{Name: "json", Usage: "the same as -o json", Sources: env("JSON")},
	}
}

// driverFlags say how the driver of a data directory is opened.
func driverFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "node-shim", Usage: "path of node-shim (default: beside this program)", Sources: env("NODE_SHIM")},
		&cli.StringFlag{Name: "cgroup-parent", Usage: "cgroup v2 directory for workloads, or none (default: found by itself)", Sources: env("CGROUP_PARENT")},
	}
}

// dataDirFlag is shared by the agent and the commands that look into it.
func dataDirFlag() cli.Flag {
	return &cli.StringFlag{Name: "data-dir", Usage: "this node's state: journal, workloads, socket", Value: "/var/lib/barista", Sources: env("DATA_DIR")}
}

func command() *cli.Command {
	// Slices are given by repeating the flag; a comma is part of a value.
	return &cli.Command{
		Name:      "node-agent",
		Usage:     "run names of a fleet, or of this machine alone, on this machine",
		UsageText: "node-agent --data-dir DIR [--fleet-bucket URL] [options]\nnode-agent status|doctor|stop-all|leave|journal …",
		Version:   version,
		Description: "Without --fleet-bucket this machine stands alone and owns every name that fleetctl applies to it.\n" +
			"With one it claims names from the bucket. SIGTERM leaves the workloads running: they outlive the agent.",
		HideHelpCommand:           true,
		DisableSliceFlagSeparator: true,
		Flags:                     runFlags(),
		Commands:                  []*cli.Command{statusCommand(), doctorCommand(), stopAllCommand(), leaveCommand(), journalCommand(), guardCommand()},
		Action:                    runAgent,
		OnUsageError: func(_ context.Context, _ *cli.Command, err error, _ bool) error {
			return usageError(fmt.Errorf("%w; `node-agent --help` lists the flags", err))
		},
		ExitErrHandler: func(context.Context, *cli.Command, error) {},
	}
}

func runFlags() []cli.Flag {
	return []cli.Flag{
		dataDirFlag(),
		&cli.StringFlag{Name: "fleet-bucket", Usage: "the fleet's bucket: s3://bucket[/prefix][?endpoint=…], https://… or file:///path", Sources: env("FLEET_BUCKET")},
		&cli.StringFlag{Name: "fleet-advertise", Usage: "`HOST:PORT` that resolve gives out for this node; opaque, no port is opened", Sources: env("FLEET_ADVERTISE")},
		&cli.StringFlag{Name: "node-name", Usage: "name of this node in tables (default: the host's name)", Sources: env("NODE_NAME")},
		&cli.StringFlag{Name: "runtime", Usage: "auto or process", Value: "auto", Sources: env("RUNTIME")},
		&cli.StringSliceFlag{Name: "label", Usage: "`K=V` that specs can require of a node; may be repeated", Sources: env("LABELS")},
		&cli.StringFlag{Name: "slots", Usage: "jobs at once by size, as in sm=4,md=2,lg=1", Value: "sm=4,md=2,lg=1", Sources: env("SLOTS")},
		&cli.IntFlag{Name: "max-sessions", Usage: "sessions owned at once", Value: reconcile.DefaultMaxSessions, Sources: env("MAX_SESSIONS")},
		&cli.DurationFlag{Name: "lease-ttl", Usage: "how long this node may be silent before its names can be taken", Value: lease.DefaultTTL, Sources: env("LEASE_TTL")},
		&cli.DurationFlag{Name: "lease-renew", Usage: "time between renewals; at most a third of the ttl", Value: lease.DefaultHeartbeat, Sources: env("LEASE_RENEW")},
		&cli.DurationFlag{Name: "poll", Usage: "time between looks at the bucket", Value: reconcile.DefaultPoll, Sources: env("POLL")},
		&cli.DurationFlag{Name: "keep-fenced", Usage: "how long the working directory of a run is kept whose name this node lost", Value: process.DefaultKeepFenced, Sources: env("KEEP_FENCED")},
		&cli.StringFlag{Name: "metrics-addr", Usage: "`HOST:PORT` to serve metrics on, as 127.0.0.1:9190 (default: nowhere)", Sources: env("METRICS_ADDR")},
		&cli.StringFlag{Name: "api-group", Usage: "group that may use the agent's socket", Sources: env("API_GROUP")},
		&cli.StringFlag{Name: "node-shim", Usage: "path of node-shim (default: beside this program)", Sources: env("NODE_SHIM")},
		&cli.StringFlag{Name: "cgroup-parent", Usage: "cgroup v2 directory for workloads, or none (default: found by itself)", Sources: env("CGROUP_PARENT")},
		&cli.BoolFlag{Name: "allow-unproven-bucket", Usage: "use a bucket that failed its probe: two nodes may then own one name", Sources: env("ALLOW_UNPROVEN_BUCKET")},
		&cli.StringFlag{Name: "on-exit", Usage: "what SIGTERM does with workloads: keep leaves them running, drain ends them and frees their names", Value: "keep", Sources: env("ON_EXIT")},
		&cli.StringFlag{Name: "log-format", Usage: "auto, text or json", Value: "auto", Sources: env("LOG_FORMAT")},
		&cli.StringFlag{Name: "log-level", Usage: "debug, info, warn or error", Value: "info", Sources: env("LOG_LEVEL")},
		&cli.BoolFlag{Name: "test-no-guard", Hidden: true, Usage: "leaves the guard out, for tests", Sources: env("TEST_NO_GUARD")},
		&cli.DurationFlag{Name: "test-wall-shift", Hidden: true, Usage: "moves this process's wall clock, for tests", Sources: env("TEST_WALL_SHIFT")},
	}
}

func runAgent(ctx context.Context, c *cli.Command) error {
	if c.Args().Len() > 0 {
		return usageError(fmt.Errorf("unknown command %q; `node-agent --help` lists them", c.Args().First()))
	}
	log, err := newLogger(c.String("log-format"), c.String("log-level"))
	if err != nil {
		return usageError(err)
	}
	labels, err := parseLabels(labelsOf(c.StringSlice("label"), os.Getenv("BARISTA_LABELS")))
	if err != nil {
		return usageError(err)
	}
	slots, err := parseSlots(c.String("slots"))
	if err != nil {
		return usageError(err)
	}
	if c.Bool("allow-unproven-bucket") {
		log.Warn("a bucket that fails its probe will be used all the same")
	}
	onExit := c.String("on-exit")
	if onExit != "keep" && onExit != "drain" {
		return usageError(fmt.Errorf("bad --on-exit %q: keep or drain", onExit))
	}
	cfg := agent.Config{
		DrainOnExit: onExit == "drain", AllowUnproven: c.Bool("allow-unproven-bucket"),
		DataDir: c.String("data-dir"), NodeName: c.String("node-name"), FleetBucket: c.String("fleet-bucket"),
		Advertise: c.String("fleet-advertise"), Runtime: c.String("runtime"), Labels: labels, Slots: slots,
		MaxSessions: c.Int("max-sessions"), TTL: c.Duration("lease-ttl"), Renew: c.Duration("lease-renew"), Poll: c.Duration("poll"),
		APIGroup: c.String("api-group"), MetricsAddr: c.String("metrics-addr"),
		KeepFenced: c.Duration("keep-fenced"), ShimPath: c.String("node-shim"), Cgroup: c.String("cgroup-parent"),
		Version: version, Log: log, WallShift: c.Duration("test-wall-shift"), NoGuard: c.Bool("test-no-guard"),
	}
	if !c.IsSet("lease-renew") {
		cfg.Renew = min(lease.DefaultHeartbeat, max(cfg.TTL/6, time.Millisecond))
	}
	return agent.Run(ctx, cfg)
}

// labelsOf takes the variable's value apart, which stands for all repetitions of the
// flag: its labels are separated by commas. What is typed may have commas in it.
func labelsOf(given []string, variable string) []string {
	if len(given) == 1 && given[0] == variable {
		return strings.Split(variable, ",")
	}
	return given
}

func parseLabels(in []string) (map[string]string, error) {
	out := make(map[string]string, len(in))
	for _, s := range in {
		k, v, ok := strings.Cut(strings.TrimSpace(s), "=")
		if !ok || k == "" {
			return nil, fmt.Errorf("bad --label %q: write it as KEY=VALUE", s)
		}
		out[k] = v
	}
	return out, nil
}

func parseSlots(s string) (map[string]int, error) {
	out := map[string]int{}
	if s == "" {
		return out, nil
	}
	for part := range strings.SplitSeq(s, ",") {
		k, v, ok := strings.Cut(strings.TrimSpace(part), "=")
		n, err := strconv.Atoi(v)
		if !ok || k == "" || err != nil || n < 0 {
			return nil, errors.New("bad --slots " + strconv.Quote(s) + ": write it as sm=4,md=2,lg=1")
		}
		out[k] = n
	}
	return out, nil
}
