//go:build linux

// Command node-shim stands beside one workload of a node-agent: it starts the
// workload, keeps its output and records how it ended, whatever happens to the
// agent. Package shim documents its protocol.
package main

import (
	"os"

	"github.com/barista-fleet/barista/pkg/runtime/shim"
)

func main() { os.Exit(shim.Main(os.Args)) }
