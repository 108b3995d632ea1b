package lease

import (
	"errors"
	"fmt"
	"time"
)

// Instant is a point on one machine's boot-time clock (CLOCK_BOOTTIME: it goes
// on during suspend), in nanoseconds. Two machines' Instants are never compared.
type Instant int64

// Never is an Instant that does not come.
const Never Instant = 1<<63 - 1

// Add returns the instant d later. It does not wrap.
func (t Instant) Add(d time.Duration) Instant {
	if t == Never || d > 0 && t > Never-Instant(d) {
		return Never
	}
	return t + Instant(d)
}

// Sub returns the time from u to t.
func (t Instant) Sub(u Instant) time.Duration { return time.Duration(t - u) }

// Bounds of the protocol.
const (
	// rhoPercent is how far, in percent, a machine's clock rate may be off. Both
	// sides may be off in opposite directions, so a contender waits
	// ttl × (100+ρ)/(100−ρ).
	rhoPercent = 1

	// maxReadBacks is how often an ambiguous write is looked for before it is
	// replaced by another from the same ETag: enough for a reply that was merely
	// late, few enough that a claim does not wait for a second.
	maxReadBacks = 3

	// maxPending bounds the nonces remembered for one key. Each stands for a
	// write that may still land; once a later one is confirmed they all cannot.
	maxPending = 16

	// staleRereads is how often a record that is older than what this node knows
	// is read again before it is believed to be old for good.
	staleRereads = 3
)

// Config is one node's side of the protocol. All nodes may differ: each
// record carries what others need to know of it.
type Config struct {
	NodeID   string
	NodeName string // for people
	Writer   string // identity of the data directory; fresh after a reboot or a copy
	Life     string // random per process life; nonces are derived from it

	TTL       time.Duration // how long silence keeps this node's names its own
	Heartbeat time.Duration // between renewals
	Retry     time.Duration // after a failed renewal
	Call      time.Duration // bound of one request
	KillTime  time.Duration // how long the guard may take to end a workload
	Stagger   time.Duration // spreads contenders that want the same thing
}

// Default times, from the dispatcher design that this protocol continues: six
// heartbeats may be missed before a lease ends.
const (
	DefaultTTL       = 30 * time.Second
	DefaultHeartbeat = 5 * time.Second
	DefaultPoll      = time.Second
	DefaultRetry     = time.Second
	DefaultCall      = 3 * time.Second
	DefaultKillTime  = 250 * time.Millisecond
	minTTL           = 300 * time.Millisecond
	beatsPerTTL      = 3 // at least: one may be lost and one may be late
)

// WithDefaults fills the times that are zero, scaling the small ones down with
// the TTL so that short leases stay coherent.
func (c Config) WithDefaults() Config {
	if c.TTL == 0 {
		c.TTL = DefaultTTL
	}
	if c.Heartbeat == 0 {
		c.Heartbeat = c.TTL / 6
	}
	if c.Retry == 0 {
		c.Retry = min(DefaultRetry, c.Heartbeat)
	}
	if c.Call == 0 {
		c.Call = min(DefaultCall, c.TTL/3)
	}
	if c.KillTime == 0 {
		c.KillTime = min(DefaultKillTime, c.TTL/10)
	}
	if c.Stagger == 0 {
		c.Stagger = min(250*time.Millisecond, c.Heartbeat/4)
	}
	return c
}

// Validate refuses relations between the times that cannot work.
func (c Config) Validate() error {
	switch {
	case c.NodeID == "" || c.Writer == "" || c.Life == "":
		return errors.New("lease config: node id, writer and life are required")
	case c.TTL < minTTL:
		return fmt.Errorf("lease config: ttl %v is below %v", c.TTL, minTTL)
	case c.Heartbeat <= 0 || c.Retry <= 0 || c.Call <= 0 || c.KillTime <= 0 || c.Stagger < 0:
		return errors.New("lease config: times must be positive")
	case c.Heartbeat*beatsPerTTL > c.TTL:
		return fmt.Errorf("lease config: ttl %v must allow %d heartbeats of %v", c.TTL, beatsPerTTL, c.Heartbeat)
	case c.Heartbeat+c.Retry+c.Call > c.TTL:
		return fmt.Errorf("lease config: one failed renewal (heartbeat %v + call %v + retry %v) would end the lease of %v",
			c.Heartbeat, c.Call, c.Retry, c.TTL)
	case c.KillTime > c.TTL/6:
		return fmt.Errorf("lease config: kill time %v does not fit between the kill at 5/6 of ttl %v and its end", c.KillTime, c.TTL)
	}
	return nil
}

// ContenderWait is how long a contender watches silence before it may fence the
// owner of a record with this ttl: the ttl as both clocks may stretch it, and a
// margin of a tenth, never below the time a kill takes.
func ContenderWait(ttl, killTime time.Duration) time.Duration {
	return ttl*(100+rhoPercent)/(100-rhoPercent) + max(ttl/10, killTime)
}
