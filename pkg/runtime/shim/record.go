//go:build linux

package shim

import (
	"bytes"
	"time"
)

// Stream says where a record's text came from.
type Stream byte

// The streams. StreamShim carries the shim's own remarks about the log.
const (
	StreamOut Stream = iota
	StreamErr
	StreamShim
)

// Bounds of a record.
const (
	// MaxRecord is the longest text of one record. It is what the kubelet and
	// containerd use, so tools that read such logs are ready for it.
	MaxRecord = 16 << 10
	// HeaderLen is the length of everything before the text.
	HeaderLen = len(timeLayout) + len(" stdout F ")

	timeLayout = "2006-01-02T15:04:05.000000000Z"
)

var streamNames = [...]string{StreamOut: "stdout", StreamErr: "stderr", StreamShim: "shim  "}

// appendRecord appends one record to b. stamp is a time as appendTime writes it.
func appendRecord(b, stamp []byte, s Stream, full bool, text []byte) []byte {
	b = append(b, stamp...)
	b = append(b, ' ')
	b = append(b, streamNames[s]...)
	if full {
		b = append(b, " F "...)
	} else {
		b = append(b, " P "...)
	}
	b = append(b, text...)
	return append(b, '\n')
}

func appendTime(b []byte, t time.Time) []byte { return t.UTC().AppendFormat(b, timeLayout) }

// Record is one parsed record. Text points into the line it was parsed from.
type Record struct {
	Stream Stream
	Full   bool // ends a line
	Text   []byte
	stamp  []byte
}

// Time returns when the text was read from the workload.
func (r Record) Time() (time.Time, error) { return time.Parse(timeLayout, string(r.stamp)) }

// ParseRecord parses one line of a segment, without its newline.
func ParseRecord(line []byte) (Record, bool) {
	if len(line) < HeaderLen || line[len(timeLayout)] != ' ' {
		return Record{}, false
	}
	stamp, rest := line[:len(timeLayout)], line[len(timeLayout)+1:]
	r := Record{stamp: stamp, Text: rest[len("stdout F "):]}
	switch string(rest[:len("stdout")]) {
	case streamNames[StreamOut]:
		r.Stream = StreamOut
	case streamNames[StreamErr]:
		r.Stream = StreamErr
	case streamNames[StreamShim]:
		r.Stream = StreamShim
	default:
		return Record{}, false
	}
	switch string(rest[len("stdout"):len("stdout F ")]) {
	case " F ":
		r.Full = true
	case " P ":
	default:
		return Record{}, false
	}
	return r, true
}

// payload counts the bytes of workload output in a run of whole records.
func payload(records []byte) int64 {
	var n int64
	for line := range bytes.Lines(records) {
		r, ok := ParseRecord(bytes.TrimSuffix(line, []byte{'\n'}))
		if !ok || r.Stream == StreamShim {
			continue
		}
		n += int64(len(r.Text))
		if r.Full {
			n++
		}
	}
	return n
}
