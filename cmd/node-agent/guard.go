package main

import (
	"context"
	"os"

	"github.com/urfave/cli/v3"

	"github.com/barista-fleet/barista/internal/agent"
)

// guardReadyFD is where the agent that starts a guard listens for it to stand: the
// first descriptor after the standard ones.
const guardReadyFD = 3

// guardCommand is what the agent starts beside itself. It is not for people.
func guardCommand() *cli.Command {
	return &cli.Command{
		Name: "guard", Hidden: true, Usage: "end workloads that must not outlive the node's lease",
		Flags: []cli.Flag{
			dataDirFlag(),
			&cli.StringFlag{Name: "cgroup", Usage: "the group to move into", Sources: env("GUARD_CGROUP")},
			&cli.BoolFlag{Name: "ready", Usage: "say on descriptor 3 that it stands", Sources: env("GUARD_READY")},
		},
		Action: func(ctx context.Context, c *cli.Command) error {
			log, err := newLogger("text", "info")
			if err != nil {
				return err
			}
			cfg := agent.GuardConfig{DataDir: c.String("data-dir"), Cgroup: c.String("cgroup"), Log: log}
			if c.Bool("ready") {
				cfg.Up = os.NewFile(guardReadyFD, "ready")
			}
			return agent.Guard(ctx, cfg)
		},
	}
}
