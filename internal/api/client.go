package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"syscall"
	"time"

	"github.com/barista-fleet/barista/internal/bucket"
)

const (
	dialTimeout = 3 * time.Second
	// maxAnswer bounds what is read of an answer other than a stream: a listing
	// of a million objects.
	maxAnswer = 256 << 20
)

// Client speaks to the agent on this machine. It is safe for concurrent use,
// and it is a bucket.Store: the agent's own objects, on a machine without a
// bucket.
type Client struct {
	path string
	http *http.Client
}

var _ bucket.Store = (*Client)(nil)

// NewClient returns a client for the agent whose socket is at path (see
// SocketPath). It connects at each call.
func NewClient(path string) (*Client, error) {
	if err := checkSocketPath(path); err != nil {
		return nil, err
	}
	dialer := &net.Dialer{Timeout: dialTimeout}
	return &Client{path: path, http: &http.Client{
		Transport: &http.Transport{
			DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
				return dialer.DialContext(ctx, "unix", path)
			},
			// A connection that is kept can be closed by the server while a
			// write is on its way, which makes the write ambiguous. A new one
			// costs microseconds here.
			DisableKeepAlives:  true,
			DisableCompression: true,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

// errSilent ends a call that the agent does not answer: it is stopped, or hangs.
var errSilent = fmt.Errorf("no answer within %v", requestTimeout)

// bounded bounds a call that should take milliseconds.
func bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, requestTimeout, errSilent)
}

// Description implements bucket.Store.
func (c *Client) Description() string { return "this machine (" + c.path + ")" }

// Close releases connections. The client must not be used after it.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Status asks how the agent is.
func (c *Client) Status(ctx context.Context) (Status, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	var status Status
	err := c.call(ctx, "status", http.MethodGet, "/v1/status", nil, nil, &status)
	return status, err
}

// Logs copies a run's output to the two writers until it ends or ctx does.
func (c *Client) Logs(ctx context.Context, req LogRequest, stdout, stderr io.Writer) error {
	body, err := json.Marshal(req)
	if err != nil {
		return err
	}
	resp, err := c.send(ctx, "logs", http.MethodPost, "/v1/logs", jsonType, bytes.NewReader(body))
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	return streamError(ctx, "logs", readFrames(resp.Body, stdout, stderr))
}

// Events calls fn with each event until there are no more, or with Follow until
// ctx ends. An error of fn ends the stream and is returned as it is.
func (c *Client) Events(ctx context.Context, req EventRequest, fn func(Event) error) error {
	q := url.Values{}
	if req.Name != "" {
		q.Set("name", req.Name)
	}
	if req.From != 0 {
		q.Set("from", strconv.FormatUint(req.From, 10))
	}
	if req.Follow {
		q.Set("follow", "1")
	}
	resp, err := c.send(ctx, "events", http.MethodGet, "/v1/events?"+q.Encode(), nil, nil)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	return streamError(ctx, "events", readEvents(resp.Body, fn))
}

// streamError names the call in an error, and prefers the caller's own reason
// for ending it.
func streamError(ctx context.Context, op string, err error) error {
	var e *Error
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return &Error{Op: op, Code: CodeTimeout, Message: context.Cause(ctx).Error(), Err: context.Cause(ctx)}
	case errors.As(err, &e) && e.Op == "":
		named := *e
		named.Op = op
		return &named
	default:
		return err
	}
}

// Do carries out a verb of the agent. args (nil: none) and result (nil: not
// wanted) are encoded as JSON. A verb that takes a file reads it from file.
func (c *Client) Do(ctx context.Context, verb string, args any, file io.Reader, result any) error {
	var encoded []byte
	if args != nil {
		var err error
		if encoded, err = json.Marshal(args); err != nil {
			return err
		}
	}
	header := http.Header{}
	body := io.Reader(bytes.NewReader(encoded))
	if file == nil {
		header.Set("Content-Type", "application/json")
	} else {
		body = file
		header.Set("Content-Type", uploadType)
		if encoded != nil {
			header.Set(headerArgs, string(encoded))
		}
	}
	return c.call(ctx, "do "+verb, http.MethodPost, "/v1/do/"+url.PathEscape(verb), header, body, result)
}

var jsonType = http.Header{"Content-Type": {"application/json"}}

// call sends a request and decodes its answer into result, unless that is nil.
func (c *Client) call(ctx context.Context, op, method, path string, header http.Header, body io.Reader, result any) error {
	resp, err := c.send(ctx, op, method, path, header, body)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return c.transportError(ctx, op, err)
	}
	if result == nil {
		return nil
	}
	if err := json.Unmarshal(data, result); err != nil {
		return &Error{Op: op, Code: CodeInternal, Message: "the agent's answer cannot be read: " + err.Error(), Err: err}
	}
	return nil
}

// send sends a request once. The answer is one of success (its body is the
// caller's to close); every other is an error.
func (c *Client) send(ctx context.Context, op, method, path string, header http.Header, body io.Reader) (*http.Response, error) {
	resp, err := c.roundTrip(ctx, method, path, header, body)
	if err != nil {
		return nil, c.transportError(ctx, op, err)
	}
	if resp.StatusCode >= 200 && resp.StatusCode < 300 {
		return resp, nil
	}
	defer func() { _ = resp.Body.Close() }()
	return nil, c.answerError(ctx, op, resp)
}

func (c *Client) roundTrip(ctx context.Context, method, path string, header http.Header, body io.Reader) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, "http://agent"+path, body)
	if err != nil {
		return nil, err
	}
	if header != nil {
		req.Header = header.Clone()
	}
	return c.http.Do(req)
}

// answerError reads the error that the agent sent.
func (c *Client) answerError(ctx context.Context, op string, resp *http.Response) error {
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxArgs))
	if err != nil {
		return c.transportError(ctx, op, err)
	}
	e := parseError(data)
	e.Op = op
	return e
}

// transportError is one of reaching the agent. Outcome is rejected if the
// request cannot have arrived.
func (c *Client) transportError(ctx context.Context, op string, err error) error {
	e := &Error{Op: op, Code: CodeUnreachable, Message: err.Error(), Retryable: true, Err: err}
	if cause := context.Cause(ctx); cause != nil {
		e.Err, e.Message = cause, cause.Error()
		if !errors.Is(cause, errSilent) {
			e.Code = CodeTimeout // the caller's own limit says nothing about the agent
		}
	}
	var dial *net.OpError
	if !errors.As(err, &dial) || dial.Op != "dial" {
		return e
	}
	e.Outcome = bucket.Rejected.String()
	switch {
	case ctx.Err() != nil:
	case errors.Is(err, fs.ErrNotExist):
		e.Message = "there is no agent at " + c.path
		e.Hint = "start one with node-agent --data-dir DIR, name its socket with --agent, or a fleet with --fleet-bucket"
	case errors.Is(err, syscall.ECONNREFUSED):
		e.Message = "the agent of " + c.path + " is not running"
		e.Hint = "start it again with node-agent --data-dir DIR; what it ran is still running"
	case errors.Is(err, fs.ErrPermission):
		e.Code, e.Retryable = CodeDenied, false
		e.Message = "no permission to open " + c.path
		e.Hint = "run as the agent's user, or start the agent with --api-group and join that group"
	default:
		e.Message = fmt.Sprintf("the agent at %s does not answer: %v", c.path, dial.Err)
	}
	return e
}
