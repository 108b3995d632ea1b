package runtimetest

import (
	"maps"
	"slices"

	"github.com/barista-fleet/barista/pkg/fleet"
	"github.com/barista-fleet/barista/pkg/runtime"
	"github.com/barista-fleet/barista/pkg/runtime/runtimetest/history"
)

// Exit ends a run as its own program would. It reports whether it was alive.
func (f *Fake) Exit(instance string, exit fleet.Exit) bool {
	return f.end(instance, runtime.StateExited, exit)
}

// Lose ends a run so that nobody knows how.
func (f *Fake) Lose(instance, reason string) bool {
	return f.end(instance, runtime.StateLost, fleet.Exit{Reason: reason})
}

func (f *Fake) end(instance string, state runtime.State, exit fleet.Exit) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	r := f.runs[instance]
	if r == nil || r.w.Pid == 0 {
		return false
	}
	f.endLocked(r, state, exit)
	return true
}

// Reboot ends every run as a restart of the machine does.
func (f *Fake) Reboot() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, instance := range slices.Sorted(maps.Keys(f.runs)) {
		if r := f.runs[instance]; r.w.Pid != 0 {
			f.endLocked(r, runtime.StateLost, fleet.Exit{Reason: "the machine was restarted"})
		}
	}
}

// AddCPU makes a run have consumed more.
func (f *Fake) AddCPU(instance string, millis int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if r := f.runs[instance]; r != nil {
		r.extra += millis
	}
}

// Alive lists the live runs of a name.
func (f *Fake) Alive(name string) []runtime.Workload {
	f.mu.Lock()
	defer f.mu.Unlock()
	var live []runtime.Workload
	for _, r := range f.runs {
		if r.w.Name == name && r.w.Pid != 0 {
			live = append(live, f.seenLocked(r))
		}
	}
	return live
}

// Calls returns how often an operation was called: start, stop, list, ….
func (f *Fake) Calls(op string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls[op]
}

// History returns every start and end so far, for history.Check. Lines of
// several machines are merged by the caller.
func (f *Fake) History() []history.Line {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.lines)
}
