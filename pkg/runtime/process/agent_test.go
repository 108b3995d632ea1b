//go:build linux

package process_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/barista-fleet/barista/pkg/fleet"
	"github.com/barista-fleet/barista/pkg/runtime"
	"github.com/barista-fleet/barista/pkg/runtime/process"
)

// agentEnv makes the test binary act as an agent that can be killed: it starts
// what it is told to, answers, and waits for its end.
const agentEnv = "BARISTA_TEST_AGENT"

// agentJob is what such an agent is told, as JSON in agentEnv.
type agentJob struct {
	Config   process.Config
	Requests []runtime.StartRequest
	Loop     bool // start them one after the other, answering after each
}

// agentAnswer is one line on its standard output.
type agentAnswer struct {
	Workload runtime.Workload
	Err      string
}

func actAsAgent() (code int, ok bool) {
	text := os.Getenv(agentEnv)
	if text == "" {
		return 0, false
	}
	if text == "hang" {
		_, _ = io.Copy(io.Discard, os.Stdin) // until the parent ends
		return 0, true
	}
	if err := runAgent(text); err != nil {
		fmt.Fprintln(os.Stderr, "agent:", err)
		return 1, true
	}
	return 0, true
}

func runAgent(text string) error {
	var job agentJob
	if err := json.Unmarshal([]byte(text), &job); err != nil {
		return err
	}
	d, err := process.New(job.Config)
	if err != nil {
		return err
	}
	out := json.NewEncoder(os.Stdout)
	for _, req := range job.Requests {
		w, err := d.Start(context.Background(), req)
		a := agentAnswer{Workload: w}
		if err != nil {
			a.Err = err.Error()
		}
		if err := out.Encode(a); err != nil {
			return err
		}
	}
	// Ends with its parent at the latest.
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// agent is such a process.
type agent struct {
	t   *testing.T
	cmd *exec.Cmd
	out *bufio.Scanner
}

func startAgent(t *testing.T, job agentJob) *agent {
	t.Helper()
	text, err := json.Marshal(job)
	if err != nil {
		t.Fatal(err)
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), agentEnv+"="+string(text))
	cmd.Stderr = os.Stderr
	if _, err := cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	a := &agent{t: t, cmd: cmd, out: bufio.NewScanner(out)}
	a.out.Buffer(nil, 1<<20)
	t.Cleanup(a.kill)
	return a
}

// answer reads what became of the next request.
func (a *agent) answer() runtime.Workload {
	a.t.Helper()
	if !a.out.Scan() {
		a.t.Fatalf("agent ended without an answer: %v", a.out.Err())
	}
	var got agentAnswer
	if err := json.Unmarshal(a.out.Bytes(), &got); err != nil {
		a.t.Fatalf("agent says %q: %v", a.out.Text(), err)
	}
	if got.Err != "" {
		a.t.Fatalf("agent: %s", got.Err)
	}
	return got.Workload
}

// kill ends it with SIGKILL and waits until it is gone.
func (a *agent) kill() {
	_ = a.cmd.Process.Kill() // fails only if it has been killed before
	_ = a.cmd.Wait()
}

func request(t *testing.T, name string, attempt int, args ...string) runtime.StartRequest {
	t.Helper()
	return requestSpec(name, attempt, workload(t, args...))
}

func requestSpec(name string, attempt int, spec fleet.Spec) runtime.StartRequest {
	return runtime.StartRequest{
		Ref: runtime.Ref{
			Instance: runtime.InstanceID(name, "u-"+name, 1, attempt), Name: name, UID: "u-" + name,
			NodeID: "n-test", Epoch: 1, Incarnation: 1, Attempt: attempt,
		},
		Spec: spec.WithDefaults(),
	}
}

// patience bounds waits whose event must come.
const patience = 20 * time.Second

func deadline(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 3*patience)
	t.Cleanup(cancel)
	return ctx
}
