package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/barista-fleet/barista/internal/bucket"
)

// storeKinds are the kinds of a bucket's errors that the agent passes on.
var storeKinds = []error{
	bucket.ErrCondition, bucket.ErrThrottled, bucket.ErrDenied, bucket.ErrCredentials, bucket.ErrUnreachable, bucket.ErrInvalid,
}

// storeError renders an error of this package as a bucket's.
func storeError(op, key string, err error) error {
	out := &bucket.Error{Op: op, Key: key, Err: err}
	if e, ok := errors.AsType[*Error](err); ok {
		out.Hint = e.Hint
		if kind := kindOf(e.Code); slices.Contains(storeKinds, kind) {
			out.Kind = kind
		}
	}
	return out
}

func dateOf(resp *http.Response) time.Time {
	date, err := time.Parse(time.RFC3339Nano, resp.Header.Get(headerDate))
	if err != nil {
		return time.Time{} // it did not say
	}
	return date
}

func objectPath(key string) string { return "/v1/objects/" + key } // keys need no escaping

// Get implements bucket.Store.
func (c *Client) Get(ctx context.Context, key string, ifNoneMatch bucket.ETag) (bucket.Object, error) {
	if err := bucket.CheckKey(key); err != nil {
		return bucket.Object{}, err
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	fail := func(err error) (bucket.Object, error) { return bucket.Object{}, storeError("get", key, err) }
	header := http.Header{}
	if ifNoneMatch != "" {
		header.Set("If-None-Match", string(ifNoneMatch))
	}
	resp, err := c.roundTrip(ctx, http.MethodGet, objectPath(key), header, nil)
	if err != nil {
		return fail(c.transportError(ctx, "get", err))
	}
	defer func() { _ = resp.Body.Close() }()
	switch resp.StatusCode {
	case http.StatusNotModified:
		return bucket.Object{Status: bucket.NotModified, Date: dateOf(resp)}, nil
	case http.StatusOK:
	default:
		// "No such object" is a fact about the store only if the store says so:
		// a 404 of anything else in the way is an error.
		err := c.answerError(ctx, "get", resp)
		var e *Error
		if errors.As(err, &e) && e.Code == CodeNotFound && resp.StatusCode == http.StatusNotFound {
			return bucket.Object{Status: bucket.Absent, Date: dateOf(resp)}, nil
		}
		return fail(err)
	}
	obj := bucket.Object{Status: bucket.Found, ETag: bucket.ETag(resp.Header.Get("ETag")), Date: dateOf(resp)}
	if obj.ETag == "" {
		return fail(&Error{Code: CodeInternal, Message: "the agent sent an object without an etag"})
	}
	if resp.Header.Get(headerOversize) == "true" {
		obj.Oversize = true
		return obj, nil
	}
	obj.Body, err = io.ReadAll(io.LimitReader(resp.Body, bucket.MaxBody+1))
	if err != nil {
		return fail(c.transportError(ctx, "get", err))
	}
	if len(obj.Body) > bucket.MaxBody {
		obj.Body, obj.Oversize = nil, true
	}
	return obj, nil
}

// Put implements bucket.Store.
func (c *Client) Put(ctx context.Context, key string, body []byte, cond bucket.Condition) bucket.PutResult {
	if err := bucket.CheckPut(key, body, cond); err != nil {
		return bucket.PutResult{Outcome: bucket.Rejected, Err: err}
	}
	if err := ctx.Err(); err != nil {
		return bucket.PutResult{Outcome: bucket.Rejected, Err: &bucket.Error{Op: "put", Key: key, Err: err}}
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	header := http.Header{"Content-Type": {uploadType}}
	if etag, ok := cond.WantMatch(); ok {
		header.Set("If-Match", string(etag))
	} else if cond.WantAbsent() {
		header.Set("If-None-Match", "*")
	} else {
		header.Set(headerUnconditional, "true")
	}
	resp, err := c.roundTrip(ctx, http.MethodPut, objectPath(key), header, bytes.NewReader(body))
	if err != nil {
		return failedPut(key, time.Time{}, c.transportError(ctx, "put", err))
	}
	defer func() { _ = resp.Body.Close() }()
	date := dateOf(resp)
	if resp.StatusCode != http.StatusOK {
		return failedPut(key, date, c.answerError(ctx, "put", resp))
	}
	etag := bucket.ETag(resp.Header.Get("ETag"))
	if etag == "" {
		return failedPut(key, date, &Error{Op: "put", Code: CodeInternal, Message: "the agent sent no etag"})
	}
	return bucket.PutResult{Outcome: bucket.Applied, ETag: etag, Date: date}
}

// failedPut is Rejected only where somebody who knows said so.
func failedPut(key string, date time.Time, err error) bucket.PutResult {
	r := bucket.PutResult{Outcome: bucket.Ambiguous, Date: date, Err: storeError("put", key, err)}
	var e *Error
	if errors.As(err, &e) && e.Outcome == bucket.Rejected.String() {
		r.Outcome = bucket.Rejected
	}
	return r
}

// List implements bucket.Store.
func (c *Client) List(ctx context.Context, prefix string) (bucket.Listing, error) {
	if err := bucket.CheckPrefix(prefix); err != nil {
		return bucket.Listing{}, err
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	// Entries is null in any answer that is no listing, whose absence of keys
	// would otherwise read as "there are none".
	var l struct {
		Date    time.Time       `json:"date"`
		Entries json.RawMessage `json:"entries"`
	}
	path := "/v1/objects?" + url.Values{"prefix": {prefix}}.Encode()
	if err := c.call(ctx, "list", http.MethodGet, path, nil, nil, &l); err != nil {
		return bucket.Listing{}, storeError("list", prefix, err)
	}
	var entries []entry
	if err := json.Unmarshal(l.Entries, &entries); err != nil || entries == nil {
		return bucket.Listing{}, storeError("list", prefix,
			&Error{Op: "list", Code: CodeInternal, Message: "the agent's answer is no listing", Err: err})
	}
	out := bucket.Listing{Date: l.Date, Entries: make([]bucket.Entry, len(entries))}
	for i, e := range entries {
		out.Entries[i] = bucket.Entry{Key: e.Key, ETag: bucket.ETag(e.ETag), Size: e.Size, Modified: e.Modified}
	}
	return out, nil
}

// Delete implements bucket.Store.
func (c *Client) Delete(ctx context.Context, key string) error {
	if err := bucket.CheckKey(key); err != nil {
		return err
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	if err := c.call(ctx, "delete", http.MethodDelete, objectPath(key), nil, nil, nil); err != nil {
		return storeError("delete", key, err)
	}
	return nil
}
