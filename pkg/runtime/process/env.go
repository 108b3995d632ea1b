//go:build linux

package process

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/barista-fleet/barista/pkg/fleet"
	"github.com/barista-fleet/barista/pkg/reconcile"
	"github.com/barista-fleet/barista/pkg/runtime"
	"github.com/barista-fleet/barista/pkg/runtime/shim"
)

// defaultPath is the PATH of a workload: the agent's may lead anywhere.
const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// shimEnv is the whole environment of a shim: it needs no second processor, and
// nothing of the agent's environment is anybody else's business.
var shimEnv = []string{"GOMAXPROCS=1", "PATH=" + defaultPath}

// Files in a run's share directory.
const (
	fileEpoch   = "epoch"
	filePayload = "payload"
)

// checkSpec refuses what this driver can never run, saying what to do instead.
func checkSpec(s *fleet.Spec) error {
	var why string
	switch {
	case s.Runtime != "" && s.Runtime != "process":
		why = fmt.Sprintf("it asks for runtime %q, and this node runs plain processes", s.Runtime)
	case s.Image != "" || s.Digest != "":
		why = fmt.Sprintf("it names the image %q, and this node runs plain processes: remove the image or give the node a container runtime", s.Image)
	case len(s.Command) == 0:
		why = "it has no command, and without an image there is no default one"
	case s.Network != "" && s.Network != "host":
		why = fmt.Sprintf("it asks for network %q, and plain processes share the node's: use network host or a container runtime", s.Network)
	case len(s.Mounts) > 0:
		why = "it has mounts, and plain processes see the node's own files: use a container runtime"
	case s.ReadOnly:
		why = "it asks for a read-only root, and plain processes have the node's: use a container runtime"
	case len(s.Secrets) > 0:
		why = "it names secrets, which need a container runtime"
	case len(s.Payload) > fleet.MaxPayload:
		why = fmt.Sprintf("its payload has %d bytes, at most %d are allowed", len(s.Payload), fleet.MaxPayload)
	}
	if why == "" {
		why = checkEnv(s)
	}
	if why != "" {
		return fmt.Errorf("%w: %s", reconcile.ErrSpec, why)
	}
	return nil
}

func checkEnv(s *fleet.Spec) string {
	for _, a := range s.Command {
		if strings.ContainsRune(a, 0) {
			return "its command has a NUL byte in it"
		}
	}
	for k, v := range s.Env {
		switch {
		case k == "" || strings.ContainsAny(k, "=\x00") || strings.ContainsRune(v, 0):
			return fmt.Sprintf("environment variable %q cannot be set", k)
		case strings.HasPrefix(k, "BARISTA_"):
			return fmt.Sprintf("environment variable %s is set by the node: names that begin with BARISTA_ are reserved", k)
		}
	}
	return ""
}

// environ returns the whole environment of a run: nothing of the agent's.
func (d *Driver) environ(req *runtime.StartRequest) []string {
	work, share := d.workDir(req.Instance), d.shareDir(req.Instance)
	env := map[string]string{
		"PATH":   defaultPath,
		"HOME":   work,
		"TMPDIR": filepath.Join(work, "tmp"),
	}
	maps.Copy(env, req.Spec.Env)
	env["BARISTA_NAME"] = req.Name
	env["BARISTA_UID"] = req.UID
	env["BARISTA_NODE"] = req.NodeID
	if req.NodeID == "" {
		env["BARISTA_NODE"] = d.cfg.NodeID
	}
	env["BARISTA_EPOCH"] = strconv.FormatUint(req.Epoch, 10)
	env["BARISTA_EPOCH_FILE"] = filepath.Join(share, fileEpoch)
	if len(req.Spec.Payload) > 0 {
		env["BARISTA_PAYLOAD"] = filepath.Join(share, filePayload)
	}
	list := make([]string, 0, len(env)+1)
	for k, v := range env {
		list = append(list, k+"="+v)
	}
	list = append(list, tag(req.Instance))
	slices.Sort(list)
	return list
}

// setUser resolves spec.User ("name", "uid", either with ":group") into l.
func setUser(l *shim.Launch, spec string) error {
	if spec == "" {
		return nil
	}
	name, group, hasGroup := strings.Cut(spec, ":")
	u, err := user.Lookup(name)
	if _, nerr := strconv.ParseUint(name, 10, 32); err != nil && nerr == nil {
		u, err = user.LookupId(name)
		if err != nil { // an id need not have an entry; its group is its own number, as in containers
			u, err = &user.User{Uid: name, Gid: name}, nil
		}
	}
	if err != nil {
		return fmt.Errorf("%w: user %q: %w", reconcile.ErrSpec, name, err)
	}
	uid, err1 := strconv.ParseUint(u.Uid, 10, 32)
	gid, err2 := strconv.ParseUint(u.Gid, 10, 32)
	if err := errors.Join(err1, err2); err != nil {
		return fmt.Errorf("%w: user %q: %w", reconcile.ErrSpec, name, err)
	}
	if hasGroup {
		if gid, err = lookupGroup(group); err != nil {
			return fmt.Errorf("%w: group %q: %w", reconcile.ErrSpec, group, err)
		}
	} else if u.Username != "" {
		l.Groups = supplementary(u)
	}
	if os.Geteuid() != 0 {
		if int(uid) == os.Geteuid() && int(gid) == os.Getegid() {
			return nil // what it is anyway
		}
		return fmt.Errorf("%w: it asks for user %q, and this agent is not root", reconcile.ErrSpec, spec)
	}
	l.SetUser, l.UID, l.GID = true, uint32(uid), uint32(gid)
	return nil
}

func lookupGroup(name string) (uint64, error) {
	if gid, err := strconv.ParseUint(name, 10, 32); err == nil {
		return gid, nil
	}
	g, err := user.LookupGroup(name)
	if err != nil {
		return 0, err
	}
	return strconv.ParseUint(g.Gid, 10, 32)
}

// supplementary lists the further groups of a user of the system.
func supplementary(u *user.User) []uint32 {
	ids, err := u.GroupIds()
	if err != nil {
		return nil // it then has its own group only, which is less, not more
	}
	var groups []uint32
	for _, id := range ids {
		if gid, err := strconv.ParseUint(id, 10, 32); err == nil {
			groups = append(groups, uint32(gid))
		}
	}
	return groups
}

// checkReach refuses to start as a user who cannot get to the run's own files:
// the failure the workload would meet says much less.
func (d *Driver) checkReach(l *shim.Launch) error {
	if !l.SetUser || l.UID == 0 {
		return nil
	}
	for dir := d.cfg.Dir; ; dir = filepath.Dir(dir) {
		st, err := os.Stat(dir)
		if err != nil {
			return err
		}
		if st.Mode()&0o001 == 0 {
			return fmt.Errorf("%w: user %d cannot reach its files below %s: %s has mode %v, and others need x on it",
				reconcile.ErrSpec, l.UID, d.cfg.Dir, dir, st.Mode().Perm())
		}
		if dir == filepath.Dir(dir) {
			return nil
		}
	}
}
