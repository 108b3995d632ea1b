//go:build linux

package proctree

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Group is a cgroup v2 directory: a set of processes that nothing leaves by
// forking, starting a session or being orphaned.
type Group string

// FindHierarchy returns where a cgroup v2 hierarchy is mounted writable and
// which group of it the caller is in. On a hybrid machine it is mounted beside
// the v1 controllers and has none of its own; freezing and killing need none.
func FindHierarchy() (mount, own string, err error) {
	mount, err = findMount("cgroup2", "")
	if err != nil {
		return "", "", err
	}
	if mount == "" {
		return "", "", errors.New("no cgroup v2 hierarchy is mounted writable")
	}
	own, err = pathOf("self")
	if err != nil {
		return "", "", err
	}
	return mount, own, nil
}

// PathOf returns where a process is in the cgroup v2 hierarchy, relative to its
// mount; empty if it is in none.
func PathOf(pid int) (path string, err error) { return pathOf(strconv.Itoa(pid)) }

func pathOf(proc string) (path string, err error) {
	b, err := os.ReadFile(filepath.Join("/proc", proc, "cgroup"))
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(b)) {
		if path, ok := strings.CutPrefix(line, "0::"); ok {
			return strings.TrimSpace(path), nil
		}
	}
	return "", nil
}

// FindTracking returns where a cgroup v1 hierarchy is mounted in which a service
// manager keeps account of the processes of its services.
func FindTracking() (mount string, err error) {
	mount, err = findMount("cgroup", "name=systemd")
	if err == nil && mount == "" {
		err = errors.New("no cgroup v1 hierarchy of a service manager is mounted writable")
	}
	return mount, err
}

// findMount returns where the first file system of a type is mounted writable that
// has the given option of its own; any has the empty one. There may be none.
func findMount(fsType, option string) (mount string, err error) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return "", err
	}
	defer f.Close()
	sc := bufio.NewScanner(f)
	for sc.Scan() {
		// 31 23 0:28 / /sys/fs/cgroup rw,relatime shared:9 - cgroup2 cgroup2 rw
		pre, post, ok := strings.Cut(sc.Text(), " - ")
		left, right := strings.Fields(pre), strings.Fields(post)
		if !ok || len(left) < 6 || len(right) < 3 || right[0] != fsType {
			continue
		}
		if hasOption(left[5], "ro") || hasOption(right[2], "ro") || option != "" && !hasOption(right[2], option) {
			continue
		}
		return unescapeMount(left[4]), nil
	}
	return "", sc.Err()
}

func hasOption(options, want string) bool {
	for o := range strings.SplitSeq(options, ",") {
		if o == want {
			return true
		}
	}
	return false
}

// unescapeMount undoes the octal escapes of mountinfo (a space is \040).
func unescapeMount(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if v, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(v))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// Below names a group in this one.
func (g Group) Below(name string) Group { return Group(filepath.Join(string(g), name)) }

func (g Group) file(name string) string { return filepath.Join(string(g), name) }

// Create makes the group. That it exists is no error.
func (g Group) Create() error {
	err := os.Mkdir(string(g), 0o755)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	return err
}

// Exists reports whether the group is there.
func (g Group) Exists() bool {
	if g == "" {
		return false
	}
	_, err := os.Stat(string(g))
	return err == nil
}

// Remove removes the group and what its processes made below it. It fails
// while a process is in any of them; that it is not there is no error.
func (g Group) Remove() error {
	for _, sub := range g.below() {
		if err := os.Remove(sub); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove cgroup: %w", err)
		}
	}
	return nil
}

// below lists the group and all groups under it, the deepest first.
func (g Group) below() []string {
	var dirs []string
	// An entry that vanishes while it is walked is simply not listed.
	_ = filepath.WalkDir(string(g), func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			dirs = append(dirs, path)
		}
		return nil
	})
	for i, j := 0, len(dirs)-1; i < j; i, j = i+1, j-1 {
		dirs[i], dirs[j] = dirs[j], dirs[i]
	}
	return dirs
}

// Join moves the calling process into the group, out of the one it was started in.
func (g Group) Join() error { return g.Write("cgroup.procs", strconv.Itoa(os.Getpid())) }

// Kill sends SIGKILL to every process of the group, also to one being forked
// at this moment and to frozen ones, which die without running again. It does
// not wait.
func (g Group) Kill() error { return g.Write("cgroup.kill", "1") }

// SetFrozen asks for the group to be frozen or thawed. It does not wait. No
// signal makes a frozen process run. One that it does not handle and that ends
// it by default may still do so, without a step of its code: the kernel then
// treats it as SIGKILL.
func (g Group) SetFrozen(frozen bool) error {
	v := "0"
	if frozen {
		v = "1"
	}
	return g.Write("cgroup.freeze", v)
}

// FreezeAsked reports whether the group was told to freeze.
func (g Group) FreezeAsked() bool {
	b, err := os.ReadFile(g.file("cgroup.freeze"))
	return err == nil && len(b) > 0 && b[0] == '1'
}

// Events is cgroup.events: its file is reported as modified by inotify when
// one of the two changes.
type Events struct {
	Populated bool
	Frozen    bool
}

// EventsFile is the file to watch for changes of Events.
func (g Group) EventsFile() string { return g.file("cgroup.events") }

// Events reads the group's state. A group that is not there is empty.
func (g Group) Events() (Events, error) {
	b, err := os.ReadFile(g.EventsFile())
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENODEV) {
		return Events{}, nil
	}
	if err != nil {
		return Events{}, fmt.Errorf("read cgroup events: %w", err)
	}
	return Events{Populated: field(b, "populated") == 1, Frozen: field(b, "frozen") == 1}, nil
}

// CPU returns what the group has consumed in its life.
func (g Group) CPU() time.Duration {
	b, err := os.ReadFile(g.file("cpu.stat"))
	if err != nil || g == "" {
		return 0
	}
	return time.Duration(field(b, "usage_usec")) * time.Microsecond
}

// OOMKills returns how many of its processes the kernel has killed for memory,
// 0 where the memory controller is missing.
func (g Group) OOMKills() int64 {
	b, err := os.ReadFile(g.file("memory.events"))
	if err != nil || g == "" {
		return 0
	}
	return field(b, "oom_kill")
}

// field finds "name value" in a flat-keyed file.
func field(b []byte, name string) int64 {
	for line := range bytes.Lines(b) {
		if v, ok := bytes.CutPrefix(line, []byte(name+" ")); ok {
			n, err := strconv.ParseInt(string(bytes.TrimSpace(v)), 10, 64)
			if err != nil {
				return 0
			}
			return n
		}
	}
	return 0
}

// Write sets a file of the group.
func (g Group) Write(name, value string) error {
	f, err := os.OpenFile(g.file(name), os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("cgroup: %w", err)
	}
	defer f.Close()
	if _, err := f.WriteString(value); err != nil {
		return fmt.Errorf("cgroup: set %s to %q: %w", name, value, err)
	}
	return nil
}

// Has reports whether the group has a file, and so the controller it belongs to.
func (g Group) Has(name string) bool {
	_, err := os.Stat(g.file(name))
	return err == nil
}

// Members returns the live processes of the group and of those below it.
func (g Group) Members() ([]Stat, error) {
	var members []Stat
	for _, sub := range g.below() {
		b, err := os.ReadFile(filepath.Join(sub, "cgroup.procs"))
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENODEV) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("list cgroup: %w", err)
		}
		for line := range bytes.Lines(b) {
			pid, err := strconv.Atoi(string(bytes.TrimSpace(line)))
			if err != nil || pid == 0 { // 0: in a pid namespace we cannot see
				continue
			}
			if st, err := ReadStat(pid); err == nil && !st.Dead() {
				members = append(members, st)
			}
		}
	}
	return members, nil
}

// Signal sends sig to every process that is in the group now. A pid that
// passed to a stranger between the listing and the signal is not signalled:
// membership is looked at again once the process is held by a pidfd.
func (g Group) Signal(sig syscall.Signal) error {
	members, err := g.Members()
	if err != nil {
		return err
	}
	var errs []error
	for _, st := range members {
		if err := g.signalMember(st.ID(), sig); err != nil && !errors.Is(err, ErrGone) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func (g Group) signalMember(id ID, sig syscall.Signal) error {
	h, err := Open(id)
	if err != nil {
		return err
	}
	defer h.Close()
	b, err := os.ReadFile("/proc/" + strconv.Itoa(id.Pid) + "/cgroup")
	if err != nil {
		return ErrGone
	}
	// The path there is relative to the mount: the group's own name, unique
	// to a run, is enough to recognise it.
	if !bytes.Contains(b, []byte("/"+filepath.Base(string(g)))) {
		return ErrGone
	}
	return h.Signal(sig)
}
