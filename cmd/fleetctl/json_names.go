package main

import (
	"strings"
	"time"

	"github.com/barista-fleet/barista/pkg/fleet"
)

// The types here are the JSON contract of docs/cli-json.md: fields are added,
// never removed or given another meaning, within one contract version.

// resultsJSON is what a verb did to each of several names.
type resultsJSON[T any] struct {
	Version int `json:"version"`
	Results []T `json:"results"`
}

type nameList struct {
	Version  int           `json:"version"`
	Names    []nameJSON    `json:"names"`
	Problems []problemJSON `json:"problems"`
}

type problemJSON struct {
	Key     string `json:"key"`
	Message string `json:"message"`
}

func problemsJSON(list []fleet.Problem) []problemJSON {
	out := []problemJSON{}
	for _, p := range list {
		out = append(out, problemJSON{Key: safe(p.Key), Message: p.Err.Error()})
	}
	return out
}

// nameJSON is one name as ls shows it.
type nameJSON struct {
	Name       string            `json:"name"`
	Status     string            `json:"status"`
	Phase      string            `json:"phase,omitempty"`
	Kind       string            `json:"kind,omitempty"`
	Tenant     string            `json:"tenant,omitempty"`
	Labels     map[string]string `json:"labels,omitempty"`
	Node       string            `json:"node,omitempty"`
	NodeID     string            `json:"node_id,omitempty"`
	Endpoint   string            `json:"endpoint,omitempty"`
	Epoch      uint64            `json:"epoch,omitzero"`
	Claim      string            `json:"claim"`
	UID        string            `json:"uid,omitempty"`
	Generation uint64            `json:"generation,omitzero"`
	Created    *time.Time        `json:"created,omitempty"`
	ETag       string            `json:"etag,omitempty"`
	Asked      string            `json:"asked,omitempty"`
	Attempt    int               `json:"attempt,omitzero"`
	Failures   int               `json:"failures,omitzero"`
	Exit       *fleet.Exit       `json:"exit,omitempty"`
	Reason     string            `json:"reason,omitempty"`
	Error      string            `json:"error,omitempty"`
}

type watchJSON struct {
	Version int `json:"version"`
	nameJSON
	Gone bool `json:"gone,omitzero"`
}

func newNameJSON(v *fleet.View) nameJSON {
	j := nameJSON{Name: v.Name, Status: strings.ToLower(string(v.Status())), Claim: string(v.Claim()), ETag: string(v.DesiredETag)}
	if d := v.Desired; d != nil {
		spec := d.Spec.WithDefaults()
		j.Kind, j.Tenant, j.Labels = string(spec.Kind), spec.Tenant, spec.Labels
		j.UID, j.Generation = d.UID, d.Generation
		if !d.Created.IsZero() {
			j.Created = &d.Created
		}
		if verb, pending := v.PendingIntent(); pending {
			j.Asked = string(verb)
		}
	}
	if s := v.Session; s != nil {
		j.Phase, j.Epoch, j.Reason, j.Exit = string(s.Phase), s.Epoch, s.Reason, s.Exit
		j.Attempt, j.Failures = s.Attempt, s.Failures
		if s.Owner != "" {
			j.Node, j.NodeID, j.Endpoint = v.NodeName(), s.Owner, s.Endpoint
		}
	}
	if v.DesiredErr != nil {
		j.Error = v.DesiredErr.Error()
	} else if v.SessionErr != nil {
		j.Error = v.SessionErr.Error()
	}
	return j
}
