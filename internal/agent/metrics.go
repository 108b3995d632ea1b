package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"time"

	"github.com/VictoriaMetrics/metrics"

	"github.com/barista-fleet/barista/internal/api"
	"github.com/barista-fleet/barista/pkg/reconcile"
)

const (
	// scrapeLimit bounds one answer: it asks the loop and reads the journal.
	scrapeLimit = 10 * time.Second
	metricsPath = "/metrics"
)

// numbers counts what happened since the agent started, and serves it with what is.
type numbers struct {
	set    *metrics.Set
	status func(context.Context) (api.Status, error)
}

func newNumbers(status func(context.Context) (api.Status, error)) *numbers {
	return &numbers{set: metrics.NewSet(), status: status}
}

// told counts an event.
func (n *numbers) told(e reconcile.Event) {
	n.set.GetOrCreateCounter(fmt.Sprintf("barista_events_total{type=%q}", e.Type)).Inc()
}

// ServeHTTP answers a scrape in Prometheus' text format.
func (n *numbers) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), scrapeLimit)
	defer cancel()
	s, err := n.status(ctx)
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	n.set.WritePrometheus(w)
	writeStatus(w, s)
	metrics.WriteProcessMetrics(w)
}

// states are those that barista_state has a series for, so that none is missing when
// it is 0.
var states = []api.State{
	api.StateSingle, api.StateStarting, api.StateJoined, api.StateLapsed, api.StateFenced, api.StateDraining, api.StateLeft, api.StateFailed,
}

func writeStatus(w io.Writer, s api.Status) {
	flag := func(name string, on bool) {
		value := uint64(0)
		if on {
			value = 1
		}
		metrics.WriteGaugeUint64(w, name, value)
	}
	flag(fmt.Sprintf("barista_info{version=%q,node=%q,node_id=%q,runtime=%q}", s.Version, s.Node, s.NodeID, s.Driver.Name), true)
	for _, state := range states {
		flag(fmt.Sprintf("barista_state{state=%q}", state), s.State == state)
	}
	metrics.WriteGaugeUint64(w, "barista_incarnation", s.Incarnation)
	if s.DeadlineMillis != nil {
		metrics.WriteGaugeFloat64(w, "barista_lease_left_seconds", float64(*s.DeadlineMillis)/1000)
	}
	if s.Guard != nil {
		flag("barista_guard_up", s.Guard.Pid != 0)
	}
	metrics.WriteGaugeUint64(w, "barista_names_owned", uint64(s.Counts.Owned))
	for _, phase := range slices.Sorted(maps.Keys(s.Counts.Phases)) {
		metrics.WriteGaugeUint64(w, fmt.Sprintf("barista_names{phase=%q}", phase), uint64(s.Counts.Phases[phase]))
	}
	metrics.WriteGaugeUint64(w, "barista_operations_in_flight", uint64(s.Counts.Operations))
	metrics.WriteGaugeUint64(w, "barista_events_pending", s.Counts.EventsPending)
	metrics.WriteCounterUint64(w, "barista_events_dropped_total", s.Counts.EventsDropped)
	for _, class := range slices.Sorted(maps.Keys(s.Requests)) {
		r := s.Requests[class]
		metrics.WriteCounterUint64(w, fmt.Sprintf("barista_requests_total{class=%q}", class), r.Total)
		metrics.WriteCounterUint64(w, fmt.Sprintf("barista_requests_failed_total{class=%q}", class), r.Failed)
		metrics.WriteCounterUint64(w, fmt.Sprintf("barista_requests_conflicts_total{class=%q}", class), r.Conflicts)
	}
	metrics.WriteCounterUint64(w, "barista_heartbeats_total", s.Requests["put-if-match nodes"].Total)
	metrics.WriteGaugeUint64(w, "barista_journal_file_bytes", uint64(s.Journal.FileBytes))
	metrics.WriteGaugeUint64(w, "barista_journal_used_bytes", uint64(s.Journal.UsedBytes))
	metrics.WriteCounterUint64(w, "barista_journal_syncs_total", s.Journal.Syncs)
	flag("barista_journal_reserve_short", s.Journal.ReserveShort)
	flag("barista_journal_failed", s.Journal.Failed)
}

// serveNumbers serves the metrics on addr until ctx ends. An address without a host
// is one of this machine alone: nothing of it is secret, and nobody is asked who
// they are.
func (a *Agent) serveNumbers(ctx context.Context, addr string) (wait func() error, err error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, fmt.Errorf("bad address for metrics %q: write it as 127.0.0.1:9190", addr)
	}
	l, err := net.Listen("tcp", net.JoinHostPort(cmp.Or(host, "127.0.0.1"), port))
	if err != nil {
		return nil, fmt.Errorf("serve metrics: %w", err)
	}
	if tcp, ok := l.Addr().(*net.TCPAddr); !ok || !tcp.IP.IsLoopback() {
		a.log.Warn("metrics are served to other machines, which are not asked who they are", "addr", l.Addr().String())
	}
	mux := http.NewServeMux()
	mux.Handle("GET "+metricsPath, a.numbers)
	s := &http.Server{Handler: mux, ReadHeaderTimeout: scrapeLimit, WriteTimeout: 2 * scrapeLimit, IdleTimeout: time.Minute}
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	stop := context.AfterFunc(ctx, func() { s.Close() })
	a.log.Info("serves metrics", "url", "http://"+l.Addr().String()+metricsPath)
	return func() error {
		stop()
		s.Close()
		if err := <-done; !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	}, nil
}
