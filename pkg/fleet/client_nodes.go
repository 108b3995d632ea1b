package fleet

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/barista-fleet/barista/internal/bucket"
)

// FindNode picks the node that is called by its id or by its name. Several
// nodes of one name are a *ConflictError that lists their ids.
func FindNode(nodes []NodeView, called string) (*NodeView, error) {
	var found []*NodeView
	for i := range nodes {
		if nodes[i].ID == called {
			return &nodes[i], nil
		}
		if nodes[i].Node != nil && nodes[i].Node.Name == called {
			found = append(found, &nodes[i])
		}
	}
	switch len(found) {
	case 0:
		return nil, &NotFoundError{What: "node", Name: called, Hint: "list the nodes: fleetctl nodes"}
	case 1:
		return found[0], nil
	}
	ids := make([]string, len(found))
	for i, n := range found {
		ids[i] = n.ID
	}
	return nil, &ConflictError{
		Op: "find node", Name: called, Message: fmt.Sprintf("%d nodes have this name", len(found)),
		Hint: "use an id: " + strings.Join(ids, ", "),
	}
}

// DirectiveChange is what an operator asks of a node. Nil leaves a part as it is.
type DirectiveChange struct {
	Cordon   *bool
	Drain    *bool
	Deadline time.Duration // of a drain, from the store's clock on; 0: none
	Reason   string
}

// Direct writes what operators ask of the node with this id and rings the bell.
func (c *Client) Direct(ctx context.Context, id, op string, change DirectiveChange) (*Directive, bool, error) {
	if err := CheckName(id); err != nil {
		return nil, false, err
	}
	var out *Directive
	w, err := c.update(ctx, op, id, PrefixDirectives+id, func(obj bucket.Object, att attempt) (record, error) {
		old := &Directive{Node: id}
		if obj.Status == bucket.Found {
			d, err := DecodeDirective(id, obj.Body)
			if Newer(err) {
				return nil, err
			}
			if err == nil { // a damaged directive is replaced: it asks for nothing
				old = d
			}
		}
		next := *old
		next.Head = Head{Schema: Schema, Nonce: att.nonce}
		next.Seq = old.Seq + 1
		if change.Cordon != nil {
			next.Cordon = *change.Cordon
		}
		if change.Drain != nil {
			next.Drain = *change.Drain
			next.Deadline = time.Time{}
			if next.Drain && change.Deadline > 0 {
				next.Deadline = storeTime(obj.Date).Add(change.Deadline)
			}
		}
		next.Reason = change.Reason
		out = &next
		if next.Cordon == old.Cordon && next.Drain == old.Drain && next.Deadline.Equal(old.Deadline) && next.Reason == old.Reason {
			out = old
			return nil, nil
		}
		return out, nil
	})
	if err == nil && w.written {
		c.Signal(ctx, nil, []string{id})
	}
	return out, w.written, err
}

// Tenants reads every tenant's record.
func (c *Client) Tenants(ctx context.Context) ([]Tenant, []Problem, error) {
	listing, err := c.list(ctx, PrefixTenants)
	if err != nil {
		return nil, nil, err
	}
	found := make([]*Tenant, len(listing.Entries))
	bad := make([]error, len(listing.Entries))
	errs := make([]error, len(listing.Entries))
	each(ctx, len(listing.Entries), c.reads, func(i int) {
		name := strings.TrimPrefix(listing.Entries[i].Key, PrefixTenants)
		if bad[i] = CheckName(name); bad[i] != nil {
			return
		}
		var obj bucket.Object
		if obj, errs[i] = c.get(ctx, listing.Entries[i].Key); errs[i] == nil && obj.Status == bucket.Found {
			found[i], bad[i] = DecodeTenant(name, obj.Body)
		}
	})
	if err := firstOf(errs); err != nil {
		return nil, nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	var tenants []Tenant
	var problems []Problem
	for i := range found {
		switch {
		case bad[i] != nil:
			problems = append(problems, Problem{Key: listing.Entries[i].Key, Err: bad[i]})
		case found[i] != nil:
			tenants = append(tenants, *found[i])
		}
	}
	return tenants, problems, nil
}

// SetTenant changes a tenant's record, or makes it, with the tier Free unless
// change sets another.
func (c *Client) SetTenant(ctx context.Context, name string, change func(*Tenant)) (*Tenant, Outcome, error) {
	if err := CheckName(name); err != nil {
		return nil, "", err
	}
	var out *Tenant
	outcome := OutcomeUnchanged
	w, err := c.update(ctx, "tenants set", name, PrefixTenants+name, func(obj bucket.Object, att attempt) (record, error) {
		old := &Tenant{Name: name, Tier: TierFree}
		if obj.Status == bucket.Found {
			var err error
			if old, err = DecodeTenant(name, obj.Body); err != nil {
				return nil, err
			}
		}
		next := *old
		change(&next)
		if err := next.Validate(); err != nil {
			return nil, err
		}
		out = &next
		same := next.Tier == old.Tier && max(next.Multiplier, 1) == max(old.Multiplier, 1) && next.Cap == old.Cap &&
			next.CapPerNode == old.CapPerNode && next.CostCapMs == old.CostCapMs && next.MaxQueued == old.MaxQueued &&
			next.MaxQueuedCostMs == old.MaxQueuedCostMs && next.Prefix == old.Prefix
		switch {
		case obj.Status != bucket.Found:
			outcome = OutcomeCreated
		case same:
			outcome = OutcomeUnchanged
			return nil, nil
		default:
			outcome = OutcomeConfigured
		}
		next.Head = Head{Schema: Schema, Nonce: att.nonce}
		return &next, nil
	})
	if err == nil && w.written {
		c.Signal(ctx, nil, nil)
	}
	return out, outcome, err
}

// RemoveTenant deletes a tenant's record: its names go on, as those of a Free
// tenant without caps. It also removes a record that cannot be read.
func (c *Client) RemoveTenant(ctx context.Context, name string) error {
	if err := CheckName(name); err != nil {
		return err
	}
	obj, err := c.get(ctx, PrefixTenants+name)
	if err != nil {
		return err
	}
	if obj.Status != bucket.Found {
		return &NotFoundError{What: "tenant", Name: name, Hint: "list the tenants: fleetctl tenants ls"}
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if err := c.store.Delete(ctx, PrefixTenants+name); err != nil {
		return err
	}
	c.Signal(ctx, nil, nil)
	return nil
}
