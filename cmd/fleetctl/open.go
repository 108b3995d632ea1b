package main

import (
	"context"
	"log/slog"
	"os"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/barista-fleet/barista/internal/bucket"
	"github.com/barista-fleet/barista/pkg/fleet"
)

// bucketURL decides where the fleet is. What is typed wins over what is in the
// environment, and in the environment the bucket wins over the agent.
func bucketURL(cmd *cli.Command) (url string, err error) {
	url, agent := cmd.String(flagBucket), cmd.String(flagAgent)
	typedURL := url != "" && url != os.Getenv(envBucket)
	typedAgent := agent != "" && agent != os.Getenv(envAgent)
	switch {
	case typedURL && typedAgent:
		return "", usagef("give one of the two", "both --%s and --%s are given", flagBucket, flagAgent)
	case url != "" && !typedAgent:
		return url, nil
	}
	return "", nil
}

// store opens what the command line names.
func (a *app) store(ctx context.Context, cmd *cli.Command) (bucket.Store, error) {
	url, err := bucketURL(cmd)
	if err != nil {
		return nil, err
	}
	if url == "" {
		return nil, &bucket.Error{
			Op: "open", Kind: bucket.ErrUnreachable, Err: errNoBucket,
			Hint: "set " + envBucket + " or give --" + flagBucket + ": s3://BUCKET, https://HOST/BUCKET or file:///DIRECTORY",
		}
	}
	s, err := openBucket(ctx, url)
	if err != nil {
		return nil, err
	}
	if cmd.Bool(flagVerbose) {
		s = &tracedStore{Store: s, log: a.logger(cmd)}
	}
	return s, nil
}

// client opens the fleet and makes sure that it is one: a typo in a bucket's
// prefix would otherwise look like an empty fleet, and be written into.
func (a *app) client(ctx context.Context, cmd *cli.Command) (*fleet.Client, error) {
	s, err := a.store(ctx, cmd)
	if err != nil {
		return nil, err
	}
	c := fleet.NewClient(s, fleet.ClientConfig{Logger: a.logger(cmd)})
	if _, err := c.Meta(ctx); err != nil {
		return nil, err
	}
	return c, nil
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
