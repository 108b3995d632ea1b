package docs_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// read returns a file of the repository.
func read(t *testing.T, name string) string {
	t.Helper()
	body, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}

// found returns what the first group of re matches, sorted, each once.
func found(re *regexp.Regexp, text string) []string {
	set := map[string]bool{}
	for _, m := range re.FindAllStringSubmatch(text, -1) {
		set[m[1]] = true
	}
	return slices.Sorted(maps.Keys(set))
}

// A page that names a verb or a make target names one that is there.
func TestNamedCommandsExist(t *testing.T) {
	verbs := map[string]bool{}
	for _, v := range found(regexp.MustCompile("(?m)^#+ `((?:fleetctl|node-agent) [a-z-]+)"), read(t, "docs/configuration.md")) {
		verbs[v] = true
	}
	verbs["node-agent guard"] = true    // hidden: the agent starts it
	verbs["fleetctl completion"] = true // made by the command line library
	targets := map[string]bool{}
	for _, target := range found(regexp.MustCompile(`(?m)^([a-z0-9-]+):`), read(t, "Makefile")) {
		targets[target] = true
	}
	if len(verbs) < 30 || len(targets) < 8 {
		t.Fatalf("found %d verbs and %d targets: do the patterns still match?", len(verbs), len(targets))
	}
	// In code, where a word behind a program's name is its verb: at the start of a
	// line, of a code span, or of what a shell takes for a command.
	verb := regexp.MustCompile("(?m)(?:^ *(?:\\$ |> )?|`|; |\\| |\\$\\()((?:fleetctl|node-agent) [a-z][a-z-]+)")
	target := regexp.MustCompile("(?m)(?:^ *(?:\\$ )?|`)make ([a-z][a-z0-9-]*)")
	for name, page := range documents(t) {
		for _, v := range found(verb, code(page)) {
			if !verbs[v] {
				t.Errorf("%s names %q, which is no command", name, v)
			}
		}
		for _, m := range found(target, code(page)) {
			if !targets[m] {
				t.Errorf("%s names %q, which is no target", name, "make "+m)
			}
		}
	}
}

var (
	span     = regexp.MustCompile("`[^`\n]+`")
	indented = regexp.MustCompile(`(?m)^ {4}.*$`)
)

// code returns the parts of a page that are set as code, each on a line.
func code(page string) string {
	parts := fenced.FindAllString(page, -1)
	rest := fenced.ReplaceAllString(page, "")
	parts = append(parts, indented.FindAllString(rest, -1)...)
	parts = append(parts, span.FindAllString(rest, -1)...)
	return strings.Join(parts, "\n")
}

// Every package has its place on the page of the architecture.
func TestEveryPackageIsPlaced(t *testing.T) {
	page := read(t, "docs/architecture.md")
	count := 0
	for _, top := range []string{"cmd", "internal", "pkg", "test"} {
		err := filepath.WalkDir(filepath.Join(root, top), func(p string, d fs.DirEntry, err error) error {
			if err != nil || !d.IsDir() {
				return err
			}
			if d.Name() == "testdata" || d.Name() == "tools" {
				return fs.SkipDir
			}
			files, err := filepath.Glob(filepath.Join(p, "*.go"))
			if err != nil || len(files) == 0 {
				return err
			}
			count++
			rel, err := filepath.Rel(root, p)
			if err != nil {
				return err
			}
			// A package below another may be named by its last element alone.
			if !strings.Contains(page, "`"+rel+"`") && !strings.Contains(page, "`"+filepath.Base(rel)+"`") {
				t.Errorf("docs/architecture.md does not place %s", rel)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if count < 20 {
		t.Errorf("found only %d packages", count)
	}
}

// What the probe checks is what the page of the stores lists.
func TestProbeChecksAreListed(t *testing.T) {
	_, section, ok := strings.Cut(read(t, "docs/object-stores.md"), "## What the probe checks")
	if !ok {
		t.Fatal("docs/object-stores.md has no list of the probe's checks")
	}
	section, _, _ = strings.Cut(section, "\n## ")
	listed := found(regexp.MustCompile(`(?m)^\| ([a-z][^|]*?) \|`), section)
	listed = slices.DeleteFunc(listed, func(s string) bool { return s == "check" })
	made := literals(t, "internal/probe/probe.go", "check", "warn")
	if !slices.Equal(listed, made) {
		t.Errorf("docs/object-stores.md lists\n  %q\nand the probe checks\n  %q", listed, made)
	}
}

// literals returns the texts with which methods are called in a file, as their
// first argument.
func literals(t *testing.T, file string, methods ...string) []string {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, file), nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	set := map[string]bool{}
	ast.Inspect(f, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok || len(call.Args) == 0 {
			return true
		}
		sel, ok := call.Fun.(*ast.SelectorExpr)
		if !ok || !slices.Contains(methods, sel.Sel.Name) {
			return true
		}
		if lit, ok := call.Args[0].(*ast.BasicLit); ok && lit.Kind == token.STRING {
			if s, err := strconv.Unquote(lit.Value); err == nil {
				set[s] = true
			}
		}
		return true
	})
	return slices.Sorted(maps.Keys(set))
}

// Every type of event that a node tells is explained, and no other.
func TestEventTypesAreExplained(t *testing.T) {
	values := map[string]string{}
	for _, file := range []string{"pkg/fleet/events.go", "pkg/reconcile/view.go"} {
		for _, m := range regexp.MustCompile(`(?m)^\t(Event\w+) +EventType += "([A-Z_]+)"`).FindAllStringSubmatch(read(t, file), -1) {
			values[m[1]] = m[2]
		}
	}
	told := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^\t(Event\w+) +(?:= fleet\.|EventType)`).FindAllStringSubmatch(read(t, "pkg/reconcile/view.go"), -1) {
		told[values[m[1]]] = true
	}
	_, section, _ := strings.Cut(read(t, "docs/operations.md"), "### Events")
	section, _, _ = strings.Cut(section, "\n## ")
	explained := map[string]bool{}
	for _, row := range found(regexp.MustCompile(`(?m)^\| ([A-Z][A-Z_, ]+) \|`), section) {
		for word := range strings.SplitSeq(row, ", ") {
			explained[word] = true
		}
	}
	if len(told) < 15 || !maps.Equal(told, explained) {
		t.Errorf("nodes tell\n  %q\nand docs/operations.md explains\n  %q", slices.Sorted(maps.Keys(told)), slices.Sorted(maps.Keys(explained)))
	}
}
