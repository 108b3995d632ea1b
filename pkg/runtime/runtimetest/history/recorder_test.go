//go:build linux

package history

import (
	"os"
	"path/filepath"
	"sync"
	"testing"
)

func TestRecorder(t *testing.T) {
	t.Setenv("BARISTA_NAME", "a")
	t.Setenv("BARISTA_NODE", "n1")
	t.Setenv("BARISTA_EPOCH", "4")
	t.Setenv("BARISTA_INSTANCE", "i1")
	path := filepath.Join(t.TempDir(), "history")
	const writers, ticks = 8, 200
	var wg sync.WaitGroup
	for range writers {
		wg.Go(func() {
			r, err := OpenRecorder(path)
			if err != nil {
				t.Error(err)
				return
			}
			for range ticks {
				if err := r.Write(Tick); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	lines, err := ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if len(lines) != writers*ticks {
		t.Errorf("%d lines, want %d", len(lines), writers*ticks)
	}
	now := Now()
	for _, l := range lines {
		if l.Name != "a" || l.Node != "n1" || l.Epoch != 4 || l.Instance != "i1" || l.Pid != os.Getpid() || l.At <= 0 || l.At > now {
			t.Fatalf("line %+v", l)
		}
	}
	t.Setenv("BARISTA_EPOCH", "four")
	if _, err := OpenRecorder(path); err == nil {
		t.Error("an epoch that is no number was accepted")
	}
	t.Setenv("BARISTA_EPOCH", "4")
	r, err := OpenRecorder("")
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Write(Start); err != nil {
		t.Errorf("recorder without a file: %v", err)
	}
}
