// Package journal is what a node remembers across restarts: who it is, which
// names it owns and since which epoch, what it was doing to each of them, what
// it has not yet told, and the highest epochs and incarnation it ever saw. On a
// machine without a bucket it also keeps the objects that a bucket would hold.
//
// # Guarantees
//
//   - A batch is all or nothing, and durable when Commit returns nil: it
//     survives kill -9 and, on a disk that honours fsync, loss of power.
//   - Batches are applied in the order of their Submit calls.
//   - An error other than ErrUnknown and ErrFailed means that nothing of the
//     batch was applied, now or later.
//   - Open never panics and never faults, whatever the file holds. A file whose
//     structure is damaged is renamed aside and replaced; a single damaged
//     record is moved aside within the file. Opened says so in both cases.
//   - Removing things needs no free disk space (see Class).
//
// Not guaranteed: that the last batch survives a disk that reorders or drops
// writes behind fsync; that a flipped bit in an unused part of a page is seen.
//
// # Files
//
// In the data directory, all mode 0600:
//
//	agent.lock                 flock(2) held for the journal's life; pid of the holder
//	journal.db                 the bbolt file
//	journal.db.damaged-<time>  a file that could not be trusted, kept for people
//	journal.db.new             a file being made; meaningless after a crash
//
// # Layout, schema version 1
//
// A bbolt file with these top-level buckets and none below them:
//
//	meta
//	├── schema          u64      version of this layout
//	├── identity        record   Identity
//	├── incarnation     u64      highest incarnation ever seen for this node
//	├── sched_snapshot  u64 + bytes  number of the last event it includes, snapshot
//	└── events_dropped  u64      events discarded because the outbox was full
//	owned
//	└── <name>          record   Owned without Name
//	ops
//	└── <name>          record   Op without Name
//	seen
//	└── <name>          u64      highest epoch ever seen for the name
//	events
//	└── <u64>           bytes    the outbox; keys never repeat, also after a drop
//	sched_log
//	└── <u64>           bytes    consecutive scheduler events after the snapshot
//	objects
//	└── <key>           u64 + bytes  version, body; versions never repeat
//	damaged
//	└── <bucket>/<key>  bytes    records set aside by Open, as they were found
//
// Keys that are numbers are 8 bytes, big-endian, so that they sort. Every value
// outside damaged is framed:
//
//	byte 0     frame format, 1
//	bytes 1–4  CRC-32C, big-endian, of bucket name, 0, key, 0, payload
//	bytes 5–   payload
//
// bbolt has no checksum on data pages; this one catches a flipped bit in a
// value and a value that was moved to another key. The payload of a u64 is 8
// bytes, big-endian. A record is a uvarint length, that many bytes of JSON, and
// the caller's opaque Data to the end. JSON fields unknown to this version are
// ignored, and lost when the record is next written.
//
// A file with a newer schema is refused with ErrNewerSchema and not touched; an
// older one is migrated in one transaction (see migrate.go).
package journal
