package s3bucket

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/barista-fleet/barista/internal/bucket"
)

// server is an HTTP server that answers by a script and notes what it is asked.
type server struct {
	*httptest.Server
	mu       sync.Mutex
	script   []http.HandlerFunc // the last one stays
	requests []request
}

type request struct {
	*http.Request
	body []byte
}

func newServer(t *testing.T, script ...http.HandlerFunc) *server {
	t.Helper()
	s := &server{script: script}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		s.mu.Lock()
		s.requests = append(s.requests, request{r, body})
		next := s.script[0]
		if len(s.script) > 1 {
			s.script = s.script[1:]
		}
		s.mu.Unlock()
		next(w, r)
	}))
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	return s
}

// seen returns the requests so far.
func (s *server) seen() []request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]request(nil), s.requests...)
}

// answers replaces what is left of the script.
func (s *server) answers(script ...http.HandlerFunc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.script = script
}

const testTimeout = 400 * time.Millisecond

// isolate keeps the machine's own AWS settings out of a test.
func isolate(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	t.Setenv("HOME", dir)
	t.Setenv("AWS_CONFIG_FILE", dir+"/config")
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", dir+"/credentials")
	for _, name := range []string{
		"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE", "AWS_REGION", "AWS_DEFAULT_REGION",
		"AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_CA_BUNDLE", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
		"AWS_CONTAINER_CREDENTIALS_FULL_URI", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_MAX_ATTEMPTS", "HTTP_PROXY", "HTTPS_PROXY",
	} {
		t.Setenv(name, "")
	}
}

// open opens the bucket "fleet" of a test server; query is added to the URL.
func (s *server) open(t *testing.T, query string, opts ...Option) *Store {
	t.Helper()
	isolate(t)
	return openURL(t, "s3://fleet?endpoint="+s.URL+query, append([]Option{WithCredentials("AKEY", "secret"), WithTimeout(testTimeout)}, opts...)...)
}

func openURL(t *testing.T, url string, opts ...Option) *Store {
	t.Helper()
	loc, err := bucket.ParseURL(url)
	if err != nil {
		t.Fatal(err)
	}
	store, err := Open(t.Context(), loc, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return store
}

// Answers.

func status(code int, headers ...string) http.HandlerFunc { return answer(code, "", headers...) }

func answer(code int, body string, headers ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		for i := 0; i+1 < len(headers); i += 2 {
			w.Header().Set(headers[i], headers[i+1])
		}
		w.WriteHeader(code)
		_, _ = io.WriteString(w, body)
	}
}

func s3error(code int, name, message string, headers ...string) http.HandlerFunc {
	return answer(code, `<?xml version="1.0" encoding="UTF-8"?><Error><Code>`+name+`</Code><Message>`+message+
		`</Message><RequestId>REQ1</RequestId></Error>`, append(headers, "Content-Type", "application/xml")...)
}

func html(code int) http.HandlerFunc {
	return answer(code, "<!DOCTYPE html><html><body>proxy says <br> no & no</body></html>", "Content-Type", "text/html")
}

// hang answers nothing until the client leaves.
func hang(_ http.ResponseWriter, r *http.Request) {
	select {
	case <-r.Context().Done():
	case <-time.After(10 * time.Second):
	}
}

// cut breaks the connection without an answer.
func cut(w http.ResponseWriter, _ *http.Request) {
	conn, _, err := w.(http.Hijacker).Hijack()
	if err == nil {
		_ = conn.Close()
	}
}

// short promises more bytes than it sends.
func short(headers ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "100")
		answer(http.StatusOK, "only this", headers...)(w, r)
	}
}

// endless sends a body without end.
func endless(code int) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(code)
		chunk := bytes.Repeat([]byte("x"), 32<<10)
		for r.Context().Err() == nil {
			if _, err := w.Write(chunk); err != nil {
				return
			}
		}
	}
}

func listing(token string, truncated bool, keys ...string) http.HandlerFunc {
	var b strings.Builder
	b.WriteString(`<?xml version="1.0" encoding="UTF-8"?><ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">`)
	b.WriteString("<Name>fleet</Name><EncodingType>url</EncodingType>")
	if truncated {
		b.WriteString("<IsTruncated>true</IsTruncated>")
	} else {
		b.WriteString("<IsTruncated>false</IsTruncated>")
	}
	if token != "" {
		b.WriteString("<NextContinuationToken>" + token + "</NextContinuationToken>")
	}
	for _, key := range keys {
		b.WriteString("<Contents><Key>" + key + "</Key><ETag>&quot;e-" + key + "&quot;</ETag><Size>7</Size><LastModified>2026-02-03T04:05:06.000Z</LastModified></Contents>")
	}
	b.WriteString("</ListBucketResult>")
	return answer(http.StatusOK, b.String(), "Content-Type", "application/xml")
}
