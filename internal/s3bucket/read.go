package s3bucket

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/barista-fleet/barista/internal/bucket"
)

const (
	// readAttempts bounds the tries of one read; all of them share the call's
	// time-out, so that a read takes no longer for being repeated.
	readAttempts = 3
	// readPause is the mean pause before the second try; it doubles.
	readPause = 60 * time.Millisecond
	// slowDownPause is the same after the store asked for fewer requests.
	slowDownPause = 300 * time.Millisecond
	// maxPages bounds a listing: a million objects. A fleet has thousands.
	maxPages = 1000
)

// errAnswer is an answer with status 200 that is not the store's, or not whole.
type errAnswer struct{ error }

// read performs a read until it succeeds or fails for good. fn is one try.
func (s *Store) read(ctx context.Context, op, key string, fn func(context.Context) error) error {
	if err := s.ready(ctx, op, key); err != nil {
		return err
	}
	callCtx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	var f failure
	for attempt := 1; ; attempt++ {
		err := fn(callCtx)
		if err == nil {
			return nil
		}
		if odd, ok := errors.AsType[errAnswer](err); ok {
			f = failure{status: http.StatusOK, err: odd.error}
		} else {
			f = examine(err, true)
		}
		again := f.passing()
		if f.skewed() {
			again = s.clock.set(f.date)
		}
		if !again || attempt == readAttempts || !pause(callCtx, f, attempt) {
			return s.fail(ctx, op, key, f)
		}
	}
}

// pause waits before the next try; it reports false when there is no time left.
func pause(ctx context.Context, f failure, attempt int) bool {
	d := readPause
	if f.slowDown() {
		d = slowDownPause
	}
	d <<= attempt - 1
	timer := time.NewTimer(d/2 + rand.N(d))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// Get implements bucket.Store.
func (s *Store) Get(ctx context.Context, key string, ifNoneMatch bucket.ETag) (bucket.Object, error) {
	if err := bucket.CheckKey(key); err != nil {
		return bucket.Object{}, err
	}
	var obj bucket.Object
	err := s.read(ctx, "get", key, func(ctx context.Context) (err error) {
		obj, err = s.get(ctx, key, ifNoneMatch)
		return err
	})
	if err != nil {
		return bucket.Object{}, err
	}
	return obj, nil
}

func (s *Store) get(ctx context.Context, key string, ifNoneMatch bucket.ETag) (bucket.Object, error) {
	in := &s3.GetObjectInput{Bucket: &s.loc.Bucket, Key: s.key(key)}
	if ifNoneMatch != "" {
		in.IfNoneMatch = aws.String(string(ifNoneMatch))
	}
	out, err := s.client.GetObject(ctx, in)
	if err != nil {
		f := examine(err, true)
		switch {
		case f.status == http.StatusNotModified && ifNoneMatch != "":
			return bucket.Object{Status: bucket.NotModified, Date: f.date}, nil
		case f.status == http.StatusNotFound && f.code == "NoSuchKey":
			return bucket.Object{Status: bucket.Absent, Date: f.date}, nil
		}
		return bucket.Object{}, err
	}
	defer out.Body.Close()
	obj := bucket.Object{
		Status: bucket.Found,
		ETag:   bucket.ETag(aws.ToString(out.ETag)),
		Date:   responseDate(out.ResultMetadata),
	}
	if obj.ETag == "" {
		return bucket.Object{}, errAnswer{errors.New("the answer has no ETag")}
	}
	if aws.ToInt64(out.ContentLength) > bucket.MaxBody {
		obj.Oversize = true
		return obj, nil
	}
	body, err := io.ReadAll(io.LimitReader(out.Body, bucket.MaxBody+1))
	switch {
	case err != nil:
		return bucket.Object{}, err
	case len(body) > bucket.MaxBody:
		obj.Oversize = true
		return obj, nil
	case out.ContentLength != nil && int64(len(body)) != *out.ContentLength:
		return bucket.Object{}, errAnswer{fmt.Errorf("the body has %d bytes of %d", len(body), *out.ContentLength)}
	}
	obj.Body = body
	return obj, nil
}

// List implements bucket.Store.
func (s *Store) List(ctx context.Context, prefix string) (bucket.Listing, error) {
	if err := bucket.CheckPrefix(prefix); err != nil {
		return bucket.Listing{}, err
	}
	var (
		listing bucket.Listing
		token   *string
		tokens  = make(map[string]bool)
		keys    = make(map[string]bool)
	)
	broken := func(format string, args ...any) error {
		return &bucket.Error{
			Op: "list", Key: prefix, Kind: bucket.ErrUnreachable, Err: fmt.Errorf(format, args...),
			Hint: "the store's listing is broken: a fleet cannot use it",
		}
	}
	for page := 1; ; page++ {
		if page > maxPages {
			return bucket.Listing{}, broken("more than %d pages", maxPages)
		}
		var out *s3.ListObjectsV2Output
		err := s.read(ctx, "list", prefix, func(ctx context.Context) (err error) {
			out, err = s.page(ctx, prefix, token)
			return err
		})
		if err != nil {
			return bucket.Listing{}, err
		}
		if page == 1 {
			listing.Date = responseDate(out.ResultMetadata)
		}
		for _, object := range out.Contents {
			entry, err := s.entry(object, out.EncodingType, prefix)
			if err != nil {
				return bucket.Listing{}, broken("%w", err)
			}
			if keys[entry.Key] {
				return bucket.Listing{}, broken("page %d repeats the key %q", page, entry.Key)
			}
			keys[entry.Key] = true
			listing.Entries = append(listing.Entries, entry)
		}
		if !aws.ToBool(out.IsTruncated) {
			break
		}
		token = out.NextContinuationToken
		switch next := aws.ToString(token); {
		case next == "":
			return bucket.Listing{}, broken("page %d says that more follow, and not where", page)
		case tokens[next]:
			return bucket.Listing{}, broken("page %d repeats a continuation token", page)
		default:
			tokens[next] = true
		}
	}
	slices.SortFunc(listing.Entries, func(a, b bucket.Entry) int { return cmp.Compare(a.Key, b.Key) })
	return listing, nil
}

func (s *Store) page(ctx context.Context, prefix string, token *string) (*s3.ListObjectsV2Output, error) {
	out, err := s.client.ListObjectsV2(ctx, &s3.ListObjectsV2Input{
		Bucket:            &s.loc.Bucket,
		Prefix:            s.key(prefix),
		ContinuationToken: token,
		// A key with a control character, made by anyone, would otherwise make
		// the whole answer unreadable.
		EncodingType: types.EncodingTypeUrl,
	})
	if err != nil {
		return nil, err
	}
	// The SDK reads an empty body, or a proxy's page, as an empty listing.
	if aws.ToString(out.Name) == "" {
		return nil, errAnswer{errors.New("the answer is not a listing of a bucket")}
	}
	return out, nil
}

func (s *Store) entry(object types.Object, encoding types.EncodingType, prefix string) (bucket.Entry, error) {
	key := aws.ToString(object.Key)
	if encoding == types.EncodingTypeUrl {
		decoded, err := url.QueryUnescape(key)
		if err != nil {
			return bucket.Entry{}, fmt.Errorf("the listed key %q: %w", key, err)
		}
		key = decoded
	}
	if !strings.HasPrefix(key, *s.key(prefix)) {
		return bucket.Entry{}, fmt.Errorf("the listed key %q does not start with %q", key, *s.key(prefix))
	}
	if s.loc.Prefix != "" {
		key = key[len(s.loc.Prefix)+1:]
	}
	return bucket.Entry{Key: key, ETag: bucket.ETag(aws.ToString(object.ETag)), Size: aws.ToInt64(object.Size), Modified: aws.ToTime(object.LastModified)}, nil
}
