package s3bucket

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/feature/ec2/imds"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go/logging"

	"github.com/barista-fleet/barista/internal/bucket"
)

const (
	// connectTimeout bounds the making of a connection. With 3 s for the whole
	// call it leaves time to try another address or once more.
	connectTimeout = 1500 * time.Millisecond
	// maxIdle is how many connections are kept: more than the requests that an
	// agent has in flight at once.
	maxIdle = 64
	// maxAnswer bounds the bytes read of any answer. A full page of a listing
	// has about half a megabyte.
	maxAnswer = 16 << 20
	// maxErrorBody bounds the bytes read of an error: a proxy's error page may
	// be long, or endless.
	maxErrorBody = 64 << 10
)

// loadConfig reads the environment and the configuration files.
func loadConfig(ctx context.Context, loc bucket.Location, o options) (aws.Config, error) {
	// The SDK adds AWS_CA_BUNDLE to a client of this type and to no other.
	client := awshttp.NewBuildableClient().
		WithTimeout(credentialsTimeout). // for what the credentials' providers send
		WithDialerOptions(func(d *net.Dialer) { d.Timeout = connectTimeout }).
		WithTransportOptions(func(t *http.Transport) {
			t.TLSHandshakeTimeout = connectTimeout
			t.MaxIdleConnsPerHost = maxIdle
			// One connection a request in flight: when a connection dies in
			// silence it takes one request with it, not all.
			t.ForceAttemptHTTP2 = false
			t.Protocols = new(http.Protocols)
			t.Protocols.SetHTTP1(true)
		})
	load := []func(*config.LoadOptions) error{
		config.WithHTTPClient(client),
		config.WithLogger(logging.Nop{}),
		config.WithCredentialsCacheOptions(func(o *aws.CredentialsCacheOptions) { o.ExpiryWindow = expiryWindow }),
	}
	if loc.Region != "" {
		load = append(load, config.WithRegion(loc.Region))
	}
	if o.static != nil {
		load = append(load, config.WithCredentialsProvider(o.static))
	}
	if loc.Endpoint != "" && !isAWS(loc.Endpoint) {
		// The keys of an instance's role open nothing on another vendor's
		// server, and off EC2 the look-up takes seconds to fail.
		load = append(load, config.WithEC2IMDSClientEnableState(imds.ClientDisabled))
	}
	return config.LoadDefaultConfig(ctx, load...)
}

func isAWS(endpoint string) bool {
	u, err := url.Parse(endpoint)
	if err != nil {
		return false
	}
	host := u.Hostname()
	return strings.HasSuffix(host, ".amazonaws.com") || strings.HasSuffix(host, ".amazonaws.com.cn")
}

func newClient(cfg aws.Config, s *Store) *s3.Client {
	return s3.NewFromConfig(cfg, func(o *s3.Options) {
		o.Region = s.loc.Region
		o.UsePathStyle = s.loc.PathStyle
		if s.loc.Endpoint != "" {
			o.BaseEndpoint = aws.String(s.loc.Endpoint)
		}
		o.Credentials = s.creds
		o.HTTPClient = newHTTPClient(cfg.HTTPClient)
		o.Retryer = aws.NopRetryer{}
		o.RetryMaxAttempts = 0
		o.DisableClockSkewCorrection = true
		o.HTTPSignerV4 = s.clock
		// Checksums in trailers are refused by many servers, and the body is
		// covered by its length, by TLS or, without TLS, by the signature.
		o.RequestChecksumCalculation = aws.RequestChecksumCalculationWhenRequired
		o.ResponseChecksumValidation = aws.ResponseChecksumValidationWhenRequired
		o.DisableLogOutputChecksumValidationSkipped = true
	})
}

// httpClient sends a request once and bounds what is read of the answer.
type httpClient struct{ http.Client }

func newHTTPClient(configured aws.HTTPClient) *httpClient {
	c := &httpClient{}
	c.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	if b, ok := configured.(*awshttp.BuildableClient); ok {
		c.Transport = b.GetTransport() // with the certificates of AWS_CA_BUNDLE
	}
	return c
}

// Do implements the SDK's HTTPClient.
func (c *httpClient) Do(r *http.Request) (*http.Response, error) {
	resp, err := c.Client.Do(r)
	if err != nil {
		return resp, err
	}
	limit := int64(maxAnswer)
	if resp.StatusCode >= http.StatusMultipleChoices {
		limit = maxErrorBody
	}
	resp.Body = &limitedBody{Reader: io.LimitReader(resp.Body, limit), Closer: resp.Body}
	return resp, nil
}

type limitedBody struct {
	io.Reader
	io.Closer
}

// signingClock signs requests with a clock that is set by a server that refused
// a request for its time.
type signingClock struct {
	signer *v4.Signer
	offset atomic.Int64 // nanoseconds to add to the local clock
}

func newSigningClock() *signingClock {
	return &signingClock{signer: v4.NewSigner(func(o *v4.SignerOptions) { o.DisableURIPathEscaping = true })}
}

// SignHTTP implements s3.HTTPSignerV4.
func (c *signingClock) SignHTTP(
	ctx context.Context, creds aws.Credentials, r *http.Request, payloadHash, service, region string,
	at time.Time, opts ...func(*v4.SignerOptions),
) error {
	return c.signer.SignHTTP(ctx, creds, r, payloadHash, service, region, at.Add(time.Duration(c.offset.Load())), opts...)
}

// set adopts the server's time of an answer that just arrived. It reports
// whether that changed anything, so that a request is worth repeating.
func (c *signingClock) set(server time.Time) bool {
	if server.IsZero() {
		return false
	}
	offset := time.Until(server)
	old := time.Duration(c.offset.Swap(int64(offset)))
	return (offset - old).Abs() > time.Minute // below what any server refuses
}
