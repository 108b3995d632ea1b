// Package cluster runs real agents for demos and end-to-end tests: the built
// programs, in processes of their own, with data directories below one directory.
// It can do to them what happens to machines: kill an agent, kill a machine with
// everything on it, stop an agent's time.
package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Times that agents of a cluster run with: short enough for a test, long enough
// for a busy machine.
const (
	TTL   = 3 * time.Second
	Renew = 500 * time.Millisecond
	Poll  = 200 * time.Millisecond
)

// Cluster is a set of agents and the store they share.
type Cluster struct {
	Bin    string   // directory of the built programs
	Dir    string   // everything of this cluster is below it
	Bucket string   // URL of the bucket; empty: agents stand alone
	Env    []string // added to every program's environment
	Nodes  []*Node
}

// Node is one agent with its data directory.
type Node struct {
	Name, Dir string
	Args      []string // beyond the usual ones
	c         *Cluster
	cmd       *exec.Cmd
	done      chan struct{}
	exit      error
	logs      string
	lives     int
}

// Add makes a node and starts its agent.
func (c *Cluster) Add(name string, args ...string) (*Node, error) {
	n := &Node{Name: name, Dir: filepath.Join(c.Dir, name), Args: args, c: c}
	c.Nodes = append(c.Nodes, n)
	return n, n.Start()
}

// Start starts the node's agent, again or for the first time. Each life has a log
// of its own.
func (n *Node) Start() error {
	n.lives++
	n.logs = filepath.Join(n.c.Dir, fmt.Sprintf("%s.%d.log", n.Name, n.lives))
	out, err := os.Create(n.logs)
	if err != nil {
		return err
	}
	defer out.Close()
	args := []string{
		"--data-dir", n.Dir, "--node-name", n.Name, "--runtime", "process", "--log-format", "text",
		"--lease-ttl", TTL.String(), "--lease-renew", Renew.String(), "--poll", Poll.String(),
	}
	if n.c.Bucket != "" {
		args = append(args, "--fleet-bucket", n.c.Bucket)
	}
	n.cmd = exec.Command(filepath.Join(n.c.Bin, "node-agent"), append(args, n.Args...)...)
	n.cmd.Env = append(os.Environ(), n.c.Env...)
	n.cmd.Stdout, n.cmd.Stderr = out, out
	if err := n.cmd.Start(); err != nil {
		return err
	}
	n.done = make(chan struct{})
	go func(cmd *exec.Cmd, done chan struct{}) {
		n.exit = cmd.Wait()
		close(done)
	}(n.cmd, n.done)
	return nil
}

// Pid is the running agent's.
func (n *Node) Pid() int { return n.cmd.Process.Pid }

// Signal sends a signal to the agent alone.
func (n *Node) Signal(s syscall.Signal) error { return n.cmd.Process.Signal(s) }

// Wait returns the agent's exit when it has ended, or an error after limit.
func (n *Node) Wait(limit time.Duration) error {
	select {
	case <-n.done:
		return n.exit
	case <-time.After(limit):
		return fmt.Errorf("the agent of %s still runs after %v", n.Name, limit)
	}
}

// Ended reports whether the agent's process has ended.
func (n *Node) Ended() bool {
	select {
	case <-n.done:
		return true
	default:
		return false
	}
}

// KillAgent kills the agent and leaves its workloads running.
func (n *Node) KillAgent() {
	_ = n.Signal(syscall.SIGKILL)
	<-n.done
}

// StopAgent ends the agent as an operator would.
func (n *Node) StopAgent(limit time.Duration) error {
	if err := n.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	return n.Wait(limit)
}

// KillMachine kills the agent and everything that it started, as a power cut
// would.
func (n *Node) KillMachine() {
	_ = n.Signal(syscall.SIGKILL)
	<-n.done
	for range 50 {
		pids := append(n.Processes(), n.Guards()...)
		if len(pids) == 0 {
			return
		}
		for _, pid := range pids {
			_ = syscall.Kill(pid, syscall.SIGCONT)
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		n.thaw()
		time.Sleep(10 * time.Millisecond)
	}
}

// thaw lets frozen groups of this node's die: a frozen process takes a SIGKILL,
// but not one of a v1 freezer.
func (n *Node) thaw() {
	groups, _ := filepath.Glob("/sys/fs/cgroup/unified/barista/*/*/cgroup.kill")
	for _, g := range groups {
		procs, _ := os.ReadFile(filepath.Join(filepath.Dir(g), "cgroup.procs"))
		for f := range strings.FieldsSeq(string(procs)) {
			if pid, err := strconv.Atoi(f); err == nil && n.owns(pid) {
				_ = os.WriteFile(g, []byte("1"), 0)
			}
		}
	}
}

// Processes lists what this node's agents started and is still alive: the helpers
// and the workloads.
func (n *Node) Processes() []int {
	return processes(func(pid int) bool {
		return pid != os.Getpid() && (n.Ended() || pid != n.Pid()) && n.owns(pid)
	})
}

// Guards lists this node's guard, which stands beside the agent and outlives it.
func (n *Node) Guards() []int {
	mark := []byte("\x00guard\x00--data-dir\x00" + n.Dir + "\x00")
	return processes(func(pid int) bool {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		return err == nil && bytes.Contains(b, mark)
	})
}

func processes(which func(pid int) bool) []int {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var out []int
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil && which(pid) {
			out = append(out, pid)
		}
	}
	return out
}

// owns reports a process that knows this node's data directory from its
// arguments or its environment.
func (n *Node) owns(pid int) bool {
	mark := []byte(n.Dir + "/")
	for _, f := range []string{"cmdline", "environ"} {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, f))
		if err == nil && bytes.Contains(b, mark) {
			return true
		}
	}
	return false
}

// Log returns what the current life of the agent has logged.
func (n *Node) Log() string {
	b, _ := os.ReadFile(n.logs)
	return string(b)
}

// Logs returns what every life has logged.
func (n *Node) Logs() string {
	var all strings.Builder
	for i := 1; i <= n.lives; i++ {
		b, _ := os.ReadFile(filepath.Join(n.c.Dir, fmt.Sprintf("%s.%d.log", n.Name, i)))
		fmt.Fprintf(&all, "--- %s, life %d\n%s", n.Name, i, b)
	}
	return all.String()
}

// Close ends every agent and everything they started.
func (c *Cluster) Close() {
	for _, n := range c.Nodes {
		n.KillMachine()
	}
}

// Result is what a program printed and how it ended.
type Result struct {
	Out, Err string
	Code     int
}

// commandLimit bounds one call of a program.
const commandLimit = 60 * time.Second

// Ctl runs fleetctl against the cluster's bucket.
func (c *Cluster) Ctl(args ...string) Result { return c.run("", "fleetctl", args...) }

// CtlInput runs fleetctl with something on its standard input.
func (c *Cluster) CtlInput(in string, args ...string) Result { return c.run(in, "fleetctl", args...) }

// Agent runs a command of node-agent.
func (c *Cluster) Agent(args ...string) Result { return c.run("", "node-agent", args...) }

func (c *Cluster) run(in, program string, args ...string) Result {
	ctx, cancel := context.WithTimeout(context.Background(), commandLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, filepath.Join(c.Bin, program), args...)
	cmd.Env = append(os.Environ(), c.Env...)
	switch {
	case c.Bucket != "":
		cmd.Env = append(cmd.Env, "BARISTA_FLEET_BUCKET="+c.Bucket)
	case len(c.Nodes) > 0:
		cmd.Env = append(cmd.Env, "BARISTA_AGENT="+filepath.Join(c.Nodes[0].Dir, "agent.sock"))
	}
	cmd.Stdin = strings.NewReader(in)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	r := Result{Out: out.String(), Err: errs.String()}
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		r.Code = exit.ExitCode()
	case err != nil:
		r.Code, r.Err = -1, r.Err+err.Error()
	}
	return r
}

// Owner is what `fleetctl resolve -o json` says of a name.
type Owner struct {
	Name     string `json:"name"`
	Node     string `json:"node"`
	NodeID   string `json:"node_id"`
	Endpoint string `json:"endpoint"`
	Epoch    uint64 `json:"epoch"`
	Status   string `json:"status"`
}

// Resolve asks who owns a name. ok is false if nobody does, or nobody can say.
func (c *Cluster) Resolve(name string) (o Owner, ok bool) {
	r := c.Ctl("resolve", name, "-o", "json")
	return o, r.Code == 0 && json.Unmarshal([]byte(r.Out), &o) == nil
}

// Node returns the node with a name, or nil.
func (c *Cluster) Node(name string) *Node {
	for _, n := range c.Nodes {
		if n.Name == name {
			return n
		}
	}
	return nil
}

// Eventually waits until cond holds, or fails after limit with what cond last
// found to be missing.
func Eventually(limit time.Duration, cond func() error) error {
	deadline := time.Now().Add(limit)
	for {
		err := cond()
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("after %v: %w", limit, err)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// Running waits until a name runs, and returns its owner.
func (c *Cluster) Running(name string, limit time.Duration, also func(Owner) error) (Owner, error) {
	var last Owner
	err := Eventually(limit, func() error {
		o, ok := c.Resolve(name)
		if !ok || o.Status != "running" {
			return fmt.Errorf("%s is not running: %+v", name, o)
		}
		last = o
		if also != nil {
			return also(o)
		}
		return nil
	})
	return last, err
}
