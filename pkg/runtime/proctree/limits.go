//go:build linux

package proctree

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
)

// LimitGroup is a group of a cgroup v1 hierarchy that bounds its processes by one
// controller. It is used where the controller is not in the v2 hierarchy, as on
// hybrid machines, and for its limit alone: what belongs to a run is told by a
// Group.
type LimitGroup string

// FindController returns where the v1 hierarchy of a controller (memory, pids,
// cpu) is mounted writable.
func FindController(name string) (mount string, err error) {
	mount, err = findMount("cgroup", name)
	if err == nil && mount == "" {
		err = fmt.Errorf("no cgroup v1 hierarchy with the %s controller is mounted writable", name)
	}
	return mount, err
}

// Create makes the group and those above it. That they exist is no error.
func (g LimitGroup) Create() error { return os.MkdirAll(string(g), 0o755) }

// Remove removes the group. It fails while a process is in it; that it is not
// there is no error.
func (g LimitGroup) Remove() error {
	if err := os.Remove(string(g)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove cgroup: %w", err)
	}
	return nil
}

// Enter moves the calling process into the group. What it forks from here on is
// in it, too.
func (g LimitGroup) Enter() error { return g.write("cgroup.procs", "0") }

// LimitMemory bounds the group's memory, in bytes, swap included.
func (g LimitGroup) LimitMemory(bytes int64) error {
	if err := g.write("memory.limit_in_bytes", strconv.FormatInt(bytes, 10)); err != nil {
		return err
	}
	// Without this a limit means swapping. Not every kernel counts swap.
	_ = g.write("memory.memsw.limit_in_bytes", strconv.FormatInt(bytes, 10))
	return nil
}

// LimitPids bounds the number of the group's threads.
func (g LimitGroup) LimitPids(n int64) error { return g.write("pids.max", strconv.FormatInt(n, 10)) }

// LimitCPU bounds the group to quota microseconds of CPU time per period.
func (g LimitGroup) LimitCPU(quota, period int64) error {
	if err := g.write("cpu.cfs_period_us", strconv.FormatInt(period, 10)); err != nil {
		return err
	}
	return g.write("cpu.cfs_quota_us", strconv.FormatInt(quota, 10))
}

// Has reports whether the group has a file.
func (g LimitGroup) Has(name string) bool {
	_, err := os.Stat(filepath.Join(string(g), name))
	return err == nil
}

// OOMKills returns how many of the group's processes the kernel has killed for
// memory; 0 in a hierarchy without the memory controller.
func (g LimitGroup) OOMKills() int64 {
	b, err := os.ReadFile(filepath.Join(string(g), "memory.oom_control"))
	if err != nil {
		return 0
	}
	return field(b, "oom_kill")
}

func (g LimitGroup) write(name, value string) error { return Group(g).Write(name, value) }
