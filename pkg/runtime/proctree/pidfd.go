//go:build linux

package proctree

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"syscall"
	"time"
	"unsafe"
)

// System calls that package syscall has no names for. Their numbers are the
// same on every architecture: they were added after the tables were unified.
const (
	sysPidfdSendSignal = 424
	sysPidfdOpen       = 434

	pollIn = 1
)

// Handle holds on to one process: what it does can never reach another one.
type Handle struct {
	ID ID
	f  *os.File
}

// Open returns a handle on the process that id names, or ErrGone.
func Open(id ID) (*Handle, error) {
	fd, _, errno := syscall.Syscall(sysPidfdOpen, uintptr(id.Pid), syscall.O_NONBLOCK, 0)
	if errno == syscall.ESRCH || errno == syscall.EINVAL && id.Pid <= 0 {
		return nil, ErrGone
	}
	if errno != 0 {
		return nil, fmt.Errorf("open pidfd of %d: %w", id.Pid, errno)
	}
	// Non-blocking, so that waiting costs a place in the poller and no thread.
	f := os.NewFile(fd, "pidfd:"+strconv.Itoa(id.Pid))
	// The start time is compared after the pidfd was opened: if it matches,
	// the pidfd is this process's for good.
	if _, err := id.stat(); err != nil {
		f.Close()
		return nil, err
	}
	return &Handle{ID: id, f: f}, nil
}

// Close releases the handle; a Wait in progress returns.
func (h *Handle) Close() error { return h.f.Close() }

// Signal sends sig, or returns ErrGone.
func (h *Handle) Signal(sig syscall.Signal) error {
	rc, err := h.f.SyscallConn()
	if err != nil {
		return err
	}
	var errno syscall.Errno
	err = rc.Control(func(fd uintptr) {
		_, _, errno = syscall.Syscall6(sysPidfdSendSignal, fd, uintptr(sig), 0, 0, 0, 0)
	})
	switch {
	case err != nil:
		return err
	case errno == syscall.ESRCH:
		return ErrGone
	case errno != 0:
		return fmt.Errorf("signal %d to process %d: %w", sig, h.ID.Pid, errno)
	}
	return nil
}

// Wait returns nil once the process has ended, whoever its parent is, or the
// context's error.
func (h *Handle) Wait(ctx context.Context) error {
	rc, err := h.f.SyscallConn()
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() {
		_ = h.f.SetReadDeadline(time.Unix(1, 0)) // makes the wait below return
	})
	defer stop()
	err = rc.Read(readable)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

// readable asks the kernel, without waiting, whether fd has something to read:
// a pidfd has once its process has ended.
func readable(fd uintptr) bool {
	p := struct {
		fd      int32
		events  int16
		revents int16
	}{fd: int32(fd), events: pollIn}
	var now syscall.Timespec
	n, _, _ := syscall.Syscall6(syscall.SYS_PPOLL, uintptr(unsafe.Pointer(&p)), 1,
		uintptr(unsafe.Pointer(&now)), 0, 0, 0)
	return n == 1
}

// Signal sends sig to the process that id names, or returns ErrGone.
func (id ID) Signal(sig syscall.Signal) error {
	h, err := Open(id)
	if err != nil {
		return err
	}
	defer h.Close()
	return h.Signal(sig)
}
