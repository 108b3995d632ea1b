package buckettest

import (
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/barista-fleet/barista/internal/bucket"
)

// Op is a set of request classes.
type Op uint8

// The request classes.
const (
	Get Op = 1 << iota
	Put
	List
	Delete

	Reads  = Get | List
	Writes = Put | Delete
	Any    = Reads | Writes
)

// Fault is what happens to a request. Make one with the functions below.
type Fault struct {
	kind faultKind
	wait time.Duration
}

type faultKind uint8

const (
	_ faultKind = iota
	faultDelay
	faultDelayReply
	faultDate
	faultDrop
	faultHang
	faultLoseReply
	faultHangReply
	faultZombie
	faultThrottle
	faultDeny
	faultFail
)

// Delay keeps the request on its way for d. A Put whose sender leaves in the
// meantime still arrives.
func Delay(d time.Duration) Fault { return Fault{faultDelay, d} }

// DelayReply keeps the answer on its way for d.
func DelayReply(d time.Duration) Fault { return Fault{faultDelayReply, d} }

// ShiftDate moves the Date of the answer.
func ShiftDate(d time.Duration) Fault { return Fault{faultDate, d} }

// Drop breaks the connection before the request arrives: nothing is applied,
// and the sender cannot know.
func Drop() Fault { return Fault{kind: faultDrop} }

// Hang swallows the request; its sender waits until its context ends.
func Hang() Fault { return Fault{kind: faultHang} }

// LoseReply breaks the connection after the request was carried out.
func LoseReply() Fault { return Fault{kind: faultLoseReply} }

// HangReply carries the request out and swallows the answer.
func HangReply() Fault { return Fault{kind: faultHangReply} }

// Zombie breaks the connection, and the Put is carried out after d; with d = 0
// when Faults.Land is called. Other requests are dropped.
func Zombie(d time.Duration) Fault { return Fault{faultZombie, d} }

// Throttle refuses the request with "slow down", not applied.
func Throttle() Fault { return Fault{kind: faultThrottle} }

// Deny refuses the request for its credentials.
func Deny() Fault { return Fault{kind: faultDeny} }

// Fail answers 500 without carrying the request out; the sender of a Put cannot
// know that. For a 500 after the fact use LoseReply.
func Fail() Fault { return Fault{kind: faultFail} }

// Rule says which requests meet a fault. The zero value of a field does not
// restrict. Delays and shifted dates of all matching rules add up; the first
// matching rule of another kind decides.
type Rule struct {
	Client string  // the name given to Faults.Client
	Ops    Op      // request classes
	Prefix string  // of the key, or of a List's prefix
	Skip   int     // so many matching requests pass first
	Times  int     // then so many meet the fault; 0: all that follow
	Chance float64 // each of them with this probability; 0: always
	Fault  Fault
}

// Faults stands between clients and one store. It is safe for concurrent use.
type Faults struct {
	inner bucket.Store

	mu      sync.Mutex
	rng     *rand.Rand
	rules   []*rule
	zombies []func() bucket.PutResult // Puts that Land carries out
	counts  map[count]int
	latency [2]time.Duration
	wakes   map[time.Time]bool
}

type rule struct {
	Rule
	seen int // matching requests so far
	met  int // of which met the fault
}

type count struct {
	client string
	op     Op
	class  string
}

// NewFaults returns a wrapper without rules. The seed decides what rules with a
// Chance, and the latency, do.
func NewFaults(inner bucket.Store, seed uint64) *Faults {
	return &Faults{
		inner:  inner,
		rng:    rand.New(rand.NewPCG(seed, 0)),
		counts: make(map[count]int),
		wakes:  make(map[time.Time]bool),
	}
}

// Add puts a rule in force and returns the function that ends it.
func (f *Faults) Add(r Rule) (remove func()) {
	if r.Ops == 0 {
		r.Ops = Any
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	added := &rule{Rule: r}
	f.rules = append(f.rules, added)
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.rules = slices.DeleteFunc(f.rules, func(other *rule) bool { return other == added })
	}
}

// Partition cuts one client off until heal is called: its requests hang.
func (f *Faults) Partition(client string) (heal func()) {
	return f.Add(Rule{Client: client, Fault: Hang()})
}

// Deaf lets one client's requests through and swallows the answers.
func (f *Faults) Deaf(client string) (heal func()) {
	return f.Add(Rule{Client: client, Fault: HangReply()})
}

// Clear ends all rules. Puts that are on their way still land.
func (f *Faults) Clear() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rules = nil
}

// SetLatency makes each request take between lo and hi, half before it is
// carried out and half after.
func (f *Faults) SetLatency(lo, hi time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.latency = [2]time.Duration{lo, hi}
}

// Count returns how many requests of the client (of all, when it is empty) were
// made. The class is a key's first segment with its slash, as in "nodes/";
// empty stands for all.
func (f *Faults) Count(client string, ops Op, class string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := 0
	for c, times := range f.counts {
		if (client == "" || c.client == client) && c.op&ops != 0 && (class == "" || c.class == class) {
			n += times
		}
	}
	return n
}

// Land carries out all Puts held by Zombie(0), in the order in which they were
// sent, and returns what each would have been answered.
func (f *Faults) Land() []bucket.PutResult {
	f.mu.Lock()
	held := f.zombies
	f.zombies = nil
	f.mu.Unlock()
	results := make([]bucket.PutResult, len(held))
	for i, land := range held {
		results[i] = land()
	}
	return results
}

// Held returns how many Puts wait for Land.
func (f *Faults) Held() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.zombies)
}

// plan is what the rules in force do to one request.
type plan struct {
	before, after time.Duration
	shift         time.Duration
	fault         Fault
}

// meet notes a request and decides what happens to it.
func (f *Faults) meet(client string, op Op, key string) plan {
	f.mu.Lock()
	defer f.mu.Unlock()
	class, _, nested := strings.Cut(key, "/")
	if nested {
		class += "/"
	}
	f.counts[count{client, op, class}]++
	var p plan
	if lo, hi := f.latency[0], f.latency[1]; hi > 0 {
		p.before = (lo + time.Duration(f.rng.Int64N(int64(hi-lo)+1))) / 2
		p.after = p.before
	}
	for _, r := range f.rules {
		if r.Client != "" && r.Client != client || r.Ops&op == 0 || !strings.HasPrefix(key, r.Prefix) {
			continue
		}
		r.seen++
		if r.seen <= r.Skip || r.Times > 0 && r.met >= r.Times || r.Chance > 0 && f.rng.Float64() >= r.Chance {
			continue
		}
		switch {
		case r.Fault.kind == faultDelay:
			p.before += r.Fault.wait
		case r.Fault.kind == faultDelayReply:
			p.after += r.Fault.wait
		case r.Fault.kind == faultDate:
			p.shift += r.Fault.wait
		case p.fault.kind == 0:
			p.fault = r.Fault
		default:
			continue // another rule came first
		}
		r.met++
	}
	return p
}

// wake returns how long to sleep so that no two sleepers wake at one instant:
// goroutines that do run in any order, and a seed would not replay.
func (f *Faults) wake(d time.Duration) time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	for at := range f.wakes {
		if at.Before(now) {
			delete(f.wakes, at)
		}
	}
	at := now.Add(d).Round(0)
	for f.wakes[at] {
		at = at.Add(time.Nanosecond)
	}
	f.wakes[at] = true
	return at.Sub(now)
}
