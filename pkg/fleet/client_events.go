package fleet

import (
	"cmp"
	"context"
	"slices"

	"github.com/barista-fleet/barista/internal/bucket"
)

// MaxEventBatches bounds the batches that one look reads: the newest of each
// node, so that a fleet with years of history still answers.
const MaxEventBatches = 2000

// EventQuery selects events. Zero fields select everything.
type EventQuery struct {
	Name string
	Node string // a node's id
	// Batches bounds the batches read; default and most MaxEventBatches.
	Batches int
}

// EventReader reads the fleet's events, each once. It is not safe for
// concurrent use.
type EventReader struct {
	c       *Client
	query   EventQuery
	read    map[string]bool // keys of batches; they never change
	told    map[string]bool // ids of events
	Skipped int             // older batches that were not read
}

// NewEventReader returns a reader that has told nothing yet.
func (c *Client) NewEventReader(q EventQuery) *EventReader {
	return &EventReader{c: c, query: q, read: make(map[string]bool), told: make(map[string]bool)}
}

// Next returns the events that it has not returned before, oldest first. The
// order is that of the nodes' wall clocks; within a node it is exact.
func (r *EventReader) Next(ctx context.Context) ([]Event, []Problem, error) {
	prefix := PrefixEvents
	if r.query.Node != "" {
		prefix += r.query.Node + "/"
	}
	listing, err := r.c.list(ctx, prefix)
	if err != nil {
		return nil, nil, err
	}
	var problems []Problem
	byNode := make(map[string][]string)
	for _, e := range listing.Entries {
		if r.read[e.Key] {
			continue
		}
		node, _, _, err := ParseEventKey(e.Key)
		if err != nil {
			r.read[e.Key] = true
			problems = append(problems, Problem{Key: e.Key, Err: err})
			continue
		}
		byNode[node] = append(byNode[node], e.Key)
	}
	keys := r.newest(byNode)
	batches := make([]*EventBatch, len(keys))
	bad := make([]error, len(keys))
	errs := make([]error, len(keys))
	each(ctx, len(keys), r.c.reads, func(i int) {
		var obj bucket.Object
		if obj, errs[i] = r.c.get(ctx, keys[i]); errs[i] == nil && obj.Status == bucket.Found {
			batches[i], bad[i] = DecodeEventBatch(keys[i], obj.Body)
		}
	})
	if err := firstOf(errs); err != nil {
		return nil, nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	var events []Event
	for i, key := range keys {
		r.read[key] = true
		if bad[i] != nil {
			problems = append(problems, Problem{Key: key, Err: bad[i]})
		}
		if batches[i] == nil {
			continue
		}
		for _, e := range batches[i].Events {
			if r.told[e.ID] || r.query.Name != "" && e.Name != r.query.Name {
				continue
			}
			r.told[e.ID] = true
			if e.Node == "" {
				e.Node = batches[i].NodeName
			}
			events = append(events, e)
		}
	}
	slices.SortStableFunc(events, func(a, b Event) int { return a.Time.Compare(b.Time) })
	return events, problems, nil
}

// newest keeps the newest batches of each node within MaxEventBatches, and
// counts the others as skipped.
func (r *EventReader) newest(byNode map[string][]string) []string {
	if len(byNode) == 0 {
		return nil
	}
	most := MaxEventBatches
	if r.query.Batches > 0 {
		most = min(most, r.query.Batches)
	}
	share := max(1, most/len(byNode))
	var keys []string
	for _, node := range sortedKeys(byNode) {
		list := byNode[node]
		slices.SortFunc(list, cmp.Compare[string])
		if drop := len(list) - share; drop > 0 {
			r.Skipped += drop
			for _, key := range list[:drop] {
				r.read[key] = true
			}
			list = list[drop:]
		}
		keys = append(keys, list...)
	}
	return keys
}
