package imports

// emptyNames are package names under which anything would fit, and so everything
// ends up.
var emptyNames = []string{"util", "utils", "common", "helper", "helpers", "misc"}

// Rules are the import edges of the project.
var Rules = []Rule{
	{
		From: []string{"./..."}, By: []string{"./cmd/..."}, Reach: WithTests,
		To:  []string{"github.com/urfave/cli/...", "github.com/lmittmann/tint/..."},
		Why: "flags and coloured logs belong to the programs; packages take values and a logger",
	},
	{
		From: []string{"./..."}, By: []string{"./internal/s3bucket"},
		To:  []string{"github.com/aws/..."},
		Why: "the store is an interface; its S3 adapter alone knows the SDK",
	},
	{
		From: []string{"./..."}, By: []string{"./internal/bucket/bucketurl", "./test/..."},
		To:  []string{"./internal/s3bucket"},
		Why: "a store is opened by its URL, in one place",
	},
	{
		From: []string{"./..."}, By: []string{"./pkg/journal"},
		To:  []string{"go.etcd.io/bbolt/..."},
		Why: "what is on the machine's disk is written through the journal only",
	},
	{
		From: []string{"./pkg/sfq/..."}, To: []string{"..."}, Allow: []string{"std"},
		Why: "the fair queue is the standard library and arithmetic, to be taken out and used alone",
	},
	{
		From: []string{"./pkg/journal"}, To: []string{"./..."}, Allow: []string{"./test/need"}, Reach: WithTests,
		Why: "the journal's file outlives every type of this project, so it stores builtin ones",
	},
	{
		From: []string{"./cmd/node-shim", "./pkg/runtime/shim"}, Reach: Linked,
		To: []string{"..."}, Allow: []string{"std", "./pkg/runtime/shim", "./pkg/runtime/proctree", "./pkg/runtime/leasefile"},
		Why: "one runs for every workload and survives the agent: it is small and has nothing to update",
	},
	{
		From: []string{"./internal/bucket"}, To: []string{"..."}, Allow: []string{"std"},
		Why: "everything stands on the store's interface, so that stands on nothing",
	},
	{
		From: []string{"./pkg/lease"}, To: []string{"..."},
		Allow: []string{"std", "./internal/bucket", "./pkg/fleet"},
		Why:   "the protocol knows what a write to a bucket may have done and what a record says, no more",
	},
	{
		From: []string{"./pkg/reconcile"}, To: []string{"..."},
		Allow: []string{"std", "./internal/bucket", "./pkg/fleet", "./pkg/lease", "./pkg/runtime"},
		Why:   "reconciling declares what it needs of a runtime and a journal, and imports neither's implementation",
	},
	{
		From: []string{"./pkg/fleet"}, To: []string{"./..."}, Allow: []string{"./internal/bucket"},
		Why: "the nouns of both programs depend on the bucket at most",
	},
	{
		From: []string{"./pkg/..."}, To: []string{"./internal/...", "./cmd/..."},
		Allow: []string{"./internal/bucket", "./internal/bucket/buckettest", "./pkg/..."},
		Why:   "wiring knows the parts; the parts do not know how they are wired",
	},
	{
		From: []string{"./..."}, To: []string{"./test/...", "./internal/bucket/buckettest/...", "./pkg/runtime/runtimetest/..."},
		By:  []string{"./test/...", "./internal/bucket/buckettest/...", "./pkg/runtime/runtimetest/..."},
		Why: "no program links its own fakes",
	},
}

// Pure are the packages that decide, and the files of them that do not: those
// that run decisions and hold the clock.
var Pure = map[string][]string{
	"./pkg/lease":     nil,
	"./pkg/reconcile": {"loop.go", "bell.go"},
}
