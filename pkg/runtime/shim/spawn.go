//go:build linux

package shim

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/barista-fleet/barista/pkg/runtime/proctree"
)

// specError is a start that can never succeed as it is described.
type specError struct{ err error }

func (e *specError) Error() string { return e.err.Error() }
func (e *specError) Unwrap() error { return e.err }

// spawn starts the workload's first process, in its own session and, where
// there is one, born in its cgroup: it is never anywhere else.
func spawn(l *Launch, out *output) (pid int, err error) {
	path, err := findProgram(l)
	if err != nil {
		return 0, &specError{err}
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		return 0, err
	}
	defer null.Close()
	files := []uintptr{null.Fd()}
	for _, s := range []Stream{StreamOut, StreamErr} {
		w, err := out.pipe(s)
		if err != nil {
			return 0, err
		}
		defer w.Close()
		files = append(files, w.Fd())
	}
	sys := &syscall.SysProcAttr{Setsid: true}
	if l.SetUser {
		sys.Credential = &syscall.Credential{Uid: l.UID, Gid: l.GID, Groups: l.Groups}
	}
	if l.Cgroup != "" {
		dir, err := os.Open(l.Cgroup)
		if err != nil {
			return 0, fmt.Errorf("open cgroup: %w", err)
		}
		defer dir.Close()
		sys.UseCgroupFD, sys.CgroupFD = true, int(dir.Fd())
	}
	pid, err = syscall.ForkExec(path, l.Args, &syscall.ProcAttr{
		Dir: l.Workdir, Env: l.Env, Files: files, Sys: sys,
	})
	if err != nil {
		return 0, startError(l, path, err)
	}
	return pid, nil
}

// startError says which of the many things that one errno can mean it was.
func startError(l *Launch, path string, err error) error {
	who := ""
	if l.SetUser {
		who = fmt.Sprintf(" as user %d", l.UID)
	}
	errno, _ := errors.AsType[syscall.Errno](err)
	switch errno {
	case syscall.EAGAIN, syscall.ENOMEM, syscall.ENFILE, syscall.EMFILE, syscall.EBUSY, syscall.ETXTBSY, syscall.EIO:
		return fmt.Errorf("start %s%s: %w", path, who, err)
	case syscall.ENOENT:
		return &specError{fmt.Errorf("start %s%s in %s: the program exists, but not the interpreter or loader it asks for: %w", path, who, l.Workdir, err)}
	case syscall.ENOEXEC:
		return &specError{fmt.Errorf("start %s%s: not a program for this machine, and it does not begin with #!: %w", path, who, err)}
	case syscall.EACCES:
		return &specError{fmt.Errorf("start %s%s in %s: %w", path, who, l.Workdir, err)}
	default:
		return &specError{fmt.Errorf("start %s%s: %w", path, who, err)}
	}
}

// findProgram resolves the first argument as a shell would: with the workload's
// own PATH, relative to its working directory.
func findProgram(l *Launch) (string, error) {
	if len(l.Args) == 0 || l.Args[0] == "" {
		return "", errors.New("no program given")
	}
	if st, err := os.Stat(l.Workdir); err != nil {
		return "", fmt.Errorf("working directory: %w", err)
	} else if !st.IsDir() {
		return "", fmt.Errorf("working directory: %s is not a directory", l.Workdir)
	}
	name := l.Args[0]
	if strings.Contains(name, "/") {
		path := name
		if !filepath.IsAbs(path) {
			path = filepath.Join(l.Workdir, name)
		}
		return path, checkProgram(path)
	}
	search := ""
	for _, e := range l.Env {
		if v, ok := strings.CutPrefix(e, "PATH="); ok {
			search = v // the last one counts, as in execvp
		}
	}
	refused := ""
	for dir := range strings.SplitSeq(search, ":") {
		if !filepath.IsAbs(dir) {
			dir = filepath.Join(l.Workdir, dir)
		}
		path := filepath.Join(dir, name)
		err := checkProgram(path)
		if err == nil {
			return path, nil
		}
		if !errors.Is(err, os.ErrNotExist) && refused == "" {
			refused = path
		}
	}
	if refused != "" {
		return "", fmt.Errorf("program %q: %s is not an executable file", name, refused)
	}
	return "", fmt.Errorf("program %q: not found in PATH=%s", name, search)
}

func checkProgram(path string) error {
	st, err := os.Stat(path)
	switch {
	case err != nil:
		return fmt.Errorf("program: %w", err)
	case st.IsDir():
		return fmt.Errorf("program: %s is a directory", path)
	case st.Mode()&0o111 == 0:
		return fmt.Errorf("program: %s is not executable (mode %v)", path, st.Mode().Perm())
	}
	return nil
}

// killRest ends everything that the first process has left behind, and returns
// how many processes that were. Reaping them is the caller's.
func killRest(l *Launch, self proctree.ID) int {
	members := rest(l, self)
	if l.Cgroup != "" && len(members) > 0 {
		// At once and without a gap for what is being forked. Where the kernel
		// cannot do it, the signals below do.
		_ = proctree.Group(l.Cgroup).Kill()
	}
	for _, st := range members {
		// One that is gone meanwhile is what was wanted, and one that may not
		// be signalled is found again by the next call.
		_ = st.ID().Signal(syscall.SIGKILL)
	}
	return len(members)
}

// rest lists the live processes of the run: those in its group, and those below
// us, for a privileged workload may have moved some out of the group.
func rest(l *Launch, self proctree.ID) []proctree.Stat {
	var members []proctree.Stat
	seen := make(map[int]bool)
	if l.Cgroup != "" {
		members, _ = proctree.Group(l.Cgroup).Members() // a group that is gone has none
	}
	for _, st := range members {
		seen[st.Pid] = true
	}
	below, _ := proctree.Tree{Reaper: self}.Members() // without /proc there is no shim at all
	for _, st := range below {
		if !seen[st.Pid] {
			members = append(members, st)
		}
	}
	return members
}
