package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/barista-fleet/barista/internal/api"
)

// statusTimeout bounds the question to an agent that hangs.
const statusTimeout = 5 * time.Second

func statusCommand() *cli.Command {
	return &cli.Command{
		Name:  "status",
		Usage: "say what the agent of a data directory is doing",
		Flags: append([]cli.Flag{
			dataDirFlag(),
		}, outputFlags()...),
		Action: func(ctx context.Context, c *cli.Command) error {
			ctx, cancel := context.WithTimeout(ctx, statusTimeout)
			defer cancel()
			path, err := api.SocketPath(c.String("data-dir"))
			if err != nil {
				return usageError(err)
			}
			client, err := api.NewClient(path)
			if err != nil {
				return err
			}
			defer client.Close()
			s, err := client.Status(ctx)
			if err != nil {
				return &exitError{code: 5, err: err}
			}
			switch out := c.String("output"); {
			case c.Bool("json") || out == "json":
				enc := json.NewEncoder(os.Stdout)
				enc.SetIndent("", "  ")
				return enc.Encode(s)
			case out == "table":
				return printStatus(os.Stdout, s)
			default:
				return usageError(fmt.Errorf("bad -o %q: table or json", out))
			}
		},
	}
}

func printStatus(w io.Writer, s api.Status) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	row := func(k, format string, args ...any) { fmt.Fprintf(t, "%s\t%s\n", k, fmt.Sprintf(format, args...)) }
	row("node", "%s (%s)", s.Node, s.NodeID)
	row("state", "%s, incarnation %d", s.State, s.Incarnation)
	if s.Reason != "" {
		row("", "%s", s.Reason)
	}
	row("fleet", "%s", s.Fleet)
	if s.DeadlineMillis != nil {
		row("lease", "%v left", time.Duration(*s.DeadlineMillis)*time.Millisecond)
	}
	row("runtime", "%s: %s", s.Driver.Name, s.Driver.Isolation)
	for _, n := range s.Driver.Notes {
		row("", "%s", n)
	}
	if g := s.Guard; g != nil && g.Pid != 0 {
		row("guard", "%s", strings.TrimSpace(fmt.Sprintf("pid %d %s", g.Pid, g.Cgroup)))
	} else if g != nil {
		row("guard", "none: %s", g.Reason)
	}
	row("owned", "%d names, %d operations in flight", s.Counts.Owned, s.Counts.Operations)
	row("pid", "%d, version %s", s.Pid, s.Version)
	for _, f := range s.Fenced {
		row("kept", "%s of epoch %d, lost at %s: %s", f.Name, f.Epoch, f.Since.Format(time.RFC3339), f.Path)
	}
	if len(s.Names) > 0 {
		fmt.Fprintln(t, "\nNAME\tPHASE\tEPOCH\tDETAIL")
	}
	for _, n := range s.Names {
		fmt.Fprintf(t, "%s\t%s\t%d\t%s\n", n.Name, n.Phase, n.Epoch, n.Reason)
	}
	return t.Flush()
}
