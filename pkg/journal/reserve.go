package journal

import (
	"errors"
	"os"

	bolt "go.etcd.io/bbolt"
)

// The reserve is the tail of the file itself: blocks that are allocated on disk
// beyond the pages bbolt uses. A separate file to be deleted when the disk is
// full would be worth nothing, because whoever filled the disk takes its blocks
// before we do. bbolt is kept from growing the file on its own (its growth is
// sparse, so ENOSPC would come late, in the middle of a transaction): MaxSize
// is set to what is allocated, and bbolt refuses cleanly beyond it.

const (
	// defaultReserve holds some 250 pages: an essential batch rewrites about
	// five, most of which come back with the next transaction, so what really
	// consumes it is the events of stops and deletes, some 3,000 of them.
	defaultReserve = 1 << 20
	// growStep is how much is allocated at a time: enough that growth is rare
	// beside commits, little enough for a small disk.
	growStep = 512 << 10
	// minGrow is the least step still tried on a disk that is nearly full.
	minGrow = 64 << 10
	// slack is kept free below the reserve, so that the ordinary commit finds
	// its pages allocated and does not fail first and grow then.
	slack = 128 << 10
)

// extent tracks how much of the file is allocated. Only the committer uses it.
type extent struct {
	f         *os.File
	allocated int64 // bytes known to be backed by blocks
	reserve   int64 // bytes at the end for essential batches
	syncs     *counter
}

// limit is how large a batch of the class may make the file.
func (e *extent) limit(class Class) int64 {
	if class == Essential {
		return e.allocated
	}
	return e.allocated - e.reserve
}

// grow allocates up to byte to, or as much of the way as the disk allows: half,
// a quarter, and so on down to minGrow. It reports whether it got any further.
func (e *extent) grow(to int64) (grown bool, err error) {
	for n := roundUp(to - e.allocated); n >= minGrow; n = roundUp(n / 2) {
		err = preallocate(e.f, e.allocated, e.allocated+n)
		if err == nil {
			e.allocated += n
			// bbolt syncs after growing because a file's size was seen to be
			// lost in a crash although later data in it was synced.
			e.syncs.add(1)
			return true, e.f.Sync()
		}
		if !noSpace(err) {
			return false, err
		}
		if n == minGrow {
			break
		}
	}
	return false, nil
}

func roundUp(n int64) int64 { return (n + minGrow - 1) &^ (minGrow - 1) }

// prepare brings the file to its usual size ahead of a transaction: what is in
// use, slack, and the reserve. It is how the reserve comes back after a full
// disk. A full disk is no error here.
func (e *extent) prepare(used int64) error {
	want := used + slack + e.reserve
	if want <= e.allocated {
		return nil
	}
	_, err := e.grow(want + growStep)
	return err
}

// short reports whether part of the reserve is missing or in use.
func (e *extent) short(used int64) bool { return used+e.reserve > e.allocated }

// setLimit tells bbolt how far it may grow. AllocSize 0 makes bbolt ask for
// exactly the pages it needs instead of rounding up to the size of its map.
func setLimit(db *bolt.DB, limit int64) {
	db.AllocSize = 0
	db.MaxSize = int(max(limit, 1)) // 0 would mean unlimited
}

// preallocate backs the range with blocks and extends the file over it.
func preallocate(f *os.File, from, to int64) error {
	err := fallocate(f, from, to-from)
	if !errors.Is(err, errors.ErrUnsupported) {
		return err
	}
	// The range lies beyond every page in use, so zeros harm nothing.
	zeros := make([]byte, minGrow)
	for off := from; off < to; {
		n, err := f.WriteAt(zeros[:min(int64(len(zeros)), to-off)], off)
		if err != nil {
			return err
		}
		off += int64(n)
	}
	return nil
}
