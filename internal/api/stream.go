package api

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
)

// Logs are sent as frames: one byte of type, four of length (big-endian), the
// payload. The status line is long gone when a log turns out to be unreadable in
// the middle, so the last frame says how it ended; a stream without one was cut.
const (
	frameStdout = 1
	frameStderr = 2
	frameEnd    = 3 // empty, or an Error in JSON

	frameHeader = 5
	// maxFrame bounds what a client buffers for one frame. Writers split.
	maxFrame = 64 << 10
)

// Events are sent as lines: {"event": …}, and last {"end": true} or {"error": …}.
type eventLine struct {
	Event Event  `json:"event,omitempty"`
	End   bool   `json:"end,omitempty"`
	Error *Error `json:"error,omitempty"`
}

// sender writes a stream. Nothing is sent before the first write, so that an
// agent that fails at once still answers with a status.
type sender struct {
	w       http.ResponseWriter
	kind    string // content type
	flush   bool   // after each write: somebody watches
	started bool
}

func (s *sender) start() {
	if !s.started {
		s.started = true
		s.w.Header().Set("Content-Type", s.kind)
		s.w.WriteHeader(http.StatusOK)
	}
}

func (s *sender) send(parts ...[]byte) error {
	s.start()
	for _, p := range parts {
		if _, err := s.w.Write(p); err != nil {
			return err
		}
	}
	if s.flush {
		return http.NewResponseController(s.w).Flush()
	}
	return nil
}

func (s *sender) frame(kind byte, payload []byte) error {
	var head [frameHeader]byte
	head[0] = kind
	binary.BigEndian.PutUint32(head[1:], uint32(len(payload)))
	return s.send(head[:], payload)
}

// frameWriter is one of the two outputs.
type frameWriter struct {
	s    *sender
	kind byte
}

func (f frameWriter) Write(p []byte) (int, error) {
	n := 0
	for len(p) > 0 {
		part := p[:min(len(p), maxFrame)]
		if err := f.s.frame(f.kind, part); err != nil {
			return n, err
		}
		n += len(part)
		p = p[len(part):]
	}
	return n, nil
}

// readFrames copies a log stream to its two outputs.
func readFrames(r io.Reader, stdout, stderr io.Writer) error {
	br := bufio.NewReader(r)
	buf := make([]byte, maxFrame)
	for {
		var head [frameHeader]byte
		if _, err := io.ReadFull(br, head[:]); err != nil {
			return truncated(err)
		}
		n := binary.BigEndian.Uint32(head[1:])
		if n > maxFrame {
			return &Error{Code: CodeInternal, Message: fmt.Sprintf("a frame of %d bytes, at most %d are allowed", n, maxFrame)}
		}
		if _, err := io.ReadFull(br, buf[:n]); err != nil {
			return truncated(err)
		}
		var err error
		switch head[0] {
		case frameStdout:
			_, err = stdout.Write(buf[:n])
		case frameStderr:
			_, err = stderr.Write(buf[:n])
		case frameEnd:
			if n == 0 {
				return nil
			}
			return parseError(buf[:n])
		default:
			// A later agent's kind of frame: nothing that this client can show.
		}
		if err != nil {
			return err
		}
	}
}

// readEvents calls fn with each event of a stream.
func readEvents(r io.Reader, fn func(Event) error) error {
	dec := json.NewDecoder(r)
	for {
		var line eventLine
		switch err := dec.Decode(&line); {
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			return truncated(err)
		case err != nil:
			return err
		case line.End:
			return nil
		case line.Error != nil:
			return line.Error
		case line.Event != nil:
			if err := fn(line.Event); err != nil {
				return err
			}
		}
	}
}

func truncated(err error) error {
	return &Error{
		Code: CodeTruncated, Message: "the stream was cut: " + err.Error(), Retryable: true, Err: err,
		Hint: "the agent stopped or was restarted; ask again",
	}
}

type errorBody struct {
	Error *Error `json:"error"`
}

// parseError reads an error object.
func parseError(body []byte) *Error {
	var e errorBody
	if err := json.Unmarshal(body, &e); err != nil || e.Error == nil || e.Error.Code == "" {
		return &Error{Code: CodeInternal, Message: fmt.Sprintf("an answer that is none of an agent's: %.100q", body)}
	}
	return e.Error
}
