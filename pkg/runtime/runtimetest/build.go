//go:build linux

package runtimetest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

// Packages that Build can compile.
const (
	ShimPackage     = "github.com/barista-fleet/barista/cmd/node-shim"
	WorkloadPackage = "github.com/barista-fleet/barista/pkg/runtime/runtimetest/workload"
)

var built struct {
	sync.Mutex
	dir   string            // guarded by the mutex
	paths map[string]string // by package; guarded by the mutex
}

// Build compiles a main package of this module, once for each test process,
// and returns the program's path. It is static, so it runs in any image. Main
// removes it when the tests are over.
func Build(tb testing.TB, pkg string) string {
	tb.Helper()
	built.Lock()
	defer built.Unlock()
	if path := built.paths[pkg]; path != "" {
		return path
	}
	if built.dir == "" {
		dir, err := os.MkdirTemp("", "barista-test-bin-")
		if err != nil {
			tb.Fatal(err)
		}
		// Workloads of other users run from here.
		if err := os.Chmod(dir, 0o755); err != nil {
			tb.Fatal(err)
		}
		built.dir, built.paths = dir, make(map[string]string)
	}
	path := filepath.Join(built.dir, filepath.Base(pkg))
	cmd := exec.Command("go", "build", "-trimpath", "-o", path, pkg)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		tb.Fatalf("build %s: %v\n%s", pkg, err, out)
	}
	built.paths[pkg] = path
	return path
}

// Main runs a package's tests and removes what Build made. Call it from
// TestMain where Build is used.
func Main(m *testing.M) int {
	code := m.Run()
	built.Lock()
	defer built.Unlock()
	if built.dir != "" {
		if err := os.RemoveAll(built.dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = max(code, 1)
		}
	}
	return code
}
