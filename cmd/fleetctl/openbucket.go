package main

import (
	"context"
	"errors"
	"os"

	"github.com/barista-fleet/barista/internal/api"
	"github.com/barista-fleet/barista/internal/bucket"
	"github.com/barista-fleet/barista/internal/bucket/bucketurl"
)

// defaultAgent is where an agent that was installed as a service listens.
const defaultAgent = "/var/lib/barista/" + api.SocketName

var errNoBucket = errors.New("neither a bucket nor an agent is given")

func openBucket(ctx context.Context, url string) (bucket.Store, error) {
	return bucketurl.Open(ctx, url)
}

func initBucket(ctx context.Context, url string) (bucket.Store, error) {
	s, _, err := bucketurl.Init(ctx, url)
	return s, err
}

// openAgent opens the agent of a machine without a bucket, by its socket or its
// data directory.
func openAgent(path string) (*api.Client, error) {
	byDefault := path == ""
	if byDefault {
		path = defaultAgent
	}
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		if path, err = api.SocketPath(path); err != nil {
			return nil, err
		}
	}
	if _, err := os.Stat(path); err != nil && byDefault {
		return nil, &bucket.Error{
			Op: "open", Kind: bucket.ErrUnreachable, Err: errNoBucket,
			Hint: "set " + envBucket + " or give --" + flagBucket + " (s3://BUCKET, https://HOST/BUCKET, file:///DIRECTORY), or name an agent's data directory with --" + flagAgent,
		}
	}
	return api.NewClient(path)
}
