package model

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const leaseDir = "../../pkg/lease"

// find explores a mutant's scenario, which must end in its finding.
func find(t *testing.T, m *Mutant) {
	t.Helper()
	m.Scenario.Name = m.Name
	r := Explore(&m.Scenario, 1_500_000)
	switch {
	case r.Violation == "":
		t.Errorf("%s: not found in %d states; seen: %v", m.Name, r.States, r.Goals)
	case !strings.HasPrefix(r.Violation, m.Want):
		t.Errorf("%s: found %q, want %q\n%s", m.Name, r.Violation, m.Want, strings.Join(r.Trace, "\n"))
	default:
		t.Logf("%s: found after %d states in %d actions\n%s", m.Name, r.States, r.Depth+1, strings.Join(r.Trace, "\n"))
	}
}

// TestMutantsApply: the text of each bug occurs once in the lease's source, so the
// list cannot rot unnoticed.
func TestMutantsApply(t *testing.T) {
	for _, m := range Mutants {
		if m.File == "" {
			continue
		}
		b, err := os.ReadFile(filepath.Join(leaseDir, m.File))
		if err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(string(b), m.Old); n != 1 || m.Old == m.New {
			t.Errorf("%s: its text occurs %d times in %s, want 1", m.Name, n, m.File)
		}
	}
}

// TestBugsAreFound: rules of the reconciler and the guard, left out one by one.
func TestBugsAreFound(t *testing.T) {
	for i := range Mutants {
		if m := &Mutants[i]; m.File == "" {
			find(t, m)
		}
	}
}

// TestMutantsAreFound builds this package with each bug in the lease's own source
// and explores that. It takes some seconds each and runs with MODEL=full.
func TestMutantsAreFound(t *testing.T) {
	if !full() {
		t.Log("without MODEL=full the bugs in the lease's source are checked to apply, and not explored")
		return
	}
	for i := range Mutants {
		if m := &Mutants[i]; m.File != "" {
			t.Run(strings.ReplaceAll(m.Name, " ", "_"), func(t *testing.T) { findIn(t, m) })
		}
	}
}

func findIn(t *testing.T, m *Mutant) {
	dir := t.TempDir()
	source, err := filepath.Abs(filepath.Join(leaseDir, m.File))
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(source)
	if err != nil {
		t.Fatal(err)
	}
	bad := filepath.Join(dir, m.File)
	if err := os.WriteFile(bad, []byte(strings.Replace(string(b), m.Old, m.New, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{source: bad}})
	if err != nil {
		t.Fatal(err)
	}
	list := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(list, overlay, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "go", "test", "-count=1", "-v", "-overlay", list, "-run", "^TestOneMutant$", ".")
	cmd.Env = append(os.Environ(), "MODEL_MUTANT="+m.Name)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
		return
	}
	t.Logf("%s", out)
}

// TestOneMutant is what TestMutantsAreFound runs in the broken build.
func TestOneMutant(t *testing.T) {
	name := os.Getenv("MODEL_MUTANT")
	for i := range Mutants {
		if Mutants[i].Name == name {
			find(t, &Mutants[i])
			return
		}
	}
	if name != "" {
		t.Errorf("no mutant is called %q", name)
	}
}
