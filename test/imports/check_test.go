package imports

import (
	"go/parser"
	"go/token"
	"slices"
	"strings"
	"testing"
)

func own(path string) string { return Module + strings.TrimPrefix(path, ".") }

// edge is a package and what the rules make of it.
type edge struct {
	name string
	pkg  Package // its ImportPath as the rules write it
	want string  // of what is found; empty: nothing is
}

// edges are packages that break a rule, and ones that nearly do.
var edges = []edge{
	{"cli in a package", Package{ImportPath: "./pkg/fleet", Imports: []string{"github.com/urfave/cli/v3"}}, "./pkg/fleet imports github.com/urfave/cli/v3"},
	{"cli in a test of a package", Package{ImportPath: "./pkg/fleet", TestImports: []string{"github.com/urfave/cli/v3"}}, "imports github.com/urfave/cli/v3"},
	{"cli in a program", Package{ImportPath: "./cmd/fleetctl", Imports: []string{"github.com/urfave/cli/v3"}}, ""},
	{"tint in wiring", Package{ImportPath: "./internal/agent", Imports: []string{"github.com/lmittmann/tint"}}, "imports github.com/lmittmann/tint"},
	{"a namesake of tint", Package{ImportPath: "./internal/agent", Imports: []string{"github.com/lmittmann/tinted"}}, ""},
	{"the SDK in a program", Package{ImportPath: "./cmd/node-agent", Imports: []string{"github.com/aws/aws-sdk-go-v2/aws"}}, "imports github.com/aws/aws-sdk-go-v2/aws"},
	{"the SDK in a neighbour", Package{ImportPath: "./internal/s3bucket2", Imports: []string{"github.com/aws/smithy-go"}}, "imports github.com/aws/smithy-go"},
	{"the SDK in its adapter", Package{ImportPath: "./internal/s3bucket", Imports: []string{"github.com/aws/smithy-go"}}, ""},
	{"the adapter in a program", Package{ImportPath: "./cmd/node-agent", Imports: []string{own("./internal/s3bucket")}}, "imports ./internal/s3bucket"},
	{"the adapter where URLs are opened", Package{ImportPath: "./internal/bucket/bucketurl", Imports: []string{own("./internal/s3bucket")}}, ""},
	{"bbolt beside the journal", Package{ImportPath: "./internal/localstore", Imports: []string{"go.etcd.io/bbolt"}}, "imports go.etcd.io/bbolt"},
	{"the queue with a library", Package{ImportPath: "./pkg/sfq", Imports: []string{"pgregory.net/rapid"}}, "imports pgregory.net/rapid"},
	{"the queue with the project", Package{ImportPath: "./pkg/sfq", Imports: []string{own("./pkg/fleet")}}, "imports ./pkg/fleet"},
	{"a test of the queue with a library", Package{ImportPath: "./pkg/sfq", TestImports: []string{"pgregory.net/rapid"}}, ""},
	{"the journal with the project", Package{ImportPath: "./pkg/journal", Imports: []string{own("./pkg/fleet")}}, "imports ./pkg/fleet"},
	{"a test of the journal with the project", Package{ImportPath: "./pkg/journal", XTestImports: []string{own("./pkg/fleet")}}, "imports ./pkg/fleet"},
	{"a test of the journal with the journal", Package{ImportPath: "./pkg/journal", XTestImports: []string{own("./pkg/journal")}}, ""},
	{"a library linked by the shim", Package{ImportPath: "./cmd/node-shim", Deps: []string{"golang.org/x/sys/unix"}}, "imports golang.org/x/sys/unix"},
	{"the project linked by the shim", Package{ImportPath: "./pkg/runtime/shim", Deps: []string{own("./pkg/fleet")}}, "imports ./pkg/fleet"},
	{"the shim's own", Package{ImportPath: "./cmd/node-shim", Deps: []string{own("./pkg/runtime/proctree"), "os", "vendor/golang.org/x/net/dns/dnsmessage"}}, ""},
	{"the store's interface with a noun", Package{ImportPath: "./internal/bucket", Imports: []string{own("./pkg/fleet")}}, "imports ./pkg/fleet"},
	{"the protocol with its journal", Package{ImportPath: "./pkg/lease", Imports: []string{own("./pkg/journal")}}, "imports ./pkg/journal"},
	{"reconciling with a driver", Package{ImportPath: "./pkg/reconcile", Imports: []string{own("./pkg/runtime/process")}}, "imports ./pkg/runtime/process"},
	{"nouns with the protocol", Package{ImportPath: "./pkg/fleet", Imports: []string{own("./pkg/lease")}}, "imports ./pkg/lease"},
	{"nouns with the bucket", Package{ImportPath: "./pkg/fleet", Imports: []string{own("./internal/bucket"), "go.yaml.in/yaml/v3"}}, ""},
	{"a part with the wiring", Package{ImportPath: "./pkg/runtime", Imports: []string{own("./internal/agent")}}, "imports ./internal/agent"},
	{"a fake in a program", Package{ImportPath: "./internal/agent", Imports: []string{own("./internal/bucket/buckettest")}}, "imports ./internal/bucket/buckettest"},
	{"a fake in a test", Package{ImportPath: "./internal/agent", TestImports: []string{own("./internal/bucket/buckettest")}}, ""},
	{"a name that says nothing", Package{ImportPath: "./internal/helpers", Name: "helpers"}, "package helpers says nothing"},
}

// TestCheckFindsViolations shows that the checker can fail: one that cannot
// guards nothing.
func TestCheckFindsViolations(t *testing.T) {
	for _, tt := range edges {
		t.Run(tt.name, func(t *testing.T) {
			tt.pkg.ImportPath = own(tt.pkg.ImportPath)
			got := Check([]Package{tt.pkg}, Rules)
			if tt.want == "" && len(got) != 0 {
				t.Errorf("found %q, want nothing", got)
			}
			if tt.want != "" && !slices.ContainsFunc(got, func(s string) bool { return strings.Contains(s, tt.want) }) {
				t.Errorf("found %q, want %q", got, tt.want)
			}
		})
	}
}

// TestEachRuleIsBroken keeps edges complete: every rule forbids one of them.
func TestEachRuleIsBroken(t *testing.T) {
	for _, r := range Rules {
		if !slices.ContainsFunc(edges, func(e edge) bool {
			e.pkg.ImportPath, e.pkg.Name = own(e.pkg.ImportPath), "x"
			return len(Check([]Package{e.pkg}, []Rule{r})) > 0
		}) {
			t.Errorf("no case breaks the rule %q", r.Why)
		}
	}
}

func TestImpureFindsViolations(t *testing.T) {
	tests := []struct{ name, src, want string }{
		{"the wall clock", `import "time"; var t = time.Now()`, "uses time.Now"},
		{"the clock as a value", `import "time"; var now = time.Now`, "uses time.Now"},
		{"a renamed clock", `import clock "time"; func f() { clock.Sleep(1) }`, "uses time.Sleep"},
		{"a clock without its name", `import . "time"; var t = Now()`, "imports time without its name"},
		{"a timer", `import "time"; var c = time.After(time.Second)`, "uses time.After"},
		{"chance", `import "math/rand/v2"; var n = rand.Int()`, "imports math/rand/v2"},
		{"secret chance", `import _ "crypto/rand"`, "imports crypto/rand"},
		{"the machine", `import "os"; var h, _ = os.Hostname()`, "imports os"},
		{"the machine's programs", `import _ "os/exec"`, "imports os/exec"},
		{"the network", `import _ "net/http"`, "imports net/http"},
		{"arithmetic on times", `import "time"; func f(t time.Time) time.Time { return t.Add(time.Second) }`, ""},
		{"a method of the name", `type x struct{}; func (x) Now() int { return 0 }; var n = x{}.Now()`, ""},
		{"a field called time", `var time struct{ Now func() int }; func f() { time.Now() }`, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			fset := token.NewFileSet()
			file, err := parser.ParseFile(fset, "x.go", "package x; "+tt.src, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			got := strings.Join(Impure(fset, file), "\n")
			if tt.want == "" && got != "" || !strings.Contains(got, tt.want) {
				t.Errorf("found %q, want %q", got, tt.want)
			}
		})
	}
}
