package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/barista-fleet/barista/internal/bucket"
	"github.com/barista-fleet/barista/pkg/fleet"
)

func (a *app) applyCommand() *cli.Command {
	const verb = "apply"
	flags := []cli.Flag{
		&cli.StringSliceFlag{
			Name: "file", Aliases: []string{"f"}, TakesFile: true, Sources: envOf(verb, "file"),
			Usage: "read manifests from `FILE|DIR|-` instead (YAML or JSON, any number of documents)",
		},
		boolFlag(verb, "dry-run", "say what would change and write nothing"),
		stringFlag(verb, "if-unchanged", "refuse to write over anything but this `ETAG` (describe prints it)"),
		boolFlag(verb, "replace-damaged", "write over a record that cannot be read"),
		stringFlag(verb, "payload", "hand over this `FILE` (at most 64 KiB), read-only, at $BARISTA_PAYLOAD"),
		stringFlag(verb, "wake-at", "resume the session at this `TIME`: 5m from now, or an RFC 3339 instant"),
	}
	for _, f := range fleet.Fields() {
		if f.Flag != "" {
			flags = append(flags, fieldFlag(verb, &f))
		}
	}
	return &cli.Command{
		Name: verb, Category: "names", Usage: "make a name exist, with this spec", ArgsUsage: "NAME [-- COMMAND…]",
		Description: "fleetctl apply agent-42 --image busybox:latest --digest sha256:… -- sleep 300\n" +
			"fleetctl apply -f manifests/\n\n" +
			"Applying the same again changes nothing, whatever has become of the name. A session can be\n" +
			"configured; a job's name stands for one piece of work, so another spec is a conflict.",
		Flags:  flags,
		Action: a.apply,
	}
}

// fieldFlag makes the flag of a manifest field.
func fieldFlag(verb string, f *fleet.Field) cli.Flag {
	usage := strings.TrimSuffix(f.Doc, ".")
	switch {
	case f.Bool():
		return boolFlag(verb, f.Flag, usage)
	case f.Repeats():
		return listFlag(verb, f.Flag, usage+" (`"+f.Arg+"`)")
	}
	return stringFlag(verb, f.Flag, usage+" (`"+f.Arg+"`)")
}

func (a *app) apply(ctx context.Context, cmd *cli.Command) error {
	out, err := formatOf(cmd)
	if err != nil {
		return err
	}
	opt := fleet.ApplyOptions{
		DryRun:         cmd.Bool("dry-run"),
		IfUnchanged:    bucket.ETag(cmd.String("if-unchanged")),
		ReplaceDamaged: cmd.Bool("replace-damaged"),
	}
	if cmd.IsSet("if-unchanged") && opt.IfUnchanged == "" {
		return usagef("fleetctl describe NAME -o json prints it", "--if-unchanged is empty")
	}
	if files := listOf(cmd, "file"); len(files) > 0 {
		return a.applyFiles(ctx, cmd, files, opt, out)
	}
	m, err := a.manifestOf(cmd)
	if err != nil {
		return err
	}
	c, err := a.client(ctx, cmd)
	if err != nil {
		return err
	}
	res, err := c.Apply(ctx, m, opt)
	if err != nil {
		return err
	}
	if res.Unknown {
		a.note("warning: %s keeps settings of a newer version that this fleetctl does not know", res.Name)
	}
	if done, err := a.emit(out, newAppliedJSON(res, opt.DryRun, true)); done {
		return err
	}
	return a.line("%s", appliedLine(res, opt.DryRun, out))
}

// manifestOf makes a manifest of the command line.
func (a *app) manifestOf(cmd *cli.Command) (*fleet.Manifest, error) {
	args := cmd.Args().Slice()
	const usage = "usage: fleetctl apply NAME [flags] [-- COMMAND…], or fleetctl apply -f FILE"
	switch {
	case len(args) == 0:
		return nil, usagef(usage, "NAME is missing")
	case len(args) > 1:
		return nil, usagef(fmt.Sprintf("a command stands behind --: fleetctl apply %s -- %s", args[0], strings.Join(args[1:], " ")), "unexpected argument %q", args[1])
	case a.cut && len(a.tail) == 0:
		return nil, usagef(usage, "there is no command behind --")
	}
	if err := fleet.CheckName(args[0]); err != nil {
		return nil, err
	}
	m := &fleet.Manifest{Name: args[0]}
	m.Spec.Command = a.tail
	for _, f := range fleet.Fields() {
		if f.Flag == "" || !cmd.IsSet(f.Flag) {
			continue
		}
		var values []string
		switch {
		case f.Bool():
			values = []string{fmt.Sprint(cmd.Bool(f.Flag))}
		case f.Repeats():
			values = listOf(cmd, f.Flag)
		default:
			values = []string{cmd.String(f.Flag)}
		}
		if len(values) == 0 {
			continue
		}
		if err := f.Set(m, values); err != nil {
			return nil, usagef("fleetctl apply --help lists the flags", "--%s: %v", f.Flag, err)
		}
	}
	if file := cmd.String("payload"); file != "" {
		var err error
		if m.Spec.Payload, err = readPayload(file); err != nil {
			return nil, err
		}
	}
	if when := cmd.String("wake-at"); when != "" {
		var err error
		if m.WakeAt, err = parseWhen(when, time.Now()); err != nil {
			return nil, err
		}
	}
	return m, m.Validate()
}

func readPayload(file string) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, usagef("", "--payload: %v", err)
	}
	defer func() { _ = f.Close() }()
	b, err := io.ReadAll(io.LimitReader(f, fleet.MaxPayload+1))
	switch {
	case err != nil:
		return nil, usagef("", "--payload: %v", err)
	case len(b) > fleet.MaxPayload:
		return nil, usagef("put it where the workload can fetch it", "--payload: %s is larger than %d bytes", file, fleet.MaxPayload)
	}
	return b, nil
}

// parseWhen reads "5m" as that long after now, or an instant.
func parseWhen(s string, now time.Time) (time.Time, error) {
	if ms, err := fleet.ParseMillis(s); err == nil {
		return now.Add(time.Duration(ms) * time.Millisecond).UTC().Truncate(time.Millisecond), nil
	}
	t, err := time.Parse(time.RFC3339, s)
	if err != nil {
		return time.Time{}, usagef("write 5m for that long from now, or an instant such as 2026-12-24T18:00:00Z", "%q is no time", s)
	}
	return t.UTC(), nil
}

// appliedJSON is one result of apply; see docs/cli-json.md.
type appliedJSON struct {
	Version    int            `json:"version,omitzero"`
	Name       string         `json:"name"`
	Result     string         `json:"result"`
	DryRun     bool           `json:"dry_run,omitzero"`
	UID        string         `json:"uid,omitempty"`
	Generation uint64         `json:"generation,omitzero"`
	ETag       string         `json:"etag,omitempty"`
	Changes    []fleet.Change `json:"changes,omitempty"`
}

func newAppliedJSON(r fleet.Applied, dry, versioned bool) appliedJSON {
	j := appliedJSON{Name: r.Name, Result: string(r.Outcome), DryRun: dry, UID: r.UID, Generation: r.Generation, ETag: string(r.ETag), Changes: r.Changes}
	if versioned {
		j.Version = contract
	}
	if dry && r.Outcome != fleet.OutcomeUnchanged && r.Outcome != fleet.OutcomeConfigured {
		j.UID, j.ETag = "", "" // nothing has them yet
	}
	return j
}

func appliedLine(r fleet.Applied, dry bool, out format) string {
	if out == formatName {
		return r.Name
	}
	line := r.Name + " " + string(r.Outcome)
	if r.Outcome == fleet.OutcomeAdopted {
		line += " (a node knew the name already: what it runs goes on as it is; restart it if the spec has changed)"
	}
	if dry {
		line += " (dry run)"
	}
	return line
}

// manifestItem is one document of the files, or what is wrong with it.
type manifestItem struct {
	manifest fleet.Manifest
	where    string
	errs     []error
}

// readManifests reads every document of every file. The error is one that makes
// a file unreadable as a whole: then nothing of any file is to be used.
func (a *app) readManifests(args []string) ([]manifestItem, error) {
	files, err := expandFiles(args)
	if err != nil {
		return nil, err
	}
	var items []manifestItem
	first := map[string]int{}
	for _, file := range files {
		data, err := a.readFile(file)
		if err != nil {
			return nil, err
		}
		docs, err := fleet.ParseManifests(fileName(file), data)
		if err != nil {
			return nil, err
		}
		for _, d := range docs {
			it := manifestItem{manifest: d.Manifest, where: fmt.Sprintf("%s:%d", d.File, d.Line), errs: d.Errs}
			if name := d.Manifest.Name; name != "" {
				if at, dup := first[name]; dup {
					it.errs = append(it.errs, &fleet.ManifestError{File: d.File, Line: d.Line, Field: "name", Err: fmt.Errorf("%q is given twice, first at %s", name, items[at].where)})
				} else {
					first[name] = len(items)
				}
			}
			items = append(items, it)
		}
	}
	if len(items) == 0 {
		return nil, usagef("", "no manifest in %s", strings.Join(args, ", "))
	}
	return items, nil
}

func fileName(file string) string {
	if file == "-" {
		return "stdin"
	}
	return file
}

// expandFiles replaces directories by the manifests directly inside them.
func expandFiles(args []string) ([]string, error) {
	var files []string
	for _, arg := range args {
		info, err := os.Stat(arg)
		if arg == "-" || err == nil && !info.IsDir() {
			files = append(files, arg)
			continue
		}
		if err != nil {
			return nil, usagef("", "%v", err)
		}
		entries, err := os.ReadDir(arg)
		if err != nil {
			return nil, usagef("", "%v", err)
		}
		found := false
		for _, e := range entries {
			ext := strings.ToLower(e.Name()[strings.LastIndex(e.Name(), ".")+1:])
			if !e.IsDir() && slices.Contains([]string{"yaml", "yml", "json"}, ext) {
				files = append(files, strings.TrimSuffix(arg, "/")+"/"+e.Name())
				found = true
			}
		}
		if !found {
			return nil, usagef("manifests end with .yaml, .yml or .json", "no manifest in directory %s", arg)
		}
	}
	return files, nil
}

func (a *app) readFile(file string) ([]byte, error) {
	r := a.stdin
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return nil, usagef("", "%v", err)
		}
		defer func() { _ = f.Close() }()
		r = f
	}
	b, err := io.ReadAll(io.LimitReader(r, fleet.MaxManifestBytes+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", fileName(file), err)
	}
	return b, nil
}
