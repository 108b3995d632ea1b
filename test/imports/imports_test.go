package imports

import (
	"bytes"
	"encoding/json"
	"errors"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const root = "../.."

func TestImportEdges(t *testing.T) {
	for _, broken := range Check(list(t), Rules) {
		t.Error(broken)
	}
}

// TestRulesNameWhatExists keeps a rule from guarding a package that was renamed.
func TestRulesNameWhatExists(t *testing.T) {
	var paths, imported []string
	for _, p := range list(t) {
		paths = append(paths, p.ImportPath)
		imported = slices.Concat(imported, p.Imports, p.TestImports, p.XTestImports)
	}
	for _, r := range Rules {
		for _, pattern := range slices.Concat(r.From, r.To, r.Allow, r.By) {
			known := imported
			if strings.HasPrefix(pattern, "./") {
				known = paths
			}
			if !slices.ContainsFunc(known, func(p string) bool { return matches(p, []string{pattern}) }) {
				t.Errorf("nothing is called %s (rule: %s)", pattern, r.Why)
			}
		}
	}
}

func TestDecidingCodeIsPure(t *testing.T) {
	packages := list(t)
	for path, runners := range Pure {
		i := slices.IndexFunc(packages, func(p Package) bool { return short(p.ImportPath) == path })
		if i < 0 {
			t.Errorf("%s is not there", path)
			continue
		}
		for _, name := range runners {
			if !slices.Contains(packages[i].GoFiles, name) {
				t.Errorf("%s has no %s to except", path, name)
			}
		}
		for _, name := range packages[i].GoFiles {
			if slices.Contains(runners, name) {
				continue
			}
			fset := token.NewFileSet()
			file, err := parser.ParseFile(fset, filepath.Join(packages[i].Dir, name), nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			for _, found := range Impure(fset, file) {
				t.Error(found)
			}
		}
	}
}

// list asks the go command for every package of the module.
func list(t *testing.T) []Package {
	t.Helper()
	touch(t)
	cmd := exec.CommandContext(t.Context(), "go", "list", "-json=ImportPath,Name,Dir,GoFiles,Imports,TestImports,XTestImports,Deps", "./...")
	cmd.Dir = root
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, stderr.String())
	}
	var packages []Package
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p Package
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		packages = append(packages, p)
	}
	if len(packages) == 0 {
		t.Fatal("go list names no package")
	}
	return packages
}

// touch looks at each Go file, as go list will in a process of its own: go test
// keeps a passed result until a file changes that the test itself has looked at.
func touch(t *testing.T) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != root && (strings.HasPrefix(d.Name(), ".") || d.Name() == "bin"):
			return fs.SkipDir
		case filepath.Ext(path) == ".go":
			_, err = os.Stat(path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
