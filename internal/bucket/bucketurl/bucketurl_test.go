package bucketurl_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"

	"github.com/barista-fleet/barista/internal/bucket"
	"github.com/barista-fleet/barista/internal/bucket/bucketurl"
	"github.com/barista-fleet/barista/internal/s3bucket"
)

func TestOpenAndInitFile(t *testing.T) {
	url := "file://" + filepath.Join(t.TempDir(), "fleet")
	s, err := bucketurl.Open(t.Context(), url)
	if err != nil {
		t.Fatalf("opening contacts nothing, and answers %v", err)
	}
	if _, err := s.Get(t.Context(), "meta/fleet", ""); !errors.Is(err, bucket.ErrUnreachable) {
		t.Errorf("before init: %v", err)
	}
	for _, want := range []bool{true, false} {
		_, created, err := bucketurl.Init(t.Context(), url)
		if err != nil || created != want {
			t.Errorf("init: created %v, error %v; want %v", created, err, want)
		}
	}
	if obj, err := s.Get(t.Context(), "meta/fleet", ""); err != nil || obj.Status != bucket.Absent {
		t.Errorf("after init: %v, error %v", obj.Status, err)
	}
	if s.Description() != url {
		t.Errorf("description %s", s.Description())
	}
}

func TestOpenAndInitS3(t *testing.T) {
	code := "NoSuchBucket"
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusNotFound)
		_, _ = w.Write([]byte("<Error><Code>" + code + "</Code><Message>no</Message></Error>"))
	}))
	defer srv.Close()
	url := srv.URL + "/my-fleet"
	keys := s3bucket.WithCredentials("key", "secret")
	if _, _, err := bucketurl.Init(t.Context(), url, keys); !errors.Is(err, bucket.ErrUnreachable) {
		t.Errorf("a bucket that is not there: %v", err)
	}
	code = "NoSuchKey"
	s, created, err := bucketurl.Init(t.Context(), url, keys)
	if err != nil || created {
		t.Fatalf("a bucket that is there: created %v, error %v", created, err)
	}
	if want := "s3://my-fleet?endpoint=" + srv.URL + "&region=us-east-1"; s.Description() != want {
		t.Errorf("description %s, want %s", s.Description(), want)
	}
}

func TestOpenRefuses(t *testing.T) {
	for _, url := range []string{"", "my-fleet", "ftp://x/y"} {
		if _, err := bucketurl.Open(t.Context(), url); !errors.Is(err, bucket.ErrInvalid) {
			t.Errorf("%q: %v", url, err)
		}
		if _, _, err := bucketurl.Init(t.Context(), url); !errors.Is(err, bucket.ErrInvalid) {
			t.Errorf("init %q: %v", url, err)
		}
	}
}
