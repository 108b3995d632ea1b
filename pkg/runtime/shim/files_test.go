//go:build linux

package shim

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/barista-fleet/barista/pkg/runtime/proctree"
)

// TestFilesOfProtocol1 reads files as protocol 1 has them. They stay readable
// for ever: a shim of it may be older than the agent that finds it.
func TestFilesOfProtocol1(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		FileLaunch: `{"protocol":1,"instance":"b-1","args":["/bin/x","-a"],"env":["A=b"],"workdir":"/w","set_user":true,"uid":5,"gid":6,"groups":[7],"cgroup":"/c","tag":"T=b-1","log_dir":"/l","log_max_bytes":10,"log_max_files":2,"ref":{"Name":"n"},"later":1}`,
		FileState:  `{"protocol":1,"instance":"b-1","shim":{"pid":3,"start_ticks":4,"boot_id":"x"},"child":{"pid":5,"start_ticks":6,"boot_id":"x"},"started":"2026-01-02T03:04:05Z","cgroup":"/c","tag":"T=b-1","log_dir":"/l","ref":{"Name":"n"},"later":1}`,
		FileExit:   `{"protocol":1,"instance":"b-1","code":137,"signal":9,"oom":true,"pid":5,"started":"2026-01-02T03:04:05Z","ended":"2026-01-02T03:04:06Z","cpu_ms":7,"max_rss":8,"dropped":9,"left_behind":1,"later":1}` + strings.Repeat(" ", 100),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	l, err := ReadLaunch(dir)
	wantL := &Launch{
		Protocol: 1, Instance: "b-1", Args: []string{"/bin/x", "-a"}, Env: []string{"A=b"}, Workdir: "/w",
		SetUser: true, UID: 5, GID: 6, Groups: []uint32{7}, Cgroup: "/c", Tag: "T=b-1",
		LogDir: "/l", LogMaxBytes: 10, LogMaxFiles: 2, Ref: json.RawMessage(`{"Name":"n"}`),
	}
	if err != nil || !reflect.DeepEqual(l, wantL) {
		t.Errorf("launch %+v, %v; want %+v", l, err, wantL)
	}
	s, err := ReadState(dir)
	wantS := &State{
		Protocol: 1, Instance: "b-1", Shim: proctree.ID{Pid: 3, Start: 4, Boot: "x"}, Child: proctree.ID{Pid: 5, Start: 6, Boot: "x"},
		Started: at, Cgroup: "/c", Tag: "T=b-1", LogDir: "/l", Ref: json.RawMessage(`{"Name":"n"}`),
	}
	if err != nil || !reflect.DeepEqual(s, wantS) {
		t.Errorf("state %+v, %v; want %+v", s, err, wantS)
	}
	e, err := ReadExit(dir)
	wantE := &Exit{
		Protocol: 1, Instance: "b-1", Code: 137, Signal: 9, OOM: true, Pid: 5, Started: at, Ended: at.Add(time.Second),
		CPUMsec: 7, MaxRSS: 8, Dropped: 9, LeftBehind: 1,
	}
	if err != nil || !reflect.DeepEqual(e, wantE) {
		t.Errorf("exit %+v, %v; want %+v", e, err, wantE)
	}
}

func TestDamagedFiles(t *testing.T) {
	dir := t.TempDir()
	if _, err := ReadExit(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing exit: %v", err)
	}
	for _, text := range []string{"", "{", strings.Repeat("\x00", exitBlock), `{"code":"x"}`} {
		if err := os.WriteFile(filepath.Join(dir, FileExit), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if e, err := ReadExit(dir); err == nil || errors.Is(err, fs.ErrNotExist) {
			t.Errorf("exit file %.10q read as %+v, %v", text, e, err)
		}
	}
}

func TestWriteExitOnce(t *testing.T) {
	dir := t.TempDir()
	if err := preallocate(filepath.Join(dir, fileExitPre)); err != nil {
		t.Fatal(err)
	}
	if err := WriteExit(dir, &Exit{Instance: "a", Code: 3}); err != nil {
		t.Fatal(err)
	}
	if err := WriteExit(dir, &Exit{Instance: "a", Lost: true}); err != nil {
		t.Fatal(err)
	}
	e, err := ReadExit(dir)
	if err != nil || e.Code != 3 || e.Lost {
		t.Errorf("exit %+v, %v: the first one counts", e, err)
	}
	st, err := os.Stat(filepath.Join(dir, FileExit))
	if err != nil || st.Size() != exitBlock {
		t.Errorf("exit file of %d bytes, %v; want the block that was set aside", st.Size(), err)
	}
}

func TestReplace(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	for _, text := range []string{"one", "a longer second", "3", ""} {
		if err := Replace(path, []byte(text), 0o440, -1); err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(path)
		st, serr := os.Stat(path)
		if err != nil || serr != nil || string(b) != text || st.Mode().Perm() != 0o440 {
			t.Errorf("file holds %q with mode %v, %v; want %q", b, st.Mode(), err, text)
		}
	}
}

// TestStandardLibraryOnly keeps the shim small: it stands beside every workload.
func TestStandardLibraryOnly(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", "github.com/barista-fleet/barista/cmd/node-shim").Output()
	if err != nil {
		t.Fatal(err)
	}
	const ours = "github.com/barista-fleet/barista/"
	for p := range strings.FieldsSeq(string(out)) {
		switch strings.TrimPrefix(p, ours) {
		case "cmd/node-shim", "pkg/runtime/shim", "pkg/runtime/proctree", "pkg/runtime/leasefile":
		default:
			t.Errorf("node-shim depends on %s", p)
		}
	}
}

func TestReadAnswer(t *testing.T) {
	for text, want := range map[string][2]string{
		"ok 12\n": {"ok", "12"}, "spec no such file: x y\n": {"spec", "no such file: x y"}, "": {"", ""}, "error": {"error", ""},
	} {
		word, rest, err := ReadAnswer(strings.NewReader(text))
		if err != nil || word != want[0] || rest != want[1] {
			t.Errorf("%q: %q %q %v, want %q", text, word, rest, err, want)
		}
	}
}
