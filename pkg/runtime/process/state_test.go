//go:build linux

package process_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/barista-fleet/barista/pkg/runtime"
	"github.com/barista-fleet/barista/pkg/runtime/process"
	"github.com/barista-fleet/barista/pkg/runtime/proctree"
	"github.com/barista-fleet/barista/pkg/runtime/runtimetest"
	"github.com/barista-fleet/barista/pkg/runtime/shim"
)

// TestPidReuse forges state files that name a stranger's pid, as they would
// after the kernel has handed a number out again. The stranger lives.
func TestPidReuse(t *testing.T) {
	stranger := startAgent(t, agentJob{Config: process.Config{
		Dir: filepath.Join(t.TempDir(), "elsewhere"), ShimPath: runtimetest.Build(t, runtimetest.ShimPackage),
	}})
	st, err := proctree.ReadStat(stranger.cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	alive := st.ID()
	older, rebooted := alive, alive
	older.Start -= 100
	rebooted.Boot = "00000000-0000-0000-0000-000000000000"
	for _, c := range []struct {
		name string
		id   proctree.ID
	}{{"reused", older}, {"reused after a reboot", rebooted}} {
		t.Run(c.name, func(t *testing.T) {
			m := newMachine(t, process.Config{CgroupParent: process.CgroupNone})
			req := request(t, "victim", 0)
			dir := filepath.Join(m.cfg.Dir, "runs", req.Instance)
			forge(t, dir, req, c.id)
			m.openDriver()
			w := m.ended(req.Instance)
			if w.State != runtime.StateLost || w.Ref != req.Ref {
				t.Errorf("forged run is %+v", w)
			}
			for range 2 {
				if _, err := m.d.Stop(m.ctx, req.Instance, time.Millisecond); err != nil {
					t.Error(err)
				}
			}
			if _, err := m.d.Pause(m.ctx, req.Instance); !errors.Is(err, process.ErrEnded) {
				t.Errorf("pause of a lost run: %v", err)
			}
			now, err := proctree.ReadStat(alive.Pid)
			if err != nil || !alive.Alive() || now.Stopped() {
				t.Fatalf("the stranger was harmed: %+v, %v", now, err)
			}
		})
	}
}

// forge writes the directory of a run whose shim and first process were id.
func forge(t *testing.T, dir string, req runtime.StartRequest, id proctree.ID) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	ref, err := json.Marshal(req.Ref)
	if err != nil {
		t.Fatal(err)
	}
	state, err := json.Marshal(shim.State{
		Protocol: shim.Protocol, Instance: req.Instance, Shim: id, Child: id, Started: time.Now(),
		Tag: "BARISTA_INSTANCE=" + req.Instance, Ref: ref,
	})
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{shim.FileState: state, shim.FileRef: ref, shim.FileLock: nil} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// TestShimHangsInStart: an agent was killed while a shim came up, and the shim
// hangs before it has written anything. The run is starting; it can be stopped.
func TestShimHangsInStart(t *testing.T) {
	t.Parallel() // with the other test that waits for a shim to be given up
	m := newMachine(t, process.Config{})
	req := request(t, "hangs", 0)
	dir := filepath.Join(m.cfg.Dir, "runs", req.Instance)
	forge(t, dir, req, proctree.ID{})
	if err := os.Remove(filepath.Join(dir, shim.FileState)); err != nil {
		t.Fatal(err)
	}
	lock, err := os.OpenFile(filepath.Join(dir, shim.FileLock), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		t.Fatal(err)
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := &exec.Cmd{
		Path: exe, Args: []string{"node-shim", "run", dir}, Env: append(os.Environ(), agentEnv+"=hang"),
		ExtraFiles: []*os.File{lock},
	}
	if _, err := cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // normally the driver has done it
		_ = cmd.Wait()
	})
	lock.Close()
	m.openDriver()
	if w := m.get(req.Instance); w.State != runtime.StateStarting || w.Ref != req.Ref {
		t.Errorf("run is %+v, want it to be starting", w)
	}
	ctx, cancel := context.WithTimeout(m.ctx, 50*time.Millisecond)
	defer cancel()
	if w, err := m.d.Start(ctx, req); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("start of a run whose start is undecided: %+v, %v", w, err)
	}
	w, err := m.d.Stop(m.ctx, req.Instance, 0)
	if err != nil || w.State != runtime.StateLost {
		t.Errorf("stop: %+v, %v", w, err)
	}
}

// TestReboot: after a reboot a run is lost, and a recorded exit still counts.
func TestReboot(t *testing.T) {
	m := newMachine(t, process.Config{})
	lost, done := request(t, "lost", 0), request(t, "done", 0)
	before := proctree.ID{Pid: 1, Start: 1, Boot: "an-earlier-boot"}
	for _, req := range []runtime.StartRequest{lost, done} {
		forge(t, filepath.Join(m.cfg.Dir, "runs", req.Instance), req, before)
	}
	err := shim.WriteExit(filepath.Join(m.cfg.Dir, "runs", done.Instance), &shim.Exit{Instance: done.Instance, Code: 3})
	if err != nil {
		t.Fatal(err)
	}
	m.openDriver()
	if w := m.ended(lost.Instance); w.State != runtime.StateLost || !w.Exit.Lost || !strings.Contains(w.Exit.Reason, "restarted") {
		t.Errorf("run of an earlier boot: %s %+v", w.State, w.Exit)
	}
	if w := m.get(done.Instance); w.State != runtime.StateExited || w.Exit.Code != 3 || w.Exit.Lost {
		t.Errorf("run that ended before the reboot: %s %+v", w.State, w.Exit)
	}
}

// TestDamagedState: whatever becomes of the files of a run, an agent starts,
// finds the run while it lives, and can stop and remove it.
func TestDamagedState(t *testing.T) {
	damages := map[string]func(path string) error{
		"missing": os.Remove,
		"empty":   func(path string) error { return os.Truncate(path, 0) },
		"garbage": func(path string) error { return os.WriteFile(path, []byte("\x00\x01{"), 0o600) },
	}
	for _, form := range forms {
		for kind, damage := range damages {
			t.Run(form.name+"/"+kind, func(t *testing.T) {
				m := newMachine(t, form.cfg)
				m.openDriver()
				for i, files := range [][]string{{shim.FileRef}, {shim.FileState}, {shim.FileLaunch}, {shim.FileRef, shim.FileState, shim.FileLaunch}} {
					w := m.start(request(t, fmt.Sprintf("run-%d", i), 0, "-for", "-1s"))
					for _, f := range files {
						if err := damage(filepath.Join(m.cfg.Dir, "runs", w.Instance, f)); err != nil {
							t.Fatal(err)
						}
					}
				}
				m.closeDriver()
				m.openDriver()
				list := m.list()
				if len(list) != 4 {
					t.Fatalf("%d runs are listed, want 4: %+v", len(list), list)
				}
				for _, w := range list {
					if w.State.Dead() {
						t.Errorf("%s %s is %s though it lives", w.Name, w.Instance, w.State)
					}
					got, err := m.d.Stop(m.ctx, w.Instance, 0)
					if err != nil || !got.State.Dead() {
						t.Errorf("stop %s: %+v, %v", w.Instance, got, err)
					}
					if pids := processesOf(t, w.Instance); len(pids) != 0 {
						t.Errorf("processes %v of %s are alive", pids, w.Name)
					}
					if err := m.d.Remove(m.ctx, w.Instance); err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
}
