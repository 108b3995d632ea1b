//go:build linux

package process_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/barista-fleet/barista/pkg/fleet"
	"github.com/barista-fleet/barista/pkg/reconcile"
	"github.com/barista-fleet/barista/pkg/runtime"
	"github.com/barista-fleet/barista/pkg/runtime/process"
	"github.com/barista-fleet/barista/pkg/runtime/runtimetest"
	"github.com/barista-fleet/barista/test/need"
)

// TestSpecErrors: what can never run here is refused as such, in words that
// say what is wrong, and leaves nothing behind.
func TestSpecErrors(t *testing.T) {
	m := newMachine(t, process.Config{})
	m.openDriver()
	dir := t.TempDir()
	write := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	plain := write("plain", "#!/bin/sh\n", 0o644)
	garbage := write("garbage", "not a program\n", 0o755)
	noInterpreter := write("script", "#!/nonexistent/interpreter\n", 0o755)
	ok := workload(t).Command
	for _, c := range []struct {
		name string
		spec fleet.Spec
		want string // in the error
	}{
		{"image", fleet.Spec{Image: "busybox", Command: ok}, `image "busybox"`},
		{"no command", fleet.Spec{}, "no command"},
		{"other runtime", fleet.Spec{Command: ok, Runtime: "containerd"}, `runtime "containerd"`},
		{"network none", fleet.Spec{Command: ok, Network: "none"}, `network "none"`},
		{"mounts", fleet.Spec{Command: ok, Mounts: []fleet.Mount{{Source: "/", Target: "/host"}}}, "mounts"},
		{"read-only", fleet.Spec{Command: ok, ReadOnly: true}, "read-only"},
		{"secrets", fleet.Spec{Command: ok, Secrets: []string{"token"}}, "secrets"},
		{"reserved variable", fleet.Spec{Command: ok, Env: map[string]string{"BARISTA_EPOCH": "99"}}, "BARISTA_EPOCH"},
		{"bad variable", fleet.Spec{Command: ok, Env: map[string]string{"A=B": "c"}}, `"A=B"`},
		{"NUL in the command", fleet.Spec{Command: []string{"/bin/true", "a\x00b"}}, "NUL"},
		{"payload", fleet.Spec{Command: ok, Payload: make([]byte, fleet.MaxPayload+1)}, "payload"},
		{"missing program", fleet.Spec{Command: []string{"/nonexistent/program"}}, "/nonexistent/program"},
		{"not in PATH", fleet.Spec{Command: []string{"no-such-program-anywhere"}}, "not found in PATH"},
		{"not executable", fleet.Spec{Command: []string{plain}}, "not executable"},
		{"directory", fleet.Spec{Command: []string{dir}}, "is a directory"},
		{"not a program", fleet.Spec{Command: []string{garbage}}, "not a program for this machine"},
		{"missing interpreter", fleet.Spec{Command: []string{noInterpreter}}, "interpreter"},
		{"missing directory", fleet.Spec{Command: ok, Workdir: "/nonexistent/dir"}, "working directory"},
		{"file as directory", fleet.Spec{Command: ok, Workdir: plain}, "not a directory"},
		{"relative directory", fleet.Spec{Command: ok, Workdir: "here"}, "not an absolute path"},
		{"unknown user", fleet.Spec{Command: ok, User: "no-such-user"}, `user "no-such-user"`},
		{"unknown group", fleet.Spec{Command: ok, User: "0:no-such-group"}, `group "no-such-group"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			req := requestSpec("bad", 0, c.spec)
			_, err := m.d.Start(m.ctx, req)
			if !errors.Is(err, reconcile.ErrSpec) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("start: %v\nwant ErrSpec that says %q", err, c.want)
			}
		})
	}
	if list := m.list(); len(list) != 0 {
		t.Errorf("listed: %+v", list)
	}
	for _, sub := range []string{"runs", "logs", "share", "work"} {
		entries, err := os.ReadDir(filepath.Join(m.cfg.Dir, sub))
		if err != nil || len(entries) != 0 {
			t.Errorf("%s holds %v, %v after failed starts", sub, entries, err)
		}
	}
	bad := request(t, "bad", 0)
	bad.Name = "../../etc"
	if _, err := m.d.Start(m.ctx, bad); !errors.Is(err, reconcile.ErrSpec) {
		t.Errorf("start of a bad name: %v", err)
	}
	bad = request(t, "bad", 0)
	bad.Instance = "../x"
	if _, err := m.d.Start(m.ctx, bad); !errors.Is(err, reconcile.ErrSpec) {
		t.Errorf("start of a bad instance: %v", err)
	}
}

// TestPrograms: found in the workload's PATH, and relative to its directory.
func TestPrograms(t *testing.T) {
	m := newMachine(t, process.Config{})
	m.openDriver()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "tool"), []byte("#!/bin/sh\necho tool in $PWD\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, spec := range map[string]fleet.Spec{
		"path":     {Command: []string{"tool"}, Workdir: dir, Env: map[string]string{"PATH": "/bin:" + dir}},
		"relative": {Command: []string{"./tool"}, Workdir: dir},
	} {
		w := m.start(requestSpec(name, 0, spec))
		m.ended(w.Instance)
		if out, _ := m.logs(name); out != "tool in "+dir+"\n" {
			t.Errorf("%s: output %q", name, out)
		}
	}
}

// TestUser: a workload of another user has what is its own, reads its token,
// and reaches nothing of the agent's.
func TestUser(t *testing.T) {
	if os.Geteuid() != 0 {
		need.Missing(t, "not root but user %d, so no workload can run as another user", os.Geteuid())
	}
	top := t.TempDir()
	for _, dir := range []string{filepath.Dir(top), top} { // closed, being the test's
		if err := os.Chmod(dir, 0o711); err != nil {
			t.Fatal(err)
		}
	}
	m := newMachine(t, process.Config{Dir: filepath.Join(top, "state")})
	m.openDriver()
	script := `id -u; id -g; pwd; echo mine > file && cat file; cat "$BARISTA_EPOCH_FILE" "$BARISTA_PAYLOAD"
for f in "$BARISTA_EPOCH_FILE" "$BARISTA_PAYLOAD" "$(dirname "$BARISTA_EPOCH_FILE")/new" "$STATE/runs/x" "$STATE/logs/x" "$STATE/x"; do
	( echo x > "$f" ) 2>/dev/null && echo "could write $f"
done
ls "$STATE/runs" "$STATE/logs" 2>/dev/null && echo "could list"
true`
	spec := fleet.Spec{
		Command: []string{"/bin/sh", "-c", script}, User: "1234:1235", Payload: []byte("the payload\n"),
		Env: map[string]string{"STATE": m.cfg.Dir},
	}
	w := m.start(requestSpec("other", 0, spec))
	if got := m.ended(w.Instance); got.Exit.Code != 0 {
		t.Errorf("exit %+v", got.Exit)
	}
	out, errOut := m.logs("other")
	want := "1234\n1235\n" + filepath.Join(m.cfg.Dir, "work", w.Instance) + "\nmine\n1\nthe payload\n"
	if out != want || errOut != "" {
		t.Errorf("output %q, %q; want %q", out, errOut, want)
	}

	// Where it could not reach its files it is refused, and the reason named.
	closed := filepath.Join(top, "closed")
	if err := os.Mkdir(closed, 0o700); err != nil {
		t.Fatal(err)
	}
	m2 := newMachine(t, process.Config{Dir: filepath.Join(closed, "state")})
	m2.openDriver()
	_, err := m2.d.Start(m2.ctx, requestSpec("other", 0, spec))
	if !errors.Is(err, reconcile.ErrSpec) || !strings.Contains(err.Error(), closed+" has mode") {
		t.Errorf("start below a closed directory: %v", err)
	}
}

// TestStateIsPrivate: nobody else reads or changes what the agent relies on.
func TestStateIsPrivate(t *testing.T) {
	m := newMachine(t, process.Config{})
	m.openDriver()
	w := m.start(request(t, "a", 0, "-for", "-1s"))
	for path, want := range map[string]os.FileMode{
		"": 0o711, "runs": 0o700, "logs": 0o700, "work": 0o711, "share": 0o711,
		"runs/" + w.Instance: 0o700, "runs/" + w.Instance + "/launch": 0o600, "runs/" + w.Instance + "/state": 0o600,
		"work/" + w.Instance: 0o700, "share/" + w.Instance: 0o750, "share/" + w.Instance + "/epoch": 0o440,
	} {
		st, err := os.Stat(filepath.Join(m.cfg.Dir, path))
		if err != nil || st.Mode().Perm() != want {
			t.Errorf("%q: mode %v, %v; want %v", path, st.Mode().Perm(), err, want)
		}
	}
}

// TestNoNewPrivileges: no set-user-id program gives a workload more.
func TestNoNewPrivileges(t *testing.T) {
	m := newMachine(t, process.Config{})
	m.openDriver()
	w := m.start(requestSpec("status", 0, fleet.Spec{Command: []string{"grep", "NoNewPrivs", "/proc/self/status"}}))
	m.ended(w.Instance)
	if out, _ := m.logs("status"); strings.Join(strings.Fields(out), " ") != "NoNewPrivs: 1" {
		t.Errorf("status: %q", out)
	}
}

// TestWorkloadStartsClean: no descriptor, blocked or ignored signal of the agent
// or the shim reaches a workload.
func TestWorkloadStartsClean(t *testing.T) {
	m := newMachine(t, process.Config{})
	m.openDriver()
	script := `ls -l /proc/self/fd | sed -n 's/.* \([0-9]*\) -> .*/\1/p' | tr '\n' ' '; grep -E 'Sig(Blk|Ign)' /proc/self/status; umask`
	w := m.start(requestSpec("clean", 0, fleet.Spec{Command: []string{"/bin/sh", "-c", script}}))
	m.ended(w.Instance)
	out, errOut := m.logs("clean")
	got := strings.Fields(out)
	// Signals 32 to 34 are the C library's own: whoever started the tests may have
	// them ignored, and no program is to touch them.
	for i, f := range got {
		if mask, err := strconv.ParseUint(f, 16, 64); err == nil && len(f) == 16 {
			got[i] = fmt.Sprintf("%016x", mask&^(7<<31))
		}
	}
	// 3 is the directory that ls reads.
	want := strings.Fields("0 1 2 3 SigBlk: 0000000000000000 SigIgn: 0000000000000000 0022")
	if !slices.Equal(got, want) {
		t.Errorf("workload starts with %q (%q), want %q", got, errOut, want)
	}
}

// TestInfo: what is claimed was tried, and what is missing is said.
func TestInfo(t *testing.T) {
	m := newMachine(t, process.Config{CgroupParent: process.CgroupNone})
	m.openDriver()
	info := m.d.Info()
	if info.Driver != "process" || info.Isolation == "" {
		t.Errorf("info %+v", info)
	}
	if slices.Contains(info.Capabilities, process.CapPauseFrozen) || !slices.Contains(info.Capabilities, process.CapPauseStoppedTree) {
		t.Errorf("capabilities without cgroups: %q", info.Capabilities)
	}
	if notes := strings.Join(info.Notes, "; "); !strings.Contains(notes, "no cgroups") || !strings.Contains(notes, "limits") {
		t.Errorf("notes without cgroups: %q", notes)
	}
	// A group that cannot be made or frozen is not relied upon.
	m2 := newMachine(t, process.Config{CgroupParent: t.TempDir()})
	m2.openDriver()
	if caps := m2.d.Info().Capabilities; slices.Contains(caps, process.CapCgroup) {
		t.Errorf("a directory that is no cgroup gave %q", caps)
	}
}

// TestConfig: relations that cannot work are refused, and a wrong shim is found
// out before any workload is concerned.
func TestConfig(t *testing.T) {
	ok := process.Config{Dir: t.TempDir(), ShimPath: runtimetest.Build(t, runtimetest.ShimPackage)}
	notShim := filepath.Join(t.TempDir(), "node-shim")
	if err := os.WriteFile(notShim, []byte("#!/bin/sh\necho node-shim protocol 99\nread x\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*process.Config){
		"no directory":   func(c *process.Config) { c.Dir = "" },
		"no shim":        func(c *process.Config) { c.ShimPath = "/nonexistent/node-shim" },
		"default shim":   func(c *process.Config) { c.ShimPath = "" }, // none beside a test binary
		"newer shim":     func(c *process.Config) { c.ShimPath = notShim },
		"tiny segments":  func(c *process.Config) { c.LogBytes = 100 },
		"one segment":    func(c *process.Config) { c.LogFiles = 1 },
		"keeps no runs":  func(c *process.Config) { c.KeepRuns = -1 },
		"negative start": func(c *process.Config) { c.StartTimeout = -1 },
	} {
		cfg := ok
		change(&cfg)
		d, err := process.New(cfg)
		if err == nil {
			t.Errorf("%s: accepted", name)
			d.Close()
		} else if !strings.HasPrefix(err.Error(), "process runtime: ") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestClosedDriver: it says so, and its runs go on.
func TestClosedDriver(t *testing.T) {
	m := newMachine(t, process.Config{})
	m.openDriver()
	w := m.start(request(t, "on", 0, "-for", "-1s"))
	old := m.d
	watch := make(chan error, 1)
	go func() { watch <- old.Watch(m.ctx, func(runtime.Workload) {}) }()
	m.closeDriver()
	if err := <-watch; !errors.Is(err, process.ErrClosed) {
		t.Errorf("watch of a closed driver: %v", err)
	}
	if _, err := old.Start(m.ctx, request(t, "late", 0)); !errors.Is(err, process.ErrClosed) {
		t.Errorf("start on a closed driver: %v", err)
	}
	m.openDriver()
	if got := m.get(w.Instance); got.State != runtime.StateRunning || got.Pid != w.Pid {
		t.Errorf("after Close the run is %+v", got)
	}
}
