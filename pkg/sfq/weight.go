package sfq

import "math/bits"

// Tier is a tenant's subscription level; each level doubles the weight.
type Tier uint8

// The tiers and their weights: 1, 2, 4, 8, 16.
const (
	Free Tier = iota
	Bronze
	Silver
	Gold
	Diamond
	// TierCount is the number of tiers.
	TierCount
)

// Weight is the tier's weight before the tenant's multiplier.
func (t Tier) Weight() int64 {
	if t >= TierCount {
		return 0
	}
	return 1 << t
}

// String returns the tier's lower-case name.
func (t Tier) String() string {
	if t >= TierCount {
		return "unknown"
	}
	return [TierCount]string{"free", "bronze", "silver", "gold", "diamond"}[t]
}

const (
	// weightShift is the number of fraction bits of a weight. The least weight,
	// 2⁻¹⁶, is what a tenant far above its norm ends at: 16 halvings of Free.
	weightShift = 16
	// MaxMultiplier bounds a tenant's multiplier, so that a weight in units of
	// 2⁻¹⁶ stays below 2³⁷.
	MaxMultiplier = 1 << 16
	// MaxCost bounds one job's estimate and one reported cost, in CPU
	// milliseconds: 2⁴⁰ ms are 34 years of one core. At the least weight such a
	// job advances a tag by 2⁵⁶, which leaves room for 128 of them in flight.
	MaxCost = 1 << 40
	// maxCharged bounds what a single run may be charged in all, so that the
	// product with 2¹⁶ fits 64 bits: 2⁴⁶ ms are 2,230 core years.
	maxCharged = 1 << 46
	// MaxTime bounds the times callers pass in, in milliseconds since their
	// epoch: 2⁴⁶ ms are 2,230 years, and now·2¹⁶ fits 63 bits.
	MaxTime = 1 << 46
	// decaySteps is the resolution of decay: a half-life, and a norm, are
	// divided into this many steps (9.2 s of a 7-day half-life).
	decaySteps = 1 << 16
	// tagLimit is the exclusive bound on the integer part of a tag. The bit
	// above it takes the carry of one addition, so that sums of two tags in
	// range are exact and the check can follow the addition.
	tagLimit = 1 << 63
)

// DefaultHalfLife and DefaultNorm are the decay settings a node uses unless
// told otherwise: 7 days, and 10,000 CPU seconds.
const (
	DefaultHalfLife = 7 * 24 * 3600 * 1000
	DefaultNorm     = 10_000 * 1000
)

// Decay makes past usage lower a tenant's weight:
// weight = tier · multiplier · 2^(-usage/norm), where usage halves every
// HalfLife.
type Decay struct {
	// HalfLife is in milliseconds, 1…MaxTime.
	HalfLife int64
	// Norm is the usage, in CPU milliseconds, that halves the weight.
	Norm int64
	// TierNorm overrides Norm for the tiers where it is not zero.
	TierNorm [TierCount]int64
}

func (d *Decay) norm(t Tier) uint64 {
	if n := d.TierNorm[t]; n > 0 {
		return uint64(n)
	}
	return uint64(d.Norm)
}

// step numbers the instants of decay on one absolute grid, so that the
// remainder below a step is carried by construction and never by a field.
func (d *Decay) step(now int64) uint64 { return uint64(now) << 16 / uint64(d.HalfLife) }

// span is the step of a time, the first time of that step, and how long it
// lasts: not at all, where a half-life below 65,536 ms has several per ms.
func (d *Decay) span(now int64) (step uint64, from, length int64) {
	step = d.step(now)
	half := uint64(d.HalfLife)
	from = int64((step*half + decaySteps - 1) / decaySteps) // step·half ≤ now·2¹⁶ < 2⁶³
	return step, from, int64((step*half+half+decaySteps-1)/decaySteps) - from
}

// halve returns a·2^(-steps/65536). Each of the two table factors is off by
// less than 2⁻⁶⁴ of the value, so 34 million steps taken one by one (ten years
// of a 7-day half-life) are off by less than 4·10⁻¹² of it.
func halve(a u128, steps uint64) u128 {
	if c := steps >> 8 & 255; c != 0 {
		a = a.mulFrac(halfPowerCoarse[c])
	}
	if f := steps & 255; f != 0 {
		a = a.mulFrac(halfPowerFine[f])
	}
	return a.shr(steps >> 16)
}

// usageAt returns the usage (Q64.64 CPU ms) that u, last brought forward at
// grid step at, has decayed to. It is pure: reading never moves anything.
func (d *Decay) usageAt(u u128, at uint64, now int64) u128 {
	if s := d.step(now); s > at {
		return halve(u, s-at)
	}
	return u // a clock that went back neither decays nor revives
}

// effectiveWeight is base (in units of 2⁻¹⁶) lowered by usage (Q64.64 CPU ms),
// never below one unit.
func effectiveWeight(base uint64, usage u128, norm uint64) uint64 {
	hi, lo := bits.Mul64(usage.hi, decaySteps)
	if hi >= norm {
		return 1
	}
	steps, _ := bits.Div64(hi, lo, norm)
	return max(1, halve(u128{hi: base}, steps).hi)
}

// charge is the distance cost/weight in virtual time, Q64.64, rounded up: a
// charge is never zero and never too small, and too large by less than 2⁻⁶⁴.
// cost < 2⁴⁷ CPU ms; weight is in units of 2⁻¹⁶.
func charge(cost int64, weight uint64) u128 {
	n := uint64(cost) << weightShift
	q := n / weight
	lo, rem := bits.Div64(n%weight, 0, weight)
	if rem == 0 {
		return u128{q, lo}
	}
	return u128{q, lo}.plus(u128{lo: 1}) // q < 2⁶³
}
