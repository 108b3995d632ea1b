package imports

import (
	"fmt"
	"slices"
	"strings"
)

// Module is the path of the project's module.
const Module = "github.com/barista-fleet/barista"

// Package is what is read of one package of go list's report.
type Package struct {
	ImportPath, Name, Dir              string
	GoFiles                            []string
	Imports, TestImports, XTestImports []string
	// Deps is everything the package links, itself left out.
	Deps []string
}

// Reach is how far a rule looks from a package.
type Reach int

// What a rule looks at.
const (
	Direct    Reach = iota // the imports of its own code
	WithTests              // and those of its tests
	Linked                 // everything its own code links
)

// Rule is one statement on imports. It concerns the edges from a package of From
// to one of To and allows those whose other side is excepted: to a package of
// Allow, or from one of By.
type Rule struct {
	From, To  []string
	Allow, By []string
	Reach     Reach
	Why       string
}

// Check returns each edge that a rule forbids, and each package whose name says
// nothing, in a fixed order.
func Check(packages []Package, rules []Rule) []string {
	var broken []string
	for _, p := range packages {
		if slices.Contains(emptyNames, p.Name) {
			broken = append(broken, fmt.Sprintf("%s: package %s says nothing of what it is for", short(p.ImportPath), p.Name))
		}
		for _, r := range rules {
			if !matches(p.ImportPath, r.From) || matches(p.ImportPath, r.By) {
				continue
			}
			for _, to := range r.edges(p) {
				if to != p.ImportPath && matches(to, r.To) && !matches(to, r.Allow) {
					broken = append(broken, fmt.Sprintf("%s imports %s: %s", short(p.ImportPath), short(to), r.Why))
				}
			}
		}
	}
	slices.Sort(broken)
	return slices.Compact(broken)
}

func (r Rule) edges(p Package) []string {
	switch r.Reach {
	case WithTests:
		return slices.Concat(p.Imports, p.TestImports, p.XTestImports)
	case Linked:
		return p.Deps
	default:
		return p.Imports
	}
}

// short writes a path of the project as the rules do.
func short(path string) string {
	if rest, ok := strings.CutPrefix(path, Module); ok && (rest == "" || rest[0] == '/') {
		return "." + rest
	}
	return path
}

func matches(path string, patterns []string) bool {
	path = short(path)
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		if pattern == "std" {
			return isStandard(path)
		}
		if pattern == "..." {
			return true
		}
		if root, ok := strings.CutSuffix(pattern, "/..."); ok {
			return path == root || strings.HasPrefix(path, root+"/")
		}
		return path == pattern
	})
}

// isStandard relies on what the go command does too: the first element of a path
// outside the standard library has a dot.
func isStandard(path string) bool {
	first, _, _ := strings.Cut(path, "/")
	return !strings.Contains(first, ".")
}
