package s3bucket

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"time"

	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/smithy-go"

	"github.com/barista-fleet/barista/internal/bucket"
)

// failure is what is known of a request that did not succeed.
type failure struct {
	status int       // HTTP status; 0: no answer came
	code   string    // the store's error code; "" where the body was not the store's
	date   time.Time // the Date header
	region string    // the bucket's region, as the answer named it
	sent   bool      // a connection was had: the store may have seen the request
	err    error     // short, for people
}

// examine takes the SDK's error apart. The decisions rest on the HTTP status:
// the body may be a proxy's, empty or cut.
func examine(err error, sent bool) failure {
	f := failure{sent: sent}
	var re *awshttp.ResponseError
	if !errors.As(err, &re) || re.Response == nil || re.HTTPStatusCode() == 0 {
		f.err = withoutNoise(err)
		return f
	}
	f.status = re.HTTPStatusCode()
	f.date = dateOf(re.Response.Header)
	f.region = re.Response.Header.Get("X-Amz-Bucket-Region")
	var api smithy.APIError
	if errors.As(err, &api) && !madeUp(api, f.status) {
		f.code = api.ErrorCode()
		f.err = fmt.Errorf("%d %s: %s", f.status, f.code, api.ErrorMessage())
		if m := expectedRegion.FindStringSubmatch(api.ErrorMessage()); m != nil && f.region == "" {
			f.region = m[1]
		}
	} else {
		f.err = fmt.Errorf("%d %s, without an error code of an S3 server", f.status, http.StatusText(f.status))
	}
	if re.RequestID != "" {
		f.err = fmt.Errorf("%w (request %s)", f.err, re.RequestID)
	}
	return f
}

// madeUp reports what the SDK puts in place of an error that the answer did not
// hold: the words of the status.
func madeUp(api smithy.APIError, status int) bool {
	text := http.StatusText(status)
	return api.ErrorMessage() == text && api.ErrorCode() == strings.ReplaceAll(text, " ", "") || api.ErrorCode() == "UnknownError"
}

// expectedRegion finds the region in the message of AuthorizationHeaderMalformed.
var expectedRegion = regexp.MustCompile(`expecting '([a-z0-9-]+)'`)

// withoutNoise drops the layers around the cause of a failed connection.
func withoutNoise(err error) error {
	if ue, ok := errors.AsType[*url.Error](err); ok {
		return ue.Err
	}
	if oe, ok := errors.AsType[*smithy.OperationError](err); ok {
		return oe.Err
	}
	return err
}

func dateOf(h http.Header) time.Time {
	t, err := http.ParseTime(h.Get("Date"))
	if err != nil {
		return time.Time{}
	}
	return t
}

// badCredentials are the codes that mean "these keys are not, or no longer,
// anyone's", as opposed to "they may not do this".
func (f failure) badCredentials() bool {
	switch f.code {
	case "XAdminUserNotFound": // versitygw, with status 404
		return true
	case "ExpiredToken", "TokenRefreshRequired", "InvalidToken", "InvalidAccessKeyId", "InvalidClientTokenId":
		return f.status == http.StatusForbidden || f.status == http.StatusBadRequest
	}
	return false
}

// skewed reports a request that was refused, unseen, for its signing time.
func (f failure) skewed() bool {
	return f.code == "RequestTimeTooSkewed" || f.code == "RequestExpired"
}

// slowDown reports a server that is there and asks for fewer requests.
func (f failure) slowDown() bool {
	return f.status == http.StatusTooManyRequests ||
		f.status == http.StatusServiceUnavailable && (f.code == "SlowDown" || f.code == "SlowDownWrite" || f.code == "SlowDownRead" || f.code == "ThrottlingException")
}

// elsewhere reports an answer that sends us to another region or endpoint.
func (f failure) elsewhere() bool {
	switch f.status {
	case http.StatusMovedPermanently, http.StatusFound, http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
		return true
	}
	return f.code == "AuthorizationHeaderMalformed" || f.code == "PermanentRedirect" || f.code == "IllegalLocationConstraintException"
}

// unclear reports a failure after which a write may have been applied, or may
// still be.
func (f failure) unclear() bool {
	switch f.status {
	case 0:
		return f.sent
	case http.StatusConflict, http.StatusRequestTimeout:
		return true
	case http.StatusNotImplemented:
		return f.code != "NotImplemented"
	}
	return f.status < 300 || f.status == http.StatusNotModified || f.status >= 500 || f.code == "RequestTimeout"
}

// passing reports a failure that another try may not meet.
func (f failure) passing() bool {
	if f.status == http.StatusNotImplemented {
		return false
	}
	return f.status < 300 || f.status >= 500 || f.status == http.StatusTooManyRequests ||
		f.status == http.StatusRequestTimeout || f.code == "RequestTimeout"
}

// explain gives a failure its kind and says what a person can do about it.
func (s *Store) explain(f failure) (hint string, kind error) {
	switch {
	case f.skewed():
		return "the clocks of this machine and of the store disagree: check the machine's clock", bucket.ErrDenied
	case f.slowDown():
		return "", bucket.ErrThrottled
	case f.elsewhere():
		return s.whereHint(f), bucket.ErrUnreachable
	case f.badCredentials():
		return "the store refuses these credentials: renew them, or check AWS_ACCESS_KEY_ID or AWS_PROFILE", bucket.ErrCredentials
	case f.status == http.StatusForbidden && f.code == "SignatureDoesNotMatch":
		return "check the secret key, and that no proxy changes the requests", bucket.ErrDenied
	case f.status == http.StatusForbidden || f.status == http.StatusUnauthorized:
		return "allow s3:GetObject, s3:PutObject, s3:DeleteObject and s3:ListBucket on " + s.loc.Bucket + " to these credentials", bucket.ErrDenied
	case f.code == "NoSuchBucket":
		return "make the bucket " + s.loc.Bucket + ", or check its name, the endpoint and the region", bucket.ErrUnreachable
	case f.status == http.StatusNotFound && f.code == "":
		return "check that the endpoint is an S3 server", bucket.ErrUnreachable
	case f.code == "NotImplemented":
		return "this store has no conditional writes: a fleet cannot use it", bucket.ErrInvalid
	case f.status == http.StatusConflict:
		return "", nil
	case f.status == http.StatusPreconditionFailed:
		return "", bucket.ErrCondition
	case f.unclear() || f.passing() || f.status == 0:
		return "check that the store runs and can be reached from this machine", bucket.ErrUnreachable
	default:
		return "", bucket.ErrInvalid
	}
}

func (s *Store) whereHint(f failure) string {
	if f.region == "" || f.region == s.loc.Region {
		return "the bucket is in another region or at another endpoint: name it in the URL with region= or endpoint="
	}
	right := s.loc
	right.Region = f.region
	return fmt.Sprintf("the bucket is in region %s, not %s: use %s", f.region, s.loc.Region, right)
}

// fail types a failure. A context that has ended explains all that follows it.
func (s *Store) fail(ctx context.Context, op, key string, f failure) error {
	e := &bucket.Error{Op: op, Key: key, Err: f.err}
	if f.status == 0 {
		switch {
		case ctx.Err() != nil:
			e.Err = ctx.Err()
			if errors.Is(e.Err, context.Canceled) {
				return e
			}
		case errors.Is(f.err, context.DeadlineExceeded):
			e.Err = fmt.Errorf("no answer within %v: %w", s.timeout, context.DeadlineExceeded)
		}
	}
	e.Hint, e.Kind = s.explain(f)
	if f.badCredentials() || f.code == "SignatureDoesNotMatch" {
		s.creds.refused()
	}
	return e
}

// credentialsErr types the failure to find credentials.
func credentialsErr(op, key string, err error) error {
	return &bucket.Error{
		Op: op, Key: key, Kind: bucket.ErrCredentials, Err: err,
		Hint: "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, or run where a role gives credentials",
	}
}
