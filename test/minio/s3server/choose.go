package s3server

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// Kind is the make of a server.
type Kind string

// The kinds that this package can start.
const (
	MinIO     Kind = "minio"
	VersityGW Kind = "versitygw"
)

const (
	modulePath = "github.com/barista-fleet/barista"
	versityPkg = "github.com/versity/versitygw/cmd/versitygw"
	// buildTimeout bounds the build of the pinned server: a cold one takes
	// about a minute on two cores, after the download.
	buildTimeout = 8 * time.Minute
)

// choice is where a server comes from.
type choice struct {
	kind     Kind
	bin      string // to be started, or:
	endpoint string // runs already
	access   string
	secret   string
}

func choose(ctx context.Context) (choice, error) {
	if endpoint := os.Getenv("BARISTA_TEST_S3_ENDPOINT"); endpoint != "" {
		c := choice{
			kind:     Kind(os.Getenv("BARISTA_TEST_S3_KIND")),
			endpoint: strings.TrimSuffix(endpoint, "/"),
			access:   os.Getenv("BARISTA_TEST_S3_ACCESS_KEY"),
			secret:   os.Getenv("BARISTA_TEST_S3_SECRET_KEY"),
		}
		if c.kind == "" {
			c.kind = "unnamed"
		}
		if c.access == "" || c.secret == "" {
			return choice{}, errors.New("BARISTA_TEST_S3_ENDPOINT is set: set BARISTA_TEST_S3_ACCESS_KEY and BARISTA_TEST_S3_SECRET_KEY, too")
		}
		return c, nil
	}
	if bin := os.Getenv("MINIO_BIN"); bin != "" {
		return choice{kind: MinIO, bin: bin}, nil
	}
	if bin := os.Getenv("VERSITYGW_BIN"); bin != "" {
		return choice{kind: VersityGW, bin: bin}, nil
	}
	bin, err := pinned(ctx)
	return choice{kind: VersityGW, bin: bin}, err
}

// pinned returns the pinned server's binary, after building it where that was
// not done yet. Test packages run at the same time: one builds, the others wait.
func pinned(ctx context.Context) (string, error) {
	root, err := repoRoot()
	if err != nil {
		return "", err
	}
	tools := filepath.Join(root, "test", "minio", "tools")
	hash := sha256.New()
	for _, name := range []string{"go.mod", "go.sum"} {
		raw, err := os.ReadFile(filepath.Join(tools, name))
		if err != nil {
			return "", err
		}
		hash.Write(raw)
	}
	cache := filepath.Join(root, ".cache", "s3server")
	bin := filepath.Join(cache, "versitygw-"+hex.EncodeToString(hash.Sum(nil)[:8]))
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return "", err
	}
	lock, err := os.OpenFile(filepath.Join(cache, "lock"), os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return "", err
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return "", err
	}
	if _, err := os.Stat(bin); err == nil {
		return bin, nil
	}
	fmt.Fprintln(os.Stderr, "building the S3 server that the tests use; this takes about a minute, once")
	ctx, cancel := context.WithTimeout(ctx, buildTimeout)
	defer cancel()
	temp := bin + ".new"
	cmd := exec.CommandContext(ctx, "go", "build", "-buildvcs=false", "-o", temp, versityPkg)
	cmd.Dir = tools
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %s: %w\n%s", versityPkg, err, out)
	}
	return bin, os.Rename(temp, bin)
}

// repoRoot finds the module's directory from a test's, which is its package's.
func repoRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		raw, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil && strings.HasPrefix(string(raw), "module "+modulePath+"\n") {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", errors.New("not inside the module " + modulePath)
		}
		dir = filepath.Dir(dir)
	}
}
