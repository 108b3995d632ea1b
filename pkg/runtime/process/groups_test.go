//go:build linux

package process_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/barista-fleet/barista/pkg/fleet"
	"github.com/barista-fleet/barista/pkg/runtime"
	"github.com/barista-fleet/barista/pkg/runtime/process"
	"github.com/barista-fleet/barista/test/need"
)

// TestTidiedGroups removes a driver's empty groups, as a service manager or a
// person may: the next start makes them again.
func TestTidiedGroups(t *testing.T) {
	d := open(t, process.Config{Dir: t.TempDir()})
	defer func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}()
	if !slices.Contains(d.Info().Capabilities, process.CapCgroup) {
		need.Missing(t, "this machine has no writable cgroup v2 hierarchy: %v", d.Info().Notes)
	}
	for i := range 2 {
		instance := fmt.Sprintf("b-%d", i)
		w, err := d.Start(t.Context(), runtime.StartRequest{
			Ref:  runtime.Ref{Name: "s", UID: "u", Instance: instance, Epoch: 1, Incarnation: 1, Attempt: 1, Generation: 1},
			Spec: fleet.Spec{Kind: fleet.KindSession, Command: []string{"sleep", "600"}},
		})
		if err != nil {
			t.Fatalf("start %d: %v", i, err)
		}
		parent := filepath.Dir(groupOf(t, processesOf(t, instance)))
		if _, err := d.Stop(t.Context(), w.Instance, time.Second); err != nil {
			t.Fatal(err)
		}
		if err := d.Remove(t.Context(), w.Instance); err != nil {
			t.Fatal(err)
		}
		for _, group := range []string{filepath.Join(parent, "shims"), parent} {
			removeEmpty(t, group)
		}
	}
}

// groupOf returns the directory of the cgroup v2 that a run's processes share.
func groupOf(t *testing.T, pids []int) string {
	t.Helper()
	if len(pids) == 0 {
		t.Fatal("the run has no processes")
	}
	body, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pids[0]))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(body)) {
		path, ok := strings.CutPrefix(strings.TrimSpace(line), "0::")
		if !ok {
			continue
		}
		for _, mount := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/unified"} {
			if dir := filepath.Join(mount, path); fileExists(filepath.Join(dir, "cgroup.kill")) {
				return dir
			}
		}
	}
	t.Fatalf("no cgroup v2 in %s", body)
	return ""
}

func fileExists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// removeEmpty waits until the last process has left a group: the shim ends a
// moment after its run.
func removeEmpty(t *testing.T, group string) {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for {
		err := os.Remove(group)
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Millisecond)
	}
}
