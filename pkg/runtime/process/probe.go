//go:build linux

package process

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/barista-fleet/barista/pkg/runtime"
	"github.com/barista-fleet/barista/pkg/runtime/proctree"
	"github.com/barista-fleet/barista/pkg/runtime/shim"
)

// Capabilities that Info may report.
const (
	CapPauseFrozen      = "pause:frozen"       // cgroup.freeze stops the whole run at once
	CapPauseStoppedTree = "pause:stopped-tree" // SIGSTOP to each process
	CapCgroup           = "cgroup:v2"          // cgroup.kill ends the whole run at once
	CapUsers            = "users"              // a spec may name a user
	CapLimitMemory      = "limits:memory"
	CapLimitPids        = "limits:pids"
	CapLimitCPU         = "limits:cpu"
)

// probeTimeout bounds each step of the probe.
const probeTimeout = 5 * time.Second

// host is what was proved about this machine when the driver was made.
type host struct {
	parent proctree.Group // runs' groups are made in it; empty without cgroups
	shims  proctree.Group // where the shims are, out of the agent's own group
	caps   []string
	notes  []string

	// limitTops has, by controller, where runs have a v1 group for its limit.
	limitTops map[string]proctree.LimitGroup
}

func (h *host) can(capability string) bool {
	return slices.Contains(h.caps, capability)
}

func (h *host) note(format string, args ...any) {
	h.notes = append(h.notes, fmt.Sprintf(format, args...))
}

// Info says what this driver proved it can do on this machine.
func (d *Driver) Info() runtime.Info {
	return runtime.Info{
		Driver:       "process",
		Isolation:    "none: plain processes of the node that share its files, network and users",
		Capabilities: append([]string(nil), d.host.caps...),
		Notes:        append([]string(nil), d.host.notes...),
	}
}

// probe finds out what this machine can do, by doing it to a throw-away
// process. It fails only if no workload could run at all.
func (d *Driver) probe() error {
	if err := d.probeCgroup(); err != nil {
		d.host.parent, d.host.shims = "", ""
		d.host.note("no cgroups (%v): a run's processes are found below its node-shim and by their environment, pausing is SIGSTOP to each of them", err)
		if err := d.probeStop(); err != nil {
			return err
		}
		d.host.caps = append(d.host.caps, CapPauseStoppedTree)
	} else {
		d.host.caps = append(d.host.caps, CapPauseFrozen, CapCgroup)
	}
	d.probeLimits()
	if os.Geteuid() == 0 {
		d.host.caps = append(d.host.caps, CapUsers)
	} else {
		d.host.note("the agent is not root: workloads run as user %d, a spec that names another is refused", os.Geteuid())
	}
	d.log.Info("process runtime probed", "capabilities", d.host.caps, "notes", d.host.notes, "cgroup", string(d.host.parent))
	return nil
}

// probeCgroup finds a place for groups where freezing and killing really work.
func (d *Driver) probeCgroup() error {
	if d.cfg.CgroupParent == CgroupNone {
		return errors.New("switched off by configuration")
	}
	var candidates []string
	if d.cfg.CgroupParent != "" {
		candidates = []string{d.cfg.CgroupParent}
	} else {
		mount, own, err := proctree.FindHierarchy()
		if err != nil {
			return err
		}
		// The top comes first: what is below the agent's own group is killed
		// with it by service managers.
		candidates = []string{filepath.Join(mount, "barista")}
		if own != "" && own != "/" {
			candidates = append(candidates, filepath.Join(mount, own, "barista"))
		}
	}
	var errs []error
	for _, c := range candidates {
		err := d.tryParent(c)
		if err == nil {
			return nil
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func (d *Driver) tryParent(top string) error {
	d.host.parent = proctree.Group(filepath.Join(top, dirHash(d.cfg.Dir)))
	d.host.shims = proctree.Group(filepath.Join(string(d.host.parent), "shims"))
	if err := d.makeGroups(); err != nil {
		return err
	}
	d.sweepProbes()
	if err := d.proveGroup(); err != nil {
		return fmt.Errorf("tried in %s: %w", d.host.parent, err)
	}
	return nil
}

// makeGroups makes the groups in which runs have theirs, where they are not there.
// Between two runs they are empty: another driver over the same directory takes
// them away when it is closed, and so may anything that tidies up the machine.
func (d *Driver) makeGroups() error {
	if d.host.shims.Exists() {
		return nil
	}
	top := proctree.Group(filepath.Dir(string(d.host.parent)))
	groups := []proctree.Group{d.host.parent, d.host.shims}
	if d.cfg.CgroupParent == "" {
		groups = slices.Insert(groups, 0, top)
	}
	for _, g := range groups {
		if err := g.Create(); err != nil {
			return err
		}
	}
	// Controllers are wanted, not needed: each that can be handed down is.
	for _, g := range []proctree.Group{proctree.Group(filepath.Dir(string(top))), top, d.host.parent} {
		for _, controller := range []string{"+memory", "+pids", "+cpu"} {
			_ = g.Write("cgroup.subtree_control", controller)
		}
	}
	return nil
}

// groupBeside is the group of what stands beside the agent.
const groupBeside = "guard"

// Beside returns a group for a process of the agent's that must not end with it:
// outside the agent's own, where a service manager or an operator who ends that one
// does not reach it. It is an error where this machine has no place for one.
func (d *Driver) Beside() (proctree.Group, error) {
	if d.host.parent != "" {
		if err := d.makeGroups(); err != nil {
			return "", err
		}
		g := d.host.parent.Below(groupBeside)
		return g, g.Create()
	}
	if d.cfg.CgroupParent != "" {
		return "", errors.New("no cgroup for it: none can be made in " + d.cfg.CgroupParent)
	}
	mount, err := proctree.FindTracking()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(mount, "barista", dirHash(d.cfg.Dir), groupBeside)
	return proctree.Group(dir), os.MkdirAll(dir, 0o755)
}

// sweepProbes removes the groups of probes whose agent was killed.
func (d *Driver) sweepProbes() {
	stale, _ := filepath.Glob(filepath.Join(string(d.host.parent), "probe-*")) // the pattern is a good one
	for _, path := range stale {
		if g := proctree.Group(path); g.Exists() {
			_ = g.Remove() // refused while a process is in it: its agent lives
		}
	}
}

// dropGroups removes what makeGroups made if nothing lives in it.
func (d *Driver) dropGroups() {
	groups := []proctree.Group{d.host.shims, d.host.parent}
	if d.host.parent != "" {
		groups = slices.Insert(groups, 1, d.host.parent.Below(groupBeside))
	}
	for _, g := range groups {
		if g == "" {
			continue
		}
		// Without recursion: that would take away groups that a start is
		// about to use. What is in use refuses to go.
		_ = os.Remove(string(g))
	}
	for _, top := range d.host.limitTops {
		_ = top.Remove()
	}
}

// proveGroup freezes and kills a throw-away process in a throw-away group.
func (d *Driver) proveGroup() error {
	// The kernel kills the process when the thread that started it ends: only
	// so does an agent that is killed meanwhile leave nothing frozen behind.
	goruntime.LockOSThread()
	defer goruntime.UnlockOSThread()
	g := proctree.Group(filepath.Join(string(d.host.parent), fmt.Sprintf("probe-%d-%d", os.Getpid(), time.Now().UnixNano())))
	if err := g.Create(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(d.ctx, probeTimeout)
	defer cancel()
	child, err := d.startProbe(ctx, g)
	if err != nil {
		return errors.Join(err, g.Remove())
	}
	defer func() { _ = g.Remove() }() // empty by then, or Kill has failed and said so
	defer child.end()
	if err := g.SetFrozen(true); err != nil {
		return err
	}
	if err := d.waitGroup(ctx, g, nil, func(e proctree.Events) bool { return e.Frozen }); err != nil {
		return fmt.Errorf("freeze: %w", err)
	}
	// A frozen process that is told to end must stay, and die when it is killed.
	if err := child.id.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	if ev, err := g.Events(); err != nil || !ev.Frozen || !child.id.Alive() {
		return errors.New("a signal thawed a frozen group")
	}
	if err := g.Kill(); err != nil {
		return err
	}
	if err := d.waitGroup(ctx, g, nil, func(e proctree.Events) bool { return !e.Populated }); err != nil {
		return fmt.Errorf("kill: %w", err)
	}
	return child.id.Wait(ctx)
}

// probeStop proves that SIGSTOP and SIGKILL work on processes of ours, which
// says above all that there is a shim that can be run.
func (d *Driver) probeStop() error {
	goruntime.LockOSThread() // as in proveGroup
	defer goruntime.UnlockOSThread()
	ctx, cancel := context.WithTimeout(d.ctx, probeTimeout)
	defer cancel()
	child, err := d.startProbe(ctx, "")
	if err != nil {
		return err
	}
	defer child.end()
	t := proctree.Tree{Root: child.id}
	if err := t.Stop(ctx); err != nil {
		return fmt.Errorf("probe: stop a process: %w", err)
	}
	if err := t.Kill(ctx); err != nil {
		return fmt.Errorf("probe: kill a process: %w", err)
	}
	return nil
}

// probeChild is a throw-away process. It ends when its input does, and with the
// thread that started it.
type probeChild struct {
	cmd   *exec.Cmd
	stdin io.Closer
	id    proctree.ID
}

// startProbe starts `node-shim probe` in a group and checks its version.
func (d *Driver) startProbe(ctx context.Context, g proctree.Group) (*probeChild, error) {
	cmd := exec.Command(d.cfg.ShimPath, "probe")
	cmd.Env = shimEnv
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if g != "" {
		dir, err := os.Open(string(g))
		if err != nil {
			return nil, err
		}
		defer dir.Close()
		cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, int(dir.Fd())
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", d.cfg.ShimPath, err)
	}
	c := &probeChild{cmd: cmd, stdin: in}
	stop := context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() })
	defer stop()
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		c.end()
		return nil, fmt.Errorf("%s does not answer: %w", d.cfg.ShimPath, err)
	}
	if got := strings.TrimSpace(line); got != shim.VersionLine() {
		c.end()
		return nil, fmt.Errorf("%s says %q, this agent needs %q: install the node-shim that came with it", d.cfg.ShimPath, got, shim.VersionLine())
	}
	st, err := proctree.ReadStat(cmd.Process.Pid)
	if err != nil {
		c.end()
		return nil, err
	}
	c.id = st.ID()
	return c, nil
}

// end ends the process, however far it came, and reaps it.
func (c *probeChild) end() {
	c.stdin.Close()
	_ = c.cmd.Process.Kill()
	_ = c.cmd.Wait() // killed, so never a success
}
