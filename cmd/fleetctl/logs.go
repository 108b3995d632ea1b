package main

import (
	"context"

	"github.com/urfave/cli/v3"

	"github.com/barista-fleet/barista/internal/api"
)

func (a *app) logsCommand() *cli.Command {
	const verb = "logs"
	return &cli.Command{
		Name: verb, Category: "names", Usage: "print what a name wrote, from the agent of the node that runs it", ArgsUsage: "NAME",
		Description: "Logs stay on the node. On another machine, `fleetctl resolve NAME` names the node to ask.\n" +
			"The agent is found by --agent, BARISTA_AGENT or at " + defaultAgent + ".",
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "follow", Aliases: []string{"f"}, Usage: "go on with what comes, until the run ends", Sources: envOf(verb, "follow")},
			&cli.BoolFlag{Name: "previous", Aliases: []string{"p"}, Usage: "of the run before the newest one", Sources: envOf(verb, "previous")},
			&cli.IntFlag{Name: "tail", Aliases: []string{"n"}, Value: -1, Usage: "only the last `N` lines", Sources: envOf(verb, "tail")},
		},
		Action: a.logs, ShellComplete: a.completeNames(1),
	}
}

func (a *app) logs(ctx context.Context, cmd *cli.Command) error {
	names, err := a.names(cmd, 1, 1)
	if err != nil {
		return err
	}
	if cmd.Int("tail") < -1 {
		return usagef("--tail 100 prints the last hundred lines", "--tail %d is not a number of lines", cmd.Int("tail"))
	}
	client, err := openAgent(cmd.String(flagAgent))
	if err != nil {
		return err
	}
	defer client.Close()
	return client.Logs(ctx, api.LogRequest{
		Name: names[0], Previous: cmd.Bool("previous"), Tail: cmd.Int("tail"), Follow: cmd.Bool("follow"),
	}, a.stdout, a.stderr)
}
