package main

import (
	"bufio"
	"context"
	"fmt"
	"strings"

	"github.com/urfave/cli/v3"

	"github.com/barista-fleet/barista/pkg/fleet"
)

func (a *app) deleteCommand() *cli.Command {
	const verb = "delete"
	return &cli.Command{
		Name: verb, Aliases: []string{"rm"}, Category: "names", Usage: "end names for good: their owners stop them and let go", ArgsUsage: "NAME…",
		Flags: []cli.Flag{
			boolFlag(verb, "yes", "do not ask", "y"),
			boolFlag(verb, "replace-damaged", "also where the record cannot be read"),
		},
		Action: a.delete, ShellComplete: a.completeNames(-1),
	}
}

type deletedJSON struct {
	Name   string `json:"name"`
	Result string `json:"result"`
}

func (a *app) delete(ctx context.Context, cmd *cli.Command) error {
	out, err := formatOf(cmd)
	if err != nil {
		return err
	}
	names, err := a.names(cmd, 1, -1)
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := fleet.CheckName(name); err != nil {
			return err // before any of the others is deleted
		}
	}
	if err := a.confirm(cmd, fmt.Sprintf("Delete %s?", strings.Join(names, ", "))); err != nil {
		return err
	}
	c, err := a.client(ctx, cmd)
	if err != nil {
		return err
	}
	outcomes, errs := c.DeleteAll(ctx, names, fleet.DeleteOptions{ReplaceDamaged: cmd.Bool("replace-damaged")})
	var failed manyErrors
	results := []deletedJSON{}
	for i, name := range names {
		if errs[i] != nil {
			failed = append(failed, errs[i])
			continue
		}
		results = append(results, deletedJSON{Name: name, Result: string(outcomes[i])})
		switch out {
		case formatTable, formatWide:
			word := "deleted"
			if outcomes[i] == fleet.OutcomeUnchanged {
				word = "already deleted"
			}
			err = a.line("%s %s", name, word)
		case formatName:
			err = a.line("%s", name)
		default: // the other formats are written at the end
		}
		if err != nil {
			return err
		}
	}
	if _, err := a.emit(out, resultsJSON[deletedJSON]{contract, results}); err != nil {
		return err
	}
	if len(failed) > 0 {
		return failed
	}
	return nil
}

// confirm asks on a terminal, and elsewhere wants --yes: a script that waits
// for an answer would wait for ever.
func (a *app) confirm(cmd *cli.Command, question string) error {
	if cmd.Bool("yes") {
		return nil
	}
	if !terminal(a.stdin) || !terminal(a.stderr) {
		return usagef(fmt.Sprintf("say so with --yes: %s --yes …", cmd.FullName()), "not on a terminal, so it cannot be asked for")
	}
	_, _ = fmt.Fprintf(a.stderr, "%s [y/N] ", safe(question))
	answer, _ := bufio.NewReader(a.stdin).ReadString('\n')
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
		return nil
	}
	return &failedError{message: "nothing was done"}
}
