package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/urfave/cli/v3"

	"github.com/barista-fleet/barista/pkg/journal"
)

func journalCommand() *cli.Command {
	return &cli.Command{
		Name:  "journal",
		Usage: "look into the journal of a data directory",
		Commands: []*cli.Command{{
			Name:  "check",
			Usage: "check the whole journal file; exit status 0 if it is sound",
			Flags: []cli.Flag{dataDirFlag()},
			Action: func(_ context.Context, c *cli.Command) error {
				report, err := journal.Check(c.String("data-dir"), journal.Options{})
				if err != nil {
					return err
				}
				for _, f := range report.Findings {
					fmt.Fprintln(os.Stdout, f)
				}
				if !report.OK() {
					return &exitError{code: 1, err: errors.New("the journal is damaged; an agent that starts here sets the file aside and adopts what runs by its labels")}
				}
				fmt.Fprintln(os.Stdout, "sound")
				return nil
			},
		}},
		Action: func(context.Context, *cli.Command) error {
			return usageError(errors.New("say what to do with the journal: `node-agent journal check`"))
		},
	}
}
