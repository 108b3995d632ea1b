package s3bucket

import (
	"context"
	"os"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"

	"github.com/barista-fleet/barista/internal/bucket"
)

const (
	// credentialsTimeout bounds the look for credentials. Where there are none
	// the SDK would ask a metadata service that may not exist for many seconds.
	credentialsTimeout = 1800 * time.Millisecond
	// expiryWindow is how long before their end credentials are renewed, so
	// that no request is signed with ones that end on the way.
	expiryWindow = time.Minute
	// recheckEvery is how often the files that credentials came from are looked
	// at. Another process may have rewritten them.
	recheckEvery = time.Minute
)

// credentialsError is the failure to find credentials, as opposed to a
// request's.
type credentialsError struct{ err error }

func (e *credentialsError) Error() string { return e.err.Error() }
func (e *credentialsError) Unwrap() error { return e.err }

// credentialsCache is the SDK's cache over ambient.
type credentialsCache struct {
	*aws.CredentialsCache
	source *ambient
}

func newCredentialsCache(loc bucket.Location, o options, cfg aws.Config) *credentialsCache {
	source := &ambient{
		current: cfg.Credentials,
		stamps:  fileStamps(),
		load: func(ctx context.Context) (aws.CredentialsProvider, error) {
			cfg, err := loadConfig(ctx, loc, o)
			return cfg.Credentials, err
		},
	}
	return &credentialsCache{
		CredentialsCache: aws.NewCredentialsCache(source, func(o *aws.CredentialsCacheOptions) { o.ExpiryWindow = expiryWindow }),
		source:           source,
	}
}

// refused is called when the store does not know the credentials or says that
// they have expired: the next request looks for new ones.
func (c *credentialsCache) refused() {
	c.source.forget()
	c.Invalidate()
}

// ambient finds credentials where the AWS tools do: environment, files, web
// identity, container and instance roles. Unlike the SDK's own chain it reads
// the files again when they have changed.
type ambient struct {
	load func(context.Context) (aws.CredentialsProvider, error)

	mu      sync.Mutex
	current aws.CredentialsProvider // nil: to be loaded
	stamps  [2]fileStamp            // of the files when current was loaded
	last    aws.Credentials         // what current answered last
}

// Retrieve implements aws.CredentialsProvider.
func (a *ambient) Retrieve(ctx context.Context) (aws.Credentials, error) {
	ctx, cancel := context.WithTimeout(ctx, credentialsTimeout)
	defer cancel()
	a.mu.Lock()
	defer a.mu.Unlock()
	creds, err := a.retrieveLocked(ctx)
	if err != nil {
		if a.last.HasKeys() && a.last.CanExpire && time.Now().Before(a.last.Expires) {
			return a.last, nil // renewed early: what we have is still good
		}
		return aws.Credentials{}, &credentialsError{err}
	}
	if !creds.CanExpire {
		a.last = aws.Credentials{}
		creds.CanExpire = true // look again in a while
		creds.Expires = time.Now().Add(expiryWindow + recheckEvery)
		return creds, nil
	}
	a.last = creds
	return creds, nil
}

func (a *ambient) retrieveLocked(ctx context.Context) (aws.Credentials, error) {
	if now := fileStamps(); a.current == nil || now != a.stamps {
		provider, err := a.load(ctx)
		if err != nil {
			return aws.Credentials{}, err
		}
		a.current, a.stamps = provider, now
	}
	return a.current.Retrieve(ctx)
}

func (a *ambient) forget() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.current, a.last = nil, aws.Credentials{}
}

// fileStamp tells one state of a file from another.
type fileStamp struct {
	path    string
	size    int64
	changed time.Time
}

// fileStamps looks at the shared credentials and configuration files.
func fileStamps() (stamps [2]fileStamp) {
	for i, path := range [2]string{
		envOr("AWS_SHARED_CREDENTIALS_FILE", config.DefaultSharedCredentialsFilename()),
		envOr("AWS_CONFIG_FILE", config.DefaultSharedConfigFilename()),
	} {
		stamps[i].path = path
		if info, err := os.Stat(path); err == nil {
			stamps[i].size, stamps[i].changed = info.Size(), info.ModTime()
		}
	}
	return stamps
}

func envOr(name, otherwise string) string {
	if v := os.Getenv(name); v != "" {
		return v
	}
	return otherwise
}
