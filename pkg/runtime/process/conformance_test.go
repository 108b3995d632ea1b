//go:build linux

package process_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/barista-fleet/barista/pkg/fleet"
	"github.com/barista-fleet/barista/pkg/runtime/process"
	"github.com/barista-fleet/barista/pkg/runtime/proctree"
	"github.com/barista-fleet/barista/pkg/runtime/runtimetest"
	"github.com/barista-fleet/barista/test/need"
)

func TestMain(m *testing.M) {
	if code, ok := actAsAgent(); ok {
		os.Exit(code)
	}
	os.Exit(runtimetest.Main(m))
}

func open(t *testing.T, cfg process.Config) *process.Driver {
	t.Helper()
	cfg.ShimPath = runtimetest.Build(t, runtimetest.ShimPackage)
	if cfg.NodeID == "" {
		cfg.NodeID = "n-test"
	}
	d, err := process.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func workload(t *testing.T, args ...string) fleet.Spec {
	t.Helper()
	return fleet.Spec{Kind: fleet.KindSession, Command: append([]string{runtimetest.Build(t, runtimetest.WorkloadPackage)}, args...)}
}

func harness(cfg process.Config, pauseKind string) runtimetest.Harness {
	return runtimetest.Harness{
		Open: func(t *testing.T, dir string) (runtimetest.Driver, func()) {
			cfg := cfg
			cfg.Dir = filepath.Join(dir, "state")
			cfg.LogStall = time.Minute // a loaded machine may take a while to write; what a stall costs is tested in package shim
			d := open(t, cfg)
			return d, func() {
				if err := d.Close(); err != nil {
					t.Error(err)
				}
			}
		},
		Spec: func(t *testing.T, _ string, args ...string) fleet.Spec { return workload(t, args...) },
		MissingProgram: func(*testing.T) fleet.Spec {
			return fleet.Spec{Command: []string{"/nonexistent/program"}}
		},
		Processes:  func(t *testing.T, _ runtimetest.Driver, instance string) []int { return processesOf(t, instance) },
		PauseKinds: []string{pauseKind},
	}
}

// processesOf finds the processes of a run without asking the driver.
func processesOf(t *testing.T, instance string) []int {
	t.Helper()
	members, err := proctree.Tree{Tag: "BARISTA_INSTANCE=" + instance}.Members()
	if err != nil {
		t.Fatal(err)
	}
	var pids []int
	for _, st := range members {
		pids = append(pids, st.Pid)
	}
	return pids
}

// TestConformanceCgroup runs the suite where runs have cgroups.
func TestConformanceCgroup(t *testing.T) {
	d := open(t, process.Config{Dir: t.TempDir()})
	caps := d.Info().Capabilities
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(caps, process.CapCgroup) {
		need.Missing(t, "this machine has no writable cgroup v2 hierarchy: %v", d.Info().Notes)
	}
	runtimetest.Run(t, harness(process.Config{}, process.PauseFrozen))
}

// TestConformancePlain runs it where they have none.
func TestConformancePlain(t *testing.T) {
	h := harness(process.Config{CgroupParent: process.CgroupNone}, process.PauseStoppedTree)
	h.QuickRuns = 40 // each costs a look at all processes of the machine
	runtimetest.Run(t, h)
}
