//go:build linux

package shim

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

func TestRecordRoundTrip(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 67, time.FixedZone("x", 3600))
	stamp := appendTime(nil, at)
	for _, s := range []Stream{StreamOut, StreamErr, StreamShim} {
		for _, full := range []bool{true, false} {
			for _, text := range []string{"", "x", " two  spaces ", "F P stdout", strings.Repeat("y", MaxRecord), "\x00\xff"} {
				b := appendRecord(nil, stamp, s, full, []byte(text))
				if b[len(b)-1] != '\n' || len(b) != HeaderLen+len(text)+1 {
					t.Fatalf("record %q", b)
				}
				r, ok := ParseRecord(b[:len(b)-1])
				if !ok || r.Stream != s || r.Full != full || string(r.Text) != text {
					t.Errorf("%q parsed as %+v, %v", b, r, ok)
				}
				if got, err := r.Time(); err != nil || !got.Equal(at) {
					t.Errorf("time %v, %v; want %v", got, err, at)
				}
			}
		}
	}
	// The format is a contract with tools and with older agents.
	got := string(appendRecord(nil, stamp, StreamErr, false, []byte("a b")))
	if want := "2026-01-02T02:04:05.000000067Z stderr P a b\n"; got != want {
		t.Errorf("record %q, want %q", got, want)
	}
}

func TestParseRecordRefuses(t *testing.T) {
	good := string(appendRecord(nil, appendTime(nil, time.Unix(1, 0)), StreamOut, true, []byte("text")))
	good = strings.TrimSuffix(good, "\n")
	for i := range HeaderLen {
		if r, ok := ParseRecord([]byte(good[:i])); ok {
			t.Errorf("%q parsed as %+v", good[:i], r)
		}
	}
	for _, bad := range []string{
		strings.Replace(good, "stdout", "stdxxx", 1), strings.Replace(good, " F ", " G ", 1), strings.Replace(good, "Z ", "Zx", 1),
	} {
		if r, ok := ParseRecord([]byte(bad)); ok {
			t.Errorf("%q parsed as %+v", bad, r)
		}
	}
}

func FuzzParseRecord(f *testing.F) {
	f.Add([]byte("2026-01-02T02:04:05.000000067Z stderr P a b"))
	f.Add([]byte(""))
	f.Fuzz(func(t *testing.T, line []byte) {
		r, ok := ParseRecord(line)
		if !ok {
			return
		}
		again := appendRecord(nil, r.stamp, r.Stream, r.Full, r.Text)
		if !bytes.Equal(again[:len(again)-1], line) {
			t.Errorf("%q parsed as %+v, which is written as %q", line, r, again)
		}
	})
}

func TestPayload(t *testing.T) {
	stamp := appendTime(nil, time.Unix(0, 0))
	var b []byte
	b = appendRecord(b, stamp, StreamOut, true, []byte("12345"))  // 6 with its newline
	b = appendRecord(b, stamp, StreamErr, false, []byte("123"))   // 3
	b = appendRecord(b, stamp, StreamShim, true, []byte("xxxxx")) // none of the workload's
	if got := payload(b); got != 9 {
		t.Errorf("payload %d, want 9", got)
	}
}
