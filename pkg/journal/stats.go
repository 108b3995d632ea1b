package journal

import "sync/atomic"

// Stats are counters since Open, and sizes.
type Stats struct {
	Batches      uint64 // committed
	Transactions uint64 // that committed them; batches are grouped
	// Syncs counts fsync and fdatasync calls: two a transaction (pages, then
	// the meta page that makes them valid), one each time the file grew.
	Syncs    uint64
	Rejected uint64 // batches whose condition did not hold
	DiskFull uint64 // batches refused for want of space

	FileBytes    int64 // allocated
	UsedBytes    int64 // up to the last page ever used
	ReserveShort bool  // part of the reserve is in use or could not be allocated
	Failed       bool  // see ErrFailed
}

type counter struct{ n atomic.Uint64 }

func (c *counter) add(n uint64) { c.n.Add(n) }
func (c *counter) get() uint64  { return c.n.Load() }

// Stats returns the counters at this moment.
func (j *Journal) Stats() Stats {
	return Stats{
		Batches:      j.batches.get(),
		Transactions: j.transactions.get(),
		Syncs:        j.syncs.get(),
		Rejected:     j.rejected.get(),
		DiskFull:     j.diskFull.get(),
		FileBytes:    j.fileBytes.Load(),
		UsedBytes:    j.usedBytes.Load(),
		ReserveShort: j.reserveShort.Load(),
		Failed:       j.failure.Load() != nil,
	}
}
