package bucket_test

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/barista-fleet/barista/internal/bucket"
	"github.com/barista-fleet/barista/internal/bucket/buckettest"
)

func TestMeterCountsByClass(t *testing.T) {
	ctx := t.Context()
	m := bucket.NewMeter(buckettest.NewMem())
	r := m.Put(ctx, "nodes/a", []byte("1"), bucket.IfAbsent())
	if r.Outcome != bucket.Applied {
		t.Fatal(r.Err)
	}
	m.Put(ctx, "nodes/a", []byte("2"), bucket.IfAbsent())
	m.Put(ctx, "nodes/a", []byte("3"), bucket.IfMatch(r.ETag))
	obj, err := m.Get(ctx, "nodes/a", "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.Get(ctx, "nodes/a", obj.ETag); err != nil {
		t.Fatal(err)
	}
	if _, err := m.List(ctx, "nodes/"); err != nil {
		t.Fatal(err)
	}
	m.Put(ctx, "signals/changed", []byte("x"), bucket.Unconditional())
	if _, err := m.Get(ctx, "bad key", ""); !errors.Is(err, bucket.ErrInvalid) {
		t.Fatalf("err %v", err)
	}
	want := map[string]bucket.Count{
		"put-if-absent nodes": {Total: 2, Conflicts: 1},
		"put-if-match nodes":  {Total: 1},
		"get nodes":           {Total: 1},
		"get-304 nodes":       {Total: 1},
		"list nodes":          {Total: 1},
		"put signals":         {Total: 1},
		"get bad key":         {Total: 1, Failed: 1},
	}
	if diff := cmp.Diff(want, m.Counts()); diff != "" {
		t.Errorf("counts (-want +got):\n%s", diff)
	}
}
