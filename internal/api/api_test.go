package api_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/barista-fleet/barista/internal/api"
	"github.com/barista-fleet/barista/internal/bucket"
	"github.com/barista-fleet/barista/internal/bucket/buckettest"
	"github.com/barista-fleet/barista/internal/localstore"
	"github.com/barista-fleet/barista/pkg/journal"
)

// agent is an Agent made of functions; those not set fail.
type agent struct {
	status func() (api.Status, error)
	logs   func(context.Context, api.LogRequest, io.Writer, io.Writer) error
	events func(context.Context, api.EventRequest, func(api.Event) error) error
	do     func(context.Context, api.DoRequest) (any, error)
}

var errUnset = errors.New("not set by this test")

func (a agent) Status(context.Context) (api.Status, error) {
	if a.status == nil {
		return api.Status{}, errUnset
	}
	return a.status()
}

func (a agent) Logs(ctx context.Context, r api.LogRequest, out, err io.Writer) error {
	return a.logs(ctx, r, out, err)
}

func (a agent) Events(ctx context.Context, r api.EventRequest, send func(api.Event) error) error {
	return a.events(ctx, r, send)
}

func (a agent) Do(ctx context.Context, r api.DoRequest) (any, error) { return a.do(ctx, r) }

// dataDir returns a directory whose path is short enough for a socket, which
// t.TempDir of a long test name is not.
func dataDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "api")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func openJournal(t *testing.T, dir string) *journal.Journal {
	t.Helper()
	j, _, err := journal.Open(dir, journal.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = j.Close() })
	return j
}

// serve serves a on a real socket, with the store if cfg has one, until the
// test ends or stop is called.
func serve(t *testing.T, j *journal.Journal, a api.Agent, cfg api.Config) (c *api.Client, stop func()) {
	t.Helper()
	l, err := api.Listen(j, "")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- api.NewServer(a, cfg).Serve(ctx, l) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	t.Cleanup(stop)
	c, err = api.NewClient(filepath.Join(j.Dir(), api.SocketName))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c, stop
}

func wantCode(t *testing.T, err error, code api.Code) *api.Error {
	t.Helper()
	var e *api.Error
	if !errors.As(err, &e) || e.Code != code {
		t.Fatalf("error %v, want code %s", err, code)
	}
	return e
}

// A machine without a bucket is one for everything that works on a bucket.
func TestObjectConformance(t *testing.T) {
	var j *journal.Journal
	suite := buckettest.Suite{
		Undated: true,
		Plant: func(t *testing.T, _ bucket.Store, key string, body []byte) {
			if _, err := j.PutObject(t.Context(), key, body, journal.Always()); err != nil {
				t.Fatal(err)
			}
		},
	}
	suite.Run(t, func(t *testing.T) bucket.Store {
		j = openJournal(t, dataDir(t))
		c, _ := serve(t, j, agent{}, api.Config{Store: localstore.New(j, nil)})
		return c
	})
}

func TestStatus(t *testing.T) {
	deadline := int64(-1500)
	want := api.Status{
		Version: "v1", Pid: 7, DataDir: "/d", Node: "host", NodeID: "n-1", State: api.StateLapsed, Reason: "bucket silent",
		Incarnation: 3, Fleet: "s3://b", FleetID: "f", DeadlineMillis: &deadline, Endpoint: "10.0.0.1:1",
		Driver:   api.Driver{Name: "process", Isolation: "none", Capabilities: []string{"pause:frozen"}, Notes: []string{"no cgroup"}},
		Counts:   api.Counts{Owned: 1, Phases: map[string]int{"running": 1}, EventsPending: 2},
		Names:    []api.Name{{Name: "a", Phase: "running", Epoch: 4, Instance: "b-1"}},
		Requests: map[string]api.Requests{"list": {Total: 9, Failed: 1}},
		Journal:  api.Journal{Batches: 5, Transactions: 2, Syncs: 4},
	}
	j := openJournal(t, dataDir(t))
	c, _ := serve(t, j, agent{status: func() (api.Status, error) { return want, nil }}, api.Config{})
	got, err := c.Status(t.Context())
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("status\n%+v, %v\nwant\n%+v", got, err, want)
	}
}

func TestErrorsCross(t *testing.T) {
	j := openJournal(t, dataDir(t))
	for _, tc := range []struct {
		name string
		err  error
		code api.Code
		is   error
	}{
		{"typed", &api.Error{Code: api.CodeHeld, Message: "held", Hint: "say release-hold"}, api.CodeHeld, nil},
		{"plain", errors.New("boom"), api.CodeInternal, nil},
		{"bucket", &bucket.Error{Op: "get", Kind: bucket.ErrThrottled}, api.CodeThrottled, bucket.ErrThrottled},
		{"credentials", &bucket.Error{Op: "get", Kind: bucket.ErrCredentials}, api.CodeCredentials, bucket.ErrCredentials},
		{"disk", fmt.Errorf("write: %w", syscall.ENOSPC), api.CodeDiskFull, syscall.ENOSPC},
		{"deadline", context.DeadlineExceeded, api.CodeTimeout, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c, stop := serve(t, j, agent{do: func(context.Context, api.DoRequest) (any, error) { return nil, tc.err }}, api.Config{})
			defer stop()
			err := c.Do(t.Context(), "stop-all", nil, nil, nil)
			e := wantCode(t, err, tc.code)
			if e.Op != "do stop-all" || !strings.Contains(e.Message, tc.err.Error()) {
				t.Errorf("op %q, message %q", e.Op, e.Message)
			}
			if tc.is != nil && !errors.Is(err, tc.is) {
				t.Errorf("%v is not %v", err, tc.is)
			}
			if tc.name == "typed" && e.Hint != "say release-hold" {
				t.Errorf("hint %q", e.Hint)
			}
		})
	}
}

func TestDo(t *testing.T) {
	j := openJournal(t, dataDir(t))
	c, _ := serve(t, j, agent{do: func(_ context.Context, r api.DoRequest) (any, error) {
		out := map[string]string{"verb": r.Verb, "args": string(r.Args)}
		if r.Body != nil {
			n, err := io.Copy(io.Discard, r.Body)
			if err != nil {
				return nil, err
			}
			out["bytes"] = fmt.Sprint(n)
		}
		return out, nil
	}}, api.Config{})
	type args struct{ Name string }
	for _, tc := range []struct {
		args any
		file io.Reader
		want map[string]string
	}{
		{nil, nil, map[string]string{"verb": "v", "args": ""}},
		{args{"x"}, nil, map[string]string{"verb": "v", "args": `{"Name":"x"}`}},
		{args{"ü"}, bytes.NewReader(make([]byte, 3<<20)), map[string]string{"verb": "v", "args": `{"Name":"ü"}`, "bytes": "3145728"}},
	} {
		var got map[string]string
		if err := c.Do(t.Context(), "v", tc.args, tc.file, &got); err != nil || !reflect.DeepEqual(got, tc.want) {
			t.Errorf("%v, %v; want %v", got, err, tc.want)
		}
	}
	err := c.Do(t.Context(), "v", strings.Repeat("x", 1<<20), nil, nil)
	_ = wantCode(t, err, api.CodeInvalid)
}

// An agent of a fleet keeps no objects: a wish written to it would be read by
// no other node.
func TestFleetMemberRefusesObjects(t *testing.T) {
	j := openJournal(t, dataDir(t))
	c, _ := serve(t, j, agent{}, api.Config{Fleet: "s3://b"})
	r := c.Put(t.Context(), "desired/a", nil, bucket.IfAbsent())
	if r.Outcome != bucket.Rejected || r.Conflict() {
		t.Errorf("put: %v, %v", r.Outcome, r.Err)
	}
	e := wantCode(t, r.Err, api.CodeFleetMember)
	if !strings.Contains(e.Hint, "--fleet-bucket s3://b") {
		t.Errorf("hint %q", e.Hint)
	}
	if _, err := c.Get(t.Context(), "desired/a", ""); err == nil {
		t.Error("get: absent is not what it is")
	}
	if _, err := c.List(t.Context(), "desired/"); err == nil {
		t.Error("list: empty is not what it is")
	}
}

func TestUnknownPath(t *testing.T) {
	j := openJournal(t, dataDir(t))
	serve(t, j, agent{}, api.Config{})
	path := filepath.Join(j.Dir(), api.SocketName)
	raw := http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", path)
	}}}
	defer raw.CloseIdleConnections()
	resp, err := raw.Get("http://agent/v9/status")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	var body struct{ Error api.Error }
	if err := json.NewDecoder(resp.Body).Decode(&body); err != nil || body.Error.Code != api.CodeUnsupported {
		t.Errorf("%+v, %v", body.Error, err)
	}
}

// Nobody there is certain: nothing was written, and the hint says what to type.
func TestAgentNotRunning(t *testing.T) {
	dir := dataDir(t)
	path := filepath.Join(dir, api.SocketName)
	c, err := api.NewClient(path)
	if err != nil {
		t.Fatal(err)
	}
	check := func(what string) {
		t.Helper()
		r := c.Put(t.Context(), "a", nil, bucket.IfAbsent())
		if r.Outcome != bucket.Rejected || !errors.Is(r.Err, bucket.ErrUnreachable) {
			t.Errorf("%s: put %v, %v", what, r.Outcome, r.Err)
		}
		var be *bucket.Error
		if !errors.As(r.Err, &be) || !strings.Contains(be.Hint, "node-agent --data-dir") {
			t.Errorf("%s: no useful hint in %v", what, r.Err)
		}
		_, err := c.Status(t.Context())
		_ = wantCode(t, err, api.CodeUnreachable)
	}
	check("no socket")

	// A socket that nobody serves any more, as kill -9 leaves it.
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	check("stale socket")

	// The next agent replaces it.
	c2, _ := serve(t, openJournal(t, dir), agent{status: func() (api.Status, error) { return api.Status{Node: "x"}, nil }}, api.Config{})
	if s, err := c2.Status(t.Context()); err != nil || s.Node != "x" {
		t.Errorf("after a stale socket: %+v, %v", s, err)
	}
}

// A write whose answer is lost is ambiguous, whatever the reason.
func TestLostAnswers(t *testing.T) {
	for name, reply := range map[string]func(net.Conn){
		"hang up":       func(net.Conn) {},
		"garbage":       func(c net.Conn) { _, _ = io.WriteString(c, "garbage\r\n\r\n") },
		"half a header": func(c net.Conn) { _, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nETag: \"v1\"") },
		"no etag":       func(c net.Conn) { _, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n") },
		"foreign 500":   func(c net.Conn) { _, _ = io.WriteString(c, "HTTP/1.1 500 No\r\nContent-Length: 2\r\n\r\nno") },
		"foreign 412":   func(c net.Conn) { _, _ = io.WriteString(c, "HTTP/1.1 412 No\r\nContent-Length: 2\r\n\r\nno") },
		"redirect": func(c net.Conn) {
			_, _ = io.WriteString(c, "HTTP/1.1 301 No\r\nLocation: /x\r\nContent-Length: 0\r\n\r\n")
		},
		"unknown result": func(c net.Conn) {
			_, _ = io.WriteString(c, "HTTP/1.1 500 No\r\nContent-Length: 42\r\n\r\n{\"error\":{\"code\":\"internal\",\"message\":\"m\"}}")
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(dataDir(t), "s")
			l, err := net.Listen("unix", path)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = l.Close() }()
			var requests int
			done := make(chan struct{})
			go func() {
				defer close(done)
				for {
					conn, err := l.Accept()
					if err != nil {
						return
					}
					requests++
					buf := make([]byte, 4096)
					_, _ = conn.Read(buf)
					reply(conn)
					_ = conn.Close()
				}
			}()
			c, err := api.NewClient(path)
			if err != nil {
				t.Fatal(err)
			}
			r := c.Put(t.Context(), "a", []byte("x"), bucket.IfAbsent())
			if r.Outcome != bucket.Ambiguous || r.Err == nil {
				t.Errorf("put: %v, %v; want ambiguous", r.Outcome, r.Err)
			}
			if _, err := c.Get(t.Context(), "a", ""); err == nil {
				t.Error("get succeeded")
			}
			if l, err := c.List(t.Context(), ""); err == nil {
				t.Errorf("list succeeded: %+v", l)
			}
			_ = l.Close()
			<-done
			if requests != 3 {
				t.Errorf("%d requests for three calls: something was sent twice", requests)
			}
		})
	}
}

func TestPutTimesOutAmbiguously(t *testing.T) {
	path := filepath.Join(dataDir(t), "s")
	l, err := net.Listen("unix", path) // accepts into its backlog, answers nothing
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	c, err := api.NewClient(path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	r := c.Put(ctx, "a", nil, bucket.IfAbsent())
	if r.Outcome != bucket.Ambiguous || !errors.Is(r.Err, context.DeadlineExceeded) {
		t.Errorf("put: %v, %v", r.Outcome, r.Err)
	}
}
