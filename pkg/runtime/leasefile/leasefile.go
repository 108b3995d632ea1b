//go:build linux

// Package leasefile is how an agent makes known, outside its own process, up to
// when its machine may run workloads that must not outlive its lease: one small
// file, replaced at each renewal. The guard that ends overdue workloads reads it,
// and so does the helper that starts one, right before it does: an agent that was
// stopped between its decision and the start has no say in whether the start is
// still right.
//
// Times are of the boot-time clock, which every process of one boot shares and
// which goes on during suspend. The file means nothing after a reboot. It imports
// the standard library only: the helper links it.
package leasefile

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
	"unsafe"
)

// Name is the file's name in a data directory.
const Name = "lease.json"

// Lease is what the file says. Times are nanoseconds of the boot-time clock.
type Lease struct {
	BootID      string `json:"boot_id"`
	Confirmed   int64  `json:"confirmed_boottime_ns"` // when the last confirmed renewal was sent
	KillAt      int64  `json:"kill_boottime_ns"`      // from here on nothing that must stop may run; 0: it may not run now
	Deadline    int64  `json:"deadline_boottime_ns"`  // from here on the names can be taken
	Incarnation uint64 `json:"incarnation"`           // under which workloads may run
}

// ErrOver is a lease that does not allow a workload to run.
var ErrOver = errors.New("the node's lease does not allow it")

// Write replaces the file. It is not synced: a crash of the machine voids it.
func Write(dir string, l Lease) error {
	body, err := json.Marshal(l)
	if err != nil {
		return err
	}
	tmp := filepath.Join(dir, Name+".new")
	if err := os.WriteFile(tmp, body, 0o600); err != nil {
		return err
	}
	return os.Rename(tmp, filepath.Join(dir, Name))
}

// Read reads the file at path. A file of another boot is ErrOver.
func Read(path string) (Lease, error) {
	var l Lease
	body, err := os.ReadFile(path)
	if err != nil {
		return l, err
	}
	if err := json.Unmarshal(body, &l); err != nil {
		return l, fmt.Errorf("%s: %w", path, err)
	}
	if boot := BootID(); l.BootID != boot {
		return l, fmt.Errorf("%w: it is of another boot", ErrOver)
	}
	return l, nil
}

// Allows reports whether a workload may run now under incarnation, or why not.
func (l Lease) Allows(now int64, incarnation uint64) error {
	switch {
	case now >= l.KillAt:
		return fmt.Errorf("%w: it ended %v ago", ErrOver, time.Duration(now-l.KillAt))
	case incarnation != l.Incarnation:
		return fmt.Errorf("%w: the claim is of incarnation %d and the node is at %d", ErrOver, incarnation, l.Incarnation)
	}
	return nil
}

const clockBoottime = 7

// Now reads the boot-time clock, in nanoseconds.
func Now() int64 {
	var ts syscall.Timespec
	if _, _, errno := syscall.Syscall(syscall.SYS_CLOCK_GETTIME, clockBoottime, uintptr(unsafe.Pointer(&ts)), 0); errno != 0 {
		// Every supported kernel has this clock, and without it nothing holds.
		panic("clock_gettime(CLOCK_BOOTTIME): " + errno.Error())
	}
	return ts.Nano()
}

// BootID identifies this boot of the machine; empty if the kernel does not say.
func BootID() string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}
