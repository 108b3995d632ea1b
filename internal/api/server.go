package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/barista-fleet/barista/internal/bucket"
)

// Agent is what the server needs of an agent. Methods are called concurrently
// and end when their context does. Errors that are *Error cross the socket as
// they are.
type Agent interface {
	// Status describes the agent now. It must not wait for the bucket.
	Status(ctx context.Context) (Status, error)

	// Logs writes the output of a run, and with Follow what comes until the run
	// ends. Both writers are used by one goroutine at a time.
	Logs(ctx context.Context, req LogRequest, stdout, stderr io.Writer) error

	// Events calls send with each event, oldest first. An error of send is to
	// be returned as it is.
	Events(ctx context.Context, req EventRequest, send func(Event) error) error

	// Do carries out a verb of the agent (stop-all, leave, image-import, …) and
	// returns what is to be encoded as JSON. An unknown one is CodeUnsupported.
	Do(ctx context.Context, req DoRequest) (any, error)
}

// DoRequest is a verb with its arguments.
type DoRequest struct {
	Verb string
	Args json.RawMessage // nil: none
	Body io.Reader       // a file, for the verbs that take one; else nil
}

const (
	// headerTimeout is how long a client may take to say what it wants.
	headerTimeout = 5 * time.Second
	// requestTimeout bounds reading a small body, and an object's operation.
	requestTimeout = 30 * time.Second
	// stopGrace lets requests in hand end when the agent stops; streams are
	// told at once.
	stopGrace = 5 * time.Second
	// maxArgs bounds the JSON of a request, in bytes.
	maxArgs = 1 << 20
	// maxRequests and maxStreams bound what clients can make the agent hold: a
	// stream costs a goroutine and an open log.
	maxRequests = 256
	maxStreams  = 64
	// maxUpload bounds a file sent with a verb: an image larger than this is
	// better pulled.
	maxUpload = 16 << 30
)

// Config is what a server may be given. The zero value serves an agent of a
// fleet and logs nowhere.
type Config struct {
	// Store serves the object endpoints; nil on an agent of a fleet.
	Store bucket.Store
	// Fleet is the bucket's URL, for the message of an agent without Store.
	Fleet  string
	Logger *slog.Logger
}

// Server serves the local API.
type Server struct {
	agent    Agent
	cfg      Config
	log      *slog.Logger
	requests chan struct{} // one token each
	streams  chan struct{}
}

// NewServer returns a server for agent.
func NewServer(agent Agent, cfg Config) *Server {
	s := &Server{
		agent: agent, cfg: cfg, log: cfg.Logger,
		requests: make(chan struct{}, maxRequests),
		streams:  make(chan struct{}, maxStreams),
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	return s
}

// Serve answers on l until ctx ends, and closes it. It returns when all
// requests have ended, nil if ctx was the reason.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	// Requests in hand outlive ctx for stopGrace; base ends them for good.
	base, abandon := context.WithCancel(context.WithoutCancel(ctx))
	defer abandon()
	srv := &http.Server{
		Handler:           s.handler(ctx),
		ReadHeaderTimeout: headerTimeout,
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    64 << 10,
		ErrorLog:          slog.NewLogLogger(s.log.Handler(), slog.LevelWarn),
		BaseContext:       func(net.Listener) context.Context { return base },
	}
	stopped := make(chan error, 1)
	stop := context.AfterFunc(ctx, func() {
		grace, cancel := context.WithTimeout(base, stopGrace)
		defer cancel()
		err := srv.Shutdown(grace)
		if err != nil {
			abandon()
			err = errors.Join(err, srv.Close())
		}
		stopped <- err
	})
	err := srv.Serve(l)
	if stop() { // not because of ctx
		return &Error{Op: "serve", Code: CodeInternal, Message: err.Error(), Err: err}
	}
	if err := <-stopped; err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return &Error{Op: "serve", Code: CodeInternal, Message: err.Error(), Err: err}
	}
	return nil
}

// handler routes requests. stopping ends streams.
func (s *Server) handler(stopping context.Context) http.Handler {
	mux := http.NewServeMux()
	route := func(pattern string, h func(http.ResponseWriter, *http.Request) error) {
		mux.HandleFunc(pattern, s.limited(s.requests, h))
	}
	stream := func(pattern string, h func(http.ResponseWriter, *http.Request) error) {
		mux.HandleFunc(pattern, s.limited(s.streams, func(w http.ResponseWriter, r *http.Request) error {
			ctx, cancel := context.WithCancelCause(r.Context())
			defer cancel(nil)
			defer context.AfterFunc(stopping, func() { cancel(errStopping) })()
			return h(w, r.WithContext(ctx))
		}))
	}
	route("GET /v1/status", s.status)
	stream("POST /v1/logs", s.logs)
	stream("GET /v1/events", s.events)
	route("POST /v1/do/{verb}", s.do)
	route("GET /v1/objects", s.listObjects)
	route("GET /v1/objects/{key...}", s.getObject)
	route("PUT /v1/objects/{key...}", s.putObject)
	route("DELETE /v1/objects/{key...}", s.deleteObject)
	route("/", func(_ http.ResponseWriter, r *http.Request) error {
		return &Error{
			Code: CodeUnsupported, Message: fmt.Sprintf("this agent does not know %s %s", r.Method, r.URL.Path),
			Hint: "fleetctl and the agent may be of different versions; compare their --version",
		}
	})
	return mux
}

var errStopping = &Error{Code: CodeUnreachable, Message: "the agent is stopping", Retryable: true}

// limited runs h if a token is free, and sends its error.
func (s *Server) limited(tokens chan struct{}, h func(http.ResponseWriter, *http.Request) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		select {
		case tokens <- struct{}{}:
			defer func() { <-tokens }()
		default:
			s.fail(w, &Error{
				Code: CodeThrottled, Retryable: true, Outcome: bucket.Rejected.String(),
				Message: fmt.Sprintf("%d requests are being served", cap(tokens)),
			})
			return
		}
		if err := h(w, r); err != nil {
			s.log.Debug("local request failed", "method", r.Method, "path", r.URL.Path, "error", err)
			s.fail(w, toError(err))
		}
	}
}

func (s *Server) fail(w http.ResponseWriter, e *Error) {
	status := httpStatus[e.Code]
	if status == 0 {
		status = http.StatusInternalServerError
	}
	s.reply(w, status, errorBody{Error: e})
}

func (s *Server) reply(w http.ResponseWriter, status int, v any) {
	body, err := json.Marshal(v)
	if err != nil {
		s.log.Error("local answer could not be encoded", "error", err)
		http.Error(w, "encoding failed", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	if _, err := w.Write(append(body, '\n')); err != nil {
		s.log.Debug("local answer could not be sent", "error", err)
	}
}

// readBody reads a small body within requestTimeout.
func readBody(w http.ResponseWriter, r *http.Request, limit int64) ([]byte, error) {
	rc := http.NewResponseController(w)
	if err := rc.SetReadDeadline(time.Now().Add(requestTimeout)); err != nil {
		return nil, err
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, limit))
	if err != nil {
		if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
			return nil, &Error{
				Code: CodeInvalid, Message: fmt.Sprintf("the body has more than %d bytes", limit),
				Outcome: bucket.Rejected.String(), Err: err,
			}
		}
		return nil, &Error{
			Code: CodeTimeout, Message: "reading the body: " + err.Error(), Retryable: true,
			Outcome: bucket.Rejected.String(), Err: err,
		}
	}
	// The deadline would otherwise end the request's context: net/http goes on
	// reading to notice a client that hangs up.
	return body, rc.SetReadDeadline(time.Time{})
}

func (s *Server) status(w http.ResponseWriter, r *http.Request) error {
	ctx, cancel := context.WithTimeout(r.Context(), requestTimeout)
	defer cancel()
	status, err := s.agent.Status(ctx)
	if err != nil {
		return err
	}
	s.reply(w, http.StatusOK, status)
	return nil
}

func (s *Server) logs(w http.ResponseWriter, r *http.Request) error {
	body, err := readBody(w, r, maxArgs)
	if err != nil {
		return err
	}
	var req LogRequest
	if err := json.Unmarshal(body, &req); err != nil {
		return &Error{Code: CodeInvalid, Message: "log request: " + err.Error(), Err: err}
	}
	out := &sender{w: w, kind: "application/vnd.barista.log-frames", flush: req.Follow}
	err = s.agent.Logs(r.Context(), req, frameWriter{out, frameStdout}, frameWriter{out, frameStderr})
	err = stopReason(r.Context(), err)
	if err == nil {
		return s.ended(out.frame(frameEnd, nil))
	}
	if !out.started {
		return err
	}
	end, merr := json.Marshal(errorBody{Error: toError(err)})
	if merr != nil {
		return merr
	}
	return s.ended(out.frame(frameEnd, end))
}

func (s *Server) events(w http.ResponseWriter, r *http.Request) error {
	q := r.URL.Query()
	req := EventRequest{Name: q.Get("name"), Follow: q.Get("follow") == "1"}
	if from := q.Get("from"); from != "" {
		var err error
		if req.From, err = strconv.ParseUint(from, 10, 64); err != nil {
			return &Error{Code: CodeInvalid, Message: fmt.Sprintf("from=%q is no number", from), Err: err}
		}
	}
	out := &sender{w: w, kind: "application/x-ndjson", flush: req.Follow}
	line := func(l eventLine) error {
		b, err := json.Marshal(l)
		if err != nil {
			return err
		}
		return out.send(b, []byte("\n"))
	}
	err := s.agent.Events(r.Context(), req, func(e Event) error { return line(eventLine{Event: e}) })
	err = stopReason(r.Context(), err)
	switch {
	case err == nil:
		return s.ended(line(eventLine{End: true}))
	case !out.started:
		return err
	default:
		return s.ended(line(eventLine{Error: toError(err)}))
	}
}

// stopReason says "stopping" where a stream ended because of that.
func stopReason(ctx context.Context, err error) error {
	if err != nil && errors.Is(context.Cause(ctx), errStopping) {
		return errStopping
	}
	return err
}

// ended drops the error of writing to a client that went away: the answer has
// begun, there is nobody to tell.
func (s *Server) ended(err error) error {
	if err != nil {
		s.log.Debug("local stream could not be ended", "error", err)
	}
	return nil
}

func (s *Server) do(w http.ResponseWriter, r *http.Request) error {
	req := DoRequest{Verb: r.PathValue("verb")}
	if r.Header.Get("Content-Type") == uploadType {
		req.Body = http.MaxBytesReader(w, r.Body, maxUpload)
		if args := r.Header.Get(headerArgs); args != "" {
			req.Args = json.RawMessage(args)
		}
	} else {
		body, err := readBody(w, r, maxArgs)
		if err != nil {
			return err
		}
		if len(body) > 0 {
			req.Args = body
		}
	}
	if req.Args != nil && !json.Valid(req.Args) {
		return &Error{Code: CodeInvalid, Message: "the arguments are not JSON"}
	}
	result, err := s.agent.Do(r.Context(), req)
	if err != nil {
		return err
	}
	s.reply(w, http.StatusOK, result)
	return nil
}
