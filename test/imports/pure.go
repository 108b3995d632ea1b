package imports

import (
	"fmt"
	"go/ast"
	"go/token"
	"slices"
	"strconv"
	"strings"
)

// impurePackages may not be imported by deciding code, nor those below them.
var impurePackages = []string{"math/rand", "crypto/rand", "os", "net", "syscall", "golang.org/x/sys"}

// impureTime are what package time offers beside arithmetic on times given.
var impureTime = []string{"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "Tick", "NewTicker", "NewTimer"}

// Impure returns where a file reaches for a clock, chance or the machine. It goes
// by what the import is called in the file, so a renamed import is found too.
func Impure(fset *token.FileSet, file *ast.File) []string {
	var found []string
	report := func(at token.Pos, what string) {
		found = append(found, fmt.Sprintf("%s: %s", fset.Position(at), what))
	}
	clock := ""
	for _, spec := range file.Imports {
		path, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			continue // the parser has refused it already
		}
		for _, banned := range impurePackages {
			if path == banned || strings.HasPrefix(path, banned+"/") {
				report(spec.Pos(), "imports "+path)
			}
		}
		if path != "time" {
			continue
		}
		clock = "time"
		if spec.Name != nil {
			clock = spec.Name.Name
		}
		if clock == "." {
			report(spec.Pos(), "imports time without its name")
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		sel, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		if x, ok := sel.X.(*ast.Ident); ok && x.Name == clock && slices.Contains(impureTime, sel.Sel.Name) {
			report(sel.Pos(), "uses time."+sel.Sel.Name)
		}
		return true
	})
	return found
}
