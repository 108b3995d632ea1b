package fleet

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite the golden files")

var day = time.Date(2026, 12, 24, 18, 0, 0, 0, time.UTC)

// kind is one kind of record: a full example, and its decoder.
type kind struct {
	name   string
	rec    record
	decode func([]byte) (any, error)
}

// kinds has every field of every record set, so that the goldens show the whole
// format and a lost field shows in them.
func kinds() []kind {
	head := Head{Schema: Schema, Nonce: "00112233445566778899aabbccddeeff"}
	return []kind{
		{"meta", &Meta{Head: head, FleetID: "f-1", Created: day}, func(b []byte) (any, error) { return DecodeMeta(b) }},
		{"epoch-floor", &EpochFloor{Head: head, Floor: 9}, func(b []byte) (any, error) { return DecodeEpochFloor(b) }},
		{"signal", &Signal{Head: head, Names: []string{"a1"}, Nodes: []string{"n-1"}}, func(b []byte) (any, error) { return DecodeSignal(b) }},
		{"node", &Node{
			Head: head, ID: "n-1", Name: "host1", Incarnation: 3, State: NodeLive, Writer: "w", Beat: 7, TTLMillis: 30000, FencedBy: "n-2",
			Endpoint: "10.0.0.1:7070", Version: "v1", Runtime: "process", Capabilities: []string{"pause:frozen"}, Labels: map[string]string{"zone": "a"},
			Capacity: Capacity{CPUMillis: 2000, MemoryBytes: 1 << 30, Slots: map[string]int{"sm": 4}, MaxSessions: 10, Sessions: 1, Jobs: 2},
			Draining: true, Cordoned: true, Service: map[string]uint64{"acme": 12},
		}, func(b []byte) (any, error) { return DecodeNode("n-1", b) }},
		{"desired", &Desired{
			Head: head, Name: "a1", UID: "u1", Generation: 2, Created: day, State: DesiredPresent, Spec: fullSpec(),
			Intent: Intent{Seq: 4, Verb: VerbEvict, Epoch: 6}, WakeAt: Alarm{Seq: 1, At: day},
		}, func(b []byte) (any, error) { return DecodeDesired("a1", b) }},
		{"session", &Session{
			Head: head, Name: "a1", Owner: "n-1", Incarnation: 3, Epoch: 6, OwnerTTLMillis: 30000, OwnerName: "host1", Endpoint: "10.0.0.1:7070",
			UID: "u1", Generation: 2, Phase: PhasePaused, Reason: "by ttl", Seen: 4, WakeSeen: 1, Instance: "b-1", Started: day, ActiveSince: day, LastNode: "n-0", LastName: "host0",
			Lineage: Lineage{UID: "u1", Epoch: 5}, Snapshot: Snapshot{Kind: "frozen", Node: "n-1", Lineage: Lineage{UID: "u1", Epoch: 5}, Since: day},
			Attempt: 2, Failures: 1, RetryAfterMillis: 500, Exit: &Exit{Code: 1, Signal: 9, OOM: true, Lost: true, Reason: "why", At: day, CPUMsec: 77}, Sealed: true,
		}, func(b []byte) (any, error) { return DecodeSession("a1", b) }},
		{"directive", &Directive{Head: head, Node: "n-1", Seq: 2, Cordon: true, Drain: true, Deadline: day, Reason: "new kernel"}, func(b []byte) (any, error) { return DecodeDirective("n-1", b) }},
		{"tenant", &Tenant{
			Head: head, Name: "acme", Tier: TierGold, Multiplier: 2, Cap: 10, CapPerNode: 3, CostCapMs: 5000, MaxQueued: 100, MaxQueuedCostMs: 9000, Prefix: "acme-",
		}, func(b []byte) (any, error) { return DecodeTenant("acme", b) }},
		{"run-log", &RunLog{
			Head: head, Name: "a1", Epoch: 6, Attempt: 2, Instance: "b-1", NodeName: "host1", Ended: day, Exit: &Exit{Code: 1, Signal: 9, OOM: true, Lost: true, Reason: "why", At: day, CPUMsec: 77}, Dropped: 9, Output: []byte("hello\n"),
		}, func(b []byte) (any, error) { return DecodeRunLog(RunLogKey("a1", 6), b) }},
		{"events", &EventBatch{
			Head: head, Node: "n-1", NodeName: "host1", Incarnation: 3, Seq: 12,
			Events: []Event{{ID: "n-1/3/12/0", Time: day, Node: "n-1", Name: "a1", Epoch: 6, Type: EventPaused, Message: "by ttl"}},
		}, func(b []byte) (any, error) { return DecodeEventBatch(EventKey("n-1", 3, 12), b) }},
	}
}

func fullSpec() Spec {
	return Spec{
		Kind: KindSession, Image: "busybox:latest", Digest: "sha256:" + strings.Repeat("ab", 32), Command: []string{"sleep", "300"},
		Env: map[string]string{"A": "1,2"}, User: "1000:1000", Workdir: "/srv", CPUMillis: 500, MemoryBytes: 256 << 20, Pids: 100, Size: "sm",
		Tenant: "acme", CostMs: 1500, Labels: map[string]string{"app": "web"}, Require: map[string]string{"zone": "a"}, Runtime: "runsc",
		OnOwnerLoss: OwnerLossHold, OwnerLossGraceMs: 60000, OnBucketLoss: BucketLossKeep, TTLSeconds: 3600, StopGraceMs: 5000,
		Network: "cni", Ports: []int{8080}, Mounts: []Mount{{Source: "/data", Target: "/mnt", ReadOnly: true}}, ReadOnly: true,
		Secrets: []string{"token"}, Payload: []byte("hello\n"), KeepLogs: true,
	}
}

// TestRecordGoldens pins the JSON of each record: other versions read it.
func TestRecordGoldens(t *testing.T) {
	for _, k := range kinds() {
		t.Run(k.name, func(t *testing.T) {
			b, err := Encode(k.rec)
			if err != nil {
				t.Fatal(err)
			}
			pretty := jsontext.Value(bytes.Clone(b))
			if err := pretty.Indent(jsontext.WithIndent("  ")); err != nil {
				t.Fatal(err)
			}
			file := filepath.Join("testdata", "records", k.name+".json")
			if *update {
				if err := os.WriteFile(file, append(pretty, '\n'), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), string(pretty)+"\n"); diff != "" {
				t.Errorf("the format changed (-want +got):\n%s", diff)
			}
			got, err := k.decode(want)
			if err != nil {
				t.Fatalf("the golden cannot be read: %v", err)
			}
			if diff := cmp.Diff(k.rec, got); diff != "" {
				t.Errorf("read back differently (-want +got):\n%s", diff)
			}
		})
	}
}

// TestExamplesAreFull keeps kinds honest: a field that is added to a record must
// be added to its example, or the goldens do not show it.
func TestExamplesAreFull(t *testing.T) {
	forJobs := map[string]bool{"JobType": true, "TimeoutMs": true, "MaxAttempts": true}
	var walk func(path string, v reflect.Value)
	walk = func(path string, v reflect.Value) {
		switch v.Kind() {
		case reflect.Pointer:
			walk(path, v.Elem())
		case reflect.Slice:
			if v.Type().Elem().Kind() == reflect.Struct {
				walk(path+"[0]", v.Index(0))
			}
		case reflect.Struct:
			if _, ok := reflect.TypeAssert[time.Time](v); ok {
				return
			}
			for i := range v.NumField() {
				f := v.Type().Field(i)
				if f.Name == "Unknown" || forJobs[f.Name] {
					continue
				}
				if v.Field(i).IsZero() {
					t.Errorf("%s.%s is not set in the example", path, f.Name)
					continue
				}
				walk(path+"."+f.Name, v.Field(i))
			}
		default: // a value, not to be walked into
		}
	}
	for _, k := range kinds() {
		walk(k.name, reflect.ValueOf(k.rec))
	}
}

// TestUnknownFieldsSurvive plants a field of a newer version into every object
// of every record and wants it back after a read and a rewrite.
func TestUnknownFieldsSurvive(t *testing.T) {
	for _, k := range kinds() {
		t.Run(k.name, func(t *testing.T) {
			b, err := Encode(k.rec)
			if err != nil {
				t.Fatal(err)
			}
			var tree any
			if err := json.Unmarshal(b, &tree); err != nil {
				t.Fatal(err)
			}
			planted := plant(tree)
			with, err := json.Marshal(planted, json.Deterministic(true))
			if err != nil {
				t.Fatal(err)
			}
			rec, err := k.decode(with)
			if err != nil {
				t.Fatal(err)
			}
			again, err := Encode(rec.(record))
			if err != nil {
				t.Fatal(err)
			}
			var got any
			if err := json.Unmarshal(again, &got); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(planted, got); diff != "" {
				t.Errorf("lost in a rewrite (-planted +kept):\n%s", diff)
			}
		})
	}
}

// plant adds a field to each object that is a struct in Go. Maps of people's own
// keys need none, and a lineage is closed.
func plant(v any) any {
	switch v := v.(type) {
	case []any:
		for i := range v {
			v[i] = plant(v[i])
		}
	case map[string]any:
		for k := range v {
			switch k {
			case "env", "labels", "require", "service", "slots", "lineage":
			default:
				v[k] = plant(v[k])
			}
		}
		v["x_newer"] = map[string]any{"a": []any{"b", 1.5}}
	}
	return v
}

func TestDecodeRefuses(t *testing.T) {
	for _, k := range kinds() {
		t.Run(k.name, func(t *testing.T) {
			good, err := Encode(k.rec)
			if err != nil {
				t.Fatal(err)
			}
			for name, body := range map[string][]byte{
				"oversized":     nil,
				"empty":         {},
				"garbage":       []byte("\x00\xff\x17"),
				"truncated":     good[:len(good)-3],
				"trailing":      append(bytes.Clone(good), "{}"...),
				"an array":      []byte("[]"),
				"null":          []byte("null"),
				"no schema":     []byte("{}"),
				"schema 0":      bytes.Replace(good, []byte(`"schema":1`), []byte(`"schema":0`), 1),
				"wrong type":    bytes.Replace(good, []byte(`"schema":1`), []byte(`"schema":"1"`), 1),
				"newer":         bytes.Replace(good, []byte(`"schema":1`), []byte(`"schema":2`), 1),
				"duplicate key": bytes.Replace(good, []byte(`"schema":1`), []byte(`"schema":1,"schema":1`), 1),
			} {
				_, err := k.decode(body)
				var bad *UnreadableError
				if !asError(err, &bad) {
					t.Errorf("%s: got %v, want an UnreadableError", name, err)
				}
				if Newer(err) != (name == "newer") {
					t.Errorf("%s: Newer is %v", name, Newer(err))
				}
			}
		})
	}
}

// TestDecodeChecksIdentity: a record that was copied to another key must not
// speak for it, and one that contradicts itself speaks for nobody.
func TestDecodeChecksIdentity(t *testing.T) {
	enc := func(r record) []byte {
		b, err := json.Marshal(r, json.Deterministic(true))
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	h := Head{Schema: 1, Nonce: "x"}
	for name, err := range map[string]error{
		"desired under another name": second(DecodeDesired("b", enc(&Desired{Head: h, Name: "a", UID: "u", State: DesiredPresent}))),
		"desired without uid":        second(DecodeDesired("a", enc(&Desired{Head: h, Name: "a", State: DesiredPresent}))),
		"desired in no state":        second(DecodeDesired("a", enc(&Desired{Head: h, Name: "a", UID: "u", State: "maybe"}))),
		"session under another name": second(DecodeSession("b", enc(&Session{Head: h, Name: "a", Epoch: 1, Phase: PhasePending}))),
		"session at epoch 0":         second(DecodeSession("a", enc(&Session{Head: h, Name: "a", Phase: PhasePending}))),
		"owner without incarnation":  second(DecodeSession("a", enc(&Session{Head: h, Name: "a", Epoch: 1, Owner: "n", Phase: PhasePending}))),
		"incarnation without owner":  second(DecodeSession("a", enc(&Session{Head: h, Name: "a", Epoch: 1, Incarnation: 1, Phase: PhasePending}))),
		"session without phase":      second(DecodeSession("a", enc(&Session{Head: h, Name: "a", Epoch: 1}))),
		"node under another id":      second(DecodeNode("m", enc(&Node{Head: h, ID: "n", Incarnation: 1, State: NodeLive, TTLMillis: 1}))),
		"node at incarnation 0":      second(DecodeNode("n", enc(&Node{Head: h, ID: "n", State: NodeLive, TTLMillis: 1}))),
		"node in no state":           second(DecodeNode("n", enc(&Node{Head: h, ID: "n", Incarnation: 1, State: "?", TTLMillis: 1}))),
		"node without ttl":           second(DecodeNode("n", enc(&Node{Head: h, ID: "n", Incarnation: 1, State: NodeLive}))),
		"meta without fleet":         second(DecodeMeta(enc(&Meta{Head: h}))),
		"directive for another":      second(DecodeDirective("m", enc(&Directive{Head: h, Node: "n"}))),
		"tenant under another name":  second(DecodeTenant("b", enc(&Tenant{Head: h, Name: "a", Tier: TierFree}))),
		"tenant without tier":        second(DecodeTenant("a", enc(&Tenant{Head: h, Name: "a"}))),
		"batch under another key":    second(DecodeEventBatch(EventKey("n", 1, 2), enc(&EventBatch{Head: h, Node: "n", Incarnation: 1, Seq: 3}))),
		"batch under no key":         second(DecodeEventBatch("events/x", enc(&EventBatch{Head: h, Node: "n", Incarnation: 1, Seq: 3}))),
		"event without id":           second(DecodeEventBatch(EventKey("n", 1, 2), enc(&EventBatch{Head: h, Node: "n", Incarnation: 1, Seq: 2, Events: []Event{{}}}))),
		"batch with too many events": second(DecodeEventBatch(EventKey("n", 1, 2), enc(&EventBatch{Head: h, Node: "n", Incarnation: 1, Seq: 2, Events: make([]Event, MaxEventsPerBatch+1)}))),
	} {
		var bad *UnreadableError
		if !asError(err, &bad) {
			t.Errorf("%s: got %v, want an UnreadableError", name, err)
		}
	}
}

func second[T any](_ T, err error) error { return err }

func TestEncodeRefuses(t *testing.T) {
	if _, err := Encode(&Signal{}); err == nil {
		t.Error("a record without a schema number was encoded")
	}
	if _, err := Encode(&Desired{Head: Head{Schema: 1}, Name: "a", Spec: Spec{Command: []string{strings.Repeat("x", MaxRecord)}}}); err == nil {
		t.Error("a record that no reader would read was encoded")
	}
}

func TestEventKeysSortAsWritten(t *testing.T) {
	keys := []string{EventKey("n", 9, 999), EventKey("n", 10, 1), EventKey("n", 10, 10), EventKey("n", 10, 1000000)}
	for i := 1; i < len(keys); i++ {
		if keys[i-1] >= keys[i] {
			t.Errorf("%s sorts after %s", keys[i-1], keys[i])
		}
	}
}

func FuzzDecode(f *testing.F) {
	for _, k := range kinds() {
		b, err := Encode(k.rec)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Add([]byte(nil))
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, k := range kinds() {
			rec, err := k.decode(body)
			if err != nil {
				var bad *UnreadableError
				if !asError(err, &bad) {
					t.Fatalf("%s: %v is no UnreadableError", k.name, err)
				}
				continue
			}
			// What was read can be written, and means the same again.
			again, err := Encode(rec.(record))
			if err != nil && len(body) < MaxRecord/8 { // escapes can grow a body
				t.Fatalf("%s: read but not written: %v", k.name, err)
			}
			if err != nil {
				continue
			}
			rec2, err := k.decode(again)
			if err != nil {
				t.Fatalf("%s: written but not read: %v\n%s", k.name, err, again)
			}
			third, err := Encode(rec2.(record))
			if err != nil || !bytes.Equal(again, third) {
				t.Fatalf("%s: not stable (%v):\n%s\n%s", k.name, err, again, third)
			}
		}
	})
}
