package reconcile

import (
	"fmt"

	"github.com/barista-fleet/barista/pkg/lease"
)

// Validate checks what must hold between any two steps: the lease's own state,
// and that what is counted agrees with what is there. It is for tests.
func (m *Machine) Validate() error {
	if l, ok := m.own.(*lease.Machine); ok {
		if err := l.Validate(); err != nil {
			return err
		}
	}
	var used use
	running := 0
	for name, it := range m.items {
		used.jobs += it.uses.jobs
		used.sessions += it.uses.sessions
		if it.op != nil {
			running++
			if m.ops[it.op.id] != name {
				return fmt.Errorf("%s: its operation %d is another name's", name, it.op.id)
			}
		}
	}
	switch {
	case running != m.running:
		return fmt.Errorf("%d operations in flight, counted as %d", running, m.running)
	case used != m.used:
		return fmt.Errorf("use %+v, counted as %+v", used, m.used)
	}
	for name := range m.claiming {
		if m.own.Name(name).Writing == 0 {
			return fmt.Errorf("%s: counted as being claimed, and nothing is on its way", name)
		}
	}
	return nil
}
