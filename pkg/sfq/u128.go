package sfq

import (
	"math/big"
	"math/bits"
)

// u128 is an unsigned 128-bit integer. Tags of the tenant scheduler are u128
// in Q64.64 (hi is the integer part); tags of a divisor-domain [Queue] are
// plain numerators over the domain's common scale; cost sums are plain
// integers. None of the helpers wraps silently: those that can leave the range
// report it, and callers check before they commit anything.
type u128 struct{ hi, lo uint64 }

func (a u128) isZero() bool { return a.hi|a.lo == 0 }

func (a u128) less(b u128) bool {
	if a.hi != b.hi {
		return a.hi < b.hi
	}
	return a.lo < b.lo
}

// add returns a+b and whether the sum left 128 bits.
func (a u128) add(b u128) (u128, bool) {
	lo, c := bits.Add64(a.lo, b.lo, 0)
	hi, c := bits.Add64(a.hi, b.hi, c)
	return u128{hi, lo}, c != 0
}

// plus is add where an invariant already excludes overflow; the invariant is
// named at each call.
func (a u128) plus(b u128) u128 {
	s, _ := a.add(b)
	return s
}

// minus returns a-b for b ≤ a.
func (a u128) minus(b u128) u128 {
	lo, c := bits.Sub64(a.lo, b.lo, 0)
	hi, _ := bits.Sub64(a.hi, b.hi, c)
	return u128{hi, lo}
}

// monus returns max(0, a-b).
func (a u128) monus(b u128) u128 {
	if a.less(b) {
		return u128{}
	}
	return a.minus(b)
}

func maxU128(a, b u128) u128 {
	if a.less(b) {
		return b
	}
	return a
}

func minU128(a, b u128) u128 {
	if b.less(a) {
		return b
	}
	return a
}

// mul64 returns a·m and whether the product left 128 bits.
func (a u128) mul64(m uint64) (u128, bool) {
	h1, lo := bits.Mul64(a.lo, m)
	h2, mid := bits.Mul64(a.hi, m)
	hi, c := bits.Add64(h1, mid, 0)
	return u128{hi, lo}, h2 != 0 || c != 0
}

// mulFrac returns a·f·2⁻⁶⁴ rounded down: a scaled by the Q0.64 fraction f.
func (a u128) mulFrac(f uint64) u128 {
	h1, _ := bits.Mul64(a.lo, f)
	h2, l2 := bits.Mul64(a.hi, f)
	lo, c := bits.Add64(l2, h1, 0)
	return u128{h2 + c, lo}
}

// shr returns a >> n, zero when n ≥ 128.
func (a u128) shr(n uint64) u128 {
	switch {
	case n >= 128:
		return u128{}
	case n >= 64:
		return u128{0, a.hi >> (n - 64)}
	case n == 0:
		return a
	}
	return u128{a.hi >> n, a.hi<<(64-n) | a.lo>>n}
}

func (a u128) big() *big.Int {
	b := new(big.Int).SetUint64(a.hi)
	b.Lsh(b, 64)
	return b.Or(b, new(big.Int).SetUint64(a.lo))
}

// Sum is an exact, non-negative total of supplied costs. A queue accepts fewer
// than 2⁶³ jobs in its life and each costs less than 2⁶³, so no total reaches
// 2¹²⁶ and a Sum cannot overflow.
type Sum struct {
	// Hi and Lo are the two halves of the total: Hi·2⁶⁴ + Lo.
	Hi, Lo uint64
}

// BigInt returns the total as a new big.Int.
func (s Sum) BigInt() *big.Int { return u128{s.Hi, s.Lo}.big() }

// String returns the total in decimal.
func (s Sum) String() string { return s.BigInt().String() }

// Uint64 returns the total and whether it fits 64 bits.
func (s Sum) Uint64() (uint64, bool) { return s.Lo, s.Hi == 0 }
