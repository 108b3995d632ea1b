//go:build linux

package journal_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/barista-fleet/barista/pkg/journal"
	"github.com/barista-fleet/barista/test/need"
)

// inMountNamespace runs the test of this name again where it may mount: as
// root, in a mount namespace of its own. It returns false there.
func inMountNamespace(t *testing.T) bool {
	t.Helper()
	const env = "JOURNAL_TEST_MAY_MOUNT"
	if os.Getenv(env) != "" {
		return false
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe, "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), env+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
	if os.Getuid() != 0 {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
	}
	out, err := cmd.CombinedOutput()
	if errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.ENOSPC) {
		need.Missing(t, "this machine allows no mount namespace, which a full disk needs: %v", err)
	}
	if err != nil || !bytes.Contains(out, []byte("--- PASS: "+t.Name())) {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Logf("%s", out)
	return true
}

// A full disk stops what begins and lets pass what ends. The reserve comes back
// when there is room again.
func TestDiskFull(t *testing.T) {
	if inMountNamespace(t) {
		return
	}
	t.Run("tmpfs", func(t *testing.T) {
		disk := t.TempDir()
		mount(t, "tmpfs", disk, "tmpfs", "size=4m")
		diskFull(t, disk)
	})
	t.Run("ext4", func(t *testing.T) {
		image, disk := filepath.Join(t.TempDir(), "image"), t.TempDir()
		if err := os.WriteFile(image, make([]byte, 8<<20), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, args := range [][]string{{"mkfs.ext4", "-q", "-F", "-m", "0", image}, {"mount", "-o", "loop", image, disk}} {
			if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
				t.Skipf("SKIPPED on ext4 (tmpfs was tested): %v: %v %s", args, err, out)
			}
		}
		t.Cleanup(func() { _ = syscall.Unmount(disk, syscall.MNT_DETACH) })
		diskFull(t, disk)
	})
}

func mount(t *testing.T, what, where, kind, options string) {
	t.Helper()
	if err := syscall.Mount(what, where, kind, 0, options); err != nil {
		t.Fatalf("mount: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(where, syscall.MNT_DETACH); err != nil {
			t.Errorf("unmount: %v", err)
		}
	})
}

// fill takes every free block of the disk.
func fill(t *testing.T, disk string) (filler string) {
	t.Helper()
	filler = filepath.Join(disk, "filler")
	f, err := os.Create(filler)
	if err != nil {
		t.Fatal(err)
	}
	for size := 64 << 10; size > 0; {
		if _, err := f.Write(make([]byte, size)); errors.Is(err, syscall.ENOSPC) {
			size /= 2
		} else if err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil && !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	return filler
}

func diskFull(t *testing.T, disk string) {
	const names = 60
	dir := filepath.Join(disk, "data")
	j, _, err := journal.Open(dir, journal.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = j.Close() }()
	ctx := t.Context()
	name := func(i int) string { return fmt.Sprintf("name-%03d", i) }
	for i := range names {
		commit(t, j, journal.Batch{
			PutOwned: []journal.Owned{{Name: name(i), Epoch: 1, Data: make([]byte, 500)}},
			PutOps:   []journal.Op{{Name: name(i), Kind: "start"}},
		})
	}
	if j.Stats().ReserveShort {
		t.Fatal("no reserve although there is room")
	}

	filler := fill(t, disk)
	begun, refused := 0, error(nil)
	for ; begun < 1000 && refused == nil; begun++ {
		refused = j.Commit(ctx, journal.Batch{
			PutOwned: []journal.Owned{{Name: fmt.Sprintf("new-%04d", begun), Data: make([]byte, 4000)}},
			Events:   [][]byte{[]byte("CLAIMED")},
		})
	}
	var typed *journal.Error
	if !errors.Is(refused, journal.ErrDiskFull) || !errors.As(refused, &typed) || typed.Hint == "" {
		t.Fatalf("%d names begun on a full disk, then: %v", begun, refused)
	}
	s := load(t, j)
	if len(s.Owned) != names+begun-1 {
		t.Errorf("%d names, want %d: a refused batch left something", len(s.Owned), names+begun-1)
	}

	// The reserve was not touched by that: what has happened can be recorded,
	// at some length.
	for i := range 100 {
		err := j.Commit(ctx, journal.Batch{Class: journal.Essential, Events: [][]byte{make([]byte, 4000)}})
		if err != nil {
			t.Fatalf("essential event %d: %v", i, err)
		}
	}

	// In one group, what is too large fails and the rest passes, in order.
	tickets := []*journal.Ticket{
		j.Submit(journal.Batch{Class: journal.Essential, DelOps: []string{name(0)}}),
		j.Submit(journal.Batch{PutObjects: []journal.ObjectPut{{Key: "big", Body: make([]byte, 900_000), Cond: journal.IfAbsent()}}}),
		j.Submit(journal.Batch{Class: journal.Essential, PutOps: []journal.Op{{Name: name(0), Kind: "stop"}}}),
	}
	for i, want := range []error{nil, journal.ErrDiskFull, nil} {
		if _, err := tickets[i].Wait(ctx); !errors.Is(err, want) {
			t.Errorf("batch %d of the mixed group: %v, want %v", i, err, want)
		}
	}

	// Every name can be stopped, finished and deleted.
	for i := range names {
		for step, b := range []journal.Batch{
			{DelOps: []string{name(i)}, PutOwned: []journal.Owned{{Name: name(i), Epoch: 1, Phase: "exited"}}, Events: [][]byte{[]byte("EXITED")}},
			{PutOps: []journal.Op{{Name: name(i), Kind: "remove"}}},
			{DelOps: []string{name(i)}, DelOwned: []string{name(i)}, Events: [][]byte{[]byte("DELETED")}},
		} {
			b.Class = journal.Essential
			if err := j.Commit(ctx, b); err != nil {
				t.Fatalf("%s, step %d: %v", name(i), step, err)
			}
		}
	}

	// So can a restart, and it keeps the reserve that is left.
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	j, opened, err := journal.Open(dir, journal.Options{})
	if err != nil || opened.Quarantined != nil {
		t.Fatalf("restart on a full disk: %+v, %v", opened, err)
	}
	defer func() { _ = j.Close() }()
	if s := load(t, j); len(s.Owned) != begun-1 || len(s.Ops) != 0 {
		t.Errorf("after the restart: %d names, %d operations", len(s.Owned), len(s.Ops))
	}

	// The reserve is finite; its end is a refusal like any other.
	var grown int
	for refused = nil; refused == nil && grown < 1000; grown++ {
		refused = j.Commit(ctx, journal.Batch{Class: journal.Essential, Events: [][]byte{make([]byte, 20_000)}})
	}
	if !errors.Is(refused, journal.ErrDiskFull) || j.Stats().Failed || !j.Stats().ReserveShort {
		t.Fatalf("%d large essential batches, then %v; stats %+v", grown, refused, j.Stats())
	}
	if err := j.Commit(ctx, journal.Batch{Class: journal.Essential, DropEvents: 1 << 60}); err != nil {
		t.Errorf("dropping the outbox with the reserve used up: %v", err)
	}

	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	commit(t, j, journal.Batch{PutOwned: []journal.Owned{{Name: "again", Data: make([]byte, 100_000)}}})
	if st := j.Stats(); st.ReserveShort {
		t.Errorf("there is room again and the reserve is still short: %+v", st)
	}
	report, err := j.Check()
	if err != nil || len(report.Findings) > 0 { // refused transactions leak no pages either
		t.Errorf("check: %+v, %v", report, err)
	}
}

// A disk so full that no journal fits is said so, and harms nothing.
func TestCreateOnFullDisk(t *testing.T) {
	if inMountNamespace(t) {
		return
	}
	disk := t.TempDir()
	mount(t, "tmpfs", disk, "tmpfs", "size=1m")
	dir := filepath.Join(disk, "data")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	filler := fill(t, disk)
	if _, _, err := journal.Open(dir, journal.Options{}); !errors.Is(err, journal.ErrDiskFull) {
		t.Fatalf("open on a full disk: %v", err)
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	j, opened := open(t, dir)
	if !opened.Created || opened.Quarantined != nil {
		t.Errorf("opened %+v", opened)
	}
	// A disk smaller than the reserve still works, with less of it.
	commit(t, j, journal.Batch{Class: journal.Essential, Identity: &journal.Identity{NodeID: "n"}})
	if !j.Stats().ReserveShort {
		t.Error("1 MiB of reserve on a disk of 1 MiB")
	}
}
