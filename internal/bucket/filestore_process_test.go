package bucket_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/barista-fleet/barista/internal/bucket"
	"github.com/barista-fleet/barista/test/need"
)

// The tests of this file run this test binary again as other processes.
const helperEnv = "BARISTA_BUCKET_TEST_HELPER"

func TestMain(m *testing.M) {
	switch os.Getenv(helperEnv) {
	case "":
		os.Exit(m.Run())
	case "count":
		helperCount(os.Args[1])
	case "fill":
		helperFill(os.Args[1])
	}
}

func helper(t *testing.T, mode, dir string) *exec.Cmd {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe, dir)
	cmd.Env = append(os.Environ(), helperEnv+"="+mode)
	cmd.Stderr = os.Stderr
	return cmd
}

// helperCount increments the counter until it is killed, or its parent gone,
// and prints each value that it was told it had stored.
func helperCount(dir string) {
	s, err := bucket.NewFileStore(dir)
	if err != nil {
		panic(err)
	}
	for end := time.Now().Add(time.Minute); time.Now().Before(end); {
		obj, err := s.Get(context.Background(), "c/counter", "")
		if err != nil {
			panic(err)
		}
		n, err := strconv.Atoi(string(obj.Body))
		if err != nil {
			panic(err)
		}
		r := s.Put(context.Background(), "c/counter", []byte(strconv.Itoa(n+1)), bucket.IfMatch(obj.ETag))
		switch {
		case r.Outcome == bucket.Applied:
			if _, err := fmt.Println(n + 1); err != nil {
				os.Exit(0)
			}
		case !r.Conflict():
			panic(r.Err)
		}
	}
}

// Processes that are killed at any instant lose no update that they announced,
// count nothing twice, and keep nobody from going on.
func TestFileStoreKilledWriters(t *testing.T) {
	const writers, kills = 4, 40
	s, dir := newFileStore(t)
	put(t, s, "c/counter", "0", bucket.IfAbsent())

	type told struct {
		writer int
		line   string
	}
	lines := make(chan told, 1024)
	start := func(w int) *exec.Cmd {
		cmd := helper(t, "count", dir)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		go func() {
			in := bufio.NewReader(out)
			for {
				line, err := in.ReadString('\n')
				if err != nil {
					lines <- told{w, ""}
					return
				}
				lines <- told{w, strings.TrimSpace(line)}
			}
		}()
		return cmd
	}
	var cmds [writers]*exec.Cmd
	for w := range cmds {
		cmds[w] = start(w)
	}
	defer func() {
		for _, cmd := range cmds {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	}()

	acked := map[string]int{}
	killed := 0
	next := time.After(0)
	for open := writers; open > 0; {
		select {
		case l := <-lines:
			if l.line == "" {
				open--
				if err := cmds[l.writer].Wait(); err == nil {
					t.Fatal("a writer ended by itself")
				} else if status := cmds[l.writer].ProcessState.Sys().(syscall.WaitStatus); status.Signal() != syscall.SIGKILL {
					t.Fatalf("a writer ended with %v", err)
				}
				if killed < kills {
					cmds[l.writer] = start(l.writer)
					open++
				}
				continue
			}
			acked[l.line]++
			if acked[l.line] > 1 {
				t.Fatalf("two writers were told that they stored %s", l.line)
			}
		case <-next:
			// At the end all are killed at once, with no one left to tidy up.
			killed++
			_ = cmds[rand.N(writers)].Process.Kill()
			if killed >= kills {
				for _, cmd := range cmds {
					_ = cmd.Process.Kill()
				}
				next = nil
				continue
			}
			next = time.After(time.Duration(5+rand.N(30)) * time.Millisecond)
		}
	}

	obj, err := s.Get(t.Context(), "c/counter", "")
	if err != nil {
		t.Fatal(err)
	}
	total, err := strconv.Atoi(string(obj.Body))
	if err != nil {
		t.Fatalf("the counter holds %q", obj.Body)
	}
	// A writer that is killed between the rename and its announcement has
	// counted in silence: once each time.
	if silent := total - len(acked); silent < 0 || silent > kills+writers {
		t.Errorf("the counter is at %d, %d values were announced, %d writers killed", total, len(acked), kills+writers)
	}
	if len(acked) < kills {
		t.Errorf("only %d updates between %d kills: the test tested nothing", len(acked), kills)
	}
	put(t, s, "c/counter", "after", bucket.IfMatch(obj.ETag))
	t.Logf("%d updates by processes killed %d times, %d unannounced, %d temporary files left",
		total, kills+writers, total-len(acked), len(debris(t, dir)))
}

// helperFill works on a file system of its own that is full soon.
func helperFill(dir string) {
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=256k"); err != nil {
		fmt.Println("mount:", err)
		os.Exit(1)
	}
	if err := fill(filepath.Join(dir, "fleet")); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println("ok")
}

func fill(dir string) error {
	ctx := context.Background()
	if _, err := bucket.InitFileStore(dir); err != nil {
		return err
	}
	s, err := bucket.NewFileStore(dir)
	if err != nil {
		return err
	}
	var r bucket.PutResult
	n := 0
	for ; n < 1000; n++ {
		if r = s.Put(ctx, fmt.Sprintf("a/%d", n), make([]byte, 20<<10), bucket.IfAbsent()); r.Outcome != bucket.Applied {
			break
		}
	}
	var typed *bucket.Error
	if r.Outcome != bucket.Rejected || !errors.Is(r.Err, syscall.ENOSPC) || !errors.As(r.Err, &typed) || !strings.Contains(typed.Hint, "free some space") {
		return fmt.Errorf("on a full file system: %v, error %w", r.Outcome, r.Err)
	}
	l, err := s.List(ctx, "a/")
	if err != nil || len(l.Entries) != n {
		return fmt.Errorf("after %d objects and a failure: %d listed, error %w", n, len(l.Entries), err)
	}
	for _, e := range l.Entries {
		if obj, err := s.Get(ctx, e.Key, ""); err != nil || len(obj.Body) != 20<<10 {
			return fmt.Errorf("%s has %d bytes, error %w", e.Key, len(obj.Body), err)
		}
	}
	if err := s.Delete(ctx, "a/0"); err != nil {
		return fmt.Errorf("nothing can be removed from a full store: %w", err)
	}
	if r := s.Put(ctx, "b/again", make([]byte, 1<<10), bucket.IfAbsent()); r.Outcome != bucket.Applied {
		return fmt.Errorf("with space again: %v, error %w", r.Outcome, r.Err)
	}
	return nil
}

func TestFileStoreDiskFull(t *testing.T) {
	cmd := helper(t, "fill", t.TempDir())
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
	if os.Geteuid() != 0 {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		need.Missing(t, "this machine allows no mount namespace, which a full disk needs: %v", err)
	}
	said, _ := io.ReadAll(out)
	if err := cmd.Wait(); err != nil || strings.TrimSpace(string(said)) != "ok" {
		t.Errorf("%s (%v)", said, err)
	}
}
