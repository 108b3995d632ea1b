package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/barista-fleet/barista/internal/agent"
	"github.com/barista-fleet/barista/pkg/runtime/process"
)

// offlineConfig is what the commands share that work while no agent runs.
func offlineConfig(c *cli.Command) (agent.Config, error) {
	log, err := newLogger("auto", "warn")
	return agent.Config{
		DataDir: c.String("data-dir"), FleetBucket: c.String("fleet-bucket"), NodeName: c.String("node-name"),
		ShimPath: c.String("node-shim"), Runtime: "process", Cgroup: c.String("cgroup-parent"), Version: version, Log: log,
		KeepFenced: process.DefaultKeepFenced,
	}, err
}

func stopAllCommand() *cli.Command {
	return &cli.Command{
		Name:        "stop-all",
		Usage:       "end every workload of a data directory whose agent is stopped",
		Description: "In a fleet the names stay this node's until its lease ends, and then move on. To free them at once, use leave.",
		Flags: append([]cli.Flag{
			dataDirFlag(),
			&cli.DurationFlag{Name: "grace", Usage: "time between SIGTERM and SIGKILL", Value: 10 * time.Second, Sources: env("STOP_ALL_GRACE")},
		}, driverFlags()...),
		Action: func(ctx context.Context, c *cli.Command) error {
			cfg, err := offlineConfig(c)
			if err != nil {
				return err
			}
			names, err := agent.StopAll(ctx, cfg, c.Duration("grace"))
			for _, n := range names {
				fmt.Fprintln(os.Stdout, n, "stopped")
			}
			return err
		},
	}
}

func leaveCommand() *cli.Command {
	return &cli.Command{
		Name:        "leave",
		Usage:       "end this node's workloads, free its names and give its data directory up",
		Description: "The agent must be stopped first. Afterwards the data directory belongs to no fleet and can join another.",
		Flags: append([]cli.Flag{
			dataDirFlag(),
			&cli.StringFlag{Name: "fleet-bucket", Usage: "the bucket of the fleet to leave", Sources: env("FLEET_BUCKET")},
			&cli.StringFlag{Name: "node-name", Usage: "name that the node's record keeps (default: the one it had)", Sources: env("NODE_NAME")},
			&cli.BoolFlag{Name: "forget", Usage: "do not ask the bucket, because it is gone for good", Sources: env("LEAVE_FORGET")},
		}, driverFlags()...),
		Action: func(ctx context.Context, c *cli.Command) error {
			cfg, err := offlineConfig(c)
			if err != nil {
				return err
			}
			if err := agent.Leave(ctx, cfg, c.Bool("forget")); err != nil {
				return err
			}
			fmt.Fprintln(os.Stdout, "left: the data directory belongs to no fleet")
			return nil
		},
	}
}
