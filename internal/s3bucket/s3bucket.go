package s3bucket

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/barista-fleet/barista/internal/bucket"
)

// DefaultTimeout bounds each request when no option says otherwise. It leaves
// room for several heartbeats in the default lease of 30 s.
const DefaultTimeout = 3 * time.Second

// Store is a bucket of an S3-compatible object store.
type Store struct {
	loc     bucket.Location
	client  *s3.Client
	creds   *credentialsCache
	clock   *signingClock
	timeout time.Duration
}

var _ bucket.Store = (*Store)(nil)

// Option changes how a Store works.
type Option func(*options)

type options struct {
	timeout time.Duration
	static  aws.CredentialsProvider
}

// WithTimeout bounds each Put, Get and Delete, and each page of a List. The
// context of a call can only shorten it.
func WithTimeout(d time.Duration) Option { return func(o *options) { o.timeout = d } }

// WithCredentials uses one fixed pair of keys and looks nowhere else for any.
func WithCredentials(accessKey, secretKey string) Option {
	return func(o *options) { o.static = credentials.NewStaticCredentialsProvider(accessKey, secretKey, "") }
}

// Open returns the store of an S3 location. It reads the environment and the
// AWS configuration files; it sends nothing, so that a program can start while
// its bucket is out of reach.
func Open(ctx context.Context, loc bucket.Location, opts ...Option) (*Store, error) {
	if loc.Kind != bucket.KindS3 {
		return nil, &bucket.Error{Op: "open", Key: loc.String(), Kind: bucket.ErrInvalid, Err: errors.New("not an S3 location")}
	}
	o := options{timeout: DefaultTimeout}
	for _, opt := range opts {
		opt(&o)
	}
	if o.timeout <= 0 {
		return nil, &bucket.Error{
			Op: "open", Key: loc.String(), Kind: bucket.ErrInvalid, Err: fmt.Errorf("a request time-out of %v", o.timeout),
		}
	}
	loc = withEndpointOfEnvironment(loc)
	cfg, err := loadConfig(ctx, loc, o)
	if err != nil {
		return nil, &bucket.Error{
			Op: "open", Key: loc.String(), Kind: bucket.ErrCredentials, Err: err,
			Hint: "check AWS_PROFILE, AWS_CONFIG_FILE, AWS_SHARED_CREDENTIALS_FILE and AWS_CA_BUNDLE",
		}
	}
	if loc.Region == "" {
		loc.Region = cfg.Region
	}
	if loc.Region == "" {
		return nil, &bucket.Error{
			Op: "open", Key: loc.String(), Kind: bucket.ErrInvalid, Err: errors.New("the bucket's region is not known"),
			Hint: "add ?region=REGION to the URL, or set AWS_REGION; a server that is not AWS also needs endpoint=https://HOST",
		}
	}
	s := &Store{loc: loc, timeout: o.timeout, clock: newSigningClock()}
	s.creds = newCredentialsCache(loc, o, cfg)
	s.client = newClient(cfg, s)
	return s, nil
}

// withEndpointOfEnvironment resolves what the SDK would resolve by itself, so
// that a server named by the environment is treated like one named by the URL.
func withEndpointOfEnvironment(loc bucket.Location) bucket.Location {
	if loc.Endpoint != "" {
		return loc
	}
	for _, name := range []string{"AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"} {
		if endpoint := os.Getenv(name); endpoint != "" {
			loc.Endpoint = endpoint
			loc.PathStyle = true
			if loc.Region == "" {
				loc.Region = bucket.DefaultRegion
			}
			break
		}
	}
	return loc
}

// Description is the store's URL, without credentials.
func (s *Store) Description() string { return s.loc.String() }

// key is the object's key in the bucket.
func (s *Store) key(key string) *string {
	if s.loc.Prefix != "" {
		key = s.loc.Prefix + "/" + key
	}
	return &key
}
