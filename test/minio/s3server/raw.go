package s3server

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Raw sends signed requests as they are written, without the adapter's rules:
// to make buckets, to plant objects that no client of ours would write, and to
// see what a server answers.
type Raw struct {
	endpoint, access, secret string

	Skew time.Duration // added to the clock that requests are signed with
}

// Response is a server's answer.
type Response struct {
	Status int
	Header http.Header
	Body   []byte
}

var errorCode = regexp.MustCompile(`<Code>([^<]+)</Code>`)

// Code is the S3 error code of the answer, or empty.
func (r Response) Code() string {
	if m := errorCode.FindSubmatch(r.Body); m != nil && r.Status >= 300 {
		return string(m[1])
	}
	return ""
}

// rawTimeout bounds each request; a request to a local server takes milliseconds.
const rawTimeout = 20 * time.Second

// CreateBucket makes a bucket.
func (c *Raw) CreateBucket(ctx context.Context, name string) error {
	r, err := c.Do(ctx, http.MethodPut, "/"+name, nil, nil)
	if err != nil {
		return err
	}
	if r.Status != http.StatusOK {
		return fmt.Errorf("make bucket %s: %d %s", name, r.Status, r.Code())
	}
	return nil
}

// Do sends one request. The path starts with the bucket and is escaped already.
func (c *Raw) Do(ctx context.Context, method, path string, body []byte, header map[string]string) (Response, error) {
	ctx, cancel := context.WithTimeout(ctx, rawTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, c.endpoint+path, bytes.NewReader(body))
	if err != nil {
		return Response{}, err
	}
	for name, value := range header {
		req.Header.Set(name, value)
	}
	c.sign(req, body)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return Response{}, err
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(resp.Body, 16<<20))
	return Response{resp.StatusCode, resp.Header, raw}, err
}

// sign adds the headers of AWS signature version 4.
func (c *Raw) sign(r *http.Request, body []byte) {
	const region = "us-east-1"
	now := time.Now().Add(c.Skew).UTC()
	stamp, day := now.Format("20060102T150405Z"), now.Format("20060102")
	sum := sha256.Sum256(body)
	payload := hex.EncodeToString(sum[:])
	r.Header.Set("X-Amz-Date", stamp)
	r.Header.Set("X-Amz-Content-Sha256", payload)

	signed := map[string]string{"host": r.URL.Host}
	for name, values := range r.Header {
		signed[strings.ToLower(name)] = strings.TrimSpace(strings.Join(values, ","))
	}
	names := slices.Sorted(maps.Keys(signed))
	var canonical strings.Builder
	fmt.Fprintf(&canonical, "%s\n%s\n%s\n", r.Method, r.URL.EscapedPath(), strings.ReplaceAll(r.URL.Query().Encode(), "+", "%20"))
	for _, name := range names {
		fmt.Fprintf(&canonical, "%s:%s\n", name, signed[name])
	}
	fmt.Fprintf(&canonical, "\n%s\n%s", strings.Join(names, ";"), payload)

	scope := day + "/" + region + "/s3/aws4_request"
	sum = sha256.Sum256([]byte(canonical.String()))
	text := "AWS4-HMAC-SHA256\n" + stamp + "\n" + scope + "\n" + hex.EncodeToString(sum[:])
	key := []byte("AWS4" + c.secret)
	for _, part := range []string{day, region, "s3", "aws4_request", text} {
		h := hmac.New(sha256.New, key)
		h.Write([]byte(part))
		key = h.Sum(nil)
	}
	r.Header.Set("Authorization", fmt.Sprintf("AWS4-HMAC-SHA256 Credential=%s/%s, SignedHeaders=%s, Signature=%s",
		c.access, scope, strings.Join(names, ";"), hex.EncodeToString(key)))
}
