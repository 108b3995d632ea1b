package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"text/tabwriter"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/barista-fleet/barista/internal/bucket/bucketurl"
	"github.com/barista-fleet/barista/internal/probe"
)

const doctorTimeout = 30 * time.Second

func doctorCommand() *cli.Command {
	return &cli.Command{
		Name:  "doctor",
		Usage: "try whether the bucket does what a fleet rests on; exit status 0 if it does",
		Flags: append([]cli.Flag{
			&cli.StringFlag{Name: "fleet-bucket", Usage: "the bucket to try", Sources: env("FLEET_BUCKET")},
		}, outputFlags()...),
		Action: func(ctx context.Context, c *cli.Command) error {
			url := c.String("fleet-bucket")
			if url == "" {
				return usageError(errors.New("no bucket to try: give --fleet-bucket URL (or BARISTA_FLEET_BUCKET)"))
			}
			ctx, cancel := context.WithTimeout(ctx, doctorTimeout)
			defer cancel()
			store, err := bucketurl.Open(ctx, url)
			if err != nil {
				return err
			}
			rep, err := probe.Run(ctx, store)
			if err != nil {
				return &exitError{code: 5, err: err}
			}
			if err := printReport(rep, c.Bool("json") || c.String("output") == "json"); err != nil {
				return err
			}
			if len(rep.Defects()) > 0 {
				return &exitError{code: 1, err: &probe.DefectError{Report: rep}}
			}
			return nil
		},
	}
}

func printReport(rep probe.Report, asJSON bool) error {
	if asJSON {
		enc := json.NewEncoder(os.Stdout)
		enc.SetIndent("", "  ")
		return enc.Encode(rep)
	}
	t := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	for _, c := range rep.Checks {
		verdict := "ok"
		switch {
		case !c.OK && c.Warning:
			verdict = "WARN"
		case !c.OK:
			verdict = "FAIL"
		}
		fmt.Fprintf(t, "%s\t%s\t%s\n", verdict, c.Name, c.Detail)
	}
	fmt.Fprintf(t, "\tconditional write, median of %s\t%v\n", rep.Store, rep.P50.Round(10*time.Microsecond))
	return t.Flush()
}
