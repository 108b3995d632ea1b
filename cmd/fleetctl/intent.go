package main

import (
	"context"
	"fmt"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/barista-fleet/barista/pkg/fleet"
)

// intentVerb is a verb that asks the owner of a name for something, once.
type intentVerb struct {
	name    string
	verb    fleet.Verb
	usage   string
	already string // what to say where nothing had to be asked
	warns   string // what it costs; asked for before it is done
}

var (
	pauseVerb       = intentVerb{name: "pause", verb: fleet.VerbPause, usage: "freeze a session where it is, memory and all", already: "is paused already"}
	resumeVerb      = intentVerb{name: "resume", verb: fleet.VerbRun, usage: "let a paused session go on", already: "is not paused"}
	stopVerb        = intentVerb{name: "stop", verb: fleet.VerbStop, usage: "end a session's run; its name stays", already: "is stopped already"}
	startVerb       = intentVerb{name: "start", verb: fleet.VerbRun, usage: "run a stopped session again", already: "is not stopped"}
	restartVerb     = intentVerb{name: "restart", verb: fleet.VerbRestart, usage: "end a session's run and start it afresh"}
	cancelVerb      = intentVerb{name: "cancel", verb: fleet.VerbCancel, usage: "end a job for good", already: "is cancelled already"}
	releaseHoldVerb = intentVerb{name: "release-hold", verb: fleet.VerbReleaseHold, usage: "let a held name start afresh on another node", already: "is released already"}
	evictVerb       = intentVerb{
		name: "evict", verb: fleet.VerbEvict, usage: "take a name from its node; another starts it afresh",
		warns: "what it has in memory is lost",
	}
)

func (a *app) intentCommand(v intentVerb) *cli.Command {
	c := &cli.Command{
		Name: v.name, Category: "verbs", Usage: v.usage, ArgsUsage: "NAME…",
		Action:        func(ctx context.Context, cmd *cli.Command) error { return a.intent(ctx, cmd, v) },
		ShellComplete: a.completeNames(-1),
	}
	if v.warns != "" {
		c.Flags = append(c.Flags, boolFlag(v.name, "yes", "do not ask", "y"))
	}
	return c
}

// intentJSON is what one verb did; see docs/cli-json.md.
type intentJSON struct {
	Name    string `json:"name"`
	Verb    string `json:"verb"`
	Seq     uint64 `json:"seq,omitzero"`
	Epoch   uint64 `json:"epoch,omitzero"`
	Changed bool   `json:"changed"`
	Waiting bool   `json:"waiting,omitzero"`
}

func (a *app) intent(ctx context.Context, cmd *cli.Command, v intentVerb) error {
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
			return err
		}
	}
	c, err := a.client(ctx, cmd)
	if err != nil {
		return err
	}
	if v.warns != "" {
		if err := a.confirm(cmd, fmt.Sprintf("%s: %s. Go on?", v.name, v.warns)); err != nil {
			return err
		}
	}
	results := []intentJSON{}
	var failed manyErrors
	for _, name := range names {
		r, err := c.SetIntent(ctx, name, v.verb, v.name)
		if err != nil {
			failed = append(failed, err)
			continue
		}
		results = append(results, intentJSON{Name: name, Verb: v.name, Seq: r.Seq, Epoch: r.Epoch, Changed: r.Changed, Waiting: r.Waiting})
		switch {
		case out == formatName:
			err = a.line("%s", name)
		case out == formatJSON || out == formatYAML:
		case r.Changed:
			err = a.line("%s: %s asked for", name, v.name)
		case r.Waiting:
			err = a.line("%s: %s is asked for already", name, v.name)
		case v.already != "":
			err = a.line("%s %s", name, v.already)
		default:
			err = a.line("%s unchanged", name)
		}
		if err != nil {
			return err
		}
	}
	if _, err := a.emit(out, resultsJSON[intentJSON]{contract, results}); err != nil {
		return err
	}
	if len(failed) > 0 {
		return failed
	}
	return nil
}

func (a *app) wakeAtCommand() *cli.Command {
	const verb = "wake-at"
	return &cli.Command{
		Name: verb, Category: "verbs", Usage: "set or clear the alarm that resumes a paused session", ArgsUsage: "NAME TIME",
		Description: "TIME is 5m for that long from now, or an instant such as 2026-12-24T18:00:00Z.\nA name has one alarm; a new one replaces it.",
		Flags:       []cli.Flag{boolFlag(verb, "clear", "clear the alarm instead")},
		Action:      a.wakeAt, ShellComplete: a.completeNames(1),
	}
}

func (a *app) wakeAt(ctx context.Context, cmd *cli.Command) error {
	out, err := formatOf(cmd)
	if err != nil {
		return err
	}
	want := 2
	if cmd.Bool("clear") {
		want = 1
	}
	args, err := a.names(cmd, want, want)
	if err != nil {
		return err
	}
	var when time.Time
	if !cmd.Bool("clear") {
		if when, err = parseWhen(args[1], time.Now()); err != nil {
			return err
		}
	}
	c, err := a.client(ctx, cmd)
	if err != nil {
		return err
	}
	changed, err := c.SetAlarm(ctx, args[0], when)
	if err != nil {
		return err
	}
	j := struct {
		Version int        `json:"version"`
		Name    string     `json:"name"`
		WakeAt  *time.Time `json:"wake_at"`
		Changed bool       `json:"changed"`
	}{Version: contract, Name: args[0], Changed: changed}
	if !when.IsZero() {
		j.WakeAt = &when
	}
	switch done, err := a.emit(out, j); {
	case done:
		return err
	case out == formatName:
		return a.line("%s", args[0])
	case when.IsZero():
		return a.line("%s: alarm cleared", args[0])
	}
	return a.line("%s wakes at %s", args[0], when.Format(time.RFC3339))
}
