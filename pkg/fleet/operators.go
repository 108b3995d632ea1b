package fleet

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

// Directive is directives/<node-id>: what operators ask of a node. It is a
// level, not an edge: a node obeys the record as it stands, and an absent one
// asks for nothing.
type Directive struct {
	Head
	Node string `json:"node"`
	// Seq rises with every change, so that a node can say which one it obeys.
	Seq    uint64 `json:"seq"`
	Cordon bool   `json:"cordon,omitzero"` // claims nothing new
	Drain  bool   `json:"drain,omitzero"`  // also gives up what it owns
	// Deadline is when a drain stops waiting for what blocks it. It is counted
	// from the store's clock and read with the node's: for people's patience,
	// never for ownership.
	Deadline time.Time `json:"deadline,omitzero"`
	Reason   string    `json:"reason,omitempty"`

	Unknown jsontext.Value `json:",embed"`
}

// DecodeDirective reads the directive for node id.
func DecodeDirective(id string, body []byte) (*Directive, error) {
	key := PrefixDirectives + id
	d := new(Directive)
	if err := decode(key, body, d); err != nil {
		return nil, err
	}
	if d.Node != id {
		return nil, &UnreadableError{Key: key, Err: fmt.Errorf("names node %q", d.Node)}
	}
	return d, nil
}

// Tier is a tenant's subscription. Each tier weighs twice the one before.
type Tier string

// The tiers.
const (
	TierFree    Tier = "free"
	TierBronze  Tier = "bronze"
	TierSilver  Tier = "silver"
	TierGold    Tier = "gold"
	TierDiamond Tier = "diamond"
)

// Tiers lists the tiers, lightest first.
var Tiers = []Tier{TierFree, TierBronze, TierSilver, TierGold, TierDiamond}

// Weight is the tier's share against the others: 1, 2, 4, 8, 16; 0 for an
// unknown tier.
func (t Tier) Weight() uint64 {
	for i, x := range Tiers {
		if t == x {
			return 1 << i
		}
	}
	return 0
}

// MaxMultiplier bounds Tenant.Multiplier, so that the heaviest tenant weighs at
// most 16 × 1,000 times the lightest and tags keep their precision.
const MaxMultiplier = 1000

// Tenant is tenants/<name>: how much of the fleet a tenant may have. A tenant
// without a record is Free and uncapped.
type Tenant struct {
	Head
	Name       string `json:"name"`
	Tier       Tier   `json:"tier"`
	Multiplier uint64 `json:"multiplier,omitzero"` // of the tier's weight; 0 means 1

	Cap        int   `json:"cap,omitzero"`          // running names, fleet-wide; 0: none. It can be overshot by the nodes that claim at one instant
	CapPerNode int   `json:"cap_per_node,omitzero"` // running names on one node, exact; 0: none
	CostCapMs  int64 `json:"cost_cap_ms,omitzero"`  // expected CPU milliseconds in flight on one node; 0: none

	MaxQueued       int   `json:"max_queued,omitzero"`         // waiting names a node considers; 0: the node's default
	MaxQueuedCostMs int64 `json:"max_queued_cost_ms,omitzero"` // their expected CPU milliseconds

	// Prefix, if set, is owned by this tenant: nodes refuse a name that begins
	// with it and belongs to another tenant.
	Prefix string `json:"prefix,omitempty"`

	Unknown jsontext.Value `json:",embed"`
}

// Weight is the tenant's share against the others.
func (t *Tenant) Weight() uint64 { return t.Tier.Weight() * max(t.Multiplier, 1) }

// Validate refuses a tenant that a scheduler could not honour.
func (t *Tenant) Validate() error {
	var p problems
	if err := CheckName(t.Name); err != nil {
		p.add("name", "%v", err)
	}
	if t.Tier.Weight() == 0 {
		p.add("tier", "%q is no tier: use free, bronze, silver, gold or diamond", t.Tier)
	}
	if t.Multiplier > MaxMultiplier {
		p.add("multiplier", "%d is more than %d", t.Multiplier, MaxMultiplier)
	}
	for _, f := range []struct {
		name  string
		value int64
	}{
		{"cap", int64(t.Cap)},
		{"cap_per_node", int64(t.CapPerNode)},
		{"cost_cap_ms", t.CostCapMs},
		{"max_queued", int64(t.MaxQueued)},
		{"max_queued_cost_ms", t.MaxQueuedCostMs},
	} {
		if f.value < 0 || f.value > math.MaxInt64/4 {
			p.add(f.name, "%d is out of range: 0 means no limit", f.value)
		}
	}
	if t.Cap > 0 && t.CapPerNode > t.Cap {
		p.add("cap_per_node", "%d is more than the whole fleet's cap of %d", t.CapPerNode, t.Cap)
	}
	// A prefix may end with a separator, which a name may not.
	if t.Prefix != "" && CheckName(t.Prefix+"0") != nil {
		p.add("prefix", "%q can begin no name: %s", t.Prefix, NameRule)
	}
	return p.err("tenant " + t.Name)
}

// DecodeTenant reads the record of tenant name.
func DecodeTenant(name string, body []byte) (*Tenant, error) {
	key := PrefixTenants + name
	t := new(Tenant)
	if err := decode(key, body, t); err != nil {
		return nil, err
	}
	switch {
	case t.Name != name:
		return nil, &UnreadableError{Key: key, Err: fmt.Errorf("names tenant %q", t.Name)}
	case t.Tier == "":
		return nil, &UnreadableError{Key: key, Err: errors.New("no tier")}
	}
	return t, nil
}
