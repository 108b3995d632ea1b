package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/barista-fleet/barista/internal/bucket"
	"github.com/barista-fleet/barista/pkg/fleet"
)

var update = flag.Bool("update", false, "rewrite what the scripts compare with")

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"fleetctl": main})
}

// TestScripts runs the transcripts in testdata/script, each against a fleet of
// its own in a directory. Their commands beside testscript's own:
//
//	fails CODE COMMAND…         the command must exit with CODE
//	node ID NAME INCARNATION    plant a liveness record; more as key=value
//	claim NAME NODE PHASE       plant an ownership record of the name's present
//	                            uid; more as key=value (epoch, incarnation, seen, …)
//	plant KEY TEXT              plant any object
//	cat KEY                     print an object
//	event NODE SEQ ID TYPE NAME MESSAGE
//	agent [fleet]               see cmdAgent
//	harmless                    the last output must hold nothing that a terminal obeys
//	scrub FILE                  write the last stdout to FILE, with what differs
//	                            from run to run replaced by words
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		UpdateScripts:       *update,
		RequireExplicitExec: true,
		Setup: func(env *testscript.Env) error {
			env.Setenv("BARISTA_FLEET_BUCKET", "file://"+env.WorkDir+"/fleet")
			env.Setenv("HOME", env.WorkDir)
			env.Setenv("TZ", "UTC")
			// A race-detecting program sleeps a second before it exits, and the
			// scripts start some hundreds.
			env.Setenv("GORACE", "atexit_sleep_ms=0")
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"fails": cmdFails, "node": cmdNode, "claim": cmdClaim, "plant": cmdPlant, "cat": cmdCat, "event": cmdEvent, "scrub": cmdScrub,
			"age": cmdAge, "agent": cmdAgent, "harmless": cmdHarmless,
		},
	})
}

func cmdFails(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: fails CODE COMMAND…")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	err = ts.Exec(args[1], args[2:]...)
	var exit *exec.ExitError
	if got := 0; !errors.As(err, &exit) || exit.ExitCode() != want {
		if exit != nil {
			got = exit.ExitCode()
		}
		ts.Fatalf("%v: exit code %d (%v), want %d\n%s%s", args[1:], got, err, want, ts.ReadFile("stdout"), ts.ReadFile("stderr"))
	}
}

func scriptStore(ts *testscript.TestScript) *bucket.FileStore {
	s, err := bucket.NewFileStore(strings.TrimPrefix(ts.Getenv("BARISTA_FLEET_BUCKET"), "file://"))
	ts.Check(err)
	return s
}

func put(ts *testscript.TestScript, key string, body []byte) {
	res := scriptStore(ts).Put(context.Background(), key, body, bucket.Unconditional())
	ts.Check(res.Err)
}

// options are key=value arguments.
func options(ts *testscript.TestScript, args []string) map[string]string {
	m := map[string]string{}
	for _, a := range args {
		k, v, ok := strings.Cut(a, "=")
		if !ok {
			ts.Fatalf("%q is no key=value", a)
		}
		m[k] = v
	}
	return m
}

func num(ts *testscript.TestScript, s string, otherwise uint64) uint64 {
	if s == "" {
		return otherwise
	}
	n, err := strconv.ParseUint(s, 10, 64)
	ts.Check(err)
	return n
}

func cmdNode(ts *testscript.TestScript, _ bool, args []string) {
	o := options(ts, args[3:])
	state := fleet.NodeLive
	if s := o["state"]; s != "" {
		state = fleet.NodeState(s)
	}
	n := &fleet.Node{
		Head: fleet.Head{Schema: fleet.Schema, Nonce: fleet.NewNonce()}, ID: args[0], Name: args[1], Incarnation: num(ts, args[2], 1),
		State: state, TTLMillis: 30000, Endpoint: "10.0.0.1:7070", Runtime: "process", Version: "v1", Labels: map[string]string{"zone": "a"},
		Capabilities: []string{"pause:frozen"}, Capacity: fleet.Capacity{CPUMillis: 4000, MemoryBytes: 8 << 30, MaxSessions: 100, Sessions: 1},
		Draining: o["draining"] != "", Cordoned: o["cordoned"] != "",
	}
	b, err := fleet.Encode(n)
	ts.Check(err)
	put(ts, fleet.PrefixNodes+args[0], b)
}

func cmdClaim(ts *testscript.TestScript, _ bool, args []string) {
	o := options(ts, args[3:])
	name := args[0]
	s := &fleet.Session{
		Head: fleet.Head{Schema: fleet.Schema, Nonce: fleet.NewNonce()}, Name: name, Owner: args[1], OwnerName: "host-" + args[1],
		Incarnation: num(ts, o["incarnation"], 1), Epoch: num(ts, o["epoch"], 1), OwnerTTLMillis: 30000, Endpoint: "10.0.0.1:7070",
		UID: o["uid"], Generation: 1, Phase: fleet.Phase(args[2]), Reason: o["reason"], Seen: num(ts, o["seen"], 0), WakeSeen: num(ts, o["wake_seen"], 0),
		Attempt: int(num(ts, o["attempt"], 0)), Failures: int(num(ts, o["failures"], 0)), LastNode: o["last"],
	}
	if args[1] == "-" {
		s.Owner, s.OwnerName, s.Incarnation, s.Endpoint = "", "", 0, ""
	}
	if code := o["exit"]; code != "" {
		s.Exit = &fleet.Exit{Code: int(num(ts, code, 0)), At: time.Date(2026, 12, 24, 18, 0, 0, 0, time.UTC)}
	}
	if kind := o["snapshot"]; kind != "" {
		s.Lineage = fleet.Lineage{UID: "u", Epoch: s.Epoch}
		s.Snapshot = fleet.Snapshot{Kind: kind, Node: s.Owner, Lineage: s.Lineage, Since: time.Date(2026, 12, 24, 18, 0, 0, 0, time.UTC)}
	}
	if s.UID == "" {
		obj, err := scriptStore(ts).Get(context.Background(), fleet.PrefixDesired+name, "")
		ts.Check(err)
		d, err := fleet.DecodeDesired(name, obj.Body)
		ts.Check(err)
		s.UID, s.Generation = d.UID, d.Generation
	}
	b, err := fleet.Encode(s)
	ts.Check(err)
	put(ts, fleet.PrefixSessions+name, b)
}

func cmdPlant(ts *testscript.TestScript, _ bool, args []string) {
	text := args[1]
	if s, err := strconv.Unquote(`"` + text + `"`); err == nil {
		text = s // \x1b and the like
	}
	put(ts, args[0], []byte(text))
}

// cmdAge makes an object look as if it was written so long ago.
func cmdAge(ts *testscript.TestScript, _ bool, args []string) {
	d, err := time.ParseDuration(args[1])
	ts.Check(err)
	dir := strings.TrimPrefix(ts.Getenv("BARISTA_FLEET_BUCKET"), "file://")
	found, err := filepath.Glob(filepath.Join(dir, "*", strings.ReplaceAll(args[0], "/", "+/")))
	ts.Check(err)
	if len(found) != 1 {
		ts.Fatalf("%s is %q", args[0], found)
	}
	at := time.Now().Add(-d)
	ts.Check(os.Chtimes(found[0], at, at))
}

func cmdCat(ts *testscript.TestScript, _ bool, args []string) {
	obj, err := scriptStore(ts).Get(context.Background(), args[0], "")
	ts.Check(err)
	_, err = fmt.Fprintf(ts.Stdout(), "%s\n", obj.Body)
	ts.Check(err)
}

func cmdEvent(ts *testscript.TestScript, _ bool, args []string) {
	seq := num(ts, args[1], 1)
	text, err := strconv.Unquote(`"` + args[5] + `"`)
	ts.Check(err)
	b, err := fleet.Encode(&fleet.EventBatch{
		Head: fleet.Head{Schema: fleet.Schema, Nonce: fleet.NewNonce()}, Node: args[0], Incarnation: 1, Seq: seq,
		Events: []fleet.Event{{
			ID: args[2], Node: args[0], Time: time.Date(2026, 12, 24, 18, 0, int(seq), 0, time.UTC),
			Type: fleet.EventType(args[3]), Name: args[4], Epoch: 1, Message: text,
		}},
	})
	ts.Check(err)
	put(ts, fleet.EventKey(args[0], 1, seq), b)
}

var scrubs = []struct {
	re   *regexp.Regexp
	with string
}{
	{regexp.MustCompile(`"\\"[0-9a-f]{32}\\""|'"[0-9a-f]{32}"'|"[0-9a-f]{32}"`), `"ETAG"`},
	{regexp.MustCompile(`\bf-[0-9a-f]{16}\b`), "FLEET"},
	{regexp.MustCompile(`\b[0-9a-f]{24}\b`), "UID"},
	{regexp.MustCompile(`\b20[0-9]{2}-[0-9]{2}-[0-9]{2}T[0-9:.]+Z\b`), "TIME"},
}

func cmdScrub(ts *testscript.TestScript, _ bool, args []string) {
	out := []byte(ts.ReadFile("stdout"))
	for _, s := range scrubs {
		out = s.re.ReplaceAllFunc(out, func(m []byte) []byte {
			if bytes.HasPrefix(m, []byte("2026-12-24T18:00:")) {
				return m // planted by a script
			}
			return []byte(s.with)
		})
	}
	out = bytes.ReplaceAll(out, []byte(ts.Getenv("WORK")), []byte("$WORK"))
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), out, 0o644))
}

func cmdHarmless(ts *testscript.TestScript, _ bool, _ []string) {
	for _, name := range []string{"stdout", "stderr"} {
		text := ts.ReadFile(name)
		if !utf8.ValidString(text) {
			ts.Fatalf("%s is not UTF-8: %q", name, text)
		}
		for _, r := range text {
			if r != '\n' && (r < ' ' || r >= 0x7f && r < 0xa0 || r >= 0x200b && r <= 0x200f || r >= 0x2028 && r <= 0x202e || r >= 0x2060 && r <= 0x206f) {
				ts.Fatalf("%s holds %q: %q", name, r, text)
			}
		}
		for line := range strings.Lines(text) {
			if strings.HasPrefix(line, "fake") {
				ts.Fatalf("%s has a line that the bucket made: %q", name, text)
			}
		}
	}
}
