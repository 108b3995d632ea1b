package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/urfave/cli/v3"

	"github.com/barista-fleet/barista/pkg/fleet"
)

// app is one invocation.
type app struct {
	stdin  io.Reader
	stdout io.Writer
	stderr io.Writer

	// tail is what stands behind the first "--". The command line is cut there
	// before it is parsed, so that a workload's own flags are never taken for
	// fleetctl's, whatever they look like.
	tail []string
	cut  bool
	args []string // what stands before it
}

// completionFlag is what the completion scripts append to a half-typed line.
const completionFlag = "--generate-shell-completion"

// run is the whole program: it parses, acts, reports, and returns the exit code.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	a := &app{stdin: stdin, stdout: stdout, stderr: stderr}
	if i := slices.Index(args, "--"); i >= 0 {
		if len(args) > i+1 && args[len(args)-1] == completionFlag {
			return exitOK // nothing can be suggested for a workload's arguments
		}
		a.cut, a.tail, args = true, args[i+1:], args[:i:i]
	}
	a.args = args
	root := a.root()
	err := root.Run(ctx, args)
	var acted *actionError
	if err != nil && !errors.As(err, &acted) {
		err = asUsage(root, err)
	}
	return a.report(root, err)
}

// actionError marks what a verb returned, as opposed to what parsing did.
type actionError struct{ err error }

func (e *actionError) Error() string { return e.err.Error() }
func (e *actionError) Unwrap() error { return e.err }

func (a *app) root() *cli.Command {
	root := &cli.Command{
		Name:  "fleetctl",
		Usage: "say what a fleet should run, and see what it does",
		Description: "Where the fleet is, is said by --fleet-bucket or BARISTA_FLEET_BUCKET:\n" +
			"s3://BUCKET[/PREFIX], https://HOST/BUCKET or file:///DIRECTORY.\n" +
			"Credentials come from the usual AWS chain, never from a flag.",
		Version: versionText(),
		Flags: []cli.Flag{
			&cli.StringFlag{Name: flagBucket, Usage: "the fleet's bucket", Sources: cli.EnvVars(envBucket)},
			&cli.StringFlag{Name: flagAgent, Usage: "the socket of this machine's agent, instead of a bucket", Sources: cli.EnvVars(envAgent), TakesFile: true},
			&cli.StringFlag{Name: flagOutput, Aliases: []string{"o"}, Value: string(formatTable), Usage: "table, wide, json, yaml or name", Sources: cli.EnvVars("BARISTA_OUTPUT")},
			&cli.BoolFlag{Name: flagJSON, Usage: "the same as --output json", Sources: cli.EnvVars("BARISTA_JSON")},
			&cli.BoolFlag{Name: flagNoColor, Usage: "no colour, also on a terminal", Sources: cli.EnvVars("BARISTA_NO_COLOR")},
			&cli.BoolFlag{Name: flagVerbose, Aliases: []string{"v"}, Usage: "say every request to the bucket on stderr", Sources: cli.EnvVars("BARISTA_VERBOSE")},
		},
		Commands: []*cli.Command{
			a.applyCommand(), a.lsCommand(), a.resolveCommand(), a.describeCommand(), a.deleteCommand(), a.waitCommand(),
			a.intentCommand(pauseVerb), a.intentCommand(resumeVerb), a.intentCommand(stopVerb), a.intentCommand(startVerb),
			a.intentCommand(restartVerb), a.intentCommand(cancelVerb), a.intentCommand(releaseHoldVerb), a.intentCommand(evictVerb),
			a.wakeAtCommand(), a.eventsCommand(), a.logsCommand(), a.doctorCommand(),
			a.nodesCommand(), a.nodeCommand(), a.cordonCommand(), a.uncordonCommand(), a.drainCommand(),
			a.tenantsCommand(), a.initCommand(), a.diffCommand(), a.exportCommand(), a.schemaCommand(), a.helpCommand(),
		},
		EnableShellCompletion: true,
		// A session may be called "help": only the root has that verb.
		HideHelpCommand: true,
		ExitErrHandler:  func(context.Context, *cli.Command, error) {}, // run decides the exit code
		Writer:          a.stdout,
		ErrWriter:       a.stderr,
		Reader:          a.stdin,
		ConfigureShellCompletionCommand: func(c *cli.Command) {
			c.Hidden = false
			c.Category = "setup"
			c.Usage = "print a completion script for bash, zsh or fish"
			a.settle(c)
		},
	}
	a.settle(root)
	return root
}

// settle gives every command what the parser does not hand down by itself.
func (a *app) settle(c *cli.Command) {
	c.DisableSliceFlagSeparator = true
	c.OnUsageError = func(_ context.Context, cmd *cli.Command, err error, _ bool) error { return asUsage(cmd, err) }
	if len(c.Commands) > 0 {
		c.Action = func(_ context.Context, cmd *cli.Command) error { return a.noSuchCommand(cmd) }
	} else if act := c.Action; act != nil {
		c.Action = func(ctx context.Context, cmd *cli.Command) error {
			if err := act(ctx, cmd); err != nil {
				return &actionError{err: err}
			}
			return nil
		}
	}
	for _, sub := range c.Commands {
		a.settle(sub)
	}
}

// noSuchCommand is the action of a command that only has sub-commands.
func (a *app) noSuchCommand(cmd *cli.Command) error {
	var names []string
	for _, c := range cmd.VisibleCommands() {
		names = append(names, c.Names()...)
	}
	if !cmd.Args().Present() {
		_, _ = fmt.Fprintf(a.stderr, "usage: %s VERB …\nverbs: %s\n", cmd.FullName(), strings.Join(names, ", "))
		return usagef(fmt.Sprintf("%s --help says more", cmd.FullName()), "no verb")
	}
	typed := cmd.Args().First()
	hint := fmt.Sprintf("%s --help lists the verbs", cmd.FullName())
	if best := fleet.Closest(typed, names); best != "" {
		hint = fmt.Sprintf("did you mean %s %s?", cmd.FullName(), best)
	}
	return usagef(hint, "no verb %q", typed)
}

// asUsage turns what the parser says into an error for people.
func asUsage(cmd *cli.Command, err error) error {
	if _, ok := errors.AsType[*usageError](err); ok {
		return err
	}
	help := cmd.FullName() + " --help lists the flags"
	text := err.Error()
	if name, ok := strings.CutPrefix(text, "flag provided but not defined: -"); ok {
		name = strings.TrimLeft(name, "-")
		var known []string
		for _, f := range append(slices.Clone(cmd.Flags), cmd.Root().Flags...) {
			known = append(known, f.Names()...)
		}
		if best := fleet.Closest(name, known); len(best) > 1 {
			help = "did you mean " + dashes(best) + best + "?"
		}
		return usagef(help, "unknown flag %s%s", dashes(name), name)
	}
	return usagef(help, "%s", text)
}

func dashes(name string) string {
	if len(name) == 1 {
		return "-"
	}
	return "--"
}

// listOf returns the values of a flag that may be repeated. Its variable stands for
// all repetitions, one a line: a value may have a comma in it.
func listOf(cmd *cli.Command, flag string) []string {
	given, source := cmd.StringSlice(flag), envOf(cmd.Name, flag)
	if all, ok := source.Lookup(); ok && len(given) == 1 && given[0] == all {
		return strings.FieldsFunc(all, func(r rune) bool { return r == '\n' })
	}
	return given
}

// names returns the positional arguments, of which there must be between least
// and most (most < 0: any number).
func (a *app) names(cmd *cli.Command, least, most int) ([]string, error) {
	args := append(cmd.Args().Slice(), a.tail...)
	what := "NAME"
	if cmd.ArgsUsage != "" {
		what = cmd.ArgsUsage
	}
	switch {
	case len(args) < least:
		return nil, usagef("usage: "+cmd.FullName()+" "+what, "%s is missing", strings.Fields(what)[0])
	case most == 0 && len(args) > 0:
		return nil, usagef("usage: "+cmd.FullName(), "unexpected argument %q", args[0])
	case most >= 0 && len(args) > most:
		return nil, usagef("usage: "+cmd.FullName()+" "+what, "unexpected argument %q", args[most])
	}
	return args, nil
}

// version is set by the linker.
var version string

// versionText is what the linker was told, else the module's version, else the
// commit that the program was built from.
func versionText() string {
	if version != "" {
		return version
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	v := info.Main.Version
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" && (v == "" || v == "(devel)") {
			v = s.Value
		}
	}
	if v == "" {
		return "(devel)"
	}
	return v
}

func (a *app) helpCommand() *cli.Command {
	return &cli.Command{
		Name: "help", ArgsUsage: "[VERB]", Usage: "explain a verb", Category: "setup",
		Action: func(ctx context.Context, cmd *cli.Command) error {
			at := cmd.Root()
			for _, name := range cmd.Args().Slice() {
				sub := at.Command(name)
				if sub == nil {
					var names []string
					for _, c := range at.VisibleCommands() {
						names = append(names, c.Name)
					}
					hint := at.FullName() + " --help lists the verbs"
					if best := fleet.Closest(name, names); best != "" {
						hint = "did you mean " + best + "?"
					}
					return usagef(hint, "no verb %q", name)
				}
				at = sub
			}
			if at == cmd.Root() {
				return cli.ShowRootCommandHelp(at)
			}
			return cli.ShowCommandHelp(ctx, cmd.Root(), at.Name)
		},
	}
}

// isFile returns the file behind a stream, if there is one.
func isFile(v any) (*os.File, bool) {
	f, ok := v.(*os.File)
	return f, ok && f != nil
}
