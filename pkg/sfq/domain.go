package sfq

import "math/big"

// MaxTagBits bounds numerator and denominator of a stored rational tag. 4,096
// bits hold the product of 68 pairwise coprime 60-bit weights, far beyond any
// sane set of weights, and keep one comparison at about a microsecond.
const MaxTagBits = 4096

// WeightDomain says which weights a [Queue] accepts and, from it, how tags are
// kept. The zero value is not a domain.
type WeightDomain struct {
	kind  domainKind
	scale uint64
}

type domainKind uint8

const (
	domainNone domainKind = iota
	domainDivisors
	domainUnrestricted
)

// DivisorsOf accepts the positive divisors of scale. Every tag is then a
// multiple of 1/scale, kept as a 128-bit numerator: no denominator can grow,
// arithmetic is exact and allocates nothing. For weights 1…16 in powers of two
// use DivisorsOf(16); to have every weight from 1 to 10, DivisorsOf(2520).
func DivisorsOf(scale int64) WeightDomain {
	if scale < 1 {
		return WeightDomain{}
	}
	return WeightDomain{domainDivisors, uint64(scale)}
}

// Unrestricted accepts every positive weight. Tags are then reduced fractions
// of big integers; a long busy period with many coprime weights reaches
// [NumericLimit].
func Unrestricted() WeightDomain { return WeightDomain{kind: domainUnrestricted} }

func (d WeightDomain) accepts(weight int64) bool {
	return d.kind == domainUnrestricted || d.scale%uint64(weight) == 0
}

// tag is a point in a queue's virtual time: a numerator over the domain's
// scale, or, in the unrestricted domain, a reduced fraction (nil is zero).
// Fractions are never modified in place, so tags may share them.
type tag struct {
	n u128
	r *big.Rat
}

var ratZero = new(big.Rat)

func (t tag) rat() *big.Rat {
	if t.r == nil {
		return ratZero
	}
	return t.r
}

func (t tag) less(u tag) bool {
	if t.r == nil && u.r == nil {
		return t.n.less(u.n)
	}
	return t.rat().Cmp(u.rat()) < 0
}

// set is an assignment that leaves memory without a fraction alone: the collector
// need not be told of nil replacing nil.
func (t *tag) set(u tag) {
	t.n = u.n
	if t.r != u.r {
		t.r = u.r
	}
}

func (t tag) cmp(u tag) int {
	switch {
	case t.less(u):
		return -1
	case u.less(t):
		return 1
	}
	return 0
}

func maxTag(a, b tag) tag {
	if a.less(b) {
		return b
	}
	return a
}

// step returns t + cost/weight and whether the result is within the range.
func (d WeightDomain) step(t tag, cost u128, weight int64) (tag, bool) {
	if d.kind == domainDivisors {
		inc, over := cost.mul64(d.scale / uint64(weight))
		if over {
			return t, false
		}
		n, over := t.n.add(inc)
		return tag{n: n}, !over
	}
	r := new(big.Rat).SetFrac(cost.big(), big.NewInt(weight))
	r.Add(r, t.rat())
	return tag{r: r}, ratFits(r)
}

// unstep returns t - cost/weight; the caller knows that the result is ≥ 0.
func (d WeightDomain) unstep(t tag, cost u128, weight int64) tag {
	if d.kind == domainDivisors {
		inc, _ := cost.mul64(d.scale / uint64(weight))
		return tag{n: t.n.minus(inc)}
	}
	r := new(big.Rat).SetFrac(cost.big(), big.NewInt(weight))
	return tag{r: r.Sub(t.rat(), r)}
}

// monus returns max(0, t-base) and whether the result is within the range.
func (d WeightDomain) monus(t, base tag) (tag, bool) {
	if d.kind == domainDivisors {
		return tag{n: t.n.monus(base.n)}, true
	}
	if t.rat().Cmp(base.rat()) <= 0 {
		return tag{}, true
	}
	r := new(big.Rat).Sub(t.rat(), base.rat())
	return tag{r: r}, ratFits(r)
}

// refundSafe reports that every tag a later refund can produce in a flow's
// chain stays within the range. Refunds remove increments c/weight from a chain
// that starts at start and ends at finish, so every such tag is a multiple of
// 1/lcm(denominator(start), weight) not above finish: checking the two extremes
// covers all subsets.
func (d WeightDomain) refundSafe(start, finish tag, weight int64) bool {
	if d.kind == domainDivisors {
		return true
	}
	den, w := start.rat().Denom(), big.NewInt(weight)
	lcm := new(big.Int).GCD(nil, nil, den, w)
	lcm.Mul(lcm.Quo(w, lcm), den)
	if lcm.BitLen() > MaxTagBits {
		return false
	}
	num := new(big.Int).Quo(lcm, finish.rat().Denom())
	return num.Mul(num, finish.rat().Num()).BitLen() <= MaxTagBits
}

func ratFits(r *big.Rat) bool {
	return r.Num().BitLen() <= MaxTagBits && r.Denom().BitLen() <= MaxTagBits
}

// maxSequence is the last job or flow number a queue hands out. With costs below
// 2⁶³ as well, it keeps every cost total below 2¹²⁶.
const maxSequence = 1<<63 - 1
