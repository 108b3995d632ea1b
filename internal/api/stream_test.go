package api_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/barista-fleet/barista/internal/api"
)

func TestLogs(t *testing.T) {
	j := openJournal(t, dataDir(t))
	big := strings.Repeat("0123456789", 20_000) // several frames
	var got api.LogRequest
	c, _ := serve(t, j, agent{logs: func(_ context.Context, r api.LogRequest, stdout, stderr io.Writer) error {
		got = r
		_, _ = io.WriteString(stdout, "one\n")
		_, _ = io.WriteString(stderr, "oops\n")
		_, err := io.WriteString(stdout, big)
		if r.Name == "broken" {
			return &api.Error{Code: api.CodeNotFound, Message: "rotated away"}
		}
		return err
	}}, api.Config{})

	var stdout, stderr bytes.Buffer
	req := api.LogRequest{Name: "a", Previous: true, Tail: -1}
	if err := c.Logs(t.Context(), req, &stdout, &stderr); err != nil {
		t.Fatal(err)
	}
	if got != req {
		t.Errorf("the agent saw %+v", got)
	}
	if stdout.String() != "one\n"+big || stderr.String() != "oops\n" {
		t.Errorf("stdout of %d bytes, stderr %q", stdout.Len(), stderr.String())
	}

	// A failure in the middle is an error, not a short log.
	stdout.Reset()
	err := c.Logs(t.Context(), api.LogRequest{Name: "broken"}, &stdout, io.Discard)
	if e := wantCode(t, err, api.CodeNotFound); e.Op != "logs" {
		t.Errorf("op %q", e.Op)
	}
	if stdout.Len() != len("one\n"+big) {
		t.Errorf("%d bytes before the failure", stdout.Len())
	}
}

func TestLogsFailAtOnce(t *testing.T) {
	j := openJournal(t, dataDir(t))
	c, _ := serve(t, j, agent{logs: func(context.Context, api.LogRequest, io.Writer, io.Writer) error {
		return &api.Error{Code: api.CodeNotFound, Message: "no such run", Hint: "see ls"}
	}}, api.Config{})
	err := c.Logs(t.Context(), api.LogRequest{Name: "a"}, io.Discard, io.Discard)
	if e := wantCode(t, err, api.CodeNotFound); e.Hint != "see ls" {
		t.Errorf("hint %q", e.Hint)
	}
}

// With follow each write arrives when it is made, and hanging up ends the
// agent's work.
func TestLogsFollow(t *testing.T) {
	j := openJournal(t, dataDir(t))
	next, ended := make(chan string), make(chan error, 1)
	c, _ := serve(t, j, agent{logs: func(ctx context.Context, _ api.LogRequest, stdout, _ io.Writer) error {
		for {
			select {
			case line := <-next:
				_, _ = io.WriteString(stdout, line)
			case <-ctx.Done():
				ended <- ctx.Err()
				return ctx.Err()
			}
		}
	}}, api.Config{})
	ctx, cancel := context.WithCancel(t.Context())
	r, w := io.Pipe()
	result := make(chan error, 1)
	go func() { result <- c.Logs(ctx, api.LogRequest{Name: "a", Follow: true}, w, w) }()
	for _, line := range []string{"a\n", "b\n", "c\n"} {
		next <- line
		buf := make([]byte, 2)
		if _, err := io.ReadFull(r, buf); err != nil || string(buf) != line {
			t.Fatalf("got %q, %v; want %q", buf, err, line)
		}
	}
	cancel()
	if err := <-result; !errors.Is(err, context.Canceled) {
		t.Errorf("client: %v", err)
	}
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("agent: %v", err)
	}
}

func TestEvents(t *testing.T) {
	j := openJournal(t, dataDir(t))
	c, _ := serve(t, j, agent{events: func(_ context.Context, r api.EventRequest, send func(api.Event) error) error {
		for n := max(r.From, 1); n <= 3; n++ {
			if err := send(api.Event(fmt.Sprintf(`{"name":%q,"n":%d}`, r.Name, n))); err != nil {
				return err
			}
		}
		if r.Name == "broken" {
			return errors.New("boom")
		}
		return nil
	}}, api.Config{})
	collect := func(req api.EventRequest) (string, error) {
		var out []string
		err := c.Events(t.Context(), req, func(e api.Event) error {
			var v struct{ N int }
			if err := json.Unmarshal(e, &v); err != nil {
				return err
			}
			out = append(out, fmt.Sprint(v.N))
			return nil
		})
		return strings.Join(out, " "), err
	}
	if got, err := collect(api.EventRequest{Name: "a"}); got != "1 2 3" || err != nil {
		t.Errorf("all: %s, %v", got, err)
	}
	if got, err := collect(api.EventRequest{Name: "a", From: 3, Follow: true}); got != "3" || err != nil {
		t.Errorf("from 3: %s, %v", got, err)
	}
	got, err := collect(api.EventRequest{Name: "broken"})
	if got != "1 2 3" {
		t.Errorf("before a failure: %s", got)
	}
	_ = wantCode(t, err, api.CodeInternal)
	enough := errors.New("enough")
	if err := c.Events(t.Context(), api.EventRequest{}, func(api.Event) error { return enough }); !errors.Is(err, enough) {
		t.Errorf("the caller's own error: %v", err)
	}
}

// An agent that stops tells its streams so, and lets requests in hand finish.
func TestStop(t *testing.T) {
	j := openJournal(t, dataDir(t))
	inDo, finish := make(chan struct{}), make(chan struct{})
	inEvents := make(chan struct{})
	c, stop := serve(t, j, agent{
		do: func(ctx context.Context, _ api.DoRequest) (any, error) {
			close(inDo)
			<-finish
			return "done", ctx.Err()
		},
		events: func(ctx context.Context, _ api.EventRequest, send func(api.Event) error) error {
			if err := send(api.Event(`{}`)); err != nil {
				return err
			}
			close(inEvents)
			<-ctx.Done()
			return ctx.Err()
		},
	}, api.Config{})
	doErr, eventsErr := make(chan error, 1), make(chan error, 1)
	var result string
	go func() { doErr <- c.Do(t.Context(), "slow", nil, nil, &result) }()
	go func() {
		eventsErr <- c.Events(t.Context(), api.EventRequest{Follow: true}, func(api.Event) error { return nil })
	}()
	<-inDo
	<-inEvents
	stopped := make(chan struct{})
	go func() { stop(); close(stopped) }()
	e := wantCode(t, <-eventsErr, api.CodeUnreachable)
	if !e.Retryable || !strings.Contains(e.Message, "stopping") {
		t.Errorf("stream: %+v", e)
	}
	close(finish)
	if err := <-doErr; err != nil || result != "done" {
		t.Errorf("request in hand: %q, %v", result, err)
	}
	<-stopped
	if _, err := c.Status(t.Context()); err == nil {
		t.Error("status after the end")
	}
}

// A stream that just ends was cut: by kill -9, not by its end.
func TestCutStreams(t *testing.T) {
	for name, sent := range map[string]string{
		"nothing":      "",
		"half a frame": "\x01\x00\x00\x00\x05ab",
		"no end":       "\x01\x00\x00\x00\x02ab",
		"event":        `{"event":{}}` + "\n",
		"half a line":  `{"event":{}}` + "\n" + `{"event":{"a`,
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(dataDir(t), "s")
			l, err := net.Listen("unix", path)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = l.Close() }()
			go func() {
				for {
					conn, err := l.Accept()
					if err != nil {
						return
					}
					_, _ = conn.Read(make([]byte, 4096))
					_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n"+sent)
					_ = conn.Close()
				}
			}()
			c, err := api.NewClient(path)
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			if strings.HasPrefix(sent, "{") {
				err = c.Events(ctx, api.EventRequest{}, func(api.Event) error { return nil })
			} else {
				err = c.Logs(ctx, api.LogRequest{}, io.Discard, io.Discard)
			}
			_ = wantCode(t, err, api.CodeTruncated)
		})
	}
}

// What clients can make the agent hold is bounded; one too many is told to come
// again, and requests of the other kind still pass.
func TestStreamsAreBounded(t *testing.T) {
	j := openJournal(t, dataDir(t))
	const limit = 64
	entered, end := make(chan struct{}, limit), make(chan struct{})
	c, _ := serve(t, j, agent{
		events: func(_ context.Context, _ api.EventRequest, send func(api.Event) error) error {
			entered <- struct{}{}
			<-end
			return send(api.Event(`{}`))
		},
		status: func() (api.Status, error) { return api.Status{Node: "busy"}, nil },
	}, api.Config{})
	results := make(chan error, limit)
	watch := func() error {
		return c.Events(t.Context(), api.EventRequest{}, func(api.Event) error { return nil })
	}
	for range limit {
		go func() { results <- watch() }()
	}
	for range limit {
		<-entered
	}
	if e := wantCode(t, watch(), api.CodeThrottled); !e.Retryable {
		t.Error("not retryable")
	}
	if s, err := c.Status(t.Context()); err != nil || s.Node != "busy" {
		t.Errorf("status beside %d streams: %+v, %v", limit, s, err)
	}
	close(end)
	for range limit {
		if err := <-results; err != nil {
			t.Error(err)
		}
	}
	if err := watch(); err != nil {
		t.Errorf("after the others ended: %v", err)
	}
}
