package api_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/barista-fleet/barista/internal/api"
)

func TestSocketPathLimit(t *testing.T) {
	fits := "/" + strings.Repeat("d", api.MaxSocketPath-len("/"+"/"+api.SocketName))
	path, err := api.SocketPath(fits)
	if err != nil || len(path) != api.MaxSocketPath {
		t.Errorf("%d bytes: %v", len(path), err)
	}
	_, err = api.SocketPath(fits + "d")
	e := wantCode(t, err, api.CodeInvalid)
	if !strings.Contains(e.Message, "108 bytes") || !strings.Contains(e.Message, "107") {
		t.Errorf("the message does not say by how much: %s", e.Message)
	}
	if _, err := api.NewClient(fits + "d/" + api.SocketName); err == nil {
		t.Error("the client accepts a path that cannot be a socket's")
	}
}

// lockedDir stands for an open journal.
type lockedDir string

func (d lockedDir) Dir() string { return string(d) }

func TestSocketMode(t *testing.T) {
	// The least convenient umask: the socket's mode must not depend on it.
	old := syscall.Umask(0)
	defer syscall.Umask(old)
	gid := os.Getgid()
	if os.Getuid() == 0 {
		gid = 12345 // only root may give a file to a group that it is not in
	}
	for _, tc := range []struct {
		group string
		mode  fs.FileMode
		dir   fs.FileMode
	}{
		{"", 0o600, 0o700},
		{strconv.Itoa(gid), 0o660, 0o710},
	} {
		dir := dataDir(t)
		l, err := api.Listen(lockedDir(dir), tc.group)
		if err != nil {
			t.Fatalf("group %q: %v", tc.group, err)
		}
		st, err := os.Stat(filepath.Join(dir, api.SocketName))
		if err != nil || st.Mode().Perm() != tc.mode {
			t.Errorf("group %q: socket %v, %v", tc.group, st.Mode(), err)
		}
		if sys, ok := st.Sys().(*syscall.Stat_t); tc.group != "" && (!ok || int(sys.Gid) != gid) {
			t.Errorf("socket of group %d", sys.Gid)
		}
		if st, err = os.Stat(dir); err != nil || st.Mode().Perm() != tc.dir {
			t.Errorf("group %q: directory %v, %v", tc.group, st.Mode(), err)
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		if _, err := os.Lstat(filepath.Join(dir, api.SocketName)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("the socket stays after close: %v", err)
		}
	}
	_, err := api.Listen(lockedDir(dataDir(t)), "no-such-group-here")
	_ = wantCode(t, err, api.CodeInvalid)
}

// A file that is no socket is somebody's: it is not removed.
func TestSocketDoesNotReplaceFiles(t *testing.T) {
	dir := dataDir(t)
	path := filepath.Join(dir, api.SocketName)
	if err := os.WriteFile(path, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := api.Listen(lockedDir(dir), "")
	_ = wantCode(t, err, api.CodeConflict)
	if b, err := os.ReadFile(path); err != nil || string(b) != "mine" {
		t.Errorf("%q, %v", b, err)
	}
}
