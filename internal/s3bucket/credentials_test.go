package s3bucket

import (
	"encoding/pem"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/barista-fleet/barista/internal/bucket"
)

func TestNoCredentials(t *testing.T) {
	srv := newServer(t, status(200, "ETag", `"e"`))
	isolate(t)
	metadata := newServer(t, hang)
	t.Setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", metadata.URL)
	s := openURL(t, "s3://fleet?endpoint="+srv.URL)
	begun := time.Now()
	r := s.Put(t.Context(), "k", nil, bucket.IfAbsent())
	_, gerr := s.Get(t.Context(), "k", "")
	_, lerr := s.List(t.Context(), "")
	derr := s.Delete(t.Context(), "k")
	if took := time.Since(begun); took > time.Second {
		t.Errorf("took %v: an endpoint is given, nothing is to be waited for", took)
	}
	if r.Outcome != bucket.Rejected {
		t.Errorf("put: %v", r.Outcome)
	}
	for _, err := range []error{r.Err, gerr, lerr, derr} {
		wantError(t, err, bucket.ErrCredentials, "AWS_ACCESS_KEY_ID")
	}
	if n := len(srv.seen()) + len(metadata.seen()); n != 0 {
		t.Errorf("%d requests were sent", n)
	}
}

// Off EC2 the metadata service is a black hole. The look-up is bounded.
func TestNoCredentialsOnAWS(t *testing.T) {
	isolate(t)
	metadata := newServer(t, hang)
	t.Setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", metadata.URL)
	s := openURL(t, "s3://fleet?region=eu-west-1")
	begun := time.Now()
	r := s.Put(t.Context(), "k", nil, bucket.IfAbsent())
	if took := time.Since(begun); took > 2*time.Second {
		t.Errorf("took %v", took)
	}
	if r.Outcome != bucket.Rejected {
		t.Errorf("put: %v", r.Outcome)
	}
	wantError(t, r.Err, bucket.ErrCredentials, "AWS_ACCESS_KEY_ID")
}

func TestKeysNeedNoMetadataService(t *testing.T) {
	srv := newServer(t, status(200, "ETag", `"e"`))
	isolate(t)
	metadata := newServer(t, hang)
	t.Setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", metadata.URL)
	t.Setenv("AWS_ACCESS_KEY_ID", "ENVKEY")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	t.Setenv("AWS_ENDPOINT_URL_S3", srv.URL)
	s := openURL(t, "s3://fleet")
	if r := s.Put(t.Context(), "k", nil, bucket.IfAbsent()); r.Outcome != bucket.Applied {
		t.Fatal(r.Err)
	}
	got := srv.seen()[0]
	if got.URL.Path != "/fleet/k" || keyOf(got) != "ENVKEY" {
		t.Errorf("sent %s signed by %q", got.URL.Path, keyOf(got))
	}
	if len(metadata.seen()) != 0 {
		t.Error("the metadata service was asked")
	}
	if want := "s3://fleet?endpoint=" + srv.URL + "&region=us-east-1"; s.Description() != want {
		t.Errorf("description %q, want %q", s.Description(), want)
	}
}

// keyOf is the access key that a request was signed with.
func keyOf(r request) string {
	_, rest, _ := strings.Cut(r.Header.Get("Authorization"), "Credential=")
	key, _, _ := strings.Cut(rest, "/")
	return key
}

func writeCredentials(t *testing.T, key string) {
	t.Helper()
	path := os.Getenv("AWS_SHARED_CREDENTIALS_FILE")
	text := "[default]\naws_access_key_id = " + key + "\naws_secret_access_key = secret\n"
	temp := filepath.Join(filepath.Dir(path), "new")
	if err := os.WriteFile(temp, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(temp, path); err != nil {
		t.Fatal(err)
	}
}

// Another process rewrites the credentials file when the old keys end. The
// first request that the store refuses makes us read it again.
func TestCredentialsFileRewritten(t *testing.T) {
	srv := newServer(t, func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.Header.Get("Authorization"), "Credential=FIRST") {
			s3error(403, "InvalidAccessKeyId", "gone")(w, r)
			return
		}
		status(200, "ETag", `"e"`)(w, r)
	})
	isolate(t)
	writeCredentials(t, "FIRST")
	s := openURL(t, "s3://fleet?endpoint="+srv.URL)
	r := s.Put(t.Context(), "k", nil, bucket.IfAbsent())
	if r.Outcome != bucket.Rejected {
		t.Fatalf("%v", r.Outcome)
	}
	wantError(t, r.Err, bucket.ErrCredentials, "renew")
	writeCredentials(t, "SECOND")
	if r := s.Put(t.Context(), "k", nil, bucket.IfAbsent()); r.Outcome != bucket.Applied {
		t.Fatalf("with new keys in the file: %v %v", r.Outcome, r.Err)
	}
	if seen := srv.seen(); keyOf(seen[1]) != "SECOND" {
		t.Errorf("signed by %q", keyOf(seen[1]))
	}
}

// Credentials may appear after the program has started.
func TestCredentialsFileAppears(t *testing.T) {
	srv := newServer(t, status(200, "ETag", `"e"`))
	isolate(t)
	s := openURL(t, "s3://fleet?endpoint="+srv.URL)
	if r := s.Put(t.Context(), "k", nil, bucket.IfAbsent()); !errors.Is(r.Err, bucket.ErrCredentials) {
		t.Fatalf("%v", r.Err)
	}
	writeCredentials(t, "LATE")
	if r := s.Put(t.Context(), "k", nil, bucket.IfAbsent()); r.Outcome != bucket.Applied {
		t.Fatal(r.Err)
	}
}

func TestOpenErrors(t *testing.T) {
	isolate(t)
	if _, err := Open(t.Context(), bucket.Location{Kind: bucket.KindS3, Bucket: "fleet"}); err == nil {
		t.Error("no region: no error")
	} else {
		wantError(t, err, bucket.ErrInvalid, "region=REGION")
	}
	if _, err := Open(t.Context(), bucket.Location{Kind: bucket.KindFile, Dir: "/x"}); !errors.Is(err, bucket.ErrInvalid) {
		t.Errorf("a directory: %v", err)
	}
	t.Setenv("AWS_PROFILE", "nosuch")
	if _, err := Open(t.Context(), bucket.Location{Kind: bucket.KindS3, Bucket: "fleet", Region: "eu-west-1"}); err == nil {
		t.Error("unknown profile: no error")
	} else {
		wantError(t, err, bucket.ErrCredentials, "AWS_PROFILE")
	}
}

func TestCABundle(t *testing.T) {
	srv := httptest.NewUnstartedServer(status(200, "ETag", `"e"`))
	srv.Config.ErrorLog = log.New(io.Discard, "", 0) // one handshake is meant to fail
	srv.StartTLS()
	defer srv.Close()
	isolate(t)
	opts := []Option{WithCredentials("A", "b"), WithTimeout(2 * time.Second)}
	url := "s3://fleet?endpoint=" + srv.URL
	r := openURL(t, url, opts...).Put(t.Context(), "k", nil, bucket.IfAbsent())
	if r.Outcome == bucket.Applied || !strings.Contains(r.Err.Error(), "certificate") {
		t.Fatalf("an unknown certificate: %v %v", r.Outcome, r.Err)
	}
	bundle := filepath.Join(t.TempDir(), "ca.pem")
	cert := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw})
	if err := os.WriteFile(bundle, cert, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("AWS_CA_BUNDLE", bundle)
	if r := openURL(t, url, opts...).Put(t.Context(), "k", nil, bucket.IfAbsent()); r.Outcome != bucket.Applied {
		t.Errorf("with AWS_CA_BUNDLE: %v %v", r.Outcome, r.Err)
	}
}
