package journal

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"syscall"

	bolt "go.etcd.io/bbolt"
	bolterr "go.etcd.io/bbolt/errors"
)

const (
	// maxGroup is how many batches share a transaction at most. It bounds how
	// long the first of them waits for the others' work; the fsyncs that it
	// saves are already one in a thousand.
	maxGroup = 1024
	// maxGroupBytes bounds the memory of a transaction.
	maxGroupBytes = MaxBatch
	// maxGrow bounds how often one group may ask for a larger file: each time
	// asks for twice as much, so the last asks for 64 times its own size.
	maxGrow = 6
)

// Ticket is a submitted batch.
type Ticket struct {
	j     *Journal
	batch Batch
	bytes int
	done  chan struct{} // closed when receipt and err are set

	taken   bool // guarded by j.mu: in a group, can no longer be withdrawn
	receipt Receipt
	err     error
}

// Commit applies a batch and returns when it is durable. See Submit and Wait.
func (j *Journal) Commit(ctx context.Context, b Batch) error {
	_, err := j.Submit(b).Wait(ctx)
	return err
}

// Submit queues a batch and returns at once. Batches are applied in the order
// of their Submit calls, grouped in as few transactions as the disk's pace
// makes it; one that fails does not fail its companions. The result, also that
// of a batch refused at once, comes from Wait.
func (j *Journal) Submit(b Batch) *Ticket {
	t := &Ticket{j: j, batch: b, done: make(chan struct{})}
	if t.bytes, t.err = b.check(); t.err != nil {
		close(t.done)
		return t
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.closed {
		t.err = &Error{Op: "commit", Kind: ErrClosed}
		close(t.done)
		return t
	}
	j.queue = append(j.queue, t)
	if !j.committing {
		j.committing = true
		go j.commitLoop()
	}
	return t
}

// Wait returns when the batch is durable or has failed. If ctx ends first the
// batch is withdrawn and ctx's error returned; if it is too late for that the
// error is ErrUnknown, and the batch is applied or not without further notice.
func (t *Ticket) Wait(ctx context.Context) (Receipt, error) {
	select {
	case <-t.done:
		return t.receipt, t.err
	default:
	}
	select {
	case <-t.done:
		return t.receipt, t.err
	case <-ctx.Done():
	}
	t.j.mu.Lock()
	defer t.j.mu.Unlock()
	select {
	case <-t.done:
		return t.receipt, t.err
	default:
	}
	if t.taken {
		return Receipt{}, &Error{Op: "commit", Kind: ErrUnknown, Err: context.Cause(ctx)}
	}
	if i := slices.Index(t.j.queue, t); i >= 0 {
		t.j.queue = slices.Delete(t.j.queue, i, i+1)
	}
	return Receipt{}, &Error{Op: "commit", Err: context.Cause(ctx)}
}

// commitLoop commits groups until the queue is empty.
func (j *Journal) commitLoop() {
	for {
		if j.groupGate != nil {
			j.groupGate()
		}
		j.mu.Lock()
		group := j.takeLocked()
		if len(group) == 0 {
			j.committing = false
			j.idle.Broadcast()
			j.mu.Unlock()
			return
		}
		j.mu.Unlock()
		j.commitGroup(group)
		for _, t := range group {
			close(t.done)
		}
	}
}

func (j *Journal) takeLocked() []*Ticket {
	n, bytes := 0, 0
	for n < len(j.queue) && n < maxGroup && (n == 0 || bytes+j.queue[n].bytes <= maxGroupBytes) {
		bytes += j.queue[n].bytes
		j.queue[n].taken = true
		n++
	}
	group := slices.Clone(j.queue[:n])
	j.queue = slices.Delete(j.queue, 0, n)
	return group
}

// commitGroup commits the group in one transaction, or, if the disk is too
// full for that, each batch in its own, so that small and essential ones pass.
func (j *Journal) commitGroup(group []*Ticket) {
	if !j.failGroup(group) {
		err := j.tryGroup(group)
		if errors.Is(err, ErrDiskFull) && len(group) > 1 {
			for _, t := range group {
				if !j.failGroup([]*Ticket{t}) {
					j.settle([]*Ticket{t}, j.tryGroup([]*Ticket{t}))
				}
			}
			return
		}
		j.settle(group, err)
	}
}

// failGroup fails the group if the journal has failed before.
func (j *Journal) failGroup(group []*Ticket) bool {
	failure := j.failure.Load()
	if failure == nil {
		return false
	}
	for _, t := range group {
		t.receipt, t.err = Receipt{}, failure
	}
	return true
}

// settle gives err to every batch of the group that has none of its own.
func (j *Journal) settle(group []*Ticket, err error) {
	for _, t := range group {
		switch {
		case err != nil:
			t.receipt, t.err = Receipt{}, err
			if errors.Is(err, ErrDiskFull) {
				j.diskFull.add(1)
			}
		case t.err != nil:
			j.rejected.add(1)
		default:
			j.batches.add(1)
		}
	}
}

// tryGroup runs one transaction, letting the file grow as needed. A nil error
// means that it was committed; batches whose conditions failed carry theirs.
func (j *Journal) tryGroup(group []*Ticket) error {
	class, bytes := Essential, 0
	for _, t := range group {
		class = min(class, t.batch.Class)
		bytes += t.bytes
	}
	used := j.usedBytes.Load()
	if err := j.ext.prepare(used); err != nil {
		return j.fail("grow", err)
	}
	defer func() { j.publish(used) }()
	need := int64(bytes) + growStep
	for try := 0; ; try++ {
		setLimit(j.db, j.ext.limit(class))
		size, err := j.transact(group)
		if err == nil {
			used = size
			return nil
		}
		if !tooLarge(err) {
			return j.fail("commit", err)
		}
		grown := false
		if try < maxGrow {
			if grown, err = j.ext.grow(j.ext.allocated + need); err != nil {
				return j.fail("grow", err)
			}
			need *= 2
		}
		if !grown {
			return &Error{Op: "commit", Kind: ErrDiskFull, Err: syscall.ENOSPC, Hint: hintDiskFull}
		}
	}
}

// tooLarge reports a transaction that was undone for want of space: bbolt met
// its limit, or a file system that allocates on overwriting refused a page. Any
// other failure, of an fsync above all, leaves open what is on the disk.
func tooLarge(err error) bool {
	if errors.Is(err, bolterr.ErrMaxSizeReached) {
		return true
	}
	var path *fs.PathError
	return errors.As(err, &path) && path.Op == "write" && noSpace(err)
}

// transact applies the group in one bbolt transaction and returns how many
// bytes of the file are in use after it.
func (j *Journal) transact(group []*Ticket) (size int64, err error) {
	applied := 0
	err = j.exclusive(func(db *bolt.DB) error {
		tx, err := db.Begin(true)
		if err != nil {
			return err
		}
		for _, t := range group {
			t.receipt, t.err = Receipt{}, nil
			if t.err = t.batch.conditions(tx); t.err != nil {
				continue
			}
			if t.receipt, err = t.batch.apply(tx, j.opts.MaxEvents); err != nil {
				return errors.Join(err, tx.Rollback())
			}
			applied++
		}
		if applied == 0 {
			err = tx.Rollback()
		} else {
			err = tx.Commit()
		}
		if err != nil {
			return err
		}
		return db.View(func(tx *bolt.Tx) error { size = tx.Size(); return nil })
	})
	if err == nil && applied > 0 {
		j.transactions.add(1)
		j.syncs.add(2)
	}
	return size, err
}

// fail makes the journal refuse everything from now on.
func (j *Journal) fail(op string, err error) error {
	failure := &Error{
		Op: op, Name: j.dir, Kind: ErrFailed, Err: err,
		Hint: fmt.Sprintf("restart the agent; if it happens again, look at the disk under %s", j.dir),
	}
	if !j.failure.CompareAndSwap(nil, failure) {
		return j.failure.Load()
	}
	return failure
}
