package main

import (
	"context"

	"github.com/urfave/cli/v3"

	"github.com/barista-fleet/barista/internal/agent"
)

// guardCommand is what the agent starts beside itself. It is not for people.
func guardCommand() *cli.Command {
	return &cli.Command{
		Name: "guard", Hidden: true, Usage: "end workloads that must not outlive the node's lease",
		Flags: []cli.Flag{dataDirFlag()},
		Action: func(ctx context.Context, c *cli.Command) error {
			log, err := newLogger("text", "info")
			if err != nil {
				return err
			}
			return agent.Guard(ctx, c.String("data-dir"), log)
		},
	}
}
