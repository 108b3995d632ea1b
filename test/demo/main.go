// Command demo tells Barista's story with real agents on one machine, and checks
// every sentence of it. It exits non-zero at the first that is not true.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/barista-fleet/barista/test/cluster"
)

func main() {
	bin := flag.String("bin", "bin", "directory of the built programs")
	flag.Parse()
	if err := tell(*bin); err != nil {
		fmt.Fprintln(os.Stderr, "\nDEMO FAILED:", err)
		os.Exit(1)
	}
}

// story is the demo as it goes on.
type story struct {
	c     *cluster.Cluster
	began time.Time
}

func tell(bin string) error {
	bin, err := filepath.Abs(bin)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "barista-demo-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	s := &story{began: time.Now(), c: &cluster.Cluster{Bin: bin, Dir: dir, Bucket: "file://" + filepath.Join(dir, "bucket")}}
	defer s.c.Close()
	for _, chapter := range []func() error{s.fleet, s.names, s.deadMachine, s.orphan, s.pause, s.end} {
		if err := chapter(); err != nil {
			for _, n := range s.c.Nodes {
				fmt.Fprintln(os.Stderr, n.Logs())
			}
			return err
		}
	}
	return nil
}

func (s *story) say(format string, args ...any) {
	fmt.Printf("\n[%4.1fs] %s\n", time.Since(s.began).Seconds(), fmt.Sprintf(format, args...))
}

// show runs fleetctl and shows the command with its output.
func (s *story) show(args ...string) (cluster.Result, error) {
	fmt.Println("  $ fleetctl", strings.Join(args, " "))
	r := s.c.Ctl(args...)
	for line := range strings.Lines(r.Out + r.Err) {
		fmt.Print("    ", line)
	}
	if r.Code != 0 {
		return r, fmt.Errorf("fleetctl %s exited with %d", strings.Join(args, " "), r.Code)
	}
	return r, nil
}

func (s *story) fleet() error {
	s.say("A directory is the bucket of a fleet. Three agents are its nodes; there is no server.")
	if _, err := s.show("init"); err != nil {
		return err
	}
	for _, name := range []string{"ada", "bob", "cyn"} {
		if _, err := s.c.Add(name, "--fleet-advertise", name+".example:7070"); err != nil {
			return err
		}
	}
	err := cluster.Eventually(15*time.Second, func() error {
		if n := strings.Count(s.c.Ctl("nodes").Out, "live"); n != 3 {
			return fmt.Errorf("%d of 3 nodes are live", n)
		}
		return nil
	})
	if err != nil {
		return err
	}
	_, err = s.show("nodes")
	return err
}

func (s *story) names() error {
	s.say("Three sessions, which are kept running, and three jobs, which run to their end.")
	for i := 1; i <= 3; i++ {
		if _, err := s.show("apply", fmt.Sprintf("agent-%d", i), "--", "sleep", "600"); err != nil {
			return err
		}
	}
	for i := 1; i <= 3; i++ {
		line := fmt.Sprintf("echo job-%d >> %s", i, filepath.Join(s.c.Dir, "jobs"))
		if _, err := s.show("apply", fmt.Sprintf("job-%d", i), "--kind", "job", "--", "sh", "-c", line); err != nil {
			return err
		}
	}
	for i := 1; i <= 3; i++ {
		if _, err := s.c.Running(fmt.Sprintf("agent-%d", i), 15*time.Second, nil); err != nil {
			return err
		}
		if r := s.c.Ctl("wait", fmt.Sprintf("job-%d", i), "--for", "phase=exited", "--timeout", "20s"); r.Code != 0 {
			return errors.New("a job did not end: " + r.Err)
		}
	}
	done, err := os.ReadFile(filepath.Join(s.c.Dir, "jobs"))
	if err != nil || len(strings.Fields(string(done))) != 3 {
		return fmt.Errorf("each job should have run exactly once, they wrote %q (%w)", done, err)
	}
	if _, err := s.show("ls"); err != nil {
		return err
	}
	_, err = s.show("resolve", "agent-1")
	return err
}

func (s *story) deadMachine() error {
	before, ok := s.c.Resolve("agent-1")
	if !ok {
		return errors.New("agent-1 has no owner")
	}
	s.say("Machine %s dies: its agent and everything on it are killed at once.", before.Node)
	s.c.Node(before.Node).KillMachine()
	after, err := s.c.Running("agent-1", 20*time.Second, func(o cluster.Owner) error {
		if o.Node == before.Node || o.Epoch <= before.Epoch {
			return fmt.Errorf("still %s at epoch %d", o.Node, o.Epoch)
		}
		return nil
	})
	if err != nil {
		return err
	}
	s.say("%s saw the silence out, fenced %s and runs agent-1 at epoch %d, up from %d.", after.Node, before.Node, after.Epoch, before.Epoch)
	// Events are uploaded in batches, up to a second after what they tell.
	err = cluster.Eventually(15*time.Second, func() error {
		told := s.c.Ctl("events", "agent-1", "--node", after.Node).Out
		if !strings.Contains(told, "STARTED") {
			return fmt.Errorf("%s has not told yet that agent-1 runs there", after.Node)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if _, err := s.show("events", "agent-1"); err != nil {
		return err
	}
	s.say("%s boots again and joins under a higher incarnation.", before.Node)
	return s.c.Node(before.Node).Start()
}

func (s *story) orphan() error {
	before, ok := s.c.Resolve("agent-2")
	if !ok {
		return errors.New("agent-2 has no owner")
	}
	node := s.c.Node(before.Node)
	s.say("Only the agent of %s dies. Its workloads go on: they do not need it.", node.Name)
	node.KillAgent()
	orphans := len(node.Processes())
	if orphans == 0 {
		return errors.New("the workloads died with their agent")
	}
	after, err := s.c.Running("agent-2", 20*time.Second, func(o cluster.Owner) error {
		if o.Node == before.Node {
			return errors.New("not taken yet")
		}
		return nil
	})
	if err != nil {
		return err
	}
	s.say("%s took agent-2 at epoch %d. The old run on %s is an orphan now. Its agent starts again:", after.Node, after.Epoch, node.Name)
	if _, err := s.show("apply", "later", "--", "sleep", "600"); err != nil {
		return err
	}
	if err := node.Start(); err != nil {
		return err
	}
	err = cluster.Eventually(15*time.Second, func() error {
		if !strings.Contains(node.Log(), "msg=fenced") {
			return errors.New("it did not fence its orphan")
		}
		return nil
	})
	if err != nil {
		return err
	}
	log := node.Log()
	if c := strings.Index(log, "msg=claimed"); c >= 0 && c < strings.Index(log, "msg=fenced") {
		return errors.New("it acquired something before it fenced its orphan")
	}
	for line := range strings.Lines(log) {
		if strings.Contains(line, "msg=fenced") {
			fmt.Print("    ", line)
		}
	}
	s.say("It ended the orphan before it acquired anything.")
	return nil
}

func (s *story) pause() error {
	file := filepath.Join(s.c.Dir, "counter")
	s.say("A session counts in its memory. It is paused, its agent is killed and starts again, and it is resumed.")
	count := fmt.Sprintf("i=0; while :; do i=$((i+1)); echo $i > %[1]s.new; mv %[1]s.new %[1]s; sleep 0.05; done", file)
	if _, err := s.show("apply", "counter", "--", "sh", "-c", count); err != nil {
		return err
	}
	before, err := s.c.Running("counter", 15*time.Second, func(cluster.Owner) error {
		if n := read(file); n < 10 {
			return fmt.Errorf("it counted to %d", n)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if _, err := s.show("pause", "counter"); err != nil {
		return err
	}
	if r := s.c.Ctl("wait", "counter", "--for", "phase=paused", "--timeout", "15s"); r.Code != 0 {
		return errors.New("not paused: " + r.Err)
	}
	stopped := read(file)
	node := s.c.Node(before.Node)
	node.KillAgent()
	if err := node.Start(); err != nil {
		return err
	}
	if n := read(file); n != stopped {
		return fmt.Errorf("it counted on from %d to %d while paused", stopped, n)
	}
	if _, err := s.show("resume", "counter"); err != nil {
		return err
	}
	after, err := s.c.Running("counter", 20*time.Second, func(cluster.Owner) error {
		if n := read(file); n <= stopped {
			return fmt.Errorf("the counter stands at %d", n)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if after.Node != before.Node || after.Epoch != before.Epoch {
		return fmt.Errorf("it was on %s at epoch %d and is on %s at epoch %d", before.Node, before.Epoch, after.Node, after.Epoch)
	}
	if n := read(file); n > stopped+400 {
		return fmt.Errorf("the counter went from %d to %d: it did not stand still", stopped, n)
	}
	s.say("It went on from %d, on %s, still at epoch %d.", stopped, after.Node, after.Epoch)
	return nil
}

func read(file string) int {
	b, err := os.ReadFile(file)
	if err != nil {
		return 0
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		return 0
	}
	return n
}

func (s *story) end() error {
	s.say("Names are deleted by a write; their owners tear them down and let go.")
	names := []string{"agent-1", "agent-2", "agent-3", "later", "counter"}
	if _, err := s.show(append([]string{"delete", "--yes"}, names...)...); err != nil {
		return err
	}
	err := cluster.Eventually(20*time.Second, func() error {
		for _, n := range s.c.Nodes {
			if left := n.Processes(); len(left) > 0 {
				return fmt.Errorf("%d processes are left on %s", len(left), n.Name)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	s.say("Everything said was checked. %.0f seconds.", time.Since(s.began).Seconds())
	return nil
}
