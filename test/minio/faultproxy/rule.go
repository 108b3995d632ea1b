// Package faultproxy is an HTTP proxy that stands before an S3 server in a test
// and does to its requests what networks, load balancers and tired servers do.
//
// It is scripted by rules: which requests, how many of them, with which chance,
// meet which fault. Everything that no rule matches passes unchanged, signature
// included. The proxy never repeats a request.
package faultproxy

import (
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Op is a class of requests.
type Op string

// The classes. A listing is a GET of a bucket.
const (
	Get    Op = "GET"
	Put    Op = "PUT"
	Delete Op = "DELETE"
	List   Op = "LIST"
)

// Rule says which requests meet a fault. The zero value of a field does not
// restrict. The first rule that matches decides.
type Rule struct {
	Ops    []Op
	Prefix string  // of the key, or of a listing's prefix
	Skip   int     // so many matching requests pass first
	Times  int     // then so many meet the fault; 0: all that follow
	Chance float64 // each of them with this probability; 0: always
	Fault  Fault
}

func (r Rule) matches(op Op, key string) bool {
	if !strings.HasPrefix(key, r.Prefix) {
		return false
	}
	return len(r.Ops) == 0 || slices.Contains(r.Ops, op)
}

// Fault is what happens to a request. Its name stands in logs and test names.
type Fault struct {
	Name string

	before time.Duration                // wait before anything else
	skip   func(*http.Request) bool     // the server never sees such requests; nil: it sees all
	edit   func(*Answer, *http.Request) // changes the server's answer, or makes one
	after  time.Duration                // wait before the answer
	end    end                          // what becomes of the answer
}

type end uint8

const (
	endAnswer end = iota // it arrives
	endCut               // the connection breaks instead
	endHalf              // the connection breaks in the middle of the body
	endHang              // neither: silence until the client leaves
)

// Answer is an answer on its way to the client.
type Answer struct {
	Status int
	Header http.Header
	Body   []byte
}

func always(*http.Request) bool { return true }

// DropBefore breaks the connection before the server sees the request.
func DropBefore() Fault { return Fault{Name: "drop before", skip: always, end: endCut} }

// DropAfter breaks the connection after the server has carried the request out.
func DropAfter() Fault { return Fault{Name: "drop after commit", end: endCut} }

// Hang never answers, and the server never sees the request.
func Hang() Fault { return Fault{Name: "hang", skip: always, end: endHang} }

// HangAfter never answers, and the server has carried the request out.
func HangAfter() Fault { return Fault{Name: "hang after commit", end: endHang} }

// Delay keeps the request on its way. It arrives also when its sender has left.
func Delay(d time.Duration) Fault { return Fault{Name: "delay", before: d} }

// DelayReply keeps the answer on its way.
func DelayReply(d time.Duration) Fault { return Fault{Name: "delayed reply", after: d} }

// Cut breaks the connection in the middle of the answer's body.
func Cut() Fault { return Fault{Name: "cut connection", end: endHalf} }

// Truncate delivers half of the body as if it were all of it.
func Truncate() Fault {
	return Fault{Name: "truncated body", edit: func(a *Answer, _ *http.Request) { a.Body = a.Body[:len(a.Body)/2] }}
}

// FailBefore answers with a status, in S3's words, instead of the server.
func FailBefore(status int, code string) Fault {
	return Fault{Name: "fail before", skip: always, edit: failure(status, code)}
}

// FailAfter answers with a status although the server has carried the request out.
func FailAfter(status int, code string) Fault {
	return Fault{Name: "fail after commit", edit: failure(status, code)}
}

func failure(status int, code string) func(*Answer, *http.Request) {
	return func(a *Answer, _ *http.Request) {
		*a = Answer{
			Status: status,
			Header: http.Header{"Content-Type": {"application/xml"}},
			Body:   []byte("<Error><Code>" + code + "</Code><Message>said the proxy</Message></Error>"),
		}
	}
}

// HTMLErrors replaces the body of the server's errors with a page for people.
func HTMLErrors() Fault {
	return Fault{Name: "html errors", edit: func(a *Answer, _ *http.Request) {
		if a.Status >= http.StatusBadRequest {
			a.Header.Set("Content-Type", "text/html")
			a.Body = []byte("<!DOCTYPE html><html><head><title>Oops</title></head><body><p>Something & nothing<br></body></html>")
		}
	}}
}

// NoETag removes the ETag.
func NoETag() Fault {
	return Fault{Name: "no etag", edit: func(a *Answer, _ *http.Request) { a.Header.Del("Etag") }}
}

// ShiftDate moves the answer's Date.
func ShiftDate(d time.Duration) Fault {
	return Fault{Name: "shifted date", edit: func(a *Answer, _ *http.Request) {
		date, err := http.ParseTime(a.Header.Get("Date"))
		if err != nil {
			date = time.Now()
		}
		a.Header.Set("Date", date.Add(d).UTC().Format(http.TimeFormat))
	}}
}

var (
	isTruncated = regexp.MustCompile(`<IsTruncated>(true|false)</IsTruncated>`)
	nextToken   = regexp.MustCompile(`<NextContinuationToken>[^<]*</NextContinuationToken>`)
)

// NoToken makes a listing say that more follows, and not where.
func NoToken() Fault {
	return Fault{Name: "truncated without token", edit: func(a *Answer, _ *http.Request) {
		a.Body = nextToken.ReplaceAll(a.Body, nil)
		a.Body = isTruncated.ReplaceAll(a.Body, []byte("<IsTruncated>true</IsTruncated>"))
	}}
}

// RepeatToken makes a listing go on for ever: each page names the same next one.
func RepeatToken() Fault {
	const token = "again"
	more := []byte("<IsTruncated>true</IsTruncated><NextContinuationToken>" + token + "</NextContinuationToken>")
	repeated := func(r *http.Request) bool { return r.URL.Query().Get("continuation-token") == token }
	return Fault{Name: "repeated token", skip: repeated, edit: func(a *Answer, r *http.Request) {
		if repeated(r) { // the server does not know that page
			*a = Answer{Status: http.StatusOK, Header: http.Header{"Content-Type": {"application/xml"}}}
			a.Body = append(append([]byte("<ListBucketResult><Name>b</Name>"), more...), "</ListBucketResult>"...)
			return
		}
		a.Body = isTruncated.ReplaceAll(nextToken.ReplaceAll(a.Body, nil), more)
	}}
}
