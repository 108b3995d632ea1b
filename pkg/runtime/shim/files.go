//go:build linux

package shim

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/barista-fleet/barista/pkg/runtime/proctree"
)

// Protocol is the version of the files and descriptors described in doc.go.
const Protocol = 1

// Names in a run's state directory.
const (
	FileLaunch  = "launch"
	FileRef     = "ref"
	FileLock    = "lock"
	FileState   = "state"
	FileExit    = "exit"
	FileErr     = "shim.err"
	fileExitPre = "exit.pre"
)

// Descriptors a shim is started with.
const (
	fdAnswer = 3
	fdLock   = 4
)

// Words that begin the answer to a start.
const (
	AnswerOK    = "ok"
	AnswerSpec  = "spec"
	AnswerError = "error"
	AnswerOver  = "over" // the node's lease does not allow the start
)

// exitBlock is the size of exit.pre: one block of every file system in use, and
// an Exit is far smaller.
const exitBlock = 4096

// Launch is what to start. The environment is in this file, not among the
// arguments, because arguments are readable by everyone on the machine.
type Launch struct {
	Protocol int      `json:"protocol"`
	Instance string   `json:"instance"`
	Args     []string `json:"args"`
	Env      []string `json:"env"`
	Workdir  string   `json:"workdir"`
	// UID and the following are set only if the workload is to run as another
	// user than the shim.
	SetUser bool     `json:"set_user,omitempty"`
	UID     uint32   `json:"uid,omitempty"`
	GID     uint32   `json:"gid,omitempty"`
	Groups  []uint32 `json:"groups,omitempty"`

	// Cgroup is the existing cgroup v2 directory to start in; empty for none.
	Cgroup string `json:"cgroup,omitempty"`
	// LimitGroups are existing cgroup v1 directories to start in as well.
	LimitGroups []string `json:"limit_groups,omitempty"`
	// PidsMax is the limit to set on PidsGroup, one of LimitGroups, once only the
	// workload is in it: this process has threads of its own.
	PidsGroup string `json:"pids_group,omitempty"`
	PidsMax   int64  `json:"pids_max,omitempty"`
	// Tag is an entry of Env that no other run has.
	Tag string `json:"tag"`

	LogDir      string `json:"log_dir"` // exists
	LogMaxBytes int64  `json:"log_max_bytes"`
	LogMaxFiles int    `json:"log_max_files"`
	// LogStall is how long the workload waits for a disk that has stopped taking
	// output, before output is dropped; 0: StallLimit.
	LogStall time.Duration `json:"log_stall_ns,omitempty"`

	// LeaseFile is set for a workload that must not outlive the node's lease: it
	// is started only if the file allows it, under Incarnation, at that instant.
	LeaseFile   string `json:"lease_file,omitempty"`
	Incarnation uint64 `json:"incarnation,omitempty"`

	// Ref is the agent's; the shim copies it into State, so that a damaged
	// file of the agent does not leave a run nameless.
	Ref json.RawMessage `json:"ref,omitempty"`
}

// State is how far a shim has come.
type State struct {
	Protocol int             `json:"protocol"`
	Instance string          `json:"instance"`
	Shim     proctree.ID     `json:"shim"`
	Child    proctree.ID     `json:"child"` // zero until it exists
	Started  time.Time       `json:"started"`
	Cgroup   string          `json:"cgroup,omitempty"`
	Tag      string          `json:"tag"`
	LogDir   string          `json:"log_dir"`
	Ref      json.RawMessage `json:"ref,omitempty"`
}

// Exit is how a run ended.
type Exit struct {
	Protocol int       `json:"protocol"`
	Instance string    `json:"instance"`
	Lost     bool      `json:"lost,omitempty"` // written by an agent: nobody knows how
	Reason   string    `json:"reason,omitempty"`
	Code     int       `json:"code"` // 128 + Signal when a signal ended it, as shells have it
	Signal   int       `json:"signal,omitempty"`
	OOM      bool      `json:"oom,omitempty"`
	Pid      int       `json:"pid,omitempty"`
	Started  time.Time `json:"started"`
	Ended    time.Time `json:"ended"`
	CPUMsec  int64     `json:"cpu_ms"`  // user and system, of everything that was reaped
	MaxRSS   int64     `json:"max_rss"` // bytes, of the largest single process
	Dropped  int64     `json:"dropped,omitempty"`
	// LeftBehind counts the processes that the first one left and that were killed.
	LeftBehind int `json:"left_behind,omitempty"`
}

// ReadLaunch, ReadState and ReadExit read a file of the run in dir. A file that
// is not there is fs.ErrNotExist; any other error means a damaged one.
func ReadLaunch(dir string) (*Launch, error) { return readJSON[Launch](dir, FileLaunch) }

// ReadState reads the state of the run in dir.
func ReadState(dir string) (*State, error) { return readJSON[State](dir, FileState) }

// ReadExit reads the exit of the run in dir.
func ReadExit(dir string) (*Exit, error) { return readJSON[Exit](dir, FileExit) }

func readJSON[T any](dir, name string) (*T, error) {
	b, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		return nil, err
	}
	v := new(T)
	// A preallocated file is padded with spaces, and one that lost a power
	// cut may hold zeros: the former is valid JSON, the latter is not.
	if err := json.Unmarshal(b, v); err != nil {
		return nil, fmt.Errorf("damaged file %s: %w", filepath.Join(dir, name), err)
	}
	return v, nil
}

// WriteLaunch writes the launch file of a new run.
func WriteLaunch(dir string, l *Launch) error { return writeJSON(dir, FileLaunch, l) }

func writeJSON(dir, name string, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode %s: %w", name, err)
	}
	return Replace(filepath.Join(dir, name), append(b, '\n'), 0o600, -1)
}

// Replace gives path new contents: a reader sees the old ones or the new ones,
// whole. It prepares by itself for the next call by keeping a spare block
// beside the file, so that replacing a small file works on a full disk too.
// It does not sync: these files describe live processes, which no power cut
// leaves behind. A gid of -1 keeps the group.
func Replace(path string, data []byte, mode fs.FileMode, gid int) error {
	spare := path + ".spare"
	if err := fill(spare, data, mode, gid); err != nil {
		return err
	}
	if err := os.Rename(spare, path); err != nil {
		return err
	}
	// Without the next spare the next call needs space, and that is all.
	_ = preallocate(spare)
	return nil
}

// fill writes data over the beginning of a file and cuts off the rest.
func fill(path string, data []byte, mode fs.FileMode, gid int) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(data, 0)
	if err == nil {
		err = f.Truncate(int64(len(data)))
	}
	if err == nil && gid >= 0 {
		err = f.Chown(-1, gid)
	}
	if err == nil {
		err = f.Chmod(mode)
	}
	return errors.Join(err, f.Close())
}

// preallocate makes a file of one block that is really there: a file system
// counts a block as used when something is written to it.
func preallocate(path string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(make([]byte, exitBlock))
	return errors.Join(err, f.Close())
}

// WriteExit records the end of the run in dir, durably. It uses the block that
// was set aside at the start, and does not change an exit that is there.
func WriteExit(dir string, e *Exit) error {
	path := filepath.Join(dir, FileExit)
	if _, err := os.Stat(path); err == nil {
		return nil
	}
	e.Protocol = Protocol
	b, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("encode exit: %w", err)
	}
	if pad := exitBlock - len(b) - 1; pad > 0 {
		b = append(b, bytes.Repeat([]byte{' '}, pad)...)
	}
	b = append(b, '\n')
	pre := filepath.Join(dir, fileExitPre)
	f, err := os.OpenFile(pre, os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(b, 0)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("write exit: %w", err)
	}
	if err := os.Rename(pre, path); err != nil {
		return err
	}
	return syncDir(dir)
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	err = d.Sync()
	if errors.Is(err, syscall.EINVAL) { // a file system that cannot sync directories
		err = nil
	}
	return errors.Join(err, d.Close())
}

// readAnswer parses the line that a shim writes to descriptor 3.
func readAnswer(line []byte) (word, text string) {
	line = bytes.TrimSuffix(line, []byte{'\n'})
	w, t, _ := bytes.Cut(line, []byte{' '})
	return string(w), string(t)
}

// ReadAnswer reads a shim's answer to the end of the pipe. An empty word means
// that the shim died without one.
func ReadAnswer(r io.Reader) (word, text string, err error) {
	b, err := io.ReadAll(io.LimitReader(r, exitBlock))
	word, text = readAnswer(b)
	return word, text, err
}
