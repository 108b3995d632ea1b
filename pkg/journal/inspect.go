package journal

import (
	"errors"
	"fmt"
	"io"
	"os"
)

// inspection is what a look at a file found, before bbolt has seen it.
type inspection struct {
	reason  string // why it cannot be trusted; empty: it can
	schema  int
	torn    string
	damaged []Damage
	faults  []damage
	more    int // faults not listed
	bytes   int64
	pages   uint64
	leaked  int
	records map[string]int // by bucket
}

// inspect reads the whole file without mapping it. The error is one of reaching
// the file, not of its contents.
func inspect(path string) (inspection, error) {
	st, err := os.Stat(path)
	if err != nil {
		return inspection{}, &Error{Op: "open", Name: path, Err: err}
	}
	if !st.Mode().IsRegular() {
		return inspection{reason: "is not a regular file but " + st.Mode().Type().String()}, nil
	}
	f, err := os.Open(path)
	if err != nil {
		return inspection{}, &Error{Op: "open", Name: path, Err: err}
	}
	defer func() { _ = f.Close() }()
	return inspectReader(f, st.Size()), nil
}

func inspectReader(r io.ReaderAt, size int64) inspection {
	found := inspection{bytes: size, records: map[string]int{}}
	var schemaErr error
	w := &walker{r: r, size: size, visit: func(bucket, key, value []byte) {
		found.records[string(bucket)]++
		if string(bucket) == string(bucketMeta) && string(key) == string(keySchema) {
			found.schema, schemaErr = parseSchema(value)
			return
		}
		if err := checkRecord(bucket, key, value); err != nil {
			found.damaged = append(found.damaged,
				Damage{Bucket: string(bucket), Key: string(key), Reason: err.Error()})
		}
	}}
	w.walk()
	if len(w.faults) == 0 {
		if err := w.layout(found.schema, schemaErr); err != nil {
			w.fault("layout", "%w", err)
		}
	}
	if w.torn != nil {
		found.torn = w.torn.Error()
	}
	found.faults, found.more, found.pages, found.leaked = w.faults, w.lost, w.meta.high, w.leaked
	if len(w.faults) > 0 {
		found.reason = w.faults[0].String()
		if more := len(w.faults) - 1 + w.lost; more > 0 {
			found.reason += fmt.Sprintf(" (and %d more)", more)
		}
	}
	return found
}

func parseSchema(value []byte) (int, error) {
	payload, err := unframe(bucketMeta, keySchema, value)
	if err != nil {
		return 0, fmt.Errorf("schema number: %w", err)
	}
	n, err := parseU64(payload)
	if err != nil || n == 0 || n > 1<<20 {
		return 0, errors.Join(fmt.Errorf("schema number %d", n), err)
	}
	return int(n), nil
}

// layout checks that the file has the buckets of its schema: a sound bbolt file
// may still be somebody else's.
func (w *walker) layout(schema int, schemaErr error) error {
	if schemaErr != nil {
		return schemaErr
	}
	want := allBuckets
	switch {
	case schema > schemaVersion:
		return nil // refused by its number, whatever it has
	case schema == 0:
		want = [][]byte{v0Node, v0Names}
	}
	for _, name := range want {
		if !w.buckets[string(name)] {
			return fmt.Errorf("not a journal of schema %d: it has no bucket %q", schema, name)
		}
	}
	return nil
}
