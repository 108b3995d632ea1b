package journal_test

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/barista-fleet/barista/pkg/journal"
)

// childHolds opens the journal and holds it until it is killed.
func childHolds(dir string) error {
	j, _, err := journal.Open(dir, journal.Options{})
	if err != nil {
		return err
	}
	defer func() { _ = j.Close() }()
	fmt.Println("held")
	time.Sleep(time.Hour)
	return errors.New("nobody killed me")
}

func TestSecondOpenNamesTheHolder(t *testing.T) {
	dir := t.TempDir()
	holder := child(t, "hold", dir)
	out, err := holder.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := holder.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = holder.Process.Kill(); _ = holder.Wait() }()
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "held\n" {
		t.Fatalf("child said %q, %v", line, err)
	}

	begin := time.Now()
	_, _, err = journal.Open(dir, journal.Options{})
	if took := time.Since(begin); took > 2*time.Second {
		t.Errorf("a second open took %v", took)
	}
	var locked *journal.LockedError
	if !errors.As(err, &locked) || locked.Pid != holder.Process.Pid || locked.Path != filepath.Join(dir, journal.LockFile) {
		t.Fatalf("second open: %v, want pid %d", err, holder.Process.Pid)
	}
	if !strings.Contains(err.Error(), fmt.Sprint(holder.Process.Pid)) {
		t.Errorf("the message does not name the pid: %v", err)
	}
	if _, err := journal.Check(dir, journal.Options{LockWait: time.Millisecond}); !errors.As(err, &locked) {
		t.Errorf("check beside a running agent: %v", err)
	}

	// A dead holder holds nothing, and a restart may overlap with its end.
	time.AfterFunc(100*time.Millisecond, func() { _ = holder.Process.Kill() })
	j, _, err := journal.Open(dir, journal.Options{})
	if err != nil {
		t.Fatalf("open while the holder dies: %v", err)
	}
	if b, err := os.ReadFile(filepath.Join(dir, journal.LockFile)); err != nil || strings.TrimSpace(string(b)) != fmt.Sprint(os.Getpid()) {
		t.Errorf("lock file %q, %v", b, err)
	}
	if err := j.Close(); err != nil {
		t.Error(err)
	}
}

func TestDirID(t *testing.T) {
	a, b := t.TempDir(), t.TempDir()
	idA, err := journal.DirID(a)
	if err != nil {
		t.Fatal(err)
	}
	idB, err := journal.DirID(b)
	if err != nil || idA == idB {
		t.Errorf("two directories, %s and %s, %v", idA, idB, err)
	}
	moved := filepath.Join(b, "moved")
	if err := os.Rename(a, moved); err != nil {
		t.Fatal(err)
	}
	if id, err := journal.DirID(moved); err != nil || id != idA {
		t.Errorf("a moved directory is %s, was %s, %v", id, idA, err)
	}
	if _, err := journal.DirID(filepath.Join(b, "none")); err == nil {
		t.Error("a missing directory has an id")
	}
}
