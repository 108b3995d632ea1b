package journal

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	bolt "go.etcd.io/bbolt"
)

// Finding is one thing that Check has to say.
type Finding struct {
	// Damage: the file or record cannot be trusted. Otherwise the finding is a
	// note: space that is not used, traces of a power failure, old repairs.
	Damage  bool
	Where   string
	Problem string
}

func (f Finding) String() string { return f.Where + ": " + f.Problem }

// Report is the result of a check.
type Report struct {
	Path     string
	Schema   int
	Bytes    int64
	Pages    uint64         // in use or free, without the reserve
	Records  map[string]int // by bucket
	Findings []Finding
}

// OK reports that nothing is damaged.
func (r Report) OK() bool {
	for _, f := range r.Findings {
		if f.Damage {
			return false
		}
	}
	return true
}

// Check reads the journal of a data directory whose agent is not running, and
// changes nothing. The error is *LockedError if an agent is running (ask it:
// Journal.Check), ErrNoJournal if there is no file.
func Check(dir string, opts Options) (Report, error) {
	opts = opts.withDefaults()
	path := filepath.Join(dir, DBFile)
	lock, err := lockDir(dir, opts.LockWait)
	if errors.Is(err, fs.ErrNotExist) {
		return Report{}, &Error{Op: "check", Name: path, Kind: ErrNoJournal}
	}
	if err != nil {
		return Report{}, err
	}
	defer func() { _ = lock.release() }()
	found, err := inspect(path)
	if errors.Is(err, fs.ErrNotExist) {
		return Report{}, &Error{Op: "check", Name: path, Kind: ErrNoJournal}
	}
	if err != nil {
		return Report{}, err
	}
	return report(path, found), nil
}

// Check reads the whole journal as of one moment, beside the running agent. It
// holds a copy of the file in memory and delays commits while it copies.
func (j *Journal) Check() (Report, error) {
	var copied bytes.Buffer
	err := j.view("check", func(tx *bolt.Tx) error {
		copied.Grow(int(tx.Size()))
		_, err := tx.WriteTo(&copied)
		return err
	})
	if err != nil {
		return Report{}, err
	}
	found := inspectReader(bytes.NewReader(copied.Bytes()), int64(copied.Len()))
	return report(filepath.Join(j.dir, DBFile), found), nil
}

func report(path string, found inspection) Report {
	r := Report{
		Path: path, Schema: found.schema, Bytes: found.bytes, Pages: found.pages, Records: found.records,
	}
	add := func(damage bool, where, format string, args ...any) {
		r.Findings = append(r.Findings, Finding{Damage: damage, Where: where, Problem: fmt.Sprintf(format, args...)})
	}
	if found.reason != "" && len(found.faults) == 0 {
		add(true, "file", "%s", found.reason)
	}
	for _, f := range found.faults {
		add(true, f.where, "%v", f.err)
	}
	if found.more > 0 {
		add(true, "file", "%d more faults", found.more)
	}
	for _, d := range found.damaged {
		add(true, fmt.Sprintf("record %q", d.Bucket+"/"+d.Key), "%s", d.Reason)
	}
	switch {
	case found.schema > schemaVersion:
		add(true, "schema", "%d is newer than this program's %d", found.schema, schemaVersion)
	case found.schema < schemaVersion && found.reason == "":
		add(false, "schema", "%d, will be migrated to %d by the next start", found.schema, schemaVersion)
	}
	if found.torn != "" {
		add(false, "file", "one of two meta pages is invalid, as after a power failure: %s", found.torn)
	}
	if found.leaked > 0 {
		add(false, "file", "%d pages are neither in use nor free", found.leaked)
	}
	if n := found.records[string(bucketDamaged)]; n > 0 {
		add(false, "bucket \"damaged\"", "%d records were set aside by an earlier start", n)
	}
	return r
}
