package minio

import (
	"crypto/md5"
	"encoding/hex"
	"flag"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/barista-fleet/barista/test/minio/s3server"
)

var update = flag.Bool("update", false, "record what the server answers as the golden table of its kind")

// semantics asks one server one question after the other and keeps the answers.
type semantics struct {
	t      *testing.T
	srv    *s3server.Server
	bucket string
	table  []string
}

// ask sends a request and adds its answer to the table. Where any answers are
// wanted, it must be one of them; otherwise it is only recorded.
func (s *semantics) ask(question, method, key, body string, header map[string]string, want ...string) s3server.Response {
	s.t.Helper()
	r, err := s.srv.Raw.Do(s.t.Context(), method, "/"+s.bucket+"/"+key, []byte(body), header)
	if err != nil {
		s.t.Fatalf("%s: %v", question, err)
	}
	s.note(question, strings.TrimSpace(fmt.Sprintf("%d %s", r.Status, r.Code())), want...)
	return r
}

func (s *semantics) note(question, answer string, want ...string) {
	s.t.Helper()
	if len(want) > 0 && !slices.Contains(want, answer) {
		s.t.Errorf("%s: %s, a fleet needs %s", question, answer, strings.Join(want, " or "))
	}
	s.table = append(s.table, fmt.Sprintf("%-46s %s", question, answer))
}

func (s *semantics) etag(r s3server.Response) string { return r.Header.Get("ETag") }

const stale = `"00000000000000000000000000000000"`

// What the protocol needs is asserted for each server; all else that is known
// of a kind is in its golden table, so that a new version that changes its mind
// is seen.
func TestSemantics(t *testing.T) {
	srv := s3server.Start(t)
	s := &semantics{t: t, srv: srv, bucket: srv.NewBucket(t)}
	s.writes()
	s.reads()
	s.oddities()
	table := strings.Join(s.table, "\n") + "\n"
	golden := filepath.Join("testdata", "semantics-"+string(srv.Kind)+".golden")
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(golden, []byte(table), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if os.IsNotExist(err) {
		t.Logf("no golden table for %s yet; record it with -update:\n%s", srv.Kind, table)
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	if table != string(want) {
		t.Errorf("%s answers\n%s\nand %s has\n%s", srv.Kind, table, golden, want)
	}
}

func (s *semantics) writes() {
	create := map[string]string{"If-None-Match": "*"}
	first := s.ask("create, absent", http.MethodPut, "k", "one", create, "200")
	s.ask("create, present", http.MethodPut, "k", "two", create, "412 PreconditionFailed")
	match := map[string]string{"If-Match": s.etag(first)}
	second := s.ask("update, etag matches", http.MethodPut, "k", "two", match, "200")
	s.ask("update, etag is stale", http.MethodPut, "k", "three", match, "412 PreconditionFailed")
	s.ask("update, absent", http.MethodPut, "none", "x", map[string]string{"If-Match": stale}, "404 NoSuchKey", "412 PreconditionFailed")
	s.ask("…and then it is", http.MethodGet, "none", "", nil, "404 NoSuchKey")
	s.ask("update, etag unquoted", http.MethodPut, "k", "three", map[string]string{"If-Match": strings.Trim(s.etag(second), `"`)})
	s.ask("update, If-Match empty", http.MethodPut, "k", "four", map[string]string{"If-Match": ""})
	s.ask("put, empty body", http.MethodPut, "empty", "", create, "200")

	sum := md5.Sum([]byte("one"))
	s.note("etag is the quoted MD5 of the body", fmt.Sprint(s.etag(first) == `"`+hex.EncodeToString(sum[:])+`"`))
	again := s.ask("put, unconditional", http.MethodPut, "k", "one", nil, "200")
	s.note("equal bodies have equal etags", fmt.Sprint(s.etag(first) == s.etag(again)))
}

func (s *semantics) reads() {
	put := s.ask("put for reading", http.MethodPut, "r", "body", nil, "200")
	got := s.ask("get", http.MethodGet, "r", "", nil, "200")
	s.note("…etag as the put's", fmt.Sprint(s.etag(got) == s.etag(put)), "true")
	date, err := http.ParseTime(got.Header.Get("Date"))
	s.note("…date within a minute", fmt.Sprint(err == nil && time.Since(date).Abs() < time.Minute), "true")
	same := s.ask("get, If-None-Match same", http.MethodGet, "r", "", map[string]string{"If-None-Match": s.etag(put)}, "304")
	s.note("…with an etag", fmt.Sprint(s.etag(same) != ""))
	s.ask("get, If-None-Match other", http.MethodGet, "r", "", map[string]string{"If-None-Match": stale}, "200")
	s.ask("get, absent", http.MethodGet, "absent", "", nil, "404 NoSuchKey")
	s.ask("get, below another key", http.MethodGet, "r/below", "", nil, "404 NoSuchKey")
}

func (s *semantics) oddities() {
	s.ask("delete, If-Match is stale", http.MethodDelete, "r", "", map[string]string{"If-Match": stale})
	s.ask("…and then it is", http.MethodGet, "r", "", nil)
	s.ask("delete", http.MethodDelete, "k", "", nil, "204", "200")
	s.ask("delete, absent", http.MethodDelete, "k", "", nil, "204", "200", "404 NoSuchKey")
	s.ask("put x", http.MethodPut, "x", "1", nil, "200")
	s.ask("put x/y beside x", http.MethodPut, "x/y", "2", nil)
	s.srv.Raw.Skew = time.Hour
	s.ask("signed an hour ahead", http.MethodGet, "x", "", nil, "403 RequestTimeTooSkewed")
	s.srv.Raw.Skew = 0
	s.bucket = "no-such-bucket"
	s.ask("get, no bucket", http.MethodGet, "k", "", nil, "404 NoSuchBucket")
	s.ask("put, no bucket", http.MethodPut, "k", "x", nil, "404 NoSuchBucket")
	s.ask("update, no bucket", http.MethodPut, "k", "x", map[string]string{"If-Match": stale}, "404 NoSuchBucket")
}
