package sim

import (
	"fmt"
	"time"
)

// Stats is what a schedule did.
type Stats struct {
	Events, Steps, Writes, Lives, Runs, Fences, GuardKills int
	Settled                                                time.Duration // from the end of faults to rest
}

// Failure is a violated invariant.
type Failure struct {
	Seed      uint64
	At        time.Duration
	Invariant Invariant
	Message   string
	Tail      string // of the trace; only after a replay
}

// Replay is the command that shows the failure again, step by step.
func (f *Failure) Replay() string {
	return fmt.Sprintf("SEED=%d go test -count=1 -v -run 'TestReplay$' ./internal/sim", f.Seed)
}

func (f *Failure) Error() string {
	return fmt.Sprintf("seed %d at %v: %s: %s", f.Seed, f.At, f.Invariant, f.Message)
}

// Report is the failure with everything that is needed to go after it.
func (f *Failure) Report() string {
	return fmt.Sprintf("%s\n\n%s\n%s\nreplay: %s\n", f.Error(), f.Tail, f.Error(), f.Replay())
}

// Result is the outcome of one schedule.
type Result struct {
	Seed    uint64
	Profile string
	Hash    uint64 // of the whole trace
	Stats   Stats
	Failure *Failure // nil: every invariant held
	Trace   string   // only with Options.Trace
}

// Options are how a schedule is run. They never change what happens in it.
type Options struct {
	Trace bool // keep every line
}

// Run runs the schedule of one seed. On a failure it runs it once more to render
// the end of the trace.
func Run(seed uint64, opts Options) Result {
	w := newWorld(seed)
	w.trace.keep, w.trace.all = opts.Trace, opts.Trace
	res := w.run()
	if res.Failure != nil && !opts.Trace {
		again := newWorld(seed)
		again.trace.keep = true
		if r := again.run(); r.Hash == res.Hash && r.Failure != nil {
			res.Failure.Tail = again.tail()
		} else {
			res.Failure.Message += " (and the schedule does not repeat)"
		}
	}
	return res
}

func newWorld(seed uint64) *world {
	sc, rng := scenarioOf(seed)
	w := &world{sc: sc, rng: rng, store: newStore()}
	w.trace.hash = fnvOffset
	w.check = &checker{w: w, incs: map[string]uint64{}, spoiled: map[string]bool{}, stored: map[string]time.Duration{}, ghosts: map[string]bool{}}
	w.operator = &operator{w: w}
	return w
}

func (w *world) run() Result {
	w.build()
	w.operator.loop()
	w.after(2*time.Second, w.chaosLoop)
	w.after(w.sc.chaos, func() {
		if w.sc.profile == profileNodeLoss {
			w.loseNode()
			return
		}
		w.heal()
	})
	w.after(auditEvery, w.audit)
	w.loop()
	res := Result{Seed: w.sc.seed, Profile: w.sc.profile.String(), Hash: w.trace.hash, Stats: w.stats, Failure: w.failure}
	if w.trace.all {
		res.Trace = w.tail()
		if w.failure != nil {
			w.failure.Tail = res.Trace
		}
	}
	return res
}
