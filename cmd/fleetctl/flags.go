package main

import (
	"strings"

	"github.com/urfave/cli/v3"
)

// Flags of the root, understood before and after the verb.
const (
	flagBucket  = "fleet-bucket"
	flagAgent   = "agent"
	flagOutput  = "output"
	flagJSON    = "json"
	flagNoColor = "no-color"
	flagVerbose = "verbose"

	envBucket = "BARISTA_FLEET_BUCKET"
	envAgent  = "BARISTA_AGENT"
)

// envOf names the environment variable of a verb's flag. The verb is part of
// it: BARISTA_NAME, BARISTA_NODE and others are set in every workload, and must
// not become somebody's flags there.
func envOf(verb, flag string) cli.ValueSourceChain {
	name := strings.NewReplacer("-", "_", " ", "_").Replace("BARISTA_" + verb + "_" + flag)
	return cli.EnvVars(strings.ToUpper(name))
}

func stringFlag(verb, name, usage string, aliases ...string) *cli.StringFlag {
	return &cli.StringFlag{Name: name, Aliases: aliases, Usage: usage, Sources: envOf(verb, name)}
}

func boolFlag(verb, name, usage string, aliases ...string) *cli.BoolFlag {
	return &cli.BoolFlag{Name: name, Aliases: aliases, Usage: usage, Sources: envOf(verb, name)}
}

func listFlag(verb, name, usage string, aliases ...string) *cli.StringSliceFlag {
	return &cli.StringSliceFlag{Name: name, Aliases: aliases, Usage: usage, Sources: envOf(verb, name)}
}
