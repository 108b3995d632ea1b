//go:build linux

package history

import (
	"fmt"
	"os"
	"strconv"
	"syscall"
	"unsafe"
)

// Recorder appends the lines of the calling process to a history.
type Recorder struct {
	f    *os.File
	line Line
}

// OpenRecorder opens a history for the calling process, which says who it is by
// the environment that every workload gets. Without a path nothing is recorded.
func OpenRecorder(path string) (*Recorder, error) {
	r := &Recorder{line: Line{
		Name: os.Getenv("BARISTA_NAME"), Node: os.Getenv("BARISTA_NODE"),
		Instance: os.Getenv("BARISTA_INSTANCE"), Pid: os.Getpid(),
	}}
	if e := os.Getenv("BARISTA_EPOCH"); e != "" {
		epoch, err := strconv.ParseUint(e, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("BARISTA_EPOCH: %w", err)
		}
		r.line.Epoch = epoch
	}
	if path == "" {
		return r, nil
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o666)
	if err != nil {
		return nil, err
	}
	r.f = f
	return r, nil
}

// Write appends one line in one write, so that lines of several processes do
// not mix.
func (r *Recorder) Write(e Event) error {
	if r.f == nil {
		return nil
	}
	l := r.line
	l.Event, l.At = e, Now()
	_, err := r.f.WriteString(l.String() + "\n")
	return err
}

// Now reads CLOCK_BOOTTIME.
func Now() int64 {
	const clockBoottime = 7
	var ts syscall.Timespec
	_, _, errno := syscall.Syscall(syscall.SYS_CLOCK_GETTIME, clockBoottime, uintptr(unsafe.Pointer(&ts)), 0)
	if errno != 0 {
		panic("no CLOCK_BOOTTIME: " + errno.Error()) // Linux has had it since 2.6.39
	}
	return ts.Nano()
}
