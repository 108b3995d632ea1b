package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/barista-fleet/barista/test/cluster"
)

// binaries builds the programs once for the whole run.
var binaries = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "barista-e2e-bin-")
	if err != nil {
		return "", err
	}
	cmd := exec.Command("go", "build", "-o", dir+"/", "github.com/barista-fleet/barista/cmd/...")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build: %w\n%s", err, out)
	}
	return dir, nil
})

func TestMain(m *testing.M) {
	code := m.Run()
	if dir, err := binaries(); err == nil {
		os.RemoveAll(dir)
	}
	os.Exit(code)
}

// limit is how long a thing may take on a busy machine before it is taken for
// not happening. No test depends on how fast things are.
const limit = 45 * time.Second

// fixture is a cluster with a test around it.
type fixture struct {
	*cluster.Cluster
	t *testing.T
}

// newCluster makes a cluster without nodes. kind is file (a directory as the
// bucket) or solo (no bucket).
func newCluster(t *testing.T, kind string) *fixture {
	t.Helper()
	bin, err := binaries()
	if err != nil {
		t.Fatal(err)
	}
	// Not t.TempDir: its path may be too long for a unix socket.
	dir, err := os.MkdirTemp("", "e2e-")
	if err != nil {
		t.Fatal(err)
	}
	f := &fixture{t: t, Cluster: &cluster.Cluster{Bin: bin, Dir: dir}}
	t.Cleanup(func() {
		if t.Failed() {
			for _, n := range f.Nodes {
				t.Log(n.Logs())
			}
		}
		f.Close()
		os.RemoveAll(dir)
	})
	if kind == "file" {
		f.Bucket = "file://" + filepath.Join(dir, "bucket")
		f.ctl("init")
	}
	return f
}

func (f *fixture) add(name string, args ...string) *cluster.Node {
	f.t.Helper()
	n, err := f.Add(name, args...)
	if err != nil {
		f.t.Fatal(err)
	}
	return n
}

func (f *fixture) start(n *cluster.Node) {
	f.t.Helper()
	if err := n.Start(); err != nil {
		f.t.Fatal(err)
	}
}

// ctl runs fleetctl and fails the test unless it succeeds.
func (f *fixture) ctl(args ...string) string {
	f.t.Helper()
	r := f.Ctl(args...)
	if r.Code != 0 {
		f.t.Fatalf("fleetctl %s: exit %d\n%s%s", strings.Join(args, " "), r.Code, r.Out, r.Err)
	}
	return r.Out
}

func (f *fixture) running(name string, also func(cluster.Owner) error) cluster.Owner {
	f.t.Helper()
	o, err := f.Running(name, limit, also)
	if err != nil {
		f.t.Fatal(err)
	}
	return o
}

func (f *fixture) eventually(cond func() error) {
	f.t.Helper()
	if err := cluster.Eventually(limit, cond); err != nil {
		f.t.Fatal(err)
	}
}

// row is one name of `ls -o json`.
type row struct {
	Name   string `json:"name"`
	Status string `json:"status"`
	Node   string `json:"node"`
	Epoch  uint64 `json:"epoch"`
}

func (f *fixture) ls() map[string]row {
	f.t.Helper()
	rows, err := f.list()
	if err != nil {
		f.t.Fatal(err)
	}
	return rows
}

func (f *fixture) list() (map[string]row, error) {
	var list struct {
		Names []row `json:"names"`
	}
	r := f.Ctl("ls", "-o", "json")
	if r.Code != 0 {
		return nil, fmt.Errorf("ls: exit %d: %s", r.Code, r.Err)
	}
	if err := json.Unmarshal([]byte(r.Out), &list); err != nil {
		return nil, fmt.Errorf("ls -o json: %w\n%s", err, r.Out)
	}
	rows := make(map[string]row, len(list.Names))
	for _, r := range list.Names {
		rows[r.Name] = r
	}
	return rows, nil
}

// status waits until a name has a status.
func (f *fixture) status(name, want string) {
	f.t.Helper()
	f.eventually(func() error {
		rows, err := f.list()
		if err == nil && rows[name].Status != want {
			err = fmt.Errorf("%s is %q, not %q", name, rows[name].Status, want)
		}
		return err
	})
}

// live waits until n nodes are.
func (f *fixture) live(n int) {
	f.t.Helper()
	f.eventually(func() error {
		if got := strings.Count(f.ctl("nodes"), " live "); got != n {
			return fmt.Errorf("%d of %d nodes are live", got, n)
		}
		return nil
	})
}

func (f *fixture) logged(n *cluster.Node, what string) {
	f.t.Helper()
	f.eventually(func() error {
		if !strings.Contains(n.Log(), what) {
			return fmt.Errorf("%s did not log %q", n.Name, what)
		}
		return nil
	})
}

func lines(path string) []string {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil
	}
	return strings.Split(strings.TrimSpace(string(b)), "\n")
}
