// Package docs_test holds the documents to the code: links resolve, every flag and
// variable is described, every cited function exists, every field of a record has
// its line.
package docs_test

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const root = ".."

// documents are the pages that are checked, by path from the root.
func documents(t *testing.T) map[string]string {
	t.Helper()
	pages := map[string]string{}
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		if d.IsDir() && (strings.HasPrefix(name, ".") && name != ".." || name == "testdata" || name == "bin") {
			return fs.SkipDir
		}
		if d.IsDir() || filepath.Ext(name) != ".md" {
			return nil
		}
		body, err := os.ReadFile(p)
		rel, rerr := filepath.Rel(root, p)
		if rerr != nil {
			return rerr
		}
		pages[rel] = string(body)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(pages) < 10 {
		t.Fatalf("found %d pages", len(pages))
	}
	return pages
}

var (
	fenced  = regexp.MustCompile("(?ms)^ *```.*?^ *```$")
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#{1,6} +(.+)$`)
	dropped = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

// anchors are the fragments that a page's headings make, as GitHub makes them.
func anchors(page string) map[string]bool {
	out := map[string]bool{}
	for _, m := range heading.FindAllStringSubmatch(fenced.ReplaceAllString(page, ""), -1) {
		a := strings.ReplaceAll(dropped.ReplaceAllString(strings.ToLower(m[1]), ""), " ", "-")
		base := a
		for n := 1; out[a]; n++ {
			a = fmt.Sprintf("%s-%d", base, n)
		}
		out[a] = true
	}
	return out
}

func TestLinksResolve(t *testing.T) {
	pages := documents(t)
	for name, page := range pages {
		for _, m := range link.FindAllStringSubmatch(fenced.ReplaceAllString(page, ""), -1) {
			target := m[1]
			if strings.Contains(target, "://") || strings.HasPrefix(target, "mailto:") || strings.Contains(target, "…") || strings.Contains(target, "NNNN") {
				continue
			}
			file, fragment, _ := strings.Cut(target, "#")
			to := name
			if file != "" {
				to = filepath.Join(filepath.Dir(name), file)
			}
			if _, err := os.Stat(filepath.Join(root, to)); err != nil {
				t.Errorf("%s: link %q: %v", name, target, err)
				continue
			}
			if fragment != "" && !anchors(pages[to])[fragment] {
				t.Errorf("%s: link %q: %s has no such heading", name, target, to)
			}
		}
	}
}

// cited matches `pkg/lease/self.go:Machine.renew` and the like.
var cited = regexp.MustCompile("`((?:cmd|docs|internal|pkg|test)/[\\w./-]+\\.go):([A-Za-z]\\w*(?:\\.\\w+)?)`")

func TestCitedCodeExists(t *testing.T) {
	declared := map[string]map[string]bool{}
	count := 0
	for name, page := range documents(t) {
		for _, m := range cited.FindAllStringSubmatch(page, -1) {
			file, what := m[1], m[2]
			count++
			if declared[file] == nil {
				d, err := declarations(filepath.Join(root, file))
				if err != nil {
					t.Errorf("%s cites %s: %v", name, file, err)
					d = map[string]bool{}
				}
				declared[file] = d
			}
			if !declared[file][what] && len(declared[file]) > 0 {
				t.Errorf("%s cites %s:%s, which is not there", name, file, what)
			}
		}
	}
	if count < 50 {
		t.Errorf("found only %d citations: does the pattern still match?", count)
	}
}

// declarations are the functions and types of a file, methods as Type.method.
func declarations(file string) (map[string]bool, error) {
	f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	out := map[string]bool{}
	for _, d := range f.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			name := d.Name.Name
			if d.Recv != nil {
				name = receiver(d.Recv.List[0].Type) + "." + name
			}
			out[name] = true
		case *ast.GenDecl:
			for _, s := range d.Specs {
				if s, ok := s.(*ast.TypeSpec); ok {
					out[s.Name.Name] = true
				}
			}
		}
	}
	return out, nil
}

func receiver(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return receiver(e.X)
	case *ast.IndexExpr:
		return receiver(e.X)
	case *ast.Ident:
		return e.Name
	}
	return "?"
}

// Each program and verb has a heading with a table of its flags, and nothing else has.
func TestConfigurationIsWhatTheProgramsSay(t *testing.T) {
	page, err := os.ReadFile("configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	bin := t.TempDir()
	if out, err := exec.Command("go", "build", "-o", bin+"/", "../cmd/node-agent", "../cmd/fleetctl").CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	documented := documentedFlags(string(page))
	said := map[string]map[string]string{}
	for _, program := range []string{"node-agent", "fleetctl"} {
		ask(t, bin, program, nil, said)
	}
	// Commands that only have commands below them take no flags of their own.
	maps.DeleteFunc(said, func(command string, flags map[string]string) bool {
		return len(flags) == 0 && slices.ContainsFunc(slices.Collect(maps.Keys(said)), func(c string) bool { return strings.HasPrefix(c, command+" ") })
	})
	if diff := cmp.Diff(said, documented); diff != "" {
		t.Errorf("flags and their variables, by command (-the programs +configuration.md):\n%s", diff)
	}
}

var (
	commandHeading = regexp.MustCompile("^#+ `((?:node-agent|fleetctl)(?: [a-z-]+)*)`$")
	flagRow        = regexp.MustCompile("^\\| (`--?[a-z].*?) \\| (`[A-Z_]+`|–) \\|")
	flagName       = regexp.MustCompile("`(--?[a-z][a-z-]*)`")
)

// documentedFlags reads the tables: by command, each flag with its variable.
func documentedFlags(page string) map[string]map[string]string {
	out := map[string]map[string]string{}
	command := ""
	for line := range strings.Lines(page) {
		line = strings.TrimSuffix(line, "\n")
		if m := commandHeading.FindStringSubmatch(line); m != nil {
			command = m[1]
			out[command] = map[string]string{}
			continue
		}
		if m := flagRow.FindStringSubmatch(line); m != nil && command != "" {
			for _, f := range flagName.FindAllStringSubmatch(m[1], -1) {
				out[command][f[1]] = strings.Trim(m[2], "`–")
			}
		}
	}
	return out
}

var (
	helpFlag    = regexp.MustCompile(`(?:^| )(--?[a-z][a-z-]*)`)
	helpEnv     = regexp.MustCompile(`\[\$([A-Z_]+)\]`)
	helpCommand = regexp.MustCompile(`^ {3,}([a-z][a-z-]*(?:, [a-z]+)*)  `)
)

// ask runs --help of a command and of those below it.
func ask(t *testing.T, bin, program string, verb []string, said map[string]map[string]string) {
	t.Helper()
	cmd := exec.Command(filepath.Join(bin, program), append(slices.Clone(verb), "--help")...)
	cmd.Env = []string{"PATH=/usr/bin:/bin"}
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %v --help: %v", program, verb, err)
	}
	name := strings.Join(append([]string{program}, verb...), " ")
	said[name] = map[string]string{}
	section := ""
	for line := range strings.Lines(string(out)) {
		line = strings.TrimRight(line, "\n")
		if strings.HasSuffix(line, ":") && line == strings.ToUpper(line) {
			section = strings.TrimSuffix(line, ":")
			continue
		}
		mine := section == "OPTIONS" || section == "GLOBAL OPTIONS" && len(verb) == 0
		switch m := helpCommand.FindStringSubmatch(line); {
		case section == "COMMANDS" && m != nil && strings.Join(verb, " ") != "completion":
			first, _, _ := strings.Cut(m[1], ",")
			ask(t, bin, program, append(slices.Clone(verb), first), said)
		case mine && strings.HasPrefix(strings.TrimSpace(line), "--"):
			head, _, _ := strings.Cut(strings.TrimSpace(line), "   ")
			head, _, _ = strings.Cut(head, " [ ")
			env := ""
			if m := helpEnv.FindStringSubmatch(line); m != nil {
				env = m[1]
			}
			for _, f := range helpFlag.FindAllStringSubmatch(head, -1) {
				if f[1] != "--help" && f[1] != "-h" && f[1] != "--version" && !(name == "node-agent" && f[1] == "-v") {
					said[name][f[1]] = env
				}
			}
		}
	}
}

// Every field that a full sample of each record has is on the page of the layout.
func TestEveryFieldIsDescribed(t *testing.T) {
	body, err := os.ReadFile("bucket-layout.md")
	if err != nil {
		t.Fatal(err)
	}
	words := map[string]bool{}
	for _, m := range regexp.MustCompile("`([^`\n]+)`").FindAllStringSubmatch(string(body), -1) {
		for _, w := range regexp.MustCompile(`[a-z_]+`).FindAllString(m[1], -1) {
			words[w] = true
		}
	}
	samples, err := filepath.Glob("../pkg/fleet/testdata/records/*.json")
	if err != nil || len(samples) == 0 {
		t.Fatalf("no samples of records: %v", err)
	}
	for _, s := range samples {
		body, err := os.ReadFile(s)
		if err != nil {
			t.Fatal(err)
		}
		var v any
		if err := json.Unmarshal(body, &v); err != nil {
			t.Fatal(err)
		}
		for _, f := range fields(v) {
			if !words[f] {
				t.Errorf("%s: field %q is not described in bucket-layout.md", filepath.Base(s), f)
			}
		}
	}
}

// openMaps are fields whose members are the operators' own.
var openMaps = []string{"env", "labels", "require", "service", "slots"}

func fields(v any) []string {
	var out []string
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			out = append(out, fields(e)...)
		}
	case map[string]any:
		for k, e := range v {
			out = append(out, k)
			if !slices.Contains(openMaps, k) {
				out = append(out, fields(e)...)
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func TestDecisionsAreComplete(t *testing.T) {
	index, err := os.ReadFile("adr/README.md")
	if err != nil {
		t.Fatal(err)
	}
	records, err := filepath.Glob("adr/[0-9]*.md")
	if err != nil || len(records) == 0 {
		t.Fatal(err)
	}
	for _, r := range records {
		body, err := os.ReadFile(r)
		if err != nil {
			t.Fatal(err)
		}
		for _, part := range []string{"Status: ", "## Context", "## Decision", "## Consequences", "## Alternatives"} {
			if !strings.Contains(string(body), "\n"+part) {
				t.Errorf("%s has no %q", r, part)
			}
		}
		if !strings.Contains(string(index), "("+filepath.Base(r)+")") {
			t.Errorf("adr/README.md does not list %s", r)
		}
	}
}
