package agent

import (
	"context"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/barista-fleet/barista/internal/bucket"
	"github.com/barista-fleet/barista/pkg/fleet"
	"github.com/barista-fleet/barista/pkg/journal"
	"github.com/barista-fleet/barista/pkg/lease"
	"github.com/barista-fleet/barista/pkg/reconcile"
)

// uploadEvery bounds the writes of event batches: a busy node writes longer
// batches, not more.
const uploadEvery = time.Second

// uploader moves events from the journal's outbox to the bucket, at least once:
// a batch leaves the outbox when a write of it was acknowledged. One whose
// acknowledgement was lost is written again, under the next key.
type uploader struct {
	a    *Agent
	snap reconcile.Snapshot // the node as it was last seen
	next uint64             // the next batch's number
}

// lastUpload bounds the upload of what a node has to tell when it has left.
const lastUpload = 5 * time.Second

func (u *uploader) run(ctx context.Context) {
	t := time.NewTicker(uploadEvery)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			if err := u.once(ctx); err != nil && ctx.Err() == nil {
				u.a.log.Debug("events stay in the journal", "err", err)
			}
		}
	}
}

func (u *uploader) once(ctx context.Context) error {
	events, err := u.a.j.Events(0, fleet.MaxEventsPerBatch)
	if err != nil || len(events) == 0 {
		return err
	}
	if err := u.a.loop.Do(ctx, func(m *reconcile.Machine) { u.snap = m.Head() }); err != nil {
		return err
	}
	return u.send(ctx, events)
}

// last uploads what is left when the loop has ended.
func (u *uploader) last(ctx context.Context) error {
	u.snap = u.a.loop.Machine.Head() // nobody steps it any more
	for u.snap.Incarnation != 0 {
		events, err := u.a.j.Events(0, fleet.MaxEventsPerBatch)
		if err != nil || len(events) == 0 {
			return err
		}
		if err := u.send(ctx, events); err != nil {
			return err
		}
	}
	return nil
}

func (u *uploader) send(ctx context.Context, events []journal.Event) error {
	snap := u.snap
	if snap.Incarnation == 0 {
		return nil // not in the fleet yet
	}
	u.next = max(u.next, events[0].Seq)
	body, last, err := encodeEvents(fleet.EventBatch{
		Head: fleet.Head{Schema: fleet.Schema, Nonce: fleet.NewNonce()},
		Node: snap.NodeID, NodeName: u.a.cfg.NodeName, Incarnation: snap.Incarnation, Seq: u.next,
	}, events)
	if err != nil {
		return err
	}
	cctx, cancel := context.WithTimeout(ctx, lease.DefaultCall)
	defer cancel()
	r := u.a.store.Put(cctx, fleet.EventKey(snap.NodeID, snap.Incarnation, u.next), body, bucket.IfAbsent())
	if r.Outcome != bucket.Rejected || r.Conflict() {
		u.next++ // this key is used, or may be
	}
	if r.Outcome != bucket.Applied {
		return r.Err
	}
	return u.a.j.Commit(ctx, journal.Batch{Class: journal.Essential, DropEvents: last})
}

// encodeEvents makes a batch of as many events as one record takes, and returns the
// number of the last one that it deals with. What the journal holds and nobody can
// read is left out: it must not keep what is behind it from being told.
func encodeEvents(batch fleet.EventBatch, events []journal.Event) (body []byte, last uint64, err error) {
	var seqs []uint64
	for _, e := range events {
		var ev fleet.Event
		if err := json.Unmarshal(e.Data, &ev); err == nil && ev.ID != "" {
			batch.Events, seqs = append(batch.Events, ev), append(seqs, e.Seq)
		}
	}
	body, taken, err := fleet.EncodeEventBatch(batch)
	if taken < len(seqs) && taken > 0 {
		return body, seqs[taken] - 1, err
	}
	return body, events[len(events)-1].Seq, err
}
