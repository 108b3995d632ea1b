package mutants

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const source = "../.."

// TestMutantsApply: every mutant's text occurs exactly once in the current
// source, so the list cannot rot unnoticed.
func TestMutantsApply(t *testing.T) {
	if len(All) < 15 {
		t.Fatalf("%d mutants, want at least 15", len(All))
	}
	names := map[string]bool{}
	for _, m := range All {
		b, err := os.ReadFile(filepath.Join(source, m.File))
		if err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(string(b), m.Old); n != 1 {
			t.Errorf("%s: its text occurs %d times in %s, want 1", m.Name, n, m.File)
		}
		if m.Old == m.New || m.Run == "" || names[m.Name] {
			t.Errorf("%s: changes nothing, runs nothing, or is listed twice", m.Name)
		}
		names[m.Name] = true
	}
}

// TestMutantsAreCaught runs the tests against each mutant, when SFQ_MUTANTS is
// set; it takes some seconds each.
func TestMutantsAreCaught(t *testing.T) {
	if os.Getenv("SFQ_MUTANTS") == "" {
		t.Log("SFQ_MUTANTS is not set: the mutants were checked to apply, and not run")
		return
	}
	dir := copySource(t)
	if out, err := runTests(dir, "."); err != nil {
		t.Fatalf("the unchanged copy fails:\n%s", out)
	}
	for _, m := range All {
		t.Run(strings.ReplaceAll(m.Name, " ", "_"), func(t *testing.T) {
			file := filepath.Join(dir, m.File)
			b, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := os.WriteFile(file, b, 0o600); err != nil {
					t.Error(err)
				}
			}()
			bad := strings.Replace(string(b), m.Old, m.New, 1)
			if err := os.WriteFile(file, []byte(bad), 0o600); err != nil {
				t.Fatal(err)
			}
			out, err := runTests(dir, m.Run)
			if err == nil {
				t.Fatalf("not caught:\n%s", out)
			}
			if strings.Contains(string(out), "[build failed]") {
				t.Fatalf("does not compile:\n%s", out)
			}
			if strings.Contains(string(out), "no tests to run") {
				t.Fatalf("-run %s names no test", m.Run)
			}
		})
	}
}

// runTests runs the package's tests of a pattern in a copy.
func runTests(dir, pattern string) ([]byte, error) {
	args := []string{"test", "-vet=off", "-timeout=300s"}
	if p, race := strings.CutPrefix(pattern, raceFlag); race {
		args, pattern = append(args, "-race"), p
	}
	cmd := exec.Command("go", append(args, "-run", pattern, ".")...)
	cmd.Dir = dir
	return cmd.CombinedOutput()
}

// copySource copies the package's Go files, at their import path, to a module
// in a temporary directory, and returns the package's directory there.
func copySource(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	dir := filepath.Join(root, "pkg", "sfq")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(source, "*.[gs]*"))
	if err != nil || len(files) < 20 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	to := map[string]string{}
	for _, f := range files {
		to[f] = filepath.Join(dir, filepath.Base(f))
	}
	for _, name := range []string{"go.mod", "go.sum"} {
		to[filepath.Join(source, "..", "..", name)] = filepath.Join(root, name)
	}
	for from, name := range to {
		b, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}
