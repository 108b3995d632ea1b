package e2e

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/barista-fleet/barista/test/need"
)

// The disk under a node is full. A workload that writes fifty megabytes of output
// ends all the same, what was dropped is counted in its log, and names can still
// be stopped and deleted.
func TestFullDiskBlocksNoWorkload(t *testing.T) {
	t.Parallel()
	f := newCluster(t, "solo")
	dir := filepath.Join(f.Dir, "n1")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=24m"); err != nil {
		need.Missing(t, "a small file system cannot be mounted: %v", err)
	}
	t.Cleanup(func() {
		f.Close()
		_ = syscall.Unmount(dir, syscall.MNT_DETACH)
	})
	n := f.add("n1")
	f.eventually(func() error { return ready(f, n) })
	done := filepath.Join(f.Dir, "done")
	f.ctl("apply", "quiet", "--", "sleep", "600")
	f.running("quiet", nil)
	gate := filepath.Join(f.Dir, "gate")
	f.ctl("apply", "chatty", "--kind", "job", "--", "sh", "-c",
		"while ! test -e "+gate+"; do sleep 0.05; done; yes $(printf '%099d' 7) | head -c 50000000; echo end > "+done+
			"; while ! test -e "+gate+"2; do sleep 0.05; done; echo the last line")
	f.running("chatty", nil)
	// Now the disk fills up, to the last block that anyone can get.
	fill := exec.Command("dd", "if=/dev/zero", "of="+filepath.Join(dir, "filler"), "bs=64k")
	if out, err := fill.CombinedOutput(); err == nil {
		t.Fatalf("the disk did not fill up:\n%s", out)
	}
	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	f.eventually(func() error {
		if _, err := os.Stat(done); err != nil {
			return errors.New("the chatty workload has not come to its end")
		}
		return nil
	})
	f.ctl("stop", "quiet")
	f.status("quiet", "stopped")
	f.ctl("delete", "quiet", "--yes")
	f.eventually(func() error {
		if _, there := f.ls()["quiet"]; there {
			return errors.New("a name cannot be deleted on a full disk")
		}
		return nil
	})
	// With space again the log says what is missing, and goes on.
	if err := os.Remove(filepath.Join(dir, "filler")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(gate+"2", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	f.status("chatty", "completed")
	r := f.Ctl("--agent", n.Dir, "logs", "chatty")
	if !strings.HasSuffix(r.Out, "the last line\n") {
		t.Errorf("the log does not end with the last line: %.300q", r.Out[max(0, len(r.Out)-300):])
	}
	if r.Code != 0 || !strings.Contains(r.Out+r.Err, "dropped") {
		t.Errorf("logs: exit %d, %d bytes, no word of what was dropped; stderr %q", r.Code, len(r.Out), r.Err)
	}
	f.ctl("apply", "after", "--", "sleep", "600")
	f.running("after", nil)
}
