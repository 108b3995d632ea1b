package main

import (
	"slices"
	"testing"

	"github.com/urfave/cli/v3"
)

// Every flag, of every command and hidden ones too, can be given by the environment.
func TestEveryFlagHasAVariable(t *testing.T) {
	seen := 0
	var walk func(path string, c *cli.Command)
	walk = func(path string, c *cli.Command) {
		for _, f := range c.Flags {
			seen++
			d, ok := f.(cli.DocGenerationFlag)
			if !ok || len(d.GetEnvVars()) == 0 {
				t.Errorf("%s --%s has no environment variable", path, f.Names()[0])
			}
		}
		for _, sub := range c.Commands {
			walk(path+" "+sub.Name, sub)
		}
	}
	walk("node-agent", command())
	if seen < 30 {
		t.Errorf("only %d flags were looked at", seen)
	}
}

func TestLabelsOfTheVariable(t *testing.T) {
	for _, c := range []struct {
		given    []string
		variable string
		want     []string
	}{
		{nil, "", nil},
		{[]string{"zone=a"}, "zone=a", []string{"zone=a"}},
		{[]string{"zone=a, disk=ssd"}, "zone=a, disk=ssd", []string{"zone=a", " disk=ssd"}},
		{[]string{"list=a,b"}, "", []string{"list=a,b"}}, // typed
		{[]string{"zone=a", "disk=ssd"}, "zone=b,c=d", []string{"zone=a", "disk=ssd"}},
	} {
		if got := labelsOf(c.given, c.variable); !slices.Equal(got, c.want) {
			t.Errorf("labelsOf(%q, %q) = %q, want %q", c.given, c.variable, got, c.want)
		}
	}
	if got, err := parseLabels([]string{"zone=a", " disk=ssd"}); err != nil || got["disk"] != "ssd" || len(got) != 2 {
		t.Errorf("parsed %v, %v", got, err)
	}
}
