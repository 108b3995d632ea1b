package agent

import (
	"context"
	"errors"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/barista-fleet/barista/internal/api"
	"github.com/barista-fleet/barista/pkg/reconcile"
)

func fullStatus(context.Context) (api.Status, error) {
	left := int64(12_500)
	return api.Status{
		Version: "v1", Node: `a"da`, NodeID: "n-1", State: api.StateJoined, Incarnation: 3, DeadlineMillis: &left,
		Driver: api.Driver{Name: "process"}, Guard: &api.Guard{Pid: 7},
		Counts:   api.Counts{Owned: 2, Operations: 1, Phases: map[string]int{"running": 2}, EventsPending: 4, EventsDropped: 5},
		Requests: map[string]api.Requests{"put-if-match nodes": {Total: 9, Failed: 1, Conflicts: 2}},
		Journal:  api.Journal{FileBytes: 10, UsedBytes: 8, Syncs: 6},
	}, nil
}

func TestScrape(t *testing.T) {
	n := newNumbers(fullStatus)
	n.told(reconcile.Event{Type: reconcile.EventClaimed})
	n.told(reconcile.Event{Type: reconcile.EventClaimed})
	w := httptest.NewRecorder()
	n.ServeHTTP(w, httptest.NewRequest("GET", metricsPath, nil))
	for _, line := range []string{
		`barista_info{version="v1",node="a\"da",node_id="n-1",runtime="process"} 1`,
		`barista_state{state="joined"} 1`, `barista_state{state="lapsed"} 0`,
		`barista_lease_left_seconds 12.5`, `barista_guard_up 1`, `barista_names_owned 2`, `barista_names{phase="running"} 2`,
		`barista_events_total{type="CLAIMED"} 2`, `barista_heartbeats_total 9`,
		`barista_requests_conflicts_total{class="put-if-match nodes"} 2`,
		`barista_events_pending 4`, `barista_events_dropped_total 5`, `barista_journal_used_bytes 8`, `barista_journal_failed 0`,
	} {
		if !strings.Contains("\n"+w.Body.String(), "\n"+line+"\n") {
			t.Errorf("no line %s", line)
		}
	}
	if t.Failed() {
		t.Log(w.Body)
	}
	w = httptest.NewRecorder()
	newNumbers(func(context.Context) (api.Status, error) { return api.Status{}, errors.New("hangs") }).ServeHTTP(w, httptest.NewRequest("GET", metricsPath, nil))
	if w.Code != 503 {
		t.Errorf("an agent that does not answer: %d", w.Code)
	}
}

// Every metric is on the operators' page, and no other.
func TestMetricsAreDocumented(t *testing.T) {
	n := newNumbers(fullStatus)
	n.told(reconcile.Event{Type: reconcile.EventClaimed})
	w := httptest.NewRecorder()
	n.ServeHTTP(w, httptest.NewRequest("GET", metricsPath, nil))
	page, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	names := func(text, pattern string) []string {
		var out []string
		for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1) {
			out = append(out, m[1])
		}
		slices.Sort(out)
		return slices.Compact(out)
	}
	served, written := names(w.Body.String(), `(?m)^(barista_[a-z_]+)`), names(string(page), "`(barista_[a-z_]+)")
	if !slices.Equal(served, written) {
		t.Errorf("served:\n%q\nin docs/operations.md:\n%q", served, written)
	}
}
