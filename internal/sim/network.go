package sim

import (
	"errors"
	"time"

	"github.com/barista-fleet/barista/internal/bucket"
	"github.com/barista-fleet/barista/pkg/lease"
	"github.com/barista-fleet/barista/pkg/reconcile"
)

// weather is how requests fare at present, as chances per request.
type weather struct {
	dropped   float64 // never arrives; times out
	lost      float64 // applied, the reply is lost; times out
	zombie    float64 // times out, and is applied later than that
	after5xx  float64 // applied, answered with an error at once
	before5xx float64 // not applied, answered with an error at once
	throttled float64 // not applied, and said so
	slow      float64 // takes a good part of the time-out
	outage    time.Duration
	noWrites  time.Duration // until then reads work and writes do not
}

// fate is what becomes of one request.
type fate struct {
	arrives  bool
	arrive   time.Duration // from the sending
	answered bool
	answer   time.Duration // from the arrival
	broken   bool          // the answer says nothing: a 5xx, a cut connection
	refused  bool          // throttled: not applied
	failed   bool          // 5xx, and not applied
}

// listFactor: a listing may take this many times as long as another request, as
// in the loop that performs the effects.
const listFactor = 10

func (w *world) fate(n *node, bound time.Duration) fate {
	f := fate{arrives: true, answered: true, arrive: n.latency(), answer: n.latency()}
	x := w.weather
	p := w.rng.Float64()
	in := func(q float64) bool {
		p -= q
		return p < 0
	}
	switch {
	case in(x.dropped):
		f.arrives = false
	case in(x.lost):
		f.answered = false
	case in(x.zombie):
		f.arrive = bound + w.between(0, 2*w.sc.longestTTL)
		f.answered = false
	case in(x.after5xx):
		f.broken = true
	case in(x.before5xx):
		f.broken, f.failed = true, true
	case in(x.throttled):
		f.refused = true
	case in(x.slow):
		f.arrive, f.answer = w.between(0, bound*2/3), w.between(0, bound/2)
	}
	return f
}

// latency of one way. Most are quick; ties are as good as impossible.
func (n *node) latency() time.Duration {
	return n.w.between(200*time.Microsecond, 20*time.Millisecond)
}

// reaches reports whether a request that is sent or applied now gets through.
func (n *node) reaches() bool { return !n.cutUp && n.w.now >= n.w.weather.outage && n.powered }

// hears reports whether an answer gets through now.
func (n *node) hears() bool { return !n.cutDown && n.powered }

// exchange is one request: apply is called when it reaches the bucket, if it
// does, and returns what to tell the agent; broken is what the agent is told when
// no answer came, or one that says nothing.
type exchange struct {
	key    string
	write  bool
	mishap mishap
	bound  time.Duration
	apply  func() reconcile.Input
	broken func(err error) reconcile.Input
	heard  func() // when the agent takes the answer in; nil: nobody minds
}

// request performs one exchange. It is sent from a goroutine of the agent: later
// than it was decided, and not while the agent is stopped.
func (a *agent) request(x exchange) {
	w := a.n.w
	a.do(w.between(0, 300*time.Microsecond), func() {
		f := w.fate(a.n, x.bound)
		a.strike(x.mishap, &f)
		open := true
		heard := func() {}
		finish := func(in reconcile.Input, heard func()) {
			if open {
				open = false
				a.go1(func() {
					heard()
					a.step(in)
				})
			}
		}
		w.after(a.n.clock.span(x.bound), func() { finish(x.broken(bucket.ErrUnreachable), func() {}) })
		if !f.arrives || !a.n.reaches() || x.write && a.n.mute && x.mishap != lateClaim {
			return
		}
		w.after(f.arrive, func() {
			if w.now < w.weather.outage {
				return // the connection breaks; the agent learns of it by its time-out
			}
			var in reconcile.Input
			switch {
			case f.refused:
				in = x.broken(bucket.ErrThrottled)
			case f.failed, x.write && w.now < w.weather.noWrites:
				in = x.broken(bucket.ErrUnreachable)
			default:
				in = x.apply()
				if f.broken {
					in = x.broken(bucket.ErrUnreachable)
				} else if x.heard != nil {
					heard = x.heard
				}
			}
			if f.answered {
				w.after(f.answer, func() {
					if a.n.hears() {
						a.heard()
						finish(in, heard)
					}
				})
			}
		})
	})
}

func (a *agent) get(e lease.Get) {
	w := a.n.w
	var obj bucket.Object
	a.request(exchange{
		key: e.Key, bound: a.n.times.Call,
		apply: func() reconcile.Input {
			obj = w.store.get(e.Key, e.IfNoneMatch)
			w.note(a.n.idx, "get", e.Key, uint64(obj.Status))
			return lease.GotObject{Op: e.Op, Object: obj}
		},
		heard:  func() { a.learned(e.Key, obj) },
		broken: func(err error) reconcile.Input { return lease.GotObject{Op: e.Op, Err: err} },
	})
}

func (a *agent) list(e lease.List) {
	w := a.n.w
	a.request(exchange{
		key: e.Prefix, bound: listFactor * a.n.times.Call,
		apply: func() reconcile.Input {
			l := w.store.list(e.Prefix)
			w.note(a.n.idx, "list", e.Prefix, uint64(len(l.Entries)))
			return lease.Listed{Op: e.Op, Listing: l}
		},
		broken: func(err error) reconcile.Input { return lease.Listed{Op: e.Op, Err: err} },
	})
}

func (a *agent) put(e lease.Put) {
	w := a.n.w
	sent := a.n.boottime()
	w.check.sending(a, e.Key)
	a.request(exchange{
		key: e.Key, write: true, mishap: w.aim(a, e), bound: a.n.times.Call,
		apply: func() reconcile.Input {
			return lease.PutDone{Op: e.Op, Result: w.apply(a, e, sent)}
		},
		broken: func(err error) reconcile.Input {
			r := bucket.PutResult{Outcome: bucket.Ambiguous, Err: err}
			if errors.Is(err, bucket.ErrThrottled) {
				r.Outcome = bucket.Rejected
			}
			return lease.PutDone{Op: e.Op, Result: r}
		},
	})
}

// apply is the instant at which a write takes effect; the checks see it here.
func (w *world) apply(a *agent, e lease.Put, sent lease.Instant) bucket.PutResult {
	key, body := e.Key, e.Body
	before, existed := w.store.objects[key]
	r := w.store.put(key, body, e.Cond)
	if r.Outcome != bucket.Applied {
		w.note(a.n.idx, "put refused", key, 0)
		return r
	}
	w.stats.Writes++
	w.noteBody(a.n.idx, "put", key, body)
	w.check.applied(a, key, before, existed, body)
	w.check.covers(a, key, body, sent)
	return r
}
