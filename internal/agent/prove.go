package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/barista-fleet/barista/internal/bucket"
	"github.com/barista-fleet/barista/internal/probe"
	"github.com/barista-fleet/barista/pkg/lease"
)

const (
	// probeKey caches the verdict of the last probe, so that a fleet's restart
	// is not a storm of probes.
	probeKey = "meta/probe"
	// probeValid is how long a verdict stands: a store's software changes.
	probeValid = 7 * 24 * time.Hour
	// probeVersion changes when a check is added.
	probeVersion = 1
	probeTimeout = 30 * time.Second
)

// verdict is meta/probe. It is a hint: a lost or garbled one costs a probe.
type verdict struct {
	Version int       `json:"version"`
	Store   string    `json:"store"`
	At      time.Time `json:"at"`
	OK      bool      `json:"ok"`
}

// prove makes sure that the store does what the protocol rests on before anything
// is claimed through it. A store that cannot be reached is no reason to refuse a
// node that has been in the fleet before: its workloads need it now.
func (a *Agent) prove(ctx context.Context, joinedBefore bool) error {
	if a.local != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	for {
		err := a.proveOnce(ctx)
		var defect *probe.DefectError
		switch {
		case err == nil:
			return nil
		case errors.As(err, &defect):
			if !a.cfg.AllowUnproven {
				return fmt.Errorf("%w; --allow-unproven-bucket uses it all the same, and two nodes may then own one name", err)
			}
			a.log.Error("the bucket is used although it failed its probe", "err", err)
			return nil
		case joinedBefore || errors.Is(err, bucket.ErrDenied):
			a.log.Warn("the bucket could not be probed", "err", err)
			return nil
		}
		a.log.Warn("waits for the bucket, to probe it before joining", "err", err)
		select {
		case <-ctx.Done():
			return err
		case <-time.After(lease.DefaultRetry):
		}
	}
}

func (a *Agent) proveOnce(ctx context.Context) error {
	obj, err := a.store.Get(ctx, probeKey, "")
	if err != nil {
		return err
	}
	var v verdict
	if obj.Status == bucket.Found && json.Unmarshal(obj.Body, &v) == nil && v.OK && v.Version == probeVersion &&
		v.Store == a.store.Description() && a.wall().Sub(v.At).Abs() < probeValid {
		return nil
	}
	rep, err := probe.Run(ctx, a.store)
	if err != nil {
		return err
	}
	for _, w := range rep.Warnings() {
		a.log.Warn("the bucket warns", "check", w.Name, "detail", w.Detail)
	}
	if len(rep.Defects()) > 0 {
		return &probe.DefectError{Report: rep}
	}
	body, err := json.Marshal(verdict{Version: probeVersion, Store: rep.Store, At: a.wall().UTC(), OK: true})
	if err != nil {
		return err
	}
	a.store.Put(ctx, probeKey, body, bucket.Unconditional())
	a.log.Info("bucket proved", "checks", len(rep.Checks), "p50", rep.P50, "took", rep.Took)
	return nil
}
