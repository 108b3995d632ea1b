package minio

import (
	"context"
	"crypto/md5"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/barista-fleet/barista/internal/bucket"
	"github.com/barista-fleet/barista/internal/s3bucket"
	"github.com/barista-fleet/barista/test/minio/s3server"
)

// The claim model: a key holds one claim or none (""). A claim is written by
// compare-and-swap from the claim that the ETag stands for. Bodies are unique,
// so an ETag stands for one of them.
type claimInput struct {
	key  string
	read bool
	from string // the claim that must be there; "" for a create
	to   string

	etag bucket.ETag // sent as If-Match; from is found by it when all is over
	body string      // what its writer read together with the ETag
}

type claimOutput struct {
	outcome bucket.Outcome // of a write
	seen    string         // by a read
}

// claimModel says which histories a store may have. A write whose outcome is
// unknown forks: it happened, or not. Its end is at the end of the history, so
// that it may also happen late.
var claimModel = porcupine.NondeterministicModel{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		byKey := map[string][]porcupine.Operation{}
		for _, op := range history {
			key := op.Input.(claimInput).key
			byKey[key] = append(byKey[key], op)
		}
		var parts [][]porcupine.Operation
		for _, part := range byKey {
			parts = append(parts, part)
		}
		return parts
	},
	Init: func() []any { return []any{""} },
	Step: func(state, input, output any) []any {
		held, in, out := state.(string), input.(claimInput), output.(claimOutput)
		switch {
		case in.read && out.seen == held:
			return []any{held}
		case in.read:
			return nil
		case out.outcome == bucket.Applied && in.from == held:
			return []any{in.to}
		case out.outcome == bucket.Applied:
			return nil
		case out.outcome == bucket.Rejected && in.from != held:
			return []any{held}
		case out.outcome == bucket.Rejected:
			return nil
		case in.from == held:
			return []any{held, in.to}
		default:
			return []any{held}
		}
	},
	DescribeOperation: func(input, output any) string {
		in, out := input.(claimInput), output.(claimOutput)
		if in.read {
			return fmt.Sprintf("read %s: %q", in.key, out.seen)
		}
		return fmt.Sprintf("claim %s %q -> %q: %v", in.key, in.from, in.to, out.outcome)
	},
}

// recorder collects a history.
type recorder struct {
	start time.Time

	mu     sync.Mutex
	ops    []porcupine.Operation
	claims map[bucket.ETag]string // what each ETag stands for, as a Put's answer said
}

func (r *recorder) now() int64 { return int64(time.Since(r.start)) }

func (r *recorder) add(op porcupine.Operation) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ops = append(r.ops, op)
}

// learn notes an ETag that a Put was answered with.
func (r *recorder) learn(etag bucket.ETag, claim string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.claims[etag] = claim
}

// history returns what was recorded, with each write's from found by its ETag.
//
// A server may answer a read with a newer body and the ETag of an older one
// (versitygw does, while the object is overwritten). That costs its reader a
// conflict and nothing else. The other way round would be a lost update: the
// reader judges an old claim and replaces a new one.
func (r *recorder) history(t *testing.T) []porcupine.Operation {
	t.Helper()
	if r.hashes() { // then we know the ETags of the unknown writes, too
		for _, op := range r.ops {
			if in := op.Input.(claimInput); !in.read {
				r.claims[md5ETag(in.to)] = in.to
			}
		}
	}
	torn := 0
	for i, op := range r.ops {
		in := op.Input.(claimInput)
		if in.read || in.etag == "" {
			continue
		}
		if claim, ok := r.claims[in.etag]; ok && claim != in.body {
			torn++
			in.from = claim
			r.ops[i].Input = in
			if op.Output.(claimOutput).outcome == bucket.Applied {
				t.Errorf("%s: a read showed %q with the ETag of %q, and a write by that ETag was applied", in.key, in.body, claim)
			}
		}
	}
	if torn > 0 {
		t.Logf("%d reads paired a body with the ETag of another; each cost a conflict", torn)
	}
	return r.ops
}

// hashes reports whether the server's ETags are hashes of the bodies.
func (r *recorder) hashes() bool {
	for etag, claim := range r.claims {
		if etag != md5ETag(claim) {
			return false
		}
	}
	return true
}

func md5ETag(body string) bucket.ETag {
	sum := md5.Sum([]byte(body))
	return bucket.ETag(`"` + hex.EncodeToString(sum[:]) + `"`)
}

// claimer reads and claims keys in turn, as nodes do that want the same names.
type claimer struct {
	id    int
	store bucket.Store
	rec   *recorder
}

func (c *claimer) run(ctx context.Context, keys []string, ops int) {
	for i := range ops {
		if ctx.Err() != nil {
			return
		}
		key := keys[rand.N(len(keys))]
		call := c.rec.now()
		obj, err := c.store.Get(ctx, key, "")
		if err != nil {
			time.Sleep(20 * time.Millisecond) // the server is down; a read that failed says nothing
			continue
		}
		held := string(obj.Body)
		c.rec.add(porcupine.Operation{
			ClientId: c.id, Input: claimInput{key: key, read: true}, Call: call, Output: claimOutput{seen: held}, Return: c.rec.now(),
		})
		in := claimInput{key: key, from: held, to: fmt.Sprintf("%d.%d on %s", c.id, i, key), etag: obj.ETag, body: held}
		cond := bucket.IfAbsent()
		if obj.Status == bucket.Found {
			cond = bucket.IfMatch(obj.ETag)
		}
		call = c.rec.now()
		r := c.store.Put(ctx, key, []byte(in.to), cond)
		if r.Outcome == bucket.Rejected && !r.Conflict() {
			continue // nothing was sent
		}
		end := c.rec.now()
		switch r.Outcome {
		case bucket.Applied:
			c.rec.learn(r.ETag, in.to)
		case bucket.Ambiguous:
			end = int64(time.Hour) // later than everything
		default: // Rejected: it took no effect
		}
		c.rec.add(porcupine.Operation{ClientId: c.id, Input: in, Call: call, Output: claimOutput{outcome: r.Outcome}, Return: end})
	}
}

// Claims by many clients through the adapter, while the server is killed and
// comes back, form a history that one register per key could have had.
func TestClaimsAreLinearizable(t *testing.T) {
	const clients, ops, keys = 8, 120, 12
	srv := s3server.Start(t)
	name := srv.NewBucket(t)
	var names []string
	for i := range keys {
		names = append(names, fmt.Sprintf("sessions/s%02d", i))
	}
	rec := &recorder{start: time.Now(), claims: map[bucket.ETag]string{}}
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	var wg sync.WaitGroup
	for id := range clients {
		c := &claimer{id: id, rec: rec, store: srv.Open(t, srv.URL(name, ""), s3bucket.WithTimeout(2*time.Second))}
		wg.Go(func() { c.run(ctx, names, ops) })
	}
	if srv.CanKill() {
		for range 3 {
			time.Sleep(100 * time.Millisecond) // how long the clients run in between
			srv.Kill9()
			if err := srv.Restart(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	wg.Wait()
	checkLinearizable(t, rec.history(t))
}

func checkLinearizable(t *testing.T, history []porcupine.Operation) {
	t.Helper()
	counts := map[bucket.Outcome]int{}
	reads := 0
	for _, op := range history {
		if op.Input.(claimInput).read {
			reads++
		} else {
			counts[op.Output.(claimOutput).outcome]++
		}
	}
	t.Logf("%d reads; claims: %d applied, %d lost, %d unknown",
		reads, counts[bucket.Applied], counts[bucket.Rejected], counts[bucket.Ambiguous])
	if counts[bucket.Applied] < 100 || counts[bucket.Rejected] == 0 {
		t.Error("hardly anybody met anybody: the test tested nothing")
	}
	switch porcupine.CheckOperationsTimeout(claimModel.ToModel(), history, 30*time.Second) {
	case porcupine.Illegal:
		t.Error("no order of these operations explains what the clients were told")
	case porcupine.Unknown:
		t.Error("the check did not end in time")
	default: // porcupine.Ok
	}
}

// The check must be able to fail. These are what broken stores do.
func TestLinearCheckerCatches(t *testing.T) {
	write := func(client int, from, to string, outcome bucket.Outcome, call, end int64) porcupine.Operation {
		return porcupine.Operation{
			ClientId: client, Input: claimInput{key: "k", from: from, to: to}, Call: call, Output: claimOutput{outcome: outcome}, Return: end,
		}
	}
	read := func(client int, seen string, call, end int64) porcupine.Operation {
		return porcupine.Operation{ClientId: client, Input: claimInput{key: "k", read: true}, Call: call, Output: claimOutput{seen: seen}, Return: end}
	}
	const never = int64(time.Hour)
	for _, c := range []struct {
		name string
		ok   bool
		ops  []porcupine.Operation
	}{
		{"two winners of a create", false, []porcupine.Operation{
			write(0, "", "a", bucket.Applied, 0, 10), write(1, "", "b", bucket.Applied, 0, 10),
		}},
		{"an acknowledged claim is gone", false, []porcupine.Operation{
			write(0, "", "a", bucket.Applied, 0, 10), read(1, "", 20, 30),
		}},
		{"a conflict without a cause", false, []porcupine.Operation{
			write(0, "", "a", bucket.Rejected, 0, 10),
		}},
		{"a stale read", false, []porcupine.Operation{
			write(0, "", "a", bucket.Applied, 0, 10), write(0, "a", "b", bucket.Applied, 20, 30), read(1, "a", 40, 50),
		}},
		{"an unknown claim seen, then unseen", false, []porcupine.Operation{
			write(0, "", "a", bucket.Ambiguous, 0, never), read(1, "a", 20, 30), read(1, "", 40, 50),
		}},
		{"an unknown claim lands late", true, []porcupine.Operation{
			write(0, "", "a", bucket.Ambiguous, 0, never), read(1, "", 20, 30), read(1, "a", 40, 50),
		}},
		{"an unknown claim never lands", true, []porcupine.Operation{
			write(0, "", "a", bucket.Ambiguous, 0, never), write(1, "", "b", bucket.Applied, 20, 30), read(1, "b", 40, 50),
		}},
	} {
		if got := porcupine.CheckOperations(claimModel.ToModel(), c.ops); got != c.ok {
			t.Errorf("%s: linearizable %v, want %v", c.name, got, c.ok)
		}
	}
}
