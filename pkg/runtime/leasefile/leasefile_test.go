//go:build linux

package leasefile_test

import (
	"errors"
	"path/filepath"
	"testing"

	"github.com/barista-fleet/barista/pkg/runtime/leasefile"
)

func TestAllows(t *testing.T) {
	l := leasefile.Lease{KillAt: 100, Incarnation: 3}
	for _, tc := range []struct {
		now  int64
		inc  uint64
		want bool
	}{
		{99, 3, true},
		{100, 3, false}, // the instant of the kill is too late
		{50, 2, false},  // a claim that has passed
		{50, 4, false},
	} {
		if err := l.Allows(tc.now, tc.inc); (err == nil) != tc.want || err != nil && !errors.Is(err, leasefile.ErrOver) {
			t.Errorf("at %d under %d: %v, want allowed %v", tc.now, tc.inc, err, tc.want)
		}
	}
}

func TestRoundTripAndReboot(t *testing.T) {
	dir := t.TempDir()
	want := leasefile.Lease{BootID: leasefile.BootID(), Confirmed: 1, KillAt: leasefile.Now(), Deadline: 3, Incarnation: 4}
	if err := leasefile.Write(dir, want); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, leasefile.Name)
	if got, err := leasefile.Read(path); err != nil || got != want {
		t.Errorf("read %+v, %v; want %+v", got, err, want)
	}
	want.BootID = "another"
	if err := leasefile.Write(dir, want); err != nil {
		t.Fatal(err)
	}
	if _, err := leasefile.Read(path); !errors.Is(err, leasefile.ErrOver) {
		t.Errorf("a file of another boot: %v", err)
	}
}
