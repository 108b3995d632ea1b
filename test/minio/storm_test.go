package minio

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/barista-fleet/barista/internal/bucket"
	"github.com/barista-fleet/barista/internal/s3bucket"
	"github.com/barista-fleet/barista/test/minio/s3server"
)

// chain is one writer's object in the storm. Only this writer writes it, each
// time from the ETag of its last write that was confirmed.
type chain struct {
	key       string
	confirmed int          // the number that the store acknowledged last
	etag      bucket.ETag  // of it
	pending   map[int]bool // numbers whose Put was answered as unclear since
	unclear   int          // over the whole test: such Puts
	landed    int          // of which were found applied
}

// settle reads the object after a crash: it holds what was acknowledged, or a
// write whose answer was lost, and nothing older.
func (c *chain) settle(ctx context.Context, s bucket.Store) error {
	obj, err := s.Get(ctx, c.key, "")
	if err != nil {
		return err
	}
	if obj.Status != bucket.Found {
		return fmt.Errorf("%s: acknowledged at %d, and now %v", c.key, c.confirmed, obj.Status)
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(obj.Body)))
	if err != nil {
		return fmt.Errorf("%s holds %q", c.key, obj.Body)
	}
	switch {
	case n == c.confirmed && obj.ETag == c.etag:
	case c.pending[n]:
		c.confirmed, c.etag = n, obj.ETag
		c.landed++
	default:
		return fmt.Errorf("%s: holds %d; acknowledged was %d, unclear are %v", c.key, n, c.confirmed, c.pending)
	}
	clear(c.pending)
	return nil
}

// write adds to the chain until ctx ends or an answer is lost.
func (c *chain) write(ctx context.Context, s bucket.Store, acked *atomic.Int64) error {
	for next := c.confirmed + 1; ctx.Err() == nil; next++ {
		r := s.Put(ctx, c.key, []byte(strconv.Itoa(next)), bucket.IfMatch(c.etag))
		switch r.Outcome {
		case bucket.Applied:
			c.confirmed, c.etag = next, r.ETag
			acked.Add(1)
		case bucket.Ambiguous:
			c.pending[next] = true
			c.unclear++
			return nil
		case bucket.Rejected:
			if r.Conflict() {
				return fmt.Errorf("%s: only one writes it, and it lost a race: %w", c.key, r.Err)
			}
			return nil // not connected: the server is down
		}
	}
	return nil
}

// Ten times a server is killed in the middle of a storm of conditional writes.
// No acknowledged write is lost, none comes back from the past, and each unclear
// one is either there or not.
func TestKill9InStorm(t *testing.T) {
	const writers, kills = 16, 10
	srv := s3server.Start(t)
	if !srv.CanKill() {
		t.Logf("the server at %s is not ours to kill: without a crash this test only writes", srv.Endpoint)
	}
	store := srv.NewStore(t, s3bucket.WithTimeout(2*time.Second))
	chains := make([]*chain, writers)
	for i := range chains {
		c := &chain{key: fmt.Sprintf("storm/%02d", i), pending: map[int]bool{}}
		r := store.Put(t.Context(), c.key, []byte("0"), bucket.IfAbsent())
		if r.Outcome != bucket.Applied {
			t.Fatal(r.Err)
		}
		c.etag = r.ETag
		chains[i] = c
	}
	var acked atomic.Int64
	for range kills {
		storm(t, srv, store, chains, &acked)
		for _, c := range chains {
			if err := c.settle(t.Context(), store); err != nil {
				t.Fatal(err)
			}
		}
	}
	unclear, landed := 0, 0
	for _, c := range chains {
		unclear += c.unclear
		landed += c.landed
	}
	if acked.Load() < writers*kills {
		t.Errorf("only %d writes in %d storms: the test tested nothing", acked.Load(), kills)
	}
	t.Logf("%s: %d writes acknowledged, 0 lost; of %d unclear ones %d had been applied", srv.Kind, acked.Load(), unclear, landed)
}

// storm lets all chains grow for a while, kills the server under them and
// starts it again.
func storm(t *testing.T, srv *s3server.Server, store bucket.Store, chains []*chain, acked *atomic.Int64) {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), 30*time.Second)
	defer stop()
	var wg sync.WaitGroup
	for _, c := range chains {
		wg.Go(func() {
			if err := c.write(ctx, store, acked); err != nil {
				t.Error(err)
			}
		})
	}
	// Not a wait for something, but how long the storm blows.
	time.Sleep(400 * time.Millisecond)
	if !srv.CanKill() {
		stop()
		wg.Wait()
		return
	}
	srv.Kill9()
	wg.Wait()
	if err := srv.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
}
