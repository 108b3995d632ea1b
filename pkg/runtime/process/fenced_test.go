//go:build linux

package process_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/barista-fleet/barista/pkg/fleet"
	"github.com/barista-fleet/barista/pkg/runtime"
	"github.com/barista-fleet/barista/pkg/runtime/process"
)

// What a fenced run left in its working directory is there, also for the next agent,
// until it is old enough.
func TestKeepFenced(t *testing.T) {
	dir := t.TempDir()
	cfg := process.Config{Dir: dir, CgroupParent: process.CgroupNone, KeepFenced: time.Hour}
	d := open(t, cfg)
	ref := runtime.Ref{Name: "s", UID: "u", Instance: "b-1", Epoch: 4, Incarnation: 1, Attempt: 1, Generation: 1}
	_, err := d.Start(t.Context(), runtime.StartRequest{
		Ref: ref, Spec: fleet.Spec{Kind: fleet.KindSession, Command: []string{"sh", "-c", "echo work > result; exec sleep 600"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	work := filepath.Join(dir, "work", "b-1", "result")
	for deadline := time.Now().Add(30 * time.Second); !fileExists(work); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the workload wrote nothing")
		}
	}
	if err := d.Keep(t.Context(), "b-1"); err == nil {
		t.Error("kept a run that is alive")
	}
	if _, err := d.Stop(t.Context(), "b-1", time.Second); err != nil {
		t.Fatal(err)
	}
	for range 2 { // and asked for again after a crash in between
		if err := d.Keep(t.Context(), "b-1"); err != nil {
			t.Fatal(err)
		}
	}
	runs, err := d.List(t.Context())
	if err != nil || len(runs) != 0 {
		t.Errorf("%v are still known, %v", runs, err)
	}
	for _, reopened := range []bool{false, true} {
		if reopened {
			if err := d.Close(); err != nil {
				t.Fatal(err)
			}
			d = open(t, cfg)
		}
		kept, err := d.Fenced()
		if err != nil || len(kept) != 1 || kept[0].Ref.Name != "s" || kept[0].Ref.Epoch != 4 || time.Since(kept[0].Since) > time.Minute {
			t.Fatalf("reopened %v: kept %+v, %v", reopened, kept, err)
		}
		if b, err := os.ReadFile(filepath.Join(kept[0].Path, "result")); err != nil || string(b) != "work\n" {
			t.Errorf("reopened %v: %q, %v", reopened, b, err)
		}
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	cfg.KeepFenced = time.Nanosecond
	d = open(t, cfg)
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		if kept, err := d.Fenced(); err == nil && len(kept) == 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("never collected")
		}
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
}
