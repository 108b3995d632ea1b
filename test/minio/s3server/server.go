package s3server

import (
	"context"
	"crypto/rand"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/barista-fleet/barista/internal/bucket"
	"github.com/barista-fleet/barista/internal/bucket/bucketurl"
	"github.com/barista-fleet/barista/internal/s3bucket"
	"github.com/barista-fleet/barista/test/need"
)

// readyTimeout bounds the wait for a server's first successful write. MinIO
// takes half a second, on a loaded machine several.
const readyTimeout = 30 * time.Second

// Server is an S3 server and the credentials for it.
type Server struct {
	Kind      Kind
	Endpoint  string // http://127.0.0.1:PORT
	AccessKey string
	SecretKey string
	Raw       *Raw // requests past the adapter

	bin     string // "" when the server is not ours
	dir     string
	addr    string
	console string
	logPath string
	cmd     *exec.Cmd
	exited  chan struct{}
	buckets atomic.Int64
}

// Start returns a server for one test, which stops it.
func Start(tb testing.TB) *Server {
	tb.Helper()
	if testing.Short() {
		need.Missing(tb, "no S3 server: -short is given")
	}
	c, err := choose(tb.Context())
	if err != nil {
		need.Missing(tb, "no S3 server: %v", err)
	}
	s, err := launch(tb.Context(), c, tb.TempDir())
	if err != nil {
		need.Missing(tb, "no S3 server: %v", err)
	}
	tb.Cleanup(func() {
		s.Stop()
		if tb.Failed() {
			tb.Logf("log of the %s server:\n%s", s.Kind, s.Log())
		}
	})
	return s
}

func launch(ctx context.Context, c choice, dir string) (*Server, error) {
	s := &Server{Kind: c.kind, Endpoint: c.endpoint, AccessKey: c.access, SecretKey: c.secret, bin: c.bin, dir: dir}
	if s.bin != "" {
		var err error
		if s.addr, err = freeAddr(); err != nil {
			return nil, err
		}
		if s.console, err = freeAddr(); err != nil {
			return nil, err
		}
		s.Endpoint = "http://" + s.addr
		s.AccessKey, s.SecretKey = "test"+strings.ToLower(rand.Text()[:12]), rand.Text()
		s.logPath = filepath.Join(dir, "server.log")
		if err := os.Mkdir(filepath.Join(dir, "data"), 0o755); err != nil {
			return nil, err
		}
	}
	s.Raw = &Raw{endpoint: s.Endpoint, access: s.AccessKey, secret: s.SecretKey}
	return s, s.Restart(ctx)
}

// freeAddr returns an address that nobody listens on right now. The server
// takes it in a moment, and again after each restart.
func freeAddr() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}

// CanKill reports whether the server is a child of this process.
func (s *Server) CanKill() bool { return s.bin != "" }

// Restart starts the server again, on the same port and data, and returns when
// it has made a bucket and stored an object.
func (s *Server) Restart(ctx context.Context) error {
	if s.CanKill() {
		if err := s.start(); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	name := s.bucketName()
	var last error
	for {
		if last = s.Raw.CreateBucket(ctx, name); last == nil {
			var r Response
			r, last = s.Raw.Do(ctx, http.MethodPut, "/"+name+"/ready", []byte("x"), nil)
			if last == nil && r.Status == http.StatusOK {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			s.Stop()
			return fmt.Errorf("the %s server was not ready within %v: %w\n%s", s.Kind, readyTimeout, last, s.Log())
		case <-s.exited:
			return fmt.Errorf("the %s server ended: %v\n%s", s.Kind, s.cmd.ProcessState, s.Log())
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func (s *Server) start() error {
	data := filepath.Join(s.dir, "data")
	var cmd *exec.Cmd
	switch s.Kind {
	case MinIO:
		cmd = exec.Command(s.bin, "server", "--quiet", "--address", s.addr, "--console-address", s.console, data)
		cmd.Env = append(os.Environ(),
			"MINIO_ROOT_USER="+s.AccessKey, "MINIO_ROOT_PASSWORD="+s.SecretKey, "MINIO_UPDATE=off", "MINIO_BROWSER=off")
	case VersityGW:
		cmd = exec.Command(s.bin, "--quiet", "--port", s.addr, "--health", "/health", "posix", data)
		cmd.Env = append(os.Environ(), "ROOT_ACCESS_KEY="+s.AccessKey, "ROOT_SECRET_KEY="+s.SecretKey)
	default:
		return fmt.Errorf("no way to start a %s server", s.Kind)
	}
	log, err := os.OpenFile(s.logPath, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Dir = s.dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // never outlive a killed test
	if err := cmd.Start(); err != nil {
		return err
	}
	exited := make(chan struct{})
	go func() {
		defer close(exited)
		_ = cmd.Wait() // how it ended is in cmd.ProcessState
	}()
	s.cmd, s.exited = cmd, exited
	return nil
}

// Kill9 kills the server as a crash would, and waits for its end.
func (s *Server) Kill9() { s.end(syscall.SIGKILL) }

// Stop ends the server in an orderly way; one that does not end in time is killed.
func (s *Server) Stop() { s.end(syscall.SIGTERM) }

func (s *Server) end(sig syscall.Signal) {
	if s.cmd == nil {
		return
	}
	_ = s.cmd.Process.Signal(sig) // fails when it has ended, which is what we want
	select {
	case <-s.exited:
	case <-time.After(10 * time.Second):
		_ = s.cmd.Process.Kill()
		<-s.exited
	}
}

// Log returns what the server printed.
func (s *Server) Log() string {
	if s.logPath == "" {
		return "(the server is not ours)"
	}
	raw, err := os.ReadFile(s.logPath)
	if err != nil {
		return err.Error()
	}
	const tail = 16 << 10
	return string(raw[max(0, len(raw)-tail):])
}

// Env is the environment in which a program finds the credentials.
func (s *Server) Env() []string {
	return []string{"AWS_ACCESS_KEY_ID=" + s.AccessKey, "AWS_SECRET_ACCESS_KEY=" + s.SecretKey}
}

func (s *Server) bucketName() string {
	return fmt.Sprintf("t%s-%d", strings.ToLower(rand.Text()[:10]), s.buckets.Add(1))
}

// NewBucket makes an empty bucket and returns its name.
func (s *Server) NewBucket(tb testing.TB) string {
	tb.Helper()
	name := s.bucketName()
	if err := s.Raw.CreateBucket(tb.Context(), name); err != nil {
		tb.Fatal(err)
	}
	return name
}

// URL is a bucket's URL as users write it. The endpoint is the server's when
// it is empty, or that of a proxy before it.
func (s *Server) URL(name, endpoint string) string {
	if endpoint == "" {
		endpoint = s.Endpoint
	}
	return "s3://" + name + "?endpoint=" + url.QueryEscape(endpoint)
}

// Open returns the adapter's store of a bucket.
func (s *Server) Open(tb testing.TB, url string, opts ...s3bucket.Option) bucket.Store {
	tb.Helper()
	opts = append([]s3bucket.Option{s3bucket.WithCredentials(s.AccessKey, s.SecretKey)}, opts...)
	store, err := bucketurl.Open(tb.Context(), url, opts...)
	if err != nil {
		tb.Fatal(err)
	}
	return store
}

// NewStore returns the adapter's store of a new bucket.
func (s *Server) NewStore(tb testing.TB, opts ...s3bucket.Option) bucket.Store {
	tb.Helper()
	return s.Open(tb, s.URL(s.NewBucket(tb), ""), opts...)
}
