package mutants

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

const root = "../../.."

// quickSeeds bounds the mutants that are part of every test run.
const quickSeeds = 200

// TestMutantsApply: each text occurs exactly once in the present source.
func TestMutantsApply(t *testing.T) {
	if len(All) < 24 {
		t.Fatalf("%d mutants, want at least 24", len(All))
	}
	seen := map[string]bool{}
	for _, m := range All {
		if seen[m.Name] {
			t.Errorf("%s: listed twice", m.Name)
		}
		seen[m.Name] = true
		if _, err := mutated(m); err != nil {
			t.Error(err)
		}
	}
}

// mutated returns the changed files of a mutant, by path from the root.
func mutated(m Mutant) (map[string]string, error) {
	files := map[string]string{}
	for _, e := range m.Edits {
		text, ok := files[e.File]
		if !ok {
			b, err := os.ReadFile(filepath.Join(root, e.File))
			if err != nil {
				return nil, err
			}
			text = string(b)
		}
		if n := strings.Count(text, e.Old); n != 1 || e.Old == e.New {
			return nil, fmt.Errorf("%s: %q occurs %d times in %s, want once, and something else instead", m.Name, e.Old, n, e.File)
		}
		files[e.File] = strings.Replace(text, e.Old, e.New, 1)
	}
	return files, nil
}

// TestQuickMutantsAreCaught keeps the simulation honest in every test run.
func TestQuickMutantsAreCaught(t *testing.T) {
	if testing.Short() {
		t.Skip("each mutant is a build")
	}
	var quick []Mutant
	for _, m := range All {
		if m.Quick {
			quick = append(quick, m)
		}
	}
	hunt(t, quick, quickSeeds)
}

// TestMutantsAreCaught hunts all of them, when SIM_MUTANTS is set: it takes minutes.
func TestMutantsAreCaught(t *testing.T) {
	if os.Getenv("SIM_MUTANTS") == "" {
		t.Skip("SIM_MUTANTS is not set: `make sim-mutants` hunts all of them")
	}
	seeds := 20000
	if s := os.Getenv("SEEDS"); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil {
			t.Fatalf("SEEDS=%q: %v", s, err)
		}
		seeds = n
	}
	wanted, err := regexp.Compile(os.Getenv("MUTANT"))
	if err != nil {
		t.Fatal(err)
	}
	var chosen []Mutant
	for _, m := range All {
		if wanted.MatchString(m.Name) {
			chosen = append(chosen, m)
		}
	}
	hunt(t, chosen, seeds)
}

// outcome is what became of one mutant.
type outcome struct {
	invariant, seed, message string
	err                      error
	took                     time.Duration
}

// hunt runs each mutant until it is caught, as many at once as there are
// processors, and prints the table.
func hunt(t *testing.T, mutants []Mutant, seeds int) {
	t.Helper()
	dir := t.TempDir()
	sound := filepath.Join(dir, "sound")
	if err := build(sound, nil); err != nil {
		t.Fatal(err)
	}
	out := make([]outcome, len(mutants))
	var wg sync.WaitGroup
	next := make(chan int, len(mutants))
	for i := range mutants {
		next <- i
	}
	close(next)
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for i := range next {
				began := time.Now()
				out[i] = huntOne(filepath.Join(dir, strconv.Itoa(i)), sound, mutants[i], seeds)
				out[i].took = time.Since(began)
				t.Logf("%s: %s %s", mutants[i].Name, out[i].invariant, out[i].seed)
			}
		})
	}
	wg.Wait()
	var table strings.Builder
	for i, o := range out {
		switch {
		case o.err != nil:
			t.Errorf("%s: %v", mutants[i].Name, o.err)
		case o.invariant == "":
			t.Errorf("%s: not caught in %d seeds", mutants[i].Name, seeds)
		}
		fmt.Fprintf(&table, "%-95s %-10s %6s %5.0fs  %s\n", mutants[i].Name, o.invariant, o.seed, o.took.Seconds(), o.message)
	}
	t.Logf("\n%-95s %-10s %6s\n%s", "mutant", "caught by", "seed", table.String())
}

func huntOne(dir, sound string, m Mutant, seeds int) outcome {
	files, err := mutated(m)
	if err != nil {
		return outcome{err: err}
	}
	binary := filepath.Join(dir, "sim.test")
	if err := build(binary, files); err != nil {
		return outcome{err: err}
	}
	found, err := run(binary, 1, seeds)
	if err != nil || found == nil {
		return outcome{err: err}
	}
	o := outcome{invariant: found[1], seed: found[2], message: found[3]}
	seed, err := strconv.Atoi(o.seed)
	if err != nil {
		return outcome{err: err}
	}
	// What the unchanged source also fails at says nothing about the mutant.
	switch other, err := run(sound, seed, 1); {
	case err != nil:
		o.err = err
	case other != nil:
		o.err = fmt.Errorf("seed %d fails without the mutant, too: %s", seed, other[0])
	}
	return o
}

// buildLimit and runLimit end what hangs; they are no measure of anything.
const (
	buildLimit = 10 * time.Minute
	runLimit   = 30 * time.Minute
)

// build makes the simulation's test binary with some files replaced.
func build(binary string, files map[string]string) error {
	if err := os.MkdirAll(filepath.Dir(binary), 0o700); err != nil {
		return err
	}
	replace := map[string]string{}
	for file, text := range files {
		from, err := filepath.Abs(filepath.Join(root, file))
		if err != nil {
			return err
		}
		to := filepath.Join(filepath.Dir(binary), strings.ReplaceAll(file, "/", "_"))
		if err := os.WriteFile(to, []byte(text), 0o600); err != nil {
			return err
		}
		replace[from] = to
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return err
	}
	if err := os.WriteFile(binary+".json", overlay, 0o600); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), buildLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", "test", "-c", "-vet=off", "-overlay", binary+".json", "-o", binary, "./internal/sim")
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("does not build: %w\n%s", err, out)
	}
	return nil
}

var caught = regexp.MustCompile(`hunt: caught by "(.*)" at seed (\d+): (.*)`)

// run hunts with a binary, and returns the parts of what it says: nil if nothing
// was caught.
func run(binary string, from, seeds int) ([]string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), runLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary, "-test.run", "TestHunt$", "-test.timeout", "0")
	cmd.Env = append(os.Environ(), "HUNT=1", "GOMAXPROCS=1", fmt.Sprintf("FROM=%d", from), fmt.Sprintf("SEEDS=%d", seeds))
	out, err := cmd.CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("the simulation ended: %w\n%s", err, out)
	}
	if found := caught.FindStringSubmatch(string(out)); found != nil {
		return found, nil
	}
	if !strings.Contains(string(out), "hunt: nothing") {
		return nil, fmt.Errorf("the simulation says nothing: %s", out)
	}
	return nil, nil
}
