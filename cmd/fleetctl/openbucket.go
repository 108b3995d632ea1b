package main

import (
	"context"
	"errors"

	"github.com/barista-fleet/barista/internal/bucket"
)

func openBucket(_ context.Context, url string) (bucket.Store, error) {
	loc, err := bucket.ParseURL(url)
	if err != nil {
		return nil, err
	}
	if loc.Kind != bucket.KindFile {
		return nil, &bucket.Error{Op: "open", Key: url, Kind: bucket.ErrInvalid, Err: errors.New("this build reads file:// buckets only")}
	}
	return bucket.NewFileStore(loc.Dir)
}

func initBucket(ctx context.Context, url string) (bucket.Store, error) {
	loc, err := bucket.ParseURL(url)
	if err == nil && loc.Kind == bucket.KindFile {
		_, err = bucket.InitFileStore(loc.Dir)
	}
	if err != nil {
		return nil, err
	}
	return openBucket(ctx, url)
}
