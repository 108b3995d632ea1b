//go:build linux

package process

import (
	"errors"
	"fmt"
	"path/filepath"
	"strconv"

	"github.com/barista-fleet/barista/pkg/fleet"
	"github.com/barista-fleet/barista/pkg/runtime/proctree"
	"github.com/barista-fleet/barista/pkg/runtime/shim"
)

// cpuPeriod is the kernel's default period of CPU quotas, in microseconds.
const cpuPeriod = 100_000

// limit is one thing that a spec can bound, and how each cgroup version does it.
type limit struct {
	capability, controller string
	file, fileV1           string // whose presence says that the controller is there
	value                  func(*fleet.Spec) int64
	set                    func(proctree.Group, int64) error
	setV1                  func(proctree.LimitGroup, int64) error
}

var limits = []limit{
	{
		capability: CapLimitMemory, controller: "memory", file: "memory.max", fileV1: "memory.limit_in_bytes",
		value: func(s *fleet.Spec) int64 { return s.MemoryBytes },
		set: func(g proctree.Group, n int64) error {
			// Without the second a limit means swapping. Not every kernel counts swap.
			err := g.Write("memory.max", strconv.FormatInt(n, 10))
			_ = g.Write("memory.swap.max", "0")
			return err
		},
		setV1: proctree.LimitGroup.LimitMemory,
	},
	{
		capability: CapLimitPids, controller: "pids", file: "pids.max", fileV1: "pids.max",
		value: func(s *fleet.Spec) int64 { return s.Pids },
		set:   func(g proctree.Group, n int64) error { return g.Write("pids.max", strconv.FormatInt(n, 10)) },
		// The v1 limit is the helper's to set: see shim.Launch.
	},
	{
		capability: CapLimitCPU, controller: "cpu", file: "cpu.max", fileV1: "cpu.cfs_quota_us",
		value: func(s *fleet.Spec) int64 { return s.CPUMillis },
		set: func(g proctree.Group, milli int64) error {
			return g.Write("cpu.max", fmt.Sprintf("%d %d", cpuQuota(milli), cpuPeriod))
		},
		setV1: func(g proctree.LimitGroup, milli int64) error { return g.LimitCPU(cpuQuota(milli), cpuPeriod) },
	},
}

// cpuQuota is what a number of thousandths of a CPU may use in a period. The
// kernel takes no less than a millisecond.
func cpuQuota(milli int64) int64 { return max(milli*cpuPeriod/1000, 1000) }

// probeLimits sees which limits of a spec can be kept here: by a controller that
// reaches the groups of runs, or by one of its own v1 hierarchy.
func (d *Driver) probeLimits() {
	if d.cfg.CgroupParent == CgroupNone {
		d.host.note("memory, pids and cpu limits of a spec are not enforced: they need cgroups")
		return
	}
	d.host.limitTops = map[string]proctree.LimitGroup{}
	for i := range limits {
		l := &limits[i]
		if d.host.parent != "" && d.host.shims.Has(l.file) {
			d.host.caps = append(d.host.caps, l.capability)
			continue
		}
		top, err := d.limitTop(l)
		if err != nil {
			d.host.note("the %s limit of a spec is not enforced: the %s controller is not in the cgroup v2 hierarchy here, and %v", l.controller, l.controller, err)
			continue
		}
		d.host.limitTops[l.controller] = top
		d.host.caps = append(d.host.caps, l.capability)
		d.host.note("the %s limit of a spec is kept by a cgroup v1 group", l.controller)
	}
}

// limitTop makes the v1 group under which runs have theirs.
func (d *Driver) limitTop(l *limit) (proctree.LimitGroup, error) {
	mount, err := proctree.FindController(l.controller)
	if err != nil {
		return "", err
	}
	top := proctree.LimitGroup(filepath.Join(mount, "barista", dirHash(d.cfg.Dir)))
	if err := top.Create(); err != nil {
		return "", err
	}
	if !top.Has(l.fileV1) {
		return "", fmt.Errorf("%s has no %s", top, l.fileV1)
	}
	return top, nil
}

// limitGroup is the v1 group of a run for one controller.
func limitGroup(top proctree.LimitGroup, instance string) proctree.LimitGroup {
	return proctree.LimitGroup(filepath.Join(string(top), instance))
}

// setLimits sets what this machine can keep of a spec's limits. The v1 groups
// that it makes are noted in l: the helper starts the workload in them.
func (d *Driver) setLimits(l *shim.Launch, s *fleet.Spec) error {
	for i := range limits {
		lim := &limits[i]
		n := lim.value(s)
		if n <= 0 || !d.host.can(lim.capability) {
			continue
		}
		top, old := d.host.limitTops[lim.controller]
		if !old {
			if err := lim.set(proctree.Group(l.Cgroup), n); err != nil {
				return err
			}
			continue
		}
		g := limitGroup(top, l.Instance)
		if err := g.Create(); err != nil {
			return err
		}
		if lim.capability == CapLimitPids {
			l.PidsGroup, l.PidsMax = string(g), n
		} else if err := lim.setV1(g, n); err != nil {
			return err
		}
		l.LimitGroups = append(l.LimitGroups, string(g))
	}
	return nil
}

// dropLimits removes the v1 groups of a run that is over.
func (d *Driver) dropLimits(instance string) error {
	var err error
	for _, top := range d.host.limitTops {
		err = errors.Join(err, limitGroup(top, instance).Remove())
	}
	return err
}
