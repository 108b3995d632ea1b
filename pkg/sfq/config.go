package sfq

import (
	"fmt"
	"math"
)

// The identifiers are chosen by the caller and mean nothing to the scheduler
// beyond equality (and, for equal order keys, comparison of job numbers). A node
// numbers its names once and journals the numbers.
type (
	// TenantID identifies a tenant.
	TenantID uint64
	// JobID identifies a candidate while it is live.
	JobID uint64
	// PeerID identifies another node whose service counters are observed.
	PeerID uint64
	// Ticket identifies one pick and the run that follows from it. Tickets are
	// numbered from 1 and never reused, so a late answer about an older pick of
	// the same job cannot touch the newer one.
	Ticket uint64
	// Class is a size class, 0 the smallest. A slot may run a job of its own or
	// a smaller class.
	Class uint8
)

// MaxClasses bounds the size classes of one scheduler; a node has three and one
// for sessions. It fixes the width of a tenant's class bit set.
const MaxClasses = 8

// The representation limits of a scheduler: slots and counters are 32 bits.
const (
	maxTenantsLimit = math.MaxInt32
	// maxJobsLimit keeps the sum of all live estimates below 2⁶² CPU ms.
	maxJobsLimit = 1 << 22
	// maxSlotsLimit bounds the slots of a class, and with them the jobs in
	// flight, at the issue depth a queue may have.
	maxSlotsLimit = MaxIssueDepth
)

// ClassConfig describes one size class.
type ClassConfig struct {
	// Slots is how many jobs the class's slots run at once, 0…1,000,000.
	Slots int
	// DefaultCost, in CPU ms, is charged for a job without any estimate:
	// 1…MaxCost.
	DefaultCost int64
	// Exclusive keeps the class apart: its slots run no smaller jobs and its
	// jobs run in no larger slots. Sessions, which have no end, are such a class.
	Exclusive bool
}

// Steal says when a slot takes a job of a smaller class.
type Steal uint8

const (
	// PreferFit takes a smaller job only when no job of the slot's own class
	// may run.
	PreferFit Steal = iota
	// Reserve takes a smaller job also when its start tag is below the lowest
	// start tag of the slot's own class by more than Config.Margin.
	Reserve
)

// Config is the shape of a [Scheduler].
type Config struct {
	// Classes are the size classes, smallest first: 1…MaxClasses of them.
	Classes []ClassConfig
	// Steal is the policy for smaller jobs; Margin, in CPU ms per unit of
	// weight, belongs to Reserve.
	Steal  Steal
	Margin uint64
	// Decay, when set, lowers the weight of tenants by their recent usage.
	Decay *Decay
	// MaxTenants and MaxJobs bound tenants and live candidates.
	MaxTenants, MaxJobs int
	// MaxTypes bounds the (tenant, job type) averages kept. Types beyond it are
	// estimated by their spec.
	MaxTypes int
	// MaxRemote bounds the (peer, tenant) counters kept.
	MaxRemote int
	// Kappa, in units of 2⁻¹⁶ (KappaOne is 1), bounds what a dispatch of pinned
	// work pays of its tenant's remote debt: Kappa × its own cost.
	Kappa uint32
	// Record, when set, is called with every accepted transition, in order. The
	// event is only valid during the call.
	Record func(*Event)
}

// KappaOne is a [Config.Kappa] of 1: pinned work pays remote debt at most as
// fast as it is charged itself.
const KappaOne = 1 << 16

// maxKappa bounds Kappa at 16, so that kappa × cost fits 64 bits.
const maxKappa = 16 * KappaOne

// DefaultConfig is a node's configuration before its flags: three classes with
// the given slots, Prefer-Fit, the default decay, one session class apart.
func DefaultConfig(sm, md, lg, sessions int) Config {
	return Config{
		Classes: []ClassConfig{
			{Slots: sm, DefaultCost: 60_000},
			{Slots: md, DefaultCost: 300_000},
			{Slots: lg, DefaultCost: 900_000},
			{Slots: sessions, DefaultCost: 60_000, Exclusive: true},
		},
		Decay:      &Decay{HalfLife: DefaultHalfLife, Norm: DefaultNorm},
		MaxTenants: 100_000, MaxJobs: 1_000_000, MaxTypes: 100_000, MaxRemote: 100_000,
		Kappa: KappaOne,
	}
}

// Validate reports the first relation of the configuration that does not hold,
// wrapping [ErrConfig].
func (c Config) Validate() error {
	if n := len(c.Classes); n < 1 || n > MaxClasses {
		return fmt.Errorf("%w: %d size classes, want 1…%d", ErrConfig, n, MaxClasses)
	}
	for i, k := range c.Classes {
		if k.Slots < 0 || k.Slots > maxSlotsLimit {
			return fmt.Errorf("%w: class %d has %d slots, want 0…%d", ErrConfig, i, k.Slots, maxSlotsLimit)
		}
		if k.DefaultCost < 1 || k.DefaultCost > MaxCost {
			return fmt.Errorf("%w: class %d has default cost %d, want 1…%d", ErrConfig, i, k.DefaultCost, int64(MaxCost))
		}
	}
	switch {
	case c.Steal > Reserve:
		return fmt.Errorf("%w: steal policy %d is unknown", ErrConfig, c.Steal)
	case c.Margin >= tagLimit:
		return fmt.Errorf("%w: margin %d is not below 2^63", ErrConfig, c.Margin)
	case c.MaxTenants < 1 || c.MaxTenants > maxTenantsLimit:
		return fmt.Errorf("%w: max tenants %d is not in 1…%d", ErrConfig, c.MaxTenants, maxTenantsLimit)
	case c.MaxJobs < 1 || c.MaxJobs > maxJobsLimit:
		return fmt.Errorf("%w: max jobs %d is not in 1…%d", ErrConfig, c.MaxJobs, maxJobsLimit)
	case c.MaxTypes < 0 || c.MaxRemote < 0:
		return fmt.Errorf("%w: a limit is negative", ErrConfig)
	case c.Kappa > maxKappa:
		return fmt.Errorf("%w: kappa %d is above 16 (%d)", ErrConfig, c.Kappa, maxKappa)
	}
	return c.Decay.validate()
}

func (d *Decay) validate() error {
	if d == nil {
		return nil
	}
	if d.HalfLife < 1 || d.HalfLife > MaxTime {
		return fmt.Errorf("%w: half-life %d ms is not in 1…%d", ErrConfig, d.HalfLife, int64(MaxTime))
	}
	if d.Norm < 1 {
		return fmt.Errorf("%w: norm %d CPU ms is below 1", ErrConfig, d.Norm)
	}
	for t, n := range d.TierNorm {
		if n < 0 {
			return fmt.Errorf("%w: norm %d CPU ms of tier %v is negative", ErrConfig, n, Tier(t))
		}
	}
	return nil
}

// TenantSpec is what an operator says about a tenant. It may change at any
// time: the weight is computed at every pick.
type TenantSpec struct {
	// Tier and Multiplier (1…MaxMultiplier) make the weight.
	Tier       Tier
	Multiplier uint32
	// MaxRunning caps jobs in flight, picked ones included: at least 1.
	MaxRunning uint32
	// MaxRunningCost caps the estimated cost in flight, CPU ms; 0 is no cap. A
	// job above the whole cap runs when nothing else of the tenant does.
	MaxRunningCost int64
	// MaxQueued and MaxQueuedCost (CPU ms) limit admission; 0 is no limit.
	MaxQueued     uint32
	MaxQueuedCost int64
}

func (s TenantSpec) check() Outcome {
	switch {
	case s.Tier >= TierCount, s.Multiplier < 1, s.Multiplier > MaxMultiplier:
		return InvalidWeight
	case s.MaxRunning < 1, s.MaxRunning > maxJobsLimit, s.MaxRunningCost < 0, s.MaxQueued > maxJobsLimit, s.MaxQueuedCost < 0:
		return InvalidCap
	}
	return Unknown
}

// baseWeight is the undecayed weight in units of 2⁻¹⁶.
func (s TenantSpec) baseWeight() uint64 {
	return uint64(s.Tier.Weight()) * uint64(s.Multiplier) << weightShift
}

// Order places a candidate among its tenant's: by Created, then UID, then job
// number. It is kept by requeues and holds, so work never loses its place.
type Order struct {
	// Created is the submission time, in milliseconds of the one clock that
	// stamps submissions: below 2⁵⁶.
	Created uint64
	// UID is the leading 64 bits of the submission's unique identifier.
	UID uint64
}

// maxCreated leaves the top byte of a tie-break to the tier.
const maxCreated = 1<<56 - 1

// Candidate is a job that could run here.
type Candidate struct {
	Job    JobID
	Tenant TenantID
	Class  Class
	// Cost is the estimate from the job's spec, in CPU ms; 0 if it has none.
	Cost int64
	// Type groups jobs of a tenant whose actual costs are averaged; 0 is none.
	Type uint32
	// Order is the candidate's place among its tenant's.
	Order Order
	// Pinned marks work that can run only here. It goes ahead of its tenant's
	// other work and is delayed little by what the tenant did elsewhere.
	Pinned bool
	// Held admits the candidate without letting it be picked until Unhold.
	Held bool
}
