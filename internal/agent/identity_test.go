package agent

import (
	"testing"

	"github.com/barista-fleet/barista/pkg/journal"
	"github.com/barista-fleet/barista/pkg/lease"
	"github.com/barista-fleet/barista/pkg/runtime"
)

func TestIdentify(t *testing.T) {
	home := place{"machine", "boot", "dir"}
	known := func(p place) *journal.Identity {
		id := &journal.Identity{NodeID: "n-1", Writer: "w1", Incarnation: 3, Intended: 3, NewWriter: "w1"}
		p.mark(id)
		return id
	}
	run := []runtime.Workload{{Ref: runtime.Ref{NodeID: "n-1", FleetID: "f-1"}}}
	for name, tc := range map[string]struct {
		old        *journal.Identity
		runs       []runtime.Workload
		suspicious bool
		node       string // empty: a new one
	}{
		"a first start":                       {nil, nil, false, ""},
		"the same place":                      {known(home), nil, false, "n-1"},
		"another boot":                        {known(place{"machine", "boot 0", "dir"}), nil, true, "n-1"},
		"another machine":                     {known(place{"machine 0", "boot", "dir"}), nil, true, "n-1"},
		"a copied directory":                  {known(place{"machine", "boot", "dir 0"}), nil, true, "n-1"},
		"a lost journal beside its workloads": {nil, run, true, "n-1"},
	} {
		t.Run(name, func(t *testing.T) {
			id, suspicious := identify(tc.old, tc.runs, home)
			if suspicious != tc.suspicious || tc.node != "" && id.NodeID != tc.node || id.NodeID == "" || id.Writer == "" {
				t.Fatalf("suspicious %v, identity %+v", suspicious, id)
			}
			// A second start, of what the first one journals before it knows more.
			if _, again := identify(&id, tc.runs, home); again != suspicious {
				t.Errorf("suspicious %v at the second start, %v at the first", again, suspicious)
			}
		})
	}
}

// TestPlaceIsJournaledWithTheRegistration: a copy that was refused stays a copy.
func TestPlaceIsJournaledWithTheRegistration(t *testing.T) {
	j, _, err := journal.Open(t.TempDir(), journal.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	here := place{"machine", "boot", "dir"}
	b := &book{j: j, id: journal.Identity{NodeID: "n-1", Writer: "w1", Incarnation: 3, MachineID: "another"}, here: here}
	for _, step := range []struct {
		id   lease.Identity
		want string
	}{
		{lease.Identity{Incarnation: 3, Writer: "w1", Intended: 4, NewWriter: "w2"}, "another"},
		{lease.Identity{Incarnation: 4, Writer: "w2", Intended: 4, NewWriter: "w2"}, "machine"},
	} {
		if err := b.SaveIdentity(step.id)(); err != nil {
			t.Fatal(err)
		}
		state, err := j.Load()
		if err != nil {
			t.Fatal(err)
		}
		if got := state.Identity.MachineID; got != step.want {
			t.Errorf("after %+v the journal is of machine %q, want %q", step.id, got, step.want)
		}
	}
}
