package fleet

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/barista-fleet/barista/internal/bucket"
)

// Problem is an object that a listing met and could not use.
type Problem struct {
	Key string // not escaped: it may hold anything the store allows
	Err error
}

// Fleet is one look at everything. Its parts were read one after another, so it
// can be a little inconsistent with itself, like any look at a fleet.
type Fleet struct {
	Names    []View // by name; deleted and released ones included
	Nodes    []NodeView
	Problems []Problem
	Date     time.Time // the store's clock, zero if it does not say
}

// List reads every name and node, with a bounded number of reads in flight.
func (c *Client) List(ctx context.Context) (*Fleet, error) {
	return c.NewLister().List(ctx)
}

// Lister lists repeatedly, and reads again only what changed since its last
// List. It is not safe for concurrent use.
type Lister struct {
	c        *Client
	prefixes []string
	cache    map[string]cached
}

// cached is a body under the ETag that a listing gave it.
type cached struct {
	etag bucket.ETag
	obj  bucket.Object
}

// NewLister returns a Lister that has seen nothing yet.
func (c *Client) NewLister() *Lister {
	return &Lister{
		c: c, cache: make(map[string]cached),
		prefixes: []string{PrefixDesired, PrefixSessions, PrefixNodes, PrefixDirectives},
	}
}

// Nodes reads every node and what is asked of it, and no names.
func (c *Client) Nodes(ctx context.Context) ([]NodeView, []Problem, error) {
	l := &Lister{c: c, prefixes: []string{PrefixNodes, PrefixDirectives}}
	f, err := l.List(ctx)
	if err != nil {
		return nil, nil, err
	}
	return f.Nodes, f.Problems, nil
}

// List looks at everything once.
func (l *Lister) List(ctx context.Context) (*Fleet, error) {
	listings := make([]bucket.Listing, len(l.prefixes))
	errs := make([]error, len(l.prefixes))
	each(ctx, len(l.prefixes), len(l.prefixes), func(i int) {
		listings[i], errs[i] = l.c.list(ctx, l.prefixes[i])
	})
	if err := firstOf(errs); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	f := &Fleet{Date: listings[0].Date}
	var entries []bucket.Entry
	var nodesDate time.Time
	for i, prefix := range l.prefixes {
		if prefix == PrefixNodes {
			nodesDate = listings[i].Date
		}
		for _, e := range listings[i].Entries {
			if err := CheckName(e.Key[min(len(prefix), len(e.Key)):]); err != nil {
				f.Problems = append(f.Problems, Problem{Key: e.Key, Err: errors.New("not a name: " + NameRule)})
				continue
			}
			entries = append(entries, e)
		}
	}
	objects, err := l.bodies(ctx, entries)
	if err != nil {
		return nil, err
	}
	f.fill(entries, objects, nodesDate)
	return f, nil
}

// bodies returns the objects of entries, from the cache where the listed ETag
// says that they have not changed.
func (l *Lister) bodies(ctx context.Context, entries []bucket.Entry) ([]bucket.Object, error) {
	objects := make([]bucket.Object, len(entries))
	var missing []int
	fresh := make(map[string]cached, len(entries))
	for i, e := range entries {
		if c, ok := l.cache[e.Key]; ok && c.etag == e.ETag && e.ETag != "" {
			objects[i] = c.obj
			fresh[e.Key] = c
			continue
		}
		missing = append(missing, i)
	}
	errs := make([]error, len(missing))
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	each(ctx, len(missing), l.c.reads, func(k int) {
		if objects[missing[k]], errs[k] = l.c.get(ctx, entries[missing[k]].Key); errs[k] != nil {
			cancel() // one answer is missing, so there is no list
		}
	})
	if err := firstOf(errs); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	for _, i := range missing {
		// What was read may be newer than what was listed; the next listing
		// then shows another ETag and it is read once more.
		fresh[entries[i].Key] = cached{etag: entries[i].ETag, obj: objects[i]}
	}
	l.cache = fresh
	return objects, nil
}

// firstOf returns the error that says most: not the cancellation that followed it.
func firstOf(errs []error) error {
	var other error
	for _, err := range errs {
		if err != nil && !errors.Is(err, context.Canceled) {
			return err
		}
		if err != nil {
			other = err
		}
	}
	return other
}

// fill sorts the objects into names and nodes. An object that vanished between
// listing and reading counts as absent.
func (f *Fleet) fill(entries []bucket.Entry, objects []bucket.Object, nodesDate time.Time) {
	views := make(map[string]*View)
	nodes := make(map[string]*NodeView)
	view := func(name string) *View {
		if views[name] == nil {
			views[name] = &View{Name: name}
		}
		return views[name]
	}
	node := func(id string) *NodeView {
		if nodes[id] == nil {
			nodes[id] = &NodeView{ID: id}
		}
		return nodes[id]
	}
	for i, e := range entries {
		if objects[i].Status != bucket.Found {
			continue
		}
		prefix, name, _ := strings.Cut(e.Key, "/")
		switch prefix + "/" {
		case PrefixDesired:
			view(name).setDesired(objects[i])
		case PrefixSessions:
			view(name).setSession(objects[i])
		case PrefixNodes:
			n := node(name)
			n.Node, n.Err = DecodeNode(name, objects[i].Body)
			n.ETag = objects[i].ETag
			if !e.Modified.IsZero() && !nodesDate.IsZero() {
				n.Unrenewed = max(nodesDate.Sub(e.Modified), 0)
			}
		case PrefixDirectives:
			n := node(name)
			n.Directive, n.DirectiveErr = DecodeDirective(name, objects[i].Body)
		}
	}
	for _, name := range sortedKeys(views) {
		v := views[name]
		if v.Session != nil && v.Session.Owner != "" {
			if n := nodes[v.Session.Owner]; n != nil {
				v.Owner = n.Node
				if v.Claim() == ClaimHolds {
					n.Owned++
				}
			}
		}
		f.Names = append(f.Names, *v)
	}
	for _, id := range sortedKeys(nodes) {
		if n := nodes[id]; n.Node != nil || n.Err != nil {
			f.Nodes = append(f.Nodes, *n)
		} else {
			f.Problems = append(f.Problems, Problem{Key: PrefixDirectives + id, Err: errors.New("a directive for a node that never registered")})
		}
	}
}

func (v *View) setDesired(obj bucket.Object) {
	if obj.Status == bucket.Found {
		v.DesiredETag = obj.ETag
		v.Desired, v.DesiredErr = DecodeDesired(v.Name, obj.Body)
	}
}

func (v *View) setSession(obj bucket.Object) {
	if obj.Status == bucket.Found {
		v.SessionETag = obj.ETag
		v.Session, v.SessionErr = DecodeSession(v.Name, obj.Body)
	}
}

// Get reads one name. One that does not exist is a *NotFoundError.
func (c *Client) Get(ctx context.Context, name string) (*View, error) {
	if err := CheckName(name); err != nil {
		return nil, err
	}
	obj, err := c.get(ctx, PrefixDesired+name)
	if err != nil {
		return nil, err
	}
	v, err := c.viewOf(ctx, name, obj)
	if err != nil {
		return nil, err
	}
	if !v.Exists() {
		hint := "list the names: fleetctl ls"
		if v.Desired != nil {
			hint = "it was deleted; apply it again to make it anew"
		}
		return nil, &NotFoundError{What: "name", Name: name, Hint: hint}
	}
	return v, nil
}

// nodeRecord reads one liveness record; nil if it is absent or unreadable, which
// for a claim means the same: nothing can be said.
func (c *Client) nodeRecord(ctx context.Context, id string) (*Node, error) {
	if CheckName(id) != nil {
		return nil, nil
	}
	obj, err := c.get(ctx, PrefixNodes+id)
	if err != nil || obj.Status != bucket.Found {
		return nil, err
	}
	n, err := DecodeNode(id, obj.Body)
	if err != nil {
		return nil, nil //nolint:nilerr // present but unreadable: the claim cannot be judged
	}
	return n, nil
}

// Resolution says where a name is.
type Resolution struct {
	Name        string
	UID         string
	Node        string // what people call it
	NodeID      string
	Endpoint    string // as published; never dialled by this project
	Epoch       uint64
	Incarnation uint64
	Status      Status
	Claim       Claim
}

// Resolve finds the owner of a name. A name that exists and that nobody owns is
// a *NotOwnedError, one that is held a *RefusedError with Held set, one that
// does not exist a *NotFoundError.
func (c *Client) Resolve(ctx context.Context, name string) (*Resolution, error) {
	v, err := c.Get(ctx, name)
	if err != nil {
		return nil, err
	}
	s, status := v.Session, v.Status()
	if v.SessionErr != nil {
		return nil, v.SessionErr
	}
	if status == StatusHeld {
		e := Explain(v, nil)
		return nil, &RefusedError{Op: "resolve", Name: name, Held: true, Message: e.Reason, Hint: e.Next}
	}
	claim := v.Claim()
	if claim == ClaimNone || claim == ClaimLost || v.Desired != nil && !v.current() || s.Phase.Done() {
		e := NotOwnedError{Name: name, Status: status, Next: "fleetctl describe " + name}
		if s != nil {
			e.Epoch = s.Epoch
		}
		e.Reason = fmt.Sprintf("it is %s", status)
		if v.Desired != nil {
			// Without a look at the nodes only the name's own records speak.
			e.Reason = ownReason(v)
		}
		return nil, &e
	}
	return &Resolution{
		Name: name, UID: s.UID, Node: v.NodeName(), NodeID: s.Owner, Endpoint: s.Endpoint,
		Epoch: s.Epoch, Incarnation: s.Incarnation, Status: status, Claim: claim,
	}, nil
}

// ownReason says why nobody owns a name, from its own records alone.
func ownReason(v *View) string {
	switch {
	case v.Status() == StatusPending && (v.Session == nil || v.Session.Owner == ""):
		return "no node has claimed it yet"
	case v.Status() == StatusLost:
		return fmt.Sprintf("its node %s is lost and no other has taken it yet", v.NodeName())
	}
	return Explain(v, nil).Reason
}

// ListNames lists the names that have a desired record, without reading them:
// deleted ones are among them.
func (c *Client) ListNames(ctx context.Context) ([]string, error) {
	listing, err := c.list(ctx, PrefixDesired)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range listing.Entries {
		if name := strings.TrimPrefix(e.Key, PrefixDesired); CheckName(name) == nil {
			names = append(names, name)
		}
	}
	return names, nil
}
