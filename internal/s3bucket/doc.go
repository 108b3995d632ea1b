// Package s3bucket is the bucket.Store of S3-compatible object stores. It is
// the only package that imports the AWS SDK.
//
// The SDK's defaults suit programs that want a request to succeed. A fleet
// wants to know what became of a request, so most of them are replaced:
//
//   - A Put is sent once, also by the layers below: no SDK retries, no redirects
//     followed. One exception is safe: a request refused for its signing time
//     was not looked at, and is sent again with the server's time.
//   - Reads are repeated, a bounded number of times, by this package. The SDK's
//     retryers share a quota that is empty after some failing calls; then the
//     heartbeat would pay for the listings' bad luck.
//   - Every call is bounded in time (WithTimeout), in bytes and in pages.
//   - The signing clock follows the server's only where the server refused a
//     request for its time, and not every Date header that passes by: one proxy
//     with a wrong clock would break all requests to a right server.
//   - Answers that are not the store's are not facts. A 404 without the code
//     NoSuchKey, a 200 without ETag, a listing that is no listing are errors.
//
// # Outcomes of a Put
//
//	200 with ETag                                    Applied
//	200 without ETag                                 Ambiguous
//	412; 404 on If-Match                             Rejected, ErrCondition
//	404 NoSuchBucket; a redirect; a wrong region     Rejected, ErrUnreachable
//	429                                              Rejected, ErrThrottled
//	403                                              Rejected, ErrDenied
//	403 or 400 for an unknown or expired key         Rejected, ErrCredentials
//	501 NotImplemented; other 4xx                    Rejected, ErrInvalid
//	408, 400 RequestTimeout, 409                     Ambiguous
//	503 SlowDown                                     Ambiguous, ErrThrottled
//	other 5xx, a broken connection, a time-out       Ambiguous, ErrUnreachable
//	no connection, so that nothing was sent          Rejected, ErrUnreachable
//	no credentials, so that nothing was sent         Rejected, ErrCredentials
package s3bucket
