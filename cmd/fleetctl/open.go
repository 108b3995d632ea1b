package main

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/barista-fleet/barista/internal/bucket"
	"github.com/barista-fleet/barista/pkg/fleet"
)

// place is where the fleet is: in a bucket, or, with an empty bucket, at an agent.
type place struct {
	bucket string
	agent  string // socket or data directory; empty: the default
}

// placeOf decides where the fleet is. What is typed wins over what is in the
// environment, and in the environment the bucket wins over the agent.
func (a *app) placeOf(cmd *cli.Command) (place, error) {
	url, agent := cmd.String(flagBucket), cmd.String(flagAgent)
	typedURL, typedAgent := a.typed(flagBucket), a.typed(flagAgent)
	switch {
	case typedURL && typedAgent:
		return place{}, usagef("give one of the two", "both --%s and --%s are given", flagBucket, flagAgent)
	case typedURL && url == "":
		return place{}, usagef("s3://BUCKET, https://HOST/BUCKET or file:///DIRECTORY", "--%s is empty", flagBucket)
	case url != "" && !typedAgent:
		return place{bucket: url}, nil
	}
	return place{agent: agent}, nil
}

// typed reports whether a flag stands on the command line. The parser does not
// tell a value that was typed from one of the environment.
func (a *app) typed(flag string) bool {
	return slices.ContainsFunc(a.args, func(arg string) bool {
		name, _, _ := strings.Cut(strings.TrimLeft(arg, "-"), "=")
		return name == flag && strings.HasPrefix(arg, "-")
	})
}

// client opens the fleet and makes sure that it is one: a typo in a bucket's
// prefix would otherwise look like an empty fleet, and be written into.
func (a *app) client(ctx context.Context, cmd *cli.Command) (*fleet.Client, error) {
	p, err := a.placeOf(cmd)
	if err != nil {
		return nil, err
	}
	var s bucket.Store
	if p.bucket != "" {
		s, err = openBucket(ctx, p.bucket)
	} else {
		s, err = openAgent(p.agent)
	}
	if err != nil {
		return nil, err
	}
	if cmd.Bool(flagVerbose) {
		s = &tracedStore{Store: s, log: a.logger(cmd)}
	}
	c := fleet.NewClient(s, fleet.ClientConfig{Logger: a.logger(cmd)})
	if p.bucket == "" {
		return c, nil // a single machine is no fleet, and needs no mark of one
	}
	if _, err := c.Meta(ctx); err != nil {
		return nil, err
	}
	return c, nil
}

// one reads the command line of a verb about one thing, and opens the fleet.
func (a *app) one(ctx context.Context, cmd *cli.Command) (called string, out format, c *fleet.Client, err error) {
	if out, err = formatOf(cmd); err != nil {
		return "", "", nil, err
	}
	args, err := a.names(cmd, 1, 1)
	if err != nil {
		return "", "", nil, err
	}
	c, err = a.client(ctx, cmd)
	return args[0], out, c, err
}

func (a *app) logger(cmd *cli.Command) *slog.Logger {
	if !cmd.Bool(flagVerbose) {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(slog.NewTextHandler(a.stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// tracedStore says every request.
type tracedStore struct {
	bucket.Store
	log *slog.Logger
}

func (s *tracedStore) Get(ctx context.Context, key string, ifNoneMatch bucket.ETag) (bucket.Object, error) {
	start := time.Now()
	obj, err := s.Store.Get(ctx, key, ifNoneMatch)
	s.log.Debug("get", "key", key, "answer", obj.Status.String(), "bytes", len(obj.Body), "took", time.Since(start), "err", err)
	return obj, err
}

func (s *tracedStore) Put(ctx context.Context, key string, body []byte, cond bucket.Condition) bucket.PutResult {
	start := time.Now()
	res := s.Store.Put(ctx, key, body, cond)
	s.log.Debug("put", "key", key, "condition", cond.String(), "outcome", res.Outcome.String(), "took", time.Since(start), "err", res.Err)
	return res
}

func (s *tracedStore) List(ctx context.Context, prefix string) (bucket.Listing, error) {
	start := time.Now()
	l, err := s.Store.List(ctx, prefix)
	s.log.Debug("list", "prefix", prefix, "objects", len(l.Entries), "took", time.Since(start), "err", err)
	return l, err
}

func (s *tracedStore) Delete(ctx context.Context, key string) error {
	start := time.Now()
	err := s.Store.Delete(ctx, key)
	s.log.Debug("delete", "key", key, "took", time.Since(start), "err", err)
	return err
}
