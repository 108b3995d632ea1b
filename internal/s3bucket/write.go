package s3bucket

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/middleware"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	smithymiddleware "github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/barista-fleet/barista/internal/bucket"
)

// Put implements bucket.Store.
func (s *Store) Put(ctx context.Context, key string, body []byte, cond bucket.Condition) bucket.PutResult {
	if err := bucket.CheckPut(key, body, cond); err != nil {
		return bucket.PutResult{Outcome: bucket.Rejected, Err: err}
	}
	if err := s.ready(ctx, "put", key); err != nil {
		return bucket.PutResult{Outcome: bucket.Rejected, Err: err}
	}
	result, again := s.put(ctx, key, body, cond)
	if again {
		result, _ = s.put(ctx, key, body, cond)
	}
	return result
}

// ready finds credentials, so that the lack of them is told from a failure of
// the store, and takes nothing from the request's time.
func (s *Store) ready(ctx context.Context, op, key string) error {
	if err := ctx.Err(); err != nil {
		return s.fail(ctx, op, key, failure{err: err})
	}
	_, err := s.creds.Retrieve(ctx)
	var missing *credentialsError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &missing):
		return credentialsErr(op, key, missing.err)
	default:
		return s.fail(ctx, op, key, failure{err: err})
	}
}

// put sends the request once. It reports whether the request was refused for
// its signing time alone and is worth sending again with the server's.
func (s *Store) put(ctx context.Context, key string, body []byte, cond bucket.Condition) (result bucket.PutResult, again bool) {
	in := &s3.PutObjectInput{
		Bucket:        &s.loc.Bucket,
		Key:           s.key(key),
		Body:          bytes.NewReader(body),
		ContentLength: aws.Int64(int64(len(body))),
		ContentType:   aws.String("application/json"),
	}
	etag, match := cond.WantMatch()
	switch {
	case match:
		in.IfMatch = aws.String(string(etag))
	case cond.WantAbsent():
		in.IfNoneMatch = aws.String("*")
	}
	callCtx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	callCtx, sent := watchSending(callCtx)
	out, err := s.client.PutObject(callCtx, in)
	if err == nil {
		date := responseDate(out.ResultMetadata)
		if tag := aws.ToString(out.ETag); tag != "" {
			return bucket.PutResult{Outcome: bucket.Applied, ETag: bucket.ETag(tag), Date: date}, false
		}
		return bucket.PutResult{Outcome: bucket.Ambiguous, Date: date, Err: &bucket.Error{
			Op: "put", Key: key, Err: errors.New("the store answered success without an ETag"),
		}}, false
	}
	f := examine(err, sent.Load())
	result = bucket.PutResult{Outcome: bucket.Rejected, Date: f.date, Err: s.fail(ctx, "put", key, f)}
	switch {
	case f.unclear():
		result.Outcome = bucket.Ambiguous
	case f.status == http.StatusNotFound && match && (f.code == "NoSuchKey" || f.code == ""):
		result.Err = &bucket.Error{Op: "put", Key: key, Kind: bucket.ErrCondition, Err: f.err}
	case f.skewed():
		return result, s.clock.set(f.date)
	}
	return result, false
}

// Delete implements bucket.Store. It is sent once, too: a repetition might meet
// an object that was made in between.
func (s *Store) Delete(ctx context.Context, key string) error {
	if err := bucket.CheckKey(key); err != nil {
		return err
	}
	if err := s.ready(ctx, "delete", key); err != nil {
		return err
	}
	f, ok := s.remove(ctx, key)
	if !ok && f.skewed() && s.clock.set(f.date) {
		f, ok = s.remove(ctx, key)
	}
	if ok || f.status == http.StatusNotFound && f.code == "NoSuchKey" {
		return nil
	}
	return s.fail(ctx, "delete", key, f)
}

func (s *Store) remove(ctx context.Context, key string) (failure, bool) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	ctx, sent := watchSending(ctx)
	if _, err := s.client.DeleteObject(ctx, &s3.DeleteObjectInput{Bucket: &s.loc.Bucket, Key: s.key(key)}); err != nil {
		return examine(err, sent.Load()), false
	}
	return failure{}, true
}

// watchSending notes whether a request got a connection. Before that nothing
// can have reached the store.
func watchSending(ctx context.Context) (context.Context, *atomic.Bool) {
	sent := new(atomic.Bool)
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: func(httptrace.GotConnInfo) { sent.Store(true) },
	}), sent
}

// response is the raw answer of a call that succeeded.
func response(metadata smithymiddleware.Metadata) *smithyhttp.Response {
	resp, _ := middleware.GetRawResponse(metadata).(*smithyhttp.Response)
	return resp
}

func responseDate(metadata smithymiddleware.Metadata) (date time.Time) {
	if resp := response(metadata); resp != nil && resp.Response != nil {
		date = dateOf(resp.Header)
	}
	return date
}
