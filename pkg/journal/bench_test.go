package journal_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/barista-fleet/barista/pkg/journal"
)

func result(i int) journal.Batch {
	name := fmt.Sprintf("name-%05d", i)
	return journal.Batch{
		PutOwned: []journal.Owned{{Name: name, Epoch: 1, Instance: "b-1", Phase: "running", Data: make([]byte, 600)}},
		Events:   [][]byte{make([]byte, 200)},
	}
}

// BenchmarkCommit compares a batch at a time with as many writers as a burst of
// starts has. Both halves run in one benchmark, so that the ratio means
// something on any disk: "speedup" is grouped against single.
func BenchmarkCommit(b *testing.B) {
	const writers = 256
	j, _ := open(b, b.TempDir())
	ctx := b.Context()
	run := func(writers, each int) (perBatch time.Duration, syncs float64) {
		before, begin := j.Stats(), time.Now()
		var wg sync.WaitGroup
		for w := range writers {
			wg.Go(func() {
				for i := range each {
					if err := j.Commit(ctx, result(w*each+i)); err != nil {
						b.Error(err)
					}
				}
			})
		}
		wg.Wait()
		n := writers * each
		return time.Since(begin) / time.Duration(n), float64(j.Stats().Syncs-before.Syncs) / float64(n)
	}
	var single, grouped time.Duration
	var singleSyncs, groupedSyncs float64
	for b.Loop() {
		single, singleSyncs = run(1, 64)
		grouped, groupedSyncs = run(writers, 8)
	}
	b.ReportMetric(0, "ns/op") // of no use: an iteration is both halves
	b.ReportMetric(float64(single.Microseconds()), "single-µs/batch")
	b.ReportMetric(float64(grouped.Microseconds()), "grouped-µs/batch")
	b.ReportMetric(float64(single)/float64(grouped), "speedup")
	b.ReportMetric(singleSyncs, "single-fsyncs/batch")
	b.ReportMetric(groupedSyncs, "grouped-fsyncs/batch")
}

// BenchmarkRestart is what a restart costs: the check of the whole file, opening
// it, loading every name.
func BenchmarkRestart(b *testing.B) {
	for _, names := range []int{1_000, 10_000} {
		b.Run(fmt.Sprint(names), func(b *testing.B) {
			dir := b.TempDir()
			j, _ := open(b, dir)
			for i := 0; i < names; i += 500 {
				var batch journal.Batch
				for n := range 500 {
					one := result(i + n)
					batch.PutOwned = append(batch.PutOwned, one.PutOwned...)
				}
				commit(b, j, batch)
			}
			bytes := j.Stats().UsedBytes
			if err := j.Close(); err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				j, _, err := journal.Open(dir, journal.Options{})
				if err != nil {
					b.Fatal(err)
				}
				s, err := j.Load()
				if err != nil || len(s.Owned) != names {
					b.Fatalf("%d names, %v", len(s.Owned), err)
				}
				if err := j.Close(); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(bytes)/float64(names), "file-B/name")
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/float64(names), "µs/name")
		})
	}
}
