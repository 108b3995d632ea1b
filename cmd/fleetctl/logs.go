package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/barista-fleet/barista/internal/api"
	"github.com/barista-fleet/barista/internal/bucket"
	"github.com/barista-fleet/barista/pkg/fleet"
)

func (a *app) logsCommand() *cli.Command {
	const verb = "logs"
	return &cli.Command{
		Name: verb, Category: "names", Usage: "print what a name wrote, from this machine's agent or, once a run has ended, from the bucket", ArgsUsage: "NAME",
		Description: "The output stays on the node that runs the name; `fleetctl resolve NAME` names it. With --keep-logs in\n" +
			"the spec the end of it is in the bucket once the run has ended, and is read there from anywhere.\n" +
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
	err = a.agentLogs(ctx, cmd, names[0])
	p, perr := a.placeOf(cmd)
	said, fromAgent := errors.AsType[*api.Error](err)
	elsewhere := errors.Is(err, bucket.ErrUnreachable) || fromAgent && (said.Code == api.CodeUnreachable || said.Code == api.CodeNotFound)
	if !elsewhere || perr != nil || p.bucket == "" {
		return err
	}
	// No agent is here, or this one never ran it.
	c, cerr := a.client(ctx, cmd)
	if cerr != nil {
		return cerr
	}
	l, kerr := c.KeptLog(ctx, names[0], cmd.Bool("previous"))
	if _, none := errors.AsType[*fleet.NotFoundError](kerr); none {
		return err
	}
	if kerr != nil {
		return kerr
	}
	return a.printKept(l, cmd.Int("tail"))
}

func (a *app) agentLogs(ctx context.Context, cmd *cli.Command, name string) error {
	client, err := openAgent(cmd.String(flagAgent))
	if err != nil {
		return err
	}
	defer client.Close()
	return client.Logs(ctx, api.LogRequest{
		Name: name, Previous: cmd.Bool("previous"), Tail: cmd.Int("tail"), Follow: cmd.Bool("follow"),
	}, a.stdout, a.stderr)
}

// printKept prints the end of an output as it is in the bucket, and says on stderr
// which run that was.
func (a *app) printKept(l *fleet.RunLog, tail int) error {
	text := fmt.Sprintf("kept from the run of epoch %d on %s", l.Epoch, l.NodeName)
	if !l.Ended.IsZero() {
		text += ", which ended at " + l.Ended.UTC().Format(time.RFC3339)
	}
	if l.Dropped > 0 {
		text += fmt.Sprintf("; %d bytes before this are not kept", l.Dropped)
	}
	a.note("%s", text)
	_, err := a.stdout.Write(lastLines(l.Output, tail))
	return err
}

// lastLines returns the last n lines of text, all if n is negative.
func lastLines(text []byte, n int) []byte {
	if n < 0 {
		return text
	}
	at := len(bytes.TrimSuffix(text, []byte("\n")))
	for range n {
		if at = bytes.LastIndexByte(text[:max(at, 0)], '\n'); at < 0 {
			return text
		}
	}
	if n == 0 {
		return nil
	}
	return text[at+1:]
}
