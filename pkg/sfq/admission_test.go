package sfq

import (
	"fmt"
	"testing"
)

func TestAdmissionLimits(t *testing.T) {
	cfg := oneClass(1)
	cfg.MaxJobs, cfg.MaxTenants = 4, 2
	f := newFixture(t, cfg)
	want(t, "set", f.SetTenant(1, TenantSpec{Multiplier: 1, MaxRunning: 1, MaxQueued: 2}), Registered)
	want(t, "set", f.SetTenant(2, TenantSpec{Multiplier: 1, MaxRunning: 1, MaxQueuedCost: 1000}), Registered)
	want(t, "third tenant", f.SetTenant(3, TenantSpec{Multiplier: 1, MaxRunning: 1}), FlowLimit)
	f.add(1, 0, 1)
	f.add(1, 0, 1)
	try := func(what string, c Candidate, o Outcome) {
		t.Helper()
		before := f.StateHash()
		want(t, what, f.Add(c), o)
		if !o.OK() && f.StateHash() != before {
			t.Errorf("%s: the refusal changed the state", what)
		}
	}
	try("queue limit", Candidate{Job: 9, Tenant: 1}, TenantQueueLimit)
	try("cost limit", Candidate{Job: 9, Tenant: 2, Cost: 1001}, TenantCostLimit)
	try("no tenant", Candidate{Job: 9, Tenant: 3}, FlowNotRegistered)
	try("no class", Candidate{Job: 9, Tenant: 1, Class: 1}, InvalidClass)
	try("negative", Candidate{Job: 9, Tenant: 1, Cost: -1}, InvalidCost)
	try("too costly", Candidate{Job: 9, Tenant: 1, Cost: MaxCost + 1}, InvalidCost)
	try("order", Candidate{Job: 9, Tenant: 1, Order: Order{Created: 1 << 56}}, InvalidOrder)
	try("duplicate", Candidate{Job: 1, Tenant: 2}, DuplicateLiveID)
	try("within the cost limit", Candidate{Job: 10, Tenant: 2, Cost: 1000}, Accepted)
	try("pinned, beyond the queue limit", Candidate{Job: 11, Tenant: 1, Pinned: true}, Accepted)
	try("live limit", Candidate{Job: 12, Tenant: 1, Pinned: true}, LiveLimit)
}

// TestRefusedSpecs: weight 0, cap 0 and negative values are refused by name;
// none of them reaches a division.
func TestRefusedSpecs(t *testing.T) {
	f := newFixture(t, oneClass(1))
	ok := TenantSpec{Multiplier: 1, MaxRunning: 1}
	for _, c := range []struct {
		change func(*TenantSpec)
		o      Outcome
	}{
		{func(s *TenantSpec) { s.Multiplier = 0 }, InvalidWeight},
		{func(s *TenantSpec) { s.Multiplier = MaxMultiplier + 1 }, InvalidWeight},
		{func(s *TenantSpec) { s.Tier = TierCount }, InvalidWeight},
		{func(s *TenantSpec) { s.MaxRunning = 0 }, InvalidCap},
		{func(s *TenantSpec) { s.MaxRunningCost = -1 }, InvalidCap},
		{func(s *TenantSpec) { s.MaxQueuedCost = -1 }, InvalidCap},
	} {
		spec := ok
		c.change(&spec)
		want(t, fmt.Sprintf("%+v", spec), f.SetTenant(1, spec), c.o)
	}
	for name, change := range map[string]func(*Config){
		"no class":        func(c *Config) { c.Classes = nil },
		"nine classes":    func(c *Config) { c.Classes = make([]ClassConfig, 9) },
		"negative slots":  func(c *Config) { c.Classes[0].Slots = -1 },
		"default cost 0":  func(c *Config) { c.Classes[0].DefaultCost = 0 },
		"steal":           func(c *Config) { c.Steal = 2 },
		"margin":          func(c *Config) { c.Margin = 1 << 63 },
		"no tenants":      func(c *Config) { c.MaxTenants = 0 },
		"no jobs":         func(c *Config) { c.MaxJobs = 0 },
		"negative limit":  func(c *Config) { c.MaxTypes = -1 },
		"kappa":           func(c *Config) { c.Kappa = maxKappa + 1 },
		"half-life 0":     func(c *Config) { c.Decay = &Decay{HalfLife: 0, Norm: 1} },
		"half-life below": func(c *Config) { c.Decay = &Decay{HalfLife: -1, Norm: 1} },
		"norm 0":          func(c *Config) { c.Decay = &Decay{HalfLife: 1, Norm: 0} },
		"tier norm":       func(c *Config) { c.Decay = &Decay{HalfLife: 1, Norm: 1, TierNorm: [5]int64{-1}} },
	} {
		cfg := oneClass(1)
		change(&cfg)
		if _, err := NewScheduler(cfg); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	if _, err := NewScheduler(DefaultConfig(4, 2, 1, 50)); err != nil {
		t.Errorf("the default configuration: %v", err)
	}
}

// TestRemoveTenant: a debt cannot be washed by leaving and coming back.
func TestRemoveTenant(t *testing.T) {
	f := newFixture(t, oneClass(2))
	f.tenant(1, Free, 1)
	f.tenant(2, Free, 1)
	want(t, "unknown", f.RemoveTenant(9), FlowNotRegistered)
	f.add(1, 0, 1000)
	f.add(2, 0, 10)
	want(t, "busy", f.RemoveTenant(1), FlowActive)
	f.complete(f.run(0), 1000)
	want(t, "in debt", f.RemoveTenant(1), FairnessDebtActive)
	f.complete(f.run(0), 10)
	want(t, "idle", f.RemoveTenant(1), Closed)
	f.check()
	f.tenant(1, Free, 1)
	f.check()
}

// TestCapLoweredUnderRunningJobs: running jobs finish, no new one starts.
func TestCapLoweredUnderRunningJobs(t *testing.T) {
	f := newFixture(t, oneClass(9))
	f.tenant(1, Free, 3)
	for range 6 {
		f.add(1, 0, 10)
	}
	ps := []Pick{f.run(0), f.run(0), f.run(0)}
	want(t, "lower", f.SetTenant(1, TenantSpec{Multiplier: 1, MaxRunning: 1}), Updated)
	f.check()
	for i, p := range ps {
		if _, o := f.Pick(0, 0); o != NothingEligible {
			t.Fatalf("with %d running and a cap of 1: %v", 3-i, o)
		}
		f.complete(p, 10)
	}
	f.run(0)
}

// TestSlotsAreCounted: a class never runs more jobs than it has slots.
func TestSlotsAreCounted(t *testing.T) {
	f := newFixture(t, sizes(1, 0, 1))
	f.tenant(1, Free, 9)
	for range 4 {
		f.add(1, 0, 10)
	}
	p := f.run(0)
	if _, o := f.Pick(0, 0); o != NoFreeSlot {
		t.Fatalf("second job in one slot: %v", o)
	}
	f.run(2)
	want(t, "more slots", f.SetSlots(0, 2), Updated)
	f.run(0)
	f.complete(p, 10)
	want(t, "fewer slots", f.SetSlots(0, 1), Updated)
	if _, o := f.Pick(0, 0); o != NoFreeSlot {
		t.Fatalf("a job in a slot that is gone: %v", o)
	}
	want(t, "no such class", f.SetSlots(7, 1), InvalidClass)
	want(t, "negative", f.SetSlots(0, -1), InvalidCap)
	_, o := f.Pick(9, 0)
	want(t, "no such class", o, InvalidClass)
	_, o = f.Pick(0, -1)
	want(t, "before time", o, InvalidTime)
	_, o = f.Pick(0, MaxTime+1)
	want(t, "after time", o, InvalidTime)
}
