package sfq

import (
	"math/big"
	"testing"

	"pgregory.net/rapid"
)

const tenYears = 10 * 365 * 24 * 3600 * 1000 // ms

// rootOfHalf returns 2^(-i/n) for i < n, n a power of two, with prec fraction
// bits, by repeated integer square roots: nothing of the code under test.
func rootOfHalf(i, n int, prec uint) *big.Int {
	one := new(big.Int).Lsh(big.NewInt(1), prec)
	acc, root := new(big.Int).Set(one), new(big.Int).Rsh(one, 1)
	for step := n; step > 1; {
		step /= 2
		root = new(big.Int).Sqrt(new(big.Int).Lsh(root, prec))
		if i&step != 0 {
			acc.Rsh(acc.Mul(acc, root), prec)
		}
	}
	return acc
}

func TestHalfPowerTable(t *testing.T) {
	const prec = 400
	for i := 1; i < 256; i++ {
		for _, c := range []struct {
			got uint64
			n   int
		}{{halfPowerCoarse[i], 256}, {halfPowerFine[i], 65536}} {
			want := rootOfHalf(i, c.n, prec)
			if want.Rsh(want, prec-64).Uint64() != c.got {
				t.Fatalf("2^(-%d/%d): table has %#x, want %#x", i, c.n, c.got, want.Uint64())
			}
		}
	}
}

// TestDecayReadsArePure: reading a tenant's weight every ten seconds for ten
// years changes nothing; the usage at the end is that of a single read.
func TestDecayReadsArePure(t *testing.T) {
	t.Parallel()
	d := &Decay{HalfLife: DefaultHalfLife, Norm: DefaultNorm}
	cfg := oneClass(1)
	cfg.Decay = d
	f := newFixture(t, cfg)
	f.tenant(1, Gold, 9)
	f.add(1, 0, 20_000_000)
	f.run(0)
	before := f.StateHash()
	tn := &f.tenants[0]
	last := f.weightAt(tn, 0)
	if last != 2<<weightShift {
		t.Fatalf("Gold at twice the norm weighs %d, want 2", last)
	}
	for now := int64(0); now <= tenYears; now += 10_000 {
		w := f.weightAt(tn, now)
		if w < last {
			t.Fatalf("at %d the weight fell from %d to %d without usage", now, last, w)
		}
		last = w
	}
	if f.StateHash() != before {
		t.Fatal("reading changed the state")
	}
	if last != 8<<weightShift {
		t.Errorf("after ten years Gold weighs %d/65536, want all of 8", last)
	}
}

// TestDecayOverTenYears: charges in any pattern over ten years leave the usage
// that the formula gives, Σ cost·2^(-age/half-life) with ages on the grid, to
// within a thousandth of a CPU millisecond.
func TestDecayOverTenYears(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		d := &Decay{HalfLife: rapid.SampledFrom([]int64{DefaultHalfLife, 3_600_000, 1_000_003}).Draw(t, "half-life"), Norm: DefaultNorm}
		s := &Scheduler{cfg: Config{Decay: d}}
		tn := &tenant{}
		type chargeAt struct{ cost, at int64 }
		var charges []chargeAt
		now := int64(0)
		for now < tenYears && len(charges) < 200 {
			c := chargeAt{rapid.Int64Range(1, 1_000_000).Draw(t, "cost"), now}
			for range rapid.IntRange(0, 3).Draw(t, "reads") {
				d.usageAt(tn.usage, tn.usageStep, now)
			}
			s.addUsage(tn, c.cost, now)
			charges = append(charges, c)
			now += rapid.SampledFrom([]int64{1, 999, 10_000, 86_400_000, tenYears / 50}).Draw(t, "gap")
		}
		const prec = 200
		want := new(big.Int)
		last := d.step(now)
		for _, c := range charges {
			age := last - d.step(c.at)
			v := rootOfHalf(int(age&0xffff), 65536, prec)
			v.Mul(v, big.NewInt(c.cost))
			want.Add(want, v.Rsh(v, uint(age>>16)))
		}
		got := d.usageAt(tn.usage, tn.usageStep, now).big()
		want.Rsh(want, prec-64)
		diff := new(big.Int).Sub(want, got)
		if limit := new(big.Int).Lsh(big.NewInt(1), 54); diff.CmpAbs(limit) > 0 {
			t.Fatalf("usage is off by %v·2⁻⁶⁴ CPU ms after %d charges", diff, len(charges))
		}
	})
}

// TestDecayEveryStep is the worst pattern for rounding: a charge at every step
// of the grid for ten years. A table of 16 bits loses the decay altogether here.
func TestDecayEveryStep(t *testing.T) {
	t.Parallel()
	d := &Decay{HalfLife: DefaultHalfLife, Norm: DefaultNorm}
	s := &Scheduler{cfg: Config{Decay: d}}
	tn := &tenant{usage: u128{hi: 1 << 40}}
	steps := uint64(tenYears) << 16 / DefaultHalfLife
	for i := uint64(1); i <= steps; i++ {
		s.addUsage(tn, 0, int64(i*DefaultHalfLife>>16)+1)
	}
	once := halve(u128{hi: 1 << 40}, tn.usageStep)
	if diff := once.monus(tn.usage); diff.hi > 0 || diff.lo > 1<<40 || once.less(tn.usage) {
		t.Errorf("%d single steps leave %v, one step of them all %v", steps, tn.usage, once)
	}
}

// TestDecayTwoStepsAreOne: 7 and 14 days give what 21 days give.
func TestDecayTwoStepsAreOne(t *testing.T) {
	u := u128{hi: 123_456_789}
	day := uint64(1<<16) / 7 * 7
	if a, b := halve(halve(u, day), 2*day), halve(u, 3*day); a.monus(b).hi+b.monus(a).hi != 0 {
		t.Errorf("%v and %v", a, b)
	}
	if halve(u, 1<<16) != (u128{hi: 61_728_394, lo: 1 << 63}) {
		t.Error("one half-life does not halve")
	}
}

// TestUsageFarAboveNorm: the weight stops at its least unit; it is never zero
// and nothing divides by it.
func TestUsageFarAboveNorm(t *testing.T) {
	cfg := oneClass(9)
	cfg.Decay = &Decay{HalfLife: DefaultHalfLife, Norm: 1}
	f := newFixture(t, cfg)
	f.tenant(1, Free, 9)
	for range 4 {
		f.add(1, 0, MaxCost)
		f.run(0)
	}
	if w := f.weightAt(&f.tenants[0], 0); w != 1 {
		t.Errorf("weight %d, want the least unit", w)
	}
	f.check()
}

// TestClockGoesBack: a time before the last one neither decays nor revives.
func TestClockGoesBack(t *testing.T) {
	d := &Decay{HalfLife: 1000, Norm: 1000}
	s := &Scheduler{cfg: Config{Decay: d}}
	tn := &tenant{}
	s.addUsage(tn, 1000, 50_000)
	s.addUsage(tn, 0, 10)
	if tn.usage != (u128{hi: 1000}) || d.usageAt(tn.usage, tn.usageStep, 10) != tn.usage {
		t.Errorf("usage %v after the clock went back, want 1000", tn.usage)
	}
	s.addUsage(tn, 0, 51_000)
	if tn.usage != (u128{hi: 500}) {
		t.Errorf("usage %v one half-life later, want 500", tn.usage)
	}
}

// TestTierNorm: a tier may have its own norm.
func TestTierNorm(t *testing.T) {
	d := &Decay{HalfLife: 1000, Norm: 1000, TierNorm: [TierCount]int64{Gold: 4000}}
	if d.norm(Gold) != 4000 || d.norm(Free) != 1000 {
		t.Errorf("norms %d and %d", d.norm(Gold), d.norm(Free))
	}
}
