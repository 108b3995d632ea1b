//go:build linux

package process

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/barista-fleet/barista/pkg/runtime"
	"github.com/barista-fleet/barista/pkg/runtime/proctree"
	"github.com/barista-fleet/barista/pkg/runtime/shim"
)

// overdueLimit bounds the killing of one run by KillOverdue, so that one process
// that the kernel does not let go does not keep the others alive.
const overdueLimit = 2 * time.Second

// fileOverdue, in a run's state directory, says that KillOverdue ended the run.
const fileOverdue = "overdue"

// KillOverdue kills, at once and for good, every run below dir (a Config.Dir) that
// must not outlive the node's lease. It needs no driver and disturbs none: it
// reads what the helpers recorded, and kills by the group or the tree named
// there. It returns the runs of which something was alive.
func KillOverdue(ctx context.Context, dir string) (killed []runtime.Ref, err error) {
	entries, err := os.ReadDir(filepath.Join(dir, "runs"))
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		run := filepath.Join(dir, "runs", e.Name())
		st, rerr := shim.ReadState(run)
		if rerr != nil {
			continue // not yet as far as to have a process, or removed
		}
		var ref runtime.Ref
		if json.Unmarshal(st.Ref, &ref) != nil || !ref.StopOnLoss {
			continue
		}
		// Marked before it is killed, so that nobody sees the end without the mark. A
		// disk that is full costs the mark and not the kill.
		mark := func() { _ = os.WriteFile(filepath.Join(run, fileOverdue), nil, 0o600) }
		alive, kerr := killState(ctx, st, mark)
		if alive {
			killed = append(killed, ref)
		}
		err = errors.Join(err, kerr)
	}
	return killed, err
}

// killState kills what a helper recorded, and reports whether anything was alive;
// then mark is called first.
func killState(ctx context.Context, st *shim.State, mark func()) (alive bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, overdueLimit)
	defer cancel()
	if st.Cgroup != "" {
		g := proctree.Group(st.Cgroup)
		members, err := g.Members()
		if err != nil || len(members) == 0 {
			return false, nil // the group is gone with its processes
		}
		mark()
		return true, g.Kill()
	}
	tree := proctree.Tree{Reaper: st.Shim, Root: st.Child, Tag: st.Tag}
	members, err := tree.Members()
	if err != nil || len(members) == 0 {
		return false, err
	}
	mark()
	return true, tree.Kill(ctx)
}
