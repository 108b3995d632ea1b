package bucket_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/barista-fleet/barista/internal/bucket"
	"github.com/barista-fleet/barista/internal/bucket/buckettest"
)

func newFileStore(t *testing.T) (*bucket.FileStore, string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "fleet")
	created, err := bucket.InitFileStore(dir)
	if err != nil || !created {
		t.Fatalf("init: created %v, error %v", created, err)
	}
	s, err := bucket.NewFileStore(dir)
	if err != nil {
		t.Fatal(err)
	}
	return s, dir
}

func TestFileStore(t *testing.T) {
	var dir string
	buckettest.Suite{
		Plant: func(t *testing.T, _ bucket.Store, key string, body []byte) {
			path := filepath.Join(dir, "objects", "a+", filepath.Base(key))
			if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, body, 0o600); err != nil {
				t.Fatal(err)
			}
		},
	}.Run(t, func(t *testing.T) bucket.Store {
		var s *bucket.FileStore
		s, dir = newFileStore(t)
		return s
	})
}
