package api

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/barista-fleet/barista/internal/bucket"
)

// Headers of this API beside HTTP's own.
const (
	headerDate          = "Barista-Date"          // the store's clock, RFC 3339 with nanoseconds
	headerOversize      = "Barista-Oversize"      // "true": the object is too large to be sent
	headerUnconditional = "Barista-Unconditional" // "true": a PUT without a condition is meant
	headerArgs          = "Barista-Args"          // arguments of a verb that takes a file

	uploadType = "application/octet-stream"
)

// listing is the JSON form of bucket.Listing.
type listing struct {
	Date    time.Time `json:"date,omitzero"`
	Entries []entry   `json:"entries"`
}

type entry struct {
	Key  string `json:"key"`
	ETag string `json:"etag"`
	Size int64  `json:"size"`

	Modified time.Time `json:"modified,omitzero"`
}

// store returns the store to use, or why there is none.
func (s *Server) store() (bucket.Store, error) {
	if s.cfg.Store != nil {
		return s.cfg.Store, nil
	}
	fleet := s.cfg.Fleet
	if fleet == "" {
		fleet = "a fleet"
	}
	return nil, &Error{
		Code: CodeFleetMember, Message: "this agent belongs to " + fleet + ", whose objects are in its bucket",
		Outcome: bucket.Rejected.String(),
		Hint:    "say --fleet-bucket " + fleet + ", or set BARISTA_FLEET_BUCKET",
	}
}

func setDate(w http.ResponseWriter, date time.Time) {
	if !date.IsZero() {
		w.Header().Set(headerDate, date.Format(time.RFC3339Nano))
	}
}

func (s *Server) getObject(w http.ResponseWriter, r *http.Request) error {
	store, err := s.store()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(r.Context(), requestTimeout)
	defer cancel()
	obj, err := store.Get(ctx, r.PathValue("key"), bucket.ETag(r.Header.Get("If-None-Match")))
	if err != nil {
		return err
	}
	setDate(w, obj.Date)
	switch obj.Status {
	case bucket.Found:
		w.Header().Set("Content-Type", uploadType)
		w.Header().Set("ETag", string(obj.ETag))
		if obj.Oversize {
			w.Header().Set(headerOversize, "true")
		}
		w.WriteHeader(http.StatusOK)
		return s.ended(write(w, obj.Body))
	case bucket.NotModified:
		w.WriteHeader(http.StatusNotModified)
		return nil
	case bucket.Absent:
		return &Error{Code: CodeNotFound, Message: "no such object"}
	default:
		return &Error{Code: CodeInternal, Message: "the store answered " + obj.Status.String()}
	}
}

func write(w http.ResponseWriter, b []byte) error {
	_, err := w.Write(b)
	return err
}

func (s *Server) putObject(w http.ResponseWriter, r *http.Request) error {
	store, err := s.store()
	if err != nil {
		return err
	}
	body, err := readBody(w, r, bucket.MaxBody)
	if err != nil {
		return err
	}
	var cond bucket.Condition // none is refused by the store
	match, hasMatch := r.Header["If-Match"]
	switch {
	case hasMatch:
		cond = bucket.IfMatch(bucket.ETag(match[0]))
	case r.Header.Get("If-None-Match") == "*":
		cond = bucket.IfAbsent()
	case r.Header.Get(headerUnconditional) == "true":
		cond = bucket.Unconditional()
	}
	ctx, cancel := context.WithTimeout(r.Context(), requestTimeout)
	defer cancel()
	result := store.Put(ctx, r.PathValue("key"), body, cond)
	setDate(w, result.Date)
	if result.Outcome == bucket.Applied {
		w.Header().Set("ETag", string(result.ETag))
		w.WriteHeader(http.StatusOK)
		return nil
	}
	err = result.Err
	if err == nil {
		err = errors.New("the store gave no reason")
	}
	e := *toError(err)
	e.Outcome = result.Outcome.String()
	if result.Conflict() {
		s.reply(w, http.StatusPreconditionFailed, errorBody{Error: &e})
		return nil
	}
	return &e
}

func (s *Server) listObjects(w http.ResponseWriter, r *http.Request) error {
	store, err := s.store()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(r.Context(), requestTimeout)
	defer cancel()
	l, err := store.List(ctx, r.URL.Query().Get("prefix"))
	if err != nil {
		return err
	}
	out := listing{Date: l.Date, Entries: make([]entry, len(l.Entries))}
	for i, e := range l.Entries {
		out.Entries[i] = entry{Key: e.Key, ETag: string(e.ETag), Size: e.Size, Modified: e.Modified}
	}
	s.reply(w, http.StatusOK, out)
	return nil
}

func (s *Server) deleteObject(w http.ResponseWriter, r *http.Request) error {
	store, err := s.store()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(r.Context(), requestTimeout)
	defer cancel()
	if err := store.Delete(ctx, r.PathValue("key")); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}
