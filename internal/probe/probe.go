package probe

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/barista-fleet/barista/internal/bucket"
	"github.com/barista-fleet/barista/pkg/fleet"
)

// Bounds of a probe.
const (
	// Racers is how many writers race for one key. Stores that let two of them
	// win have been seen to do so among 32.
	Racers = 32
	// raceKeys is how many keys are raced for: a window that is open one time in
	// a few is met with near certainty.
	raceKeys = 3
	// samples is how many conditional writes the latency is taken from.
	samples = 9
	// slowWrite is the p50 from which a claim costs more than what it precedes.
	slowWrite = 60 * time.Millisecond
	// maxSkew is how far the store's clock may be from ours before signed
	// requests begin to be refused (S3 allows 15 minutes).
	maxSkew = 10 * time.Minute
	// prefix is where a probe writes, under a random segment of its own.
	prefix = "probe/"
)

// Check is one thing a store must do, and whether it did.
type Check struct {
	Name   string `json:"name"`
	OK     bool   `json:"ok"`
	Detail string `json:"detail,omitempty"` // what was seen, when it is not OK
	// Warning: not OK is worth knowing and no reason to refuse the store.
	Warning bool `json:"warning,omitempty"`
}

// Report is the result of a probe.
type Report struct {
	Store  string        `json:"store"`
	Checks []Check       `json:"checks"`
	P50    time.Duration `json:"conditional_write_p50_ns"`
	Took   time.Duration `json:"took_ns"`
}

// Defects returns the checks that rule the store out, in order.
func (r Report) Defects() []Check {
	return slices.DeleteFunc(slices.Clone(r.Checks), func(c Check) bool { return c.OK || c.Warning })
}

// Warnings returns the checks that failed and do not rule the store out.
func (r Report) Warnings() []Check {
	return slices.DeleteFunc(slices.Clone(r.Checks), func(c Check) bool { return c.OK || !c.Warning })
}

// DefectError is a store that does not do what the protocol rests on.
type DefectError struct{ Report Report }

func (e *DefectError) Error() string {
	d := e.Report.Defects()
	return fmt.Sprintf("%s must not coordinate a fleet: %s: %s", e.Report.Store, d[0].Name, d[0].Detail)
}

// prober runs the checks against one store.
type prober struct {
	store bucket.Store
	base  string
	keys  []string
	now   func() time.Time
	rep   Report
}

// Run writes, races, reads and removes a few small objects under probe/ and says
// what the store did. An error means that it could not be probed: unreachable, or
// not allowed; it is no verdict.
func Run(ctx context.Context, store bucket.Store) (Report, error) {
	p := &prober{store: store, base: prefix + fleet.NewUID() + "/", now: time.Now}
	p.rep.Store = store.Description()
	began := p.now()
	defer p.clean(context.WithoutCancel(ctx))
	for _, step := range []func(context.Context) error{
		p.conditions, p.missing, p.createRace, p.updateRace, p.listing, p.clock, p.latency,
	} {
		if err := step(ctx); err != nil {
			return p.rep, err
		}
	}
	p.rep.Took = p.now().Sub(began)
	return p.rep, nil
}

func (p *prober) key(name string) string {
	k := p.base + name
	p.keys = append(p.keys, k)
	return k
}

func (p *prober) check(name string, ok bool, detail string, args ...any) {
	c := Check{Name: name, OK: ok}
	if !ok {
		c.Detail = fmt.Sprintf(detail, args...)
	}
	p.rep.Checks = append(p.rep.Checks, c)
}

func (p *prober) warn(name string, ok bool, detail string, args ...any) {
	p.check(name, ok, detail, args...)
	p.rep.Checks[len(p.rep.Checks)-1].Warning = true
}

// put writes once and turns what is no verdict into an error.
func (p *prober) put(ctx context.Context, key, body string, cond bucket.Condition) (bucket.PutResult, error) {
	r := p.store.Put(ctx, key, []byte(body), cond)
	if r.Outcome == bucket.Applied || r.Conflict() {
		return r, nil
	}
	return r, &bucket.Error{Op: "probe", Key: key, Kind: kindOf(r.Err), Err: r.Err, Hint: "the store answered neither yes nor no to a conditional write: is it reachable, and may these credentials write under probe/?"}
}

func kindOf(err error) error {
	for _, k := range []error{bucket.ErrDenied, bucket.ErrCredentials, bucket.ErrThrottled, bucket.ErrUnreachable} {
		if errors.Is(err, k) {
			return k
		}
	}
	return nil
}

// conditions checks create, second create, update and stale update on one key.
func (p *prober) conditions(ctx context.Context) error {
	key := p.key("conditions")
	first, err := p.put(ctx, key, "one", bucket.IfAbsent())
	if err != nil {
		return err
	}
	p.check("create where absent", first.Outcome == bucket.Applied, "a create of a fresh key was refused")
	second, err := p.put(ctx, key, "two", bucket.IfAbsent())
	if err != nil {
		return err
	}
	p.check("second create is refused", second.Outcome == bucket.Rejected,
		"a create overwrote an existing object: the store ignores If-None-Match, and two nodes would own one name")
	if second.Outcome == bucket.Applied {
		first = second
	}
	obj, err := p.store.Get(ctx, key, "")
	if err != nil {
		return err
	}
	p.check("etag is given verbatim", obj.ETag == first.ETag, "a write said %s and a read says %s", first.ETag, obj.ETag)
	update, err := p.put(ctx, key, "three", bucket.IfMatch(obj.ETag))
	if err != nil {
		return err
	}
	p.check("update with the right etag", update.Outcome == bucket.Applied, "an update with the etag just read was refused")
	stale, err := p.put(ctx, key, "four", bucket.IfMatch(obj.ETag))
	if err != nil {
		return err
	}
	p.check("stale update is refused", update.Outcome != bucket.Applied || stale.Outcome == bucket.Rejected,
		"an update with an old etag was applied: the store ignores If-Match, and a fenced node could overwrite its successor")
	return nil
}

// missing checks that If-Match on a key that is not there creates nothing.
func (p *prober) missing(ctx context.Context) error {
	key := p.key("missing")
	r, err := p.put(ctx, key, "x", bucket.IfMatch(`"00000000000000000000000000000000"`))
	if err != nil {
		return err
	}
	p.check("update of a missing key creates nothing", r.Outcome == bucket.Rejected, "an update with If-Match created an object")
	return nil
}

// race lets Racers writers try one condition and counts the winners.
func (p *prober) race(ctx context.Context, key string, cond bucket.Condition) (winners int, err error) {
	results := make([]bucket.PutResult, Racers)
	errs := make([]error, Racers)
	var ready, done sync.WaitGroup
	start := make(chan struct{})
	for i := range Racers {
		ready.Add(1)
		done.Go(func() {
			ready.Done()
			<-start
			results[i], errs[i] = p.put(ctx, key, fmt.Sprintf("racer %d", i), cond)
		})
	}
	ready.Wait()
	close(start)
	done.Wait()
	for i, r := range results {
		switch {
		case r.Outcome == bucket.Applied:
			winners++
		case r.Outcome == bucket.Ambiguous:
			// A store may answer "conflict, try again" to a racer. Whether it
			// won is read below, from what stands there.
			obj, gerr := p.store.Get(ctx, key, "")
			if gerr != nil {
				return winners, gerr
			}
			if string(obj.Body) == fmt.Sprintf("racer %d", i) {
				winners++
			}
		case errs[i] != nil:
			return winners, errs[i]
		}
	}
	return winners, nil
}

func (p *prober) createRace(ctx context.Context) error {
	for i := range raceKeys {
		n, err := p.race(ctx, p.key(fmt.Sprintf("create-%d", i)), bucket.IfAbsent())
		if err != nil {
			return err
		}
		if n != 1 {
			p.check("create race has one winner", false, "%d of %d racing creates succeeded: creates are not atomic", n, Racers)
			return nil
		}
	}
	p.check("create race has one winner", true, "")
	return nil
}

func (p *prober) updateRace(ctx context.Context) error {
	for i := range raceKeys {
		key := p.key(fmt.Sprintf("update-%d", i))
		r, err := p.put(ctx, key, "start", bucket.IfAbsent())
		if err != nil {
			return err
		}
		n, err := p.race(ctx, key, bucket.IfMatch(r.ETag))
		if err != nil {
			return err
		}
		if n != 1 {
			p.check("update race has one winner", false, "%d of %d racing updates from one version succeeded: updates are not atomic", n, Racers)
			return nil
		}
	}
	p.check("update race has one winner", true, "")
	return nil
}

func (p *prober) listing(ctx context.Context) error {
	key := p.key("listed")
	r, err := p.put(ctx, key, "here", bucket.IfAbsent())
	if err != nil {
		return err
	}
	l, err := p.store.List(ctx, p.base)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(l.Entries, func(e bucket.Entry) bool { return e.Key == key })
	p.check("listing shows a write at once", i >= 0, "an object was written and a listing right after does not have it")
	if i >= 0 {
		p.check("listing gives the same etag", l.Entries[i].ETag == r.ETag, "a write said %s and a listing says %s: every listed object would be read each time", r.ETag, l.Entries[i].ETag)
	}
	return nil
}

func (p *prober) clock(ctx context.Context) error {
	obj, err := p.store.Get(ctx, p.base+"conditions", "")
	if err != nil {
		return err
	}
	if obj.Date.IsZero() {
		p.warn("store tells its time", false, "no Date in its answers: names cannot be ordered by when they were first wanted")
		return nil
	}
	skew := obj.Date.Sub(p.now()).Abs()
	p.warn("clocks agree", skew < maxSkew, "the store's clock is %v from this machine's: signed requests are refused from about 15 minutes on", skew.Round(time.Second))
	return nil
}

func (p *prober) latency(ctx context.Context) error {
	key := p.key("latency")
	r, err := p.put(ctx, key, "0", bucket.IfAbsent())
	if err != nil {
		return err
	}
	took := make([]time.Duration, 0, samples)
	for i := range samples {
		began := p.now()
		if r, err = p.put(ctx, key, fmt.Sprint(i+1), bucket.IfMatch(r.ETag)); err != nil {
			return err
		}
		if r.Outcome != bucket.Applied {
			return nil // told of above already
		}
		took = append(took, p.now().Sub(began))
	}
	slices.Sort(took)
	p.rep.P50 = took[len(took)/2]
	p.warn("conditional writes are quick", p.rep.P50 < slowWrite,
		"half of them take %v or more: each claim, and each wake of a name, costs at least that. Nodes and bucket should share a region", p.rep.P50.Round(time.Millisecond))
	return nil
}

// clean removes what the probe wrote. What it cannot remove is harmless: nobody
// reads under probe/.
func (p *prober) clean(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	var wg sync.WaitGroup
	for _, k := range p.keys {
		wg.Go(func() { _ = p.store.Delete(ctx, k) })
	}
	wg.Wait()
}
