// Package bucketurl opens the bucket that a fleet's URL names, of whichever
// kind it is. Both programs open theirs here.
package bucketurl

import (
	"context"

	"github.com/barista-fleet/barista/internal/bucket"
	"github.com/barista-fleet/barista/internal/s3bucket"
)

// Open returns the store that the URL names. It contacts nothing: a program
// can start while its bucket is out of reach, and learns so from its first call.
func Open(ctx context.Context, rawURL string, opts ...s3bucket.Option) (bucket.Store, error) {
	loc, err := bucket.ParseURL(rawURL)
	if err != nil {
		return nil, err
	}
	if loc.Kind == bucket.KindFile {
		return bucket.NewFileStore(loc.Dir)
	}
	return s3bucket.Open(ctx, loc, opts...)
}

// Init makes the bucket that the URL names, where that is a directory, and
// otherwise checks that it is there and may be read. It reports whether it made
// anything; a bucket that exists is left as it is.
func Init(ctx context.Context, rawURL string, opts ...s3bucket.Option) (store bucket.Store, created bool, err error) {
	loc, err := bucket.ParseURL(rawURL)
	if err != nil {
		return nil, false, err
	}
	if loc.Kind == bucket.KindFile {
		if created, err = bucket.InitFileStore(loc.Dir); err != nil {
			return nil, false, err
		}
	}
	if store, err = Open(ctx, rawURL, opts...); err != nil {
		return nil, false, err
	}
	if _, err := store.Get(ctx, "meta/fleet", ""); err != nil {
		return nil, false, err
	}
	return store, created, nil
}
