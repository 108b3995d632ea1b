package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/urfave/cli/v3"

	"github.com/barista-fleet/barista/internal/api"
	"github.com/barista-fleet/barista/internal/bucket"
	"github.com/barista-fleet/barista/pkg/fleet"
)

// newFleet makes a fleet in a directory and points the environment at it.
func newFleet(t *testing.T) {
	t.Helper()
	t.Setenv(envBucket, "file://"+filepath.Join(t.TempDir(), "fleet"))
	if code, _, stderr := fleetctl(t, "", "init"); code != 0 {
		t.Fatal(stderr)
	}
}

// fleetctl runs one command line in this process.
func fleetctl(t *testing.T, stdin string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errOut bytes.Buffer
	code = run(t.Context(), append([]string{"fleetctl"}, args...), strings.NewReader(stdin), &out, &errOut)
	return code, out.String(), errOut.String()
}

// TestThousandNames applies a thousand documents at once and lists them.
func TestThousandNames(t *testing.T) {
	newFleet(t)
	const n = 1000
	var docs, want strings.Builder
	for i := range n {
		fmt.Fprintf(&docs, "---\nname: a%04d\ncommand: [sleep, 600]\ntenant: t%d\n", i, i%7)
		fmt.Fprintf(&want, "a%04d created\n", i)
	}
	code, stdout, stderr := fleetctl(t, docs.String(), "apply", "-f", "-")
	if code != 0 || stderr != "" {
		t.Fatalf("exit %d: %s", code, stderr)
	}
	if stdout != want.String() {
		t.Errorf("the results are not in the documents' order, or not all there:\n%.300s", stdout)
	}
	code, stdout, stderr = fleetctl(t, "", "ls", "-o", "json")
	if code != 0 {
		t.Fatalf("exit %d: %s", code, stderr)
	}
	var list nameList
	if err := json.Unmarshal([]byte(stdout), &list); err != nil {
		t.Fatal(err)
	}
	if len(list.Names) != n {
		t.Fatalf("%d names are listed", len(list.Names))
	}
	for i := range list.Names {
		if want := fmt.Sprintf("a%04d", i); list.Names[i].Name != want || list.Names[i].Status != "pending" {
			t.Fatalf("name %d is %+v, want %s", i, list.Names[i], want)
		}
	}
	code, stdout, stderr = fleetctl(t, docs.String(), "apply", "-f", "-")
	if code != 0 || strings.Count(stdout, " unchanged\n") != n {
		t.Errorf("applied again: exit %d, %s", code, stderr)
	}
}

// lockedBuffer is written by a command and read by its test.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// await waits until a stream holds text.
func await(t *testing.T, b *lockedBuffer, text string) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !strings.Contains(b.String(), text); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%q never came:\n%s", text, b.String())
		}
	}
}

// TestWatch: each change of a name is one more line, and nothing else is.
func TestWatch(t *testing.T) {
	for _, out := range []string{"table", "json", "name"} {
		t.Run(out, func(t *testing.T) {
			newFleet(t)
			fleetctl(t, "", "apply", "a1", "--", "x")
			ctx, cancel := context.WithCancel(t.Context())
			var stdout, stderr lockedBuffer
			done := make(chan int)
			go func() {
				done <- run(ctx, []string{"fleetctl", "ls", "-w", "--interval", "100ms", "-o", out}, strings.NewReader(""), &stdout, &stderr)
			}()
			await(t, &stdout, "a1")
			fleetctl(t, "", "apply", "b2", "--", "x")
			await(t, &stdout, "b2")
			fleetctl(t, "", "delete", "a1", "--yes")
			if out != "name" {
				await(t, &stdout, map[string]string{"table": "GONE", "json": `"gone":true`}[out])
			}
			cancel()
			if code := <-done; code != 0 {
				t.Errorf("an interrupted watch exits %d: %s", code, stderr.String())
			}
			want := map[string]int{"table": 4, "json": 3, "name": 2}[out]
			if got := strings.Count(stdout.String(), "\n"); got != want {
				t.Errorf("%d lines, want %d:\n%s", got, want, stdout.String())
			}
			if out == "json" {
				for line := range strings.Lines(stdout.String()) {
					var j watchJSON
					if err := json.Unmarshal([]byte(line), &j); err != nil || j.Version != contract || j.Name == "" {
						t.Errorf("%s: %v", line, err)
					}
				}
			}
		})
	}
}

func TestWatchEvents(t *testing.T) {
	newFleet(t)
	ctx, cancel := context.WithCancel(t.Context())
	var stdout, stderr lockedBuffer
	done := make(chan int)
	go func() {
		done <- run(ctx, []string{"fleetctl", "events", "-w", "--interval", "100ms", "-o", "json"}, strings.NewReader(""), &stdout, &stderr)
	}()
	s, err := bucket.NewFileStore(strings.TrimPrefix(os.Getenv(envBucket), "file://"))
	if err != nil {
		t.Fatal(err)
	}
	for seq := range uint64(2) {
		b, err := fleet.Encode(&fleet.EventBatch{
			Head: fleet.Head{Schema: fleet.Schema, Nonce: fleet.NewNonce()}, Node: "n1", Incarnation: 1, Seq: seq,
			Events: []fleet.Event{{ID: fmt.Sprint(seq), Type: fleet.EventClaimed}, {ID: "both", Type: fleet.EventStarted}},
		})
		if err != nil {
			t.Fatal(err)
		}
		if res := s.Put(t.Context(), fleet.EventKey("n1", 1, seq), b, bucket.IfAbsent()); res.Err != nil {
			t.Fatal(res.Err)
		}
		await(t, &stdout, fmt.Sprintf(`"id":"%d"`, seq))
	}
	cancel()
	if code := <-done; code != 0 || strings.Count(stdout.String(), "\n") != 3 {
		t.Errorf("exit %d:\n%s%s", code, stdout.String(), stderr.String())
	}
}

// TestInterruptedApplySaysWhatWasNotTried: nothing is lost without a word.
func TestInterruptedApply(t *testing.T) {
	newFleet(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var stdout, stderr bytes.Buffer
	code := run(ctx, []string{"fleetctl", "apply", "a1", "--", "x"}, strings.NewReader(""), &stdout, &stderr)
	if code == 0 || stdout.Len() > 0 || stderr.Len() == 0 {
		t.Errorf("exit %d, %q, %q", code, stdout.String(), stderr.String())
	}
}

// walk visits every command of the program.
func walk(c *cli.Command, visit func(path string, c *cli.Command)) {
	var down func(path string, c *cli.Command)
	down = func(path string, c *cli.Command) {
		visit(path, c)
		for _, sub := range c.Commands {
			down(strings.TrimSpace(path+" "+sub.Name), sub)
		}
	}
	down("", c)
}

func testApp() *app {
	return &app{stdin: strings.NewReader(""), stdout: io.Discard, stderr: io.Discard}
}

// TestEveryFlagHasAVariable, and none has a name that a node sets in workloads.
func TestEveryFlagHasAVariable(t *testing.T) {
	inWorkloads := map[string]bool{"BARISTA_NAME": true, "BARISTA_NODE": true, "BARISTA_EPOCH": true, "BARISTA_EPOCH_FILE": true, "BARISTA_PAYLOAD": true}
	seen := map[string]string{}
	walk(testApp().root(), func(path string, c *cli.Command) {
		for _, f := range c.Flags {
			d, ok := f.(cli.DocGenerationFlag)
			if !ok {
				t.Errorf("%s: flag %v describes nothing", path, f.Names())
				continue
			}
			where := path + " --" + f.Names()[0]
			if d.GetUsage() == "" {
				t.Errorf("%s has no usage", where)
			}
			vars := d.GetEnvVars()
			if len(vars) != 1 || !strings.HasPrefix(vars[0], "BARISTA_") || inWorkloads[vars[0]] {
				t.Errorf("%s has the variables %v", where, vars)
				continue
			}
			if other := seen[vars[0]]; other != "" {
				t.Errorf("%s and %s share %s", where, other, vars[0])
			}
			seen[vars[0]] = where
		}
	})
	if len(seen) < 50 {
		t.Errorf("only %d flags were seen", len(seen))
	}
}

// TestEveryVerbIsExplained: usage for all, and a shell suggestion for each verb
// that takes names.
func TestEveryVerbIsExplained(t *testing.T) {
	walk(testApp().root(), func(path string, c *cli.Command) {
		if c.Usage == "" {
			t.Errorf("%q has no usage", path)
		}
		if strings.Contains(c.ArgsUsage, "NAME") && path != "apply" && c.ShellComplete == nil {
			t.Errorf("%q takes names and completes none", path)
		}
	})
}

// TestExitCodes holds every kind of error to the documented code.
func TestExitCodes(t *testing.T) {
	store := func(kind error) error { return fmt.Errorf("get: %w", &bucket.Error{Op: "get", Kind: kind}) }
	for _, c := range []struct {
		err       error
		exit      int
		code      string
		retryable bool
	}{
		{errors.New("anything"), 1, "failed", false},
		{usagef("", "x"), 2, "usage", false},
		{&fleet.NameError{Name: "A"}, 2, "name", false},
		{&fleet.SpecError{}, 2, "spec", false},
		{&fleet.ManifestError{Err: errors.New("x")}, 2, "manifest", false},
		{&fleet.ConflictError{}, 3, "conflict", false},
		{store(bucket.ErrCondition), 3, "conflict", true},
		{store(bucket.ErrDenied), 4, "credentials", false},
		{store(bucket.ErrCredentials), 4, "credentials", false},
		{store(bucket.ErrUnreachable), 5, "unreachable", true},
		{store(bucket.ErrThrottled), 5, "unreachable", true},
		{store(nil), 5, "unreachable", true},
		{store(bucket.ErrInvalid), 2, "usage", false},
		{&fleet.NoFleetError{}, 5, "no_fleet", false},
		{&fleet.UnknownOutcomeError{Err: errors.New("x")}, 5, "unknown_outcome", true},
		{context.DeadlineExceeded, 5, "unreachable", true},
		{&timeoutError{}, 6, "timeout", true},
		{&fleet.NotFoundError{}, 7, "not_found", false},
		{&fleet.NotOwnedError{}, 1, "not_owned", true},
		{&fleet.RefusedError{}, 1, "refused", false},
		{&fleet.RefusedError{Held: true}, 8, "held", false},
		{&fleet.UnreadableError{Key: "desired/a", Err: errors.New("x")}, 1, "unreadable", false},
		{&api.Error{Code: api.CodeUnreachable}, 5, "unreachable", true},
		{&api.Error{Code: api.CodeFleetMember}, 2, "fleet_member", false},
		{context.Canceled, 1, "interrupted", false},
	} {
		f := failureOf(&actionError{err: c.err})
		if f.Exit != c.exit || f.Code != c.code || f.Retryable != c.retryable {
			t.Errorf("%T %v: exit %d, %q, retryable %v; want %d, %q, %v", c.err, c.err, f.Exit, f.Code, f.Retryable, c.exit, c.code, c.retryable)
		}
	}
	if got := worstOf(manyErrors{&fleet.NotFoundError{}, store(bucket.ErrUnreachable), usagef("", "x")}); got != 5 {
		t.Errorf("the worst of several is %d, want 5", got)
	}
}

// A variable stands for all repetitions of its flag, one a line.
func TestListOfAVariable(t *testing.T) {
	t.Setenv("BARISTA_APPLY_ENV", "A=1,2\nB=3\n")
	for _, c := range []struct {
		args []string
		want []string
	}{
		{nil, []string{"A=1,2", "B=3"}},
		{[]string{"--env", "C=4,5"}, []string{"C=4,5"}},
	} {
		var got []string
		cmd := &cli.Command{
			Name: "apply", DisableSliceFlagSeparator: true, Flags: []cli.Flag{listFlag("apply", "env", "")},
			Action: func(_ context.Context, cmd *cli.Command) error { got = listOf(cmd, "env"); return nil },
		}
		if err := cmd.Run(t.Context(), append([]string{"apply"}, c.args...)); err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%q: %q, %v; want %q", c.args, got, err, c.want)
		}
	}
}

func TestVersionIsTheLinkers(t *testing.T) {
	defer func(old string) { version = old }(version)
	version = "v9.9-linked"
	var out strings.Builder
	if code := run(t.Context(), []string{"fleetctl", "--version"}, nil, &out, io.Discard); code != 0 || !strings.Contains(out.String(), version) {
		t.Errorf("exit %d, %q", code, out.String())
	}
}

func TestLastLines(t *testing.T) {
	for _, c := range []struct {
		text string
		n    int
		want string
	}{
		{"a\nb\nc\n", -1, "a\nb\nc\n"},
		{"a\nb\nc\n", 0, ""},
		{"a\nb\nc\n", 1, "c\n"},
		{"a\nb\nc\n", 2, "b\nc\n"},
		{"a\nb\nc\n", 9, "a\nb\nc\n"},
		{"a\nb", 1, "b"},
		{"", 1, ""},
	} {
		if got := string(lastLines([]byte(c.text), c.n)); got != c.want {
			t.Errorf("the last %d lines of %q are %q, want %q", c.n, c.text, got, c.want)
		}
	}
}
