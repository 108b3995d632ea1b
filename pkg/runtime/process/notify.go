//go:build linux

package process

import (
	"encoding/binary"
	"fmt"
	"os"
	"sync"
	"syscall"
)

// watchMask is the same for every watch, because two watches of one file are
// one to the kernel.
const watchMask = syscall.IN_MODIFY | syscall.IN_CREATE | syscall.IN_MOVED_TO

// notifier tells about changes of files: one inotify descriptor for the whole
// driver, since a user may have only some hundred.
type notifier struct {
	f  *os.File
	fd int

	mu   sync.Mutex
	subs map[int32]map[chan struct{}]bool // guarded by mu
	done chan struct{}
}

func newNotifier() (*notifier, error) {
	fd, err := syscall.InotifyInit1(syscall.IN_CLOEXEC | syscall.IN_NONBLOCK)
	if err != nil {
		return nil, os.NewSyscallError("inotify_init1", err)
	}
	n := &notifier{
		f: os.NewFile(uintptr(fd), "inotify"), fd: fd,
		subs: make(map[int32]map[chan struct{}]bool), done: make(chan struct{}),
	}
	go n.run()
	return n, nil
}

// watch returns a channel that receives after path, or a file in the directory
// path, has changed. Changes that come while one is unread are one.
func (n *notifier) watch(path string) (changed <-chan struct{}, cancel func(), err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	wd, err := syscall.InotifyAddWatch(n.fd, path, watchMask)
	if err != nil {
		return nil, nil, fmt.Errorf("watch %s: %w", path, err)
	}
	key := int32(wd)
	if n.subs[key] == nil {
		n.subs[key] = make(map[chan struct{}]bool)
	}
	c := make(chan struct{}, 1)
	n.subs[key][c] = true
	return c, func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		delete(n.subs[key], c)
		if len(n.subs[key]) == 0 && n.subs[key] != nil {
			delete(n.subs, key)
			_, _ = syscall.InotifyRmWatch(n.fd, uint32(wd)) // fails if the file is gone, and the watch with it
		}
	}, nil
}

// run dispatches events until close.
func (n *notifier) run() {
	defer close(n.done)
	buf := make([]byte, 16<<10)
	for {
		k, err := n.f.Read(buf)
		if err != nil {
			return // closed: nothing else makes it fail
		}
		n.dispatch(buf[:k])
	}
}

func (n *notifier) dispatch(b []byte) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for len(b) >= syscall.SizeofInotifyEvent {
		wd := int32(binary.NativeEndian.Uint32(b))
		mask := binary.NativeEndian.Uint32(b[4:])
		b = b[syscall.SizeofInotifyEvent+int(binary.NativeEndian.Uint32(b[12:])):]
		switch {
		case mask&syscall.IN_Q_OVERFLOW != 0:
			// Events were lost: everyone looks for himself.
			for _, subs := range n.subs {
				wake(subs)
			}
		case mask&syscall.IN_IGNORED != 0:
			// The file is gone, and its number may be used again.
			wake(n.subs[wd])
			delete(n.subs, wd)
		default:
			wake(n.subs[wd])
		}
	}
}

func wake(subs map[chan struct{}]bool) {
	for c := range subs {
		select {
		case c <- struct{}{}:
		default:
		}
	}
}

func (n *notifier) close() {
	n.f.Close()
	<-n.done
}
