//go:build linux

package process_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"

	"github.com/barista-fleet/barista/pkg/fleet"
	"github.com/barista-fleet/barista/pkg/runtime"
	"github.com/barista-fleet/barista/pkg/runtime/process"
	"github.com/barista-fleet/barista/pkg/runtime/runtimetest"
	"github.com/barista-fleet/barista/pkg/runtime/shim"
)

func benchDriver(b *testing.B) (d *process.Driver, dir string) {
	b.Helper()
	dir = filepath.Join(b.TempDir(), "state")
	d, err := process.New(process.Config{
		Dir: dir, ShimPath: runtimetest.Build(b, runtimetest.ShimPackage),
	})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		ctx := context.WithoutCancel(b.Context())
		list, err := d.List(ctx)
		if err != nil {
			b.Error(err)
		}
		for _, w := range list {
			if _, err := d.Stop(ctx, w.Instance, 0); err != nil {
				b.Error(err)
			}
		}
		if err := d.Close(); err != nil {
			b.Error(err)
		}
	})
	return d, dir
}

func benchRequest(i int) runtime.StartRequest {
	name := fmt.Sprintf("bench-%d", i)
	return requestSpec(name, 0, fleet.Spec{Command: []string{"/bin/sleep", "600"}})
}

// BenchmarkStart is from the request to a running process, and its end.
func BenchmarkStart(b *testing.B) {
	d, _ := benchDriver(b)
	i := 0
	for b.Loop() {
		req := benchRequest(i)
		if _, err := d.Start(b.Context(), req); err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		if _, err := d.Stop(b.Context(), req.Instance, 0); err != nil {
			b.Fatal(err)
		}
		if err := d.Remove(b.Context(), req.Instance); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
		i++
	}
}

// BenchmarkList200 looks at 200 live runs, and reports what their shims cost.
func BenchmarkList200(b *testing.B) {
	d, dir := benchDriver(b)
	const runs = 200
	for i := range runs {
		if _, err := d.Start(b.Context(), benchRequest(i)); err != nil {
			b.Fatal(err)
		}
	}
	for b.Loop() {
		if list, err := d.List(b.Context()); err != nil || len(list) != runs {
			b.Fatal(len(list), err)
		}
	}
	b.StopTimer()
	list, err := d.List(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	var private, rss int
	for _, w := range list {
		p, r := shimMemory(b, dir, w.Instance)
		private, rss = private+p, rss+r
	}
	b.ReportMetric(float64(private)/runs, "private-kB/shim")
	b.ReportMetric(float64(rss)/runs, "rss-kB/shim")
	for _, w := range list {
		if _, err := d.Stop(b.Context(), w.Instance, 0); err != nil {
			b.Fatal(err)
		}
		if err := d.Remove(b.Context(), w.Instance); err != nil {
			b.Fatal(err)
		}
	}
}

var kbLine = regexp.MustCompile(`(?m)^(Private_Dirty|Rss): +(\d+) kB`)

// shimMemory reads what a run's shim has in memory: of its own, and mapped.
func shimMemory(b *testing.B, dir, instance string) (private, rss int) {
	b.Helper()
	st, err := shim.ReadState(filepath.Join(dir, "runs", instance))
	if err != nil {
		b.Fatal(err)
	}
	f, err := os.Open(fmt.Sprintf("/proc/%d/smaps_rollup", st.Shim.Pid))
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	text, err := io.ReadAll(f)
	if err != nil {
		b.Fatal(err)
	}
	for _, m := range kbLine.FindAllStringSubmatch(string(text), -1) {
		n, err := strconv.Atoi(m[2])
		if err != nil {
			b.Fatal(err)
		}
		if m[1] == "Rss" {
			rss = n
		} else {
			private = n
		}
	}
	return private, rss
}
