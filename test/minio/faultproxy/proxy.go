package faultproxy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	// maxBody bounds what the proxy holds of a request or an answer.
	maxBody = 16 << 20
	// serverTimeout bounds a request on its way to the server and back, also
	// when the client has left: it is on its way all the same.
	serverTimeout = 30 * time.Second
)

// Proxy is a proxy that listens on the loopback address.
type Proxy struct {
	target *url.URL
	server *http.Server
	addr   string
	client *http.Transport

	mu    sync.Mutex
	rng   *rand.Rand
	rules []*rule
	met   map[string]int // fault name to requests that met it
	seen  map[Op]int
}

type rule struct {
	Rule
	seen, met int
}

// New starts a proxy before the server at target. The seed decides the rules
// with a Chance.
func New(target string, seed uint64) (*Proxy, error) {
	u, err := url.Parse(target)
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &Proxy{
		target: u,
		addr:   l.Addr().String(),
		// A new connection each time: the transport then never sends twice.
		client: &http.Transport{DisableKeepAlives: true, DisableCompression: true},
		rng:    rand.New(rand.NewPCG(seed, 0)),
		met:    make(map[string]int),
		seen:   make(map[Op]int),
	}
	p.server = &http.Server{Handler: http.HandlerFunc(p.serve), ReadHeaderTimeout: serverTimeout}
	go func() {
		if err := p.server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			panic(fmt.Sprintf("faultproxy: %v", err)) // a test's listener does not fail by itself
		}
	}()
	return p, nil
}

// URL is the endpoint for clients.
func (p *Proxy) URL() string { return "http://" + p.addr }

// Close breaks all connections and ends the proxy.
func (p *Proxy) Close() error { return p.server.Close() }

// Add puts a rule in force and returns the function that ends it.
func (p *Proxy) Add(r Rule) (remove func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	added := &rule{Rule: r}
	p.rules = append(p.rules, added)
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.rules = slices.DeleteFunc(p.rules, func(other *rule) bool { return other == added })
	}
}

// Clear ends all rules.
func (p *Proxy) Clear() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rules = nil
}

// Met returns how many requests met a fault, by the fault's name.
func (p *Proxy) Met(name string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.met[name]
}

// Seen returns how many requests of a class came.
func (p *Proxy) Seen(op Op) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.seen[op]
}

// classify finds the class of a request, and the key or prefix that it is about.
func classify(r *http.Request) (Op, string) {
	_, key, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	if r.Method == http.MethodGet && key == "" {
		return List, r.URL.Query().Get("prefix")
	}
	return Op(r.Method), key
}

// fault decides what a request meets; the zero Fault is none.
func (p *Proxy) fault(r *http.Request) Fault {
	op, key := classify(r)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seen[op]++
	for _, rule := range p.rules {
		if !rule.matches(op, key) {
			continue
		}
		rule.seen++
		if rule.seen <= rule.Skip || rule.Times > 0 && rule.met >= rule.Times || rule.Chance > 0 && p.rng.Float64() >= rule.Chance {
			continue
		}
		rule.met++
		p.met[rule.Fault.Name]++
		return rule.Fault
	}
	return Fault{}
}

func (p *Proxy) serve(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		cut(w)
		return
	}
	f := p.fault(r)
	time.Sleep(f.before) // not ended by the client's leaving: the request is on its way
	var a Answer
	if f.skip == nil || !f.skip(r) {
		if a, err = p.forward(r, body); err != nil {
			cut(w) // the server is not there: nor is its answer
			return
		}
	}
	if f.edit != nil {
		f.edit(&a, r)
	}
	select {
	case <-time.After(f.after):
	case <-r.Context().Done():
		return
	}
	switch f.end {
	case endCut:
		cut(w)
	case endHang:
		<-r.Context().Done()
	case endHalf:
		half(w, a)
	default:
		write(w, a, len(a.Body))
	}
}

// forward sends the request as it came: its signature covers the Host header
// that the client chose.
func (p *Proxy) forward(r *http.Request, body []byte) (Answer, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), serverTimeout)
	defer cancel()
	out := r.Clone(ctx)
	out.URL.Scheme, out.URL.Host = p.target.Scheme, p.target.Host
	out.RequestURI = ""
	out.Body, out.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	if len(body) == 0 {
		out.Body = http.NoBody
	}
	resp, err := p.client.RoundTrip(out)
	if err != nil {
		return Answer{}, err
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(resp.Body, maxBody))
	return Answer{Status: resp.StatusCode, Header: resp.Header, Body: raw}, err
}

// write sends an answer that says it has length bytes.
func write(w http.ResponseWriter, a Answer, length int) {
	for name, values := range a.Header {
		switch name {
		case "Content-Length", "Transfer-Encoding", "Connection":
		default:
			w.Header()[name] = values
		}
	}
	if a.Status != http.StatusNoContent && a.Status != http.StatusNotModified {
		w.Header().Set("Content-Length", strconv.Itoa(length))
	}
	w.WriteHeader(a.Status)
	_, _ = w.Write(a.Body)
}

// half sends an answer up to the middle of its body, or without a body up to
// the end of its status line, and breaks the connection.
func half(w http.ResponseWriter, a Answer) {
	if len(a.Body) > 0 {
		whole := len(a.Body)
		a.Body = a.Body[:whole/2]
		write(w, a, whole)
		_ = http.NewResponseController(w).Flush()
		cut(w)
		return
	}
	conn, buf, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer conn.Close()
	_, _ = buf.WriteString("HTTP/1.1 200 OK\r\nEta")
	_ = buf.Flush()
}

// cut breaks the connection.
func cut(w http.ResponseWriter) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler) // an answer has begun: this is how to break it
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // a reset, as when the other side has died
	}
	_ = conn.Close()
}
