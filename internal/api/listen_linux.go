package api

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/user"
	"strconv"
	"syscall"
)

// LockedDir is a data directory whose exclusive lock the caller holds; an open
// journal is one. Only its holder may replace a socket that it finds there:
// whoever served it is gone.
type LockedDir interface{ Dir() string }

// Listen makes the agent's socket, replacing a stale one. It is accessible to
// the agent's own user only, or also to a group (a name or number; empty: none),
// which is then also given the data directory, to pass through it.
func Listen(locked LockedDir, group string) (*net.UnixListener, error) {
	path, err := SocketPath(locked.Dir())
	if err != nil {
		return nil, err
	}
	fail := func(what string, err error) error {
		return &Error{
			Op: "socket", Code: CodeInternal, Err: err,
			Message: fmt.Sprintf("%s %s: %v", what, path, err),
		}
	}
	mode, gid := fs.FileMode(0o600), -1
	if group != "" {
		if gid, err = lookupGroup(group); err != nil {
			return nil, err
		}
		mode = 0o660
		if err := admit(locked.Dir(), gid); err != nil {
			return nil, fail("data directory of", err)
		}
	}
	switch st, err := os.Lstat(path); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, fail("look at", err)
	case st.Mode().Type() != fs.ModeSocket:
		return nil, &Error{
			Op: "socket", Code: CodeConflict, Message: path + " exists and is not a socket",
			Hint: "move it away; the agent puts its socket there",
		}
	default:
		if err := os.Remove(path); err != nil {
			return nil, fail("remove", err)
		}
	}
	l, err := listenUnix(path, mode, gid)
	if err != nil {
		return nil, fail("listen on", err)
	}
	return l, nil
}

// listenUnix sets the socket's mode between bind and listen: before listen
// nobody can connect, so there is no moment at which the umask decides who may.
func listenUnix(path string, mode fs.FileMode, gid int) (*net.UnixListener, error) {
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC|syscall.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	f := os.NewFile(uintptr(fd), path)
	defer func() { _ = f.Close() }() // FileListener works on a duplicate
	if err := syscall.Bind(fd, &syscall.SockaddrUnix{Name: path}); err != nil {
		return nil, os.NewSyscallError("bind", err)
	}
	if err := os.Chmod(path, mode); err != nil {
		return nil, err
	}
	if gid >= 0 {
		if err := os.Lchown(path, -1, gid); err != nil {
			return nil, err
		}
	}
	if err := syscall.Listen(fd, syscall.SOMAXCONN); err != nil {
		return nil, os.NewSyscallError("listen", err)
	}
	l, err := net.FileListener(f)
	if err != nil {
		return nil, err
	}
	unix, ok := l.(*net.UnixListener)
	if !ok {
		return nil, errors.Join(fmt.Errorf("%T is no unix listener", l), l.Close())
	}
	unix.SetUnlinkOnClose(true)
	return unix, nil
}

// admit lets the group pass through the directory, not read it.
func admit(dir string, gid int) error {
	st, err := os.Stat(dir)
	if err != nil {
		return err
	}
	if sys, ok := st.Sys().(*syscall.Stat_t); !ok || int(sys.Gid) != gid {
		if err := os.Chown(dir, -1, gid); err != nil {
			return err
		}
	}
	return os.Chmod(dir, st.Mode().Perm()|0o010)
}

func lookupGroup(group string) (int, error) {
	if gid, err := strconv.Atoi(group); err == nil && gid >= 0 {
		return gid, nil
	}
	g, err := user.LookupGroup(group)
	if err != nil {
		return 0, &Error{Op: "socket", Code: CodeInvalid, Message: err.Error(), Err: err, Hint: "name an existing group"}
	}
	return strconv.Atoi(g.Gid)
}
