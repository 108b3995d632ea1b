package fleet

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"
)

func parseOne(t *testing.T, text string) (Manifest, []error) {
	t.Helper()
	docs, err := ParseManifests("f.yaml", []byte(text))
	if err != nil {
		return Manifest{}, []error{err}
	}
	if len(docs) != 1 {
		t.Fatalf("%d documents, want 1", len(docs))
	}
	return docs[0].Manifest, docs[0].Errs
}

func TestParseManifests(t *testing.T) {
	web := Manifest{Name: "web", Spec: Spec{Command: []string{"sleep", "300"}, CPUMillis: 500, Env: map[string]string{"PORT": "8080", "DEBUG": "true", "V": "1.10"}}}
	for _, c := range []struct {
		name, text string
		want       []Manifest
	}{
		{"yaml", "name: web\ncommand: [sleep, 300]\ncpu: 0.5\nenv: {PORT: 8080, DEBUG: true, V: 1.10}\n", []Manifest{web}},
		{"json", `{"name":"web","command":["sleep",300],"cpu":"500m","env":{"PORT":8080,"DEBUG":true,"V":"1.10"}}`, []Manifest{web}},
		{"json with tabs", "{\n\t\"name\": \"a\",\n\t\"command\": [\"x\"]\n}\n", []Manifest{{Name: "a", Spec: Spec{Command: []string{"x"}}}}},
		{"flow yaml", "{name: a, command: [x]}", []Manifest{{Name: "a", Spec: Spec{Command: []string{"x"}}}}},
		{"documents", "---\nname: a\ncommand: [x]\n---\nname: b\ncommand: [y]\n---\n", []Manifest{
			{Name: "a", Spec: Spec{Command: []string{"x"}}}, {Name: "b", Spec: Spec{Command: []string{"y"}}},
		}},
		{"json objects", `{"name":"a","command":["x"]}{"name":"b","command":["y"]}`, []Manifest{
			{Name: "a", Spec: Spec{Command: []string{"x"}}}, {Name: "b", Spec: Spec{Command: []string{"y"}}},
		}},
		{"a list", "- name: a\n  command: [x]\n- {name: b, command: [y]}\n", []Manifest{
			{Name: "a", Spec: Spec{Command: []string{"x"}}}, {Name: "b", Spec: Spec{Command: []string{"y"}}},
		}},
		{"aliases", "name: a\ncommand: &c [x]\nlabels: {l: &v z}\nrequire: {l: *v}\n", []Manifest{
			{Name: "a", Spec: Spec{Command: []string{"x"}, Labels: map[string]string{"l": "z"}, Require: map[string]string{"l": "z"}}},
		}},
		{"version", "manifest: 1\nname: a\ncommand: [x]\n", []Manifest{{Name: "a", Spec: Spec{Command: []string{"x"}}}}},
		{"seconds", "name: a\ncommand: [x]\nttl: 3600\n", []Manifest{{Name: "a", Spec: Spec{Command: []string{"x"}, TTLSeconds: 3600}}}},
		{"instant", "name: a\ncommand: [x]\nwake_at: 2026-12-24T18:00:00Z\n", []Manifest{{Name: "a", Spec: Spec{Command: []string{"x"}}, WakeAt: day}}},
		{"empty", "", nil},
		{"comments only", "# nothing\n---\n", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			docs, err := ParseManifests("f", []byte(c.text))
			noError(t, err)
			var got []Manifest
			for _, d := range docs {
				if len(d.Errs) > 0 {
					t.Error(d.Errs)
				}
				got = append(got, d.Manifest)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestManifestErrorsSayWhere(t *testing.T) {
	const ok = "name: a\ncommand: [x]\n"
	for _, c := range []struct{ name, text, want string }{
		{"unknown field", ok + "\nimaeg: b\n", `f.yaml:4: unknown field "imaeg": did you mean image?`},
		{"unknown field in json", "{\"name\":\"a\",\n\"command\":[\"x\"],\n\n\"on_owner_los\":\"hold\"}", `f.yaml:4: unknown field "on_owner_los": did you mean on_owner_loss?`},
		{"nothing near", ok + "zzzzzz: 1\n", `f.yaml:3: unknown field "zzzzzz": fleetctl schema lists the fields`},
		{"unknown field of a mount", ok + "mounts:\n- source: /a\n  target: /b\n  ro: true\n", `f.yaml:6: mounts: unknown field "ro" of a mount`},
		{"merge key", "base: &b {name: a}\n<<: *b\ncommand: [x]\n", `f.yaml:1: unknown field "base"`},
		{"given twice", ok + "name: b\n", "f.yaml:3: name: given twice, first on line 1"},
		{"map key twice", ok + "env:\n  A: 1\n  A: 2\n", `f.yaml:5: env: "A" is given twice`},
		{"no name", "command: [x]\n", "f.yaml:1: name: missing"},
		{"bad name", "command: [x]\nname: A\n", `f.yaml:2: name: bad name "A": ` + NameRule},
		{"number as a name", "name: 12\ncommand: [x]\n", "f.yaml:1: name: number 12, want a name"},
		{"text for a list", "name: a\ncommand: sleep 300\n", `f.yaml:2: command: text "sleep 300", want a list`},
		{"list in a list", "name: a\ncommand: [[x]]\n", "f.yaml:2: command: a list, want text"},
		{"nothing in a map", ok + "env:\n  A:\n", "f.yaml:4: env: A: nothing, want text"},
		{"word for a number", ok + "pids: many\n", `f.yaml:3: pids: text "many", want a whole number`},
		{"negative", ok + "pids: -1\n", "f.yaml:3: pids: \"-1\" is no whole number"},
		{"octal", ok + "pids: 0x10\n", "f.yaml:3: pids: \"0x10\" is no whole number"},
		{"quantity", ok + "memory: 256MB\n", `f.yaml:3: memory: not a quantity: "256MB" is no amount of memory: write 256Mi`},
		{"duration without a unit", ok + "kind: job\ntimeout: 30\n", "f.yaml:4: timeout: number 30, want a duration such as 30s"},
		{"enum", ok + "kind: deamon\n", `f.yaml:3: kind: "deamon", want one of session, job`},
		{"boolean", ok + "read_only: yes please\n", `f.yaml:3: read_only: text "yes please", want true or false`},
		{"relation", ok + "kind: job\nttl: 60\n", "f.yaml:4: ttl: it pauses a session"},
		{"relation without its field", "name: a\n", "f.yaml:1: command: nothing to run"},
		{"two payloads", ok + "payload: a\npayload_base64: YQ==\n", "f.yaml:1: payload: given twice: keep payload or payload_base64"},
		{"base64", ok + "payload_base64: '*'\n", "f.yaml:3: payload_base64: not base64"},
		{"alarm of a job", ok + "kind: job\nwake_at: 2026-12-24T18:00:00Z\n", "f.yaml:4: wake_at: it resumes a paused session"},
		{"not an instant", ok + "wake_at: tomorrow\n", `f.yaml:3: wake_at: "tomorrow" is no instant`},
		{"newer version", "manifest: 2\n" + ok, `f.yaml:1: manifest: version "2": this program reads version 1`},
		{"a scalar", "hello", `f.yaml:1: text "hello", want a manifest`},
		{"custom tag", ok + "user: !who me\n", "f.yaml:3: user: a value tagged !who"},
		{"broken yaml", "name: a\n  command: [x\n", "f.yaml: line "},
		{"broken json", "{\"name\":\"a\",\n\"command\":[\"x\"\n", "f.yaml:3: not JSON: "},
		{"json duplicate", `{"name":"a","name":"b","command":["x"]}`, `f.yaml:1: name: given twice`},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, errs := parseOne(t, c.text)
			if len(errs) == 0 || !strings.Contains(errs[0].Error(), c.want) {
				t.Errorf("got %v, want %q", errs, c.want)
			}
		})
	}
}

// TestAliasBombs: a few lines that stand for billions of values, or for
// themselves, are refused before they are built.
func TestAliasBombs(t *testing.T) {
	bomb := "a: &a [x,x,x,x,x,x,x,x,x,x]\n"
	for c := 'b'; c <= 'j'; c++ {
		bomb += fmt.Sprintf("%[1]c: &%[1]c [*%[2]c,*%[2]c,*%[2]c,*%[2]c,*%[2]c,*%[2]c,*%[2]c,*%[2]c,*%[2]c,*%[2]c]\n", c, c-1)
	}
	for name, text := range map[string]string{
		"laughs":      bomb,
		"itself":      "name: &n [*n]\n",
		"itself, map": "name: a\ncommand: [x]\nenv: &e {A: *e}\n",
		"in a list":   "- &x [*x]\n- &y {y: *y}\n",
		"deep":        "name: " + strings.Repeat("[", 500) + strings.Repeat("]", 500),
	} {
		docs, err := ParseManifests("f", []byte(text))
		if err != nil {
			continue
		}
		for _, d := range docs {
			if len(d.Errs) == 0 {
				t.Errorf("%s: accepted", name)
			}
		}
	}
}

func TestOneBadDocumentLeavesTheOthers(t *testing.T) {
	docs, err := ParseManifests("f", []byte("name: a\ncommand: [x]\n---\nname: b\nbogus: 1\n---\nname: c\ncommand: [z]\n"))
	noError(t, err)
	if len(docs) != 3 || len(docs[0].Errs) != 0 || len(docs[1].Errs) == 0 || len(docs[2].Errs) != 0 {
		t.Errorf("got %+v", docs)
	}
	if docs[1].Line != 4 || docs[1].Manifest.Name != "b" {
		t.Errorf("the bad one is %q on line %d, want b on line 4", docs[1].Manifest.Name, docs[1].Line)
	}
}

// TestExportRoundTrips: what is exported is read back as what it was, as YAML
// and as JSON, for values that YAML likes to read as something else.
func TestExportRoundTrips(t *testing.T) {
	full := Manifest{Name: "full", Spec: fullSpec(), WakeAt: day}
	job := Manifest{Name: "job", Spec: Spec{Kind: KindJob, Command: []string{"x"}, JobType: "render", TimeoutMs: 90000, MaxAttempts: 5, Payload: []byte{0, 255, 10}}}
	tricky := Manifest{Name: "tricky", Spec: Spec{
		Command: []string{"no", "null", "~", "1e3", "0x10", "2026-01-01", "- a", "a: b", "#", "", " lead", "trail ", "a\nb\n", "é\t", "\u202eabc", "\x1b[31m", "<<", "*x", "&y", "!z", "%", "@", "`", "'\""},
		Env:     map[string]string{"A": "on", "B": "|", "C": "\x7f\u0085\u2028"},
		Payload: []byte("line\n\ttab: [\n"),
	}}
	all := []Manifest{full, job, tricky}
	y, err := WriteYAML(all)
	noError(t, err)
	var j []byte
	for i := range all {
		b, err := json.Marshal(&all[i])
		noError(t, err)
		j = append(append(j, b...), '\n')
	}
	for form, data := range map[string][]byte{"yaml": y, "json": j} {
		docs, err := ParseManifests(form, data)
		noError(t, err)
		var got []Manifest
		for _, d := range docs {
			for _, err := range d.Errs {
				t.Error(err)
			}
			got = append(got, d.Manifest)
		}
		if diff := cmp.Diff(all, got); diff != "" {
			t.Errorf("%s: -want +got:\n%s\n%s", form, diff, data)
		}
	}
}

func TestDiff(t *testing.T) {
	a := &Manifest{Name: "a", Spec: Spec{Command: []string{"x"}, CPUMillis: 500, Env: map[string]string{"A": "1"}}, WakeAt: day}
	b := &Manifest{Name: "a", Spec: Spec{Kind: KindSession, Command: []string{"x"}, CPUMillis: 1000, Labels: map[string]string{"l": "v"}}}
	want := []Change{
		{Field: "env", From: map[string]string{"A": "1"}},
		{Field: "cpu", From: "500m", To: "1"},
		{Field: "labels", To: map[string]string{"l": "v"}},
	}
	if diff := cmp.Diff(want, Diff(a, b)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func compileSchema(t testing.TB) *jsonschema.Schema {
	t.Helper()
	text, err := SchemaJSON()
	if err != nil {
		t.Fatal(err)
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	if err := c.AddResource("manifest.json", doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("manifest.json")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestSchemaGolden(t *testing.T) {
	got, err := SchemaJSON()
	noError(t, err)
	file := filepath.Join("testdata", "manifest.schema.json")
	if *update {
		noError(t, os.WriteFile(file, got, 0o644))
	}
	want, err := os.ReadFile(file)
	noError(t, err)
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// TestSchemaAgreesWithParser puts values of every shape into every field: the
// schema and the parser accept the same, and where only the parser refuses, it
// is a relation or a range that Validate names.
func TestSchemaAgreesWithParser(t *testing.T) {
	schema := compileSchema(t)
	values := []string{
		`null`, `true`, `false`, `0`, `1`, `80`, `70000`, `-1`, `1.5`, `0.25`, `8.0`, `1234567890123456789`,
		`""`, `"x"`, `"session"`, `"job"`, `"hold"`, `"keep"`, `"none"`, `"500m"`, `"0.5"`, `"256Mi"`, `"256MB"`, `"1.5Gi"`, `"10m"`, `"1h30m"`, `"30"`, `"1us"`,
		`"YQ=="`, `"2026-12-24T18:00:00Z"`, `"tomorrow"`, `"A"`, `"-a"`,
		`[]`, `["x"]`, `[1]`, `[80]`, `[0]`, `[null]`, `[["x"]]`, `{}`, `{"k":"v"}`, `{"k":1}`, `{"k":null}`, `{"k":{}}`,
		`[{"source":"/a","target":"/b"}]`, `[{"source":"/a","target":"/b","read_only":true}]`, `[{"source":"/a"}]`, `[{"source":"/a","target":"/b","x":1}]`,
	}
	for _, f := range append(Fields(), Field{Name: "manifest"}, Field{Name: "bogus"}) {
		for _, v := range values {
			members := map[string]string{"name": `"a"`, "command": `["x"]`, f.Name: v}
			var parts []string
			for _, k := range sortedKeys(members) {
				parts = append(parts, fmt.Sprintf("%q:%s", k, members[k]))
			}
			text := "{" + strings.Join(parts, ",") + "}"
			inst, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
			noError(t, err)
			schemaErr := schema.Validate(inst)
			_, errs := parseOne(t, text)
			var shape []error // what is wrong with the value as such
			m := new(Manifest)
			if g := fieldNamed(f.Name); g != nil {
				docs, err := parseTree("f", []byte("["+v+"]"))
				noError(t, err)
				if err := g.codec.decode(docs[0].Content[0], g.ptr(m)); err != nil {
					shape = append(shape, err)
				}
			} else {
				shape = errs
			}
			if f.Name == "payload_base64" && schemaErr == nil && len(shape) > 0 {
				continue // contentEncoding only describes
			}
			if (f.Name == "cpu" || f.Name == "memory") && !strings.HasPrefix(v, `"`) && len(v) > 12 {
				continue // numbers beyond any machine: Validate's range in one, the parser's in the other
			}
			if (schemaErr == nil) != (len(shape) == 0) {
				t.Errorf("%s: the schema says %v, the parser %v", text, schemaErr, shape)
			}
			if schemaErr != nil && len(errs) == 0 {
				t.Errorf("%s: refused by the schema (%v) and applied", text, schemaErr)
			}
		}
	}
}

func fieldNamed(name string) *Field {
	for _, f := range Fields() {
		if f.Name == name {
			return &f
		}
	}
	return nil
}

// FuzzParseManifests: no input ends the program, an accepted manifest satisfies
// the schema, and what is written of it is read back as the same.
func FuzzParseManifests(f *testing.F) {
	y, err := WriteYAML([]Manifest{{Name: "full", Spec: fullSpec(), WakeAt: day}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(y)
	for _, s := range []string{
		`{"name":"a","command":["x"],"ttl":60}`, "- name: a\n  command: [x]\n", "name: &n a\ncommand: [*n]\n", "---\n---\n", "{a: b}", "name: \"\\u202e\"",
	} {
		f.Add([]byte(s))
	}
	schema := compileSchema(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		docs, err := ParseManifests("f", data)
		if err != nil {
			return
		}
		for _, d := range docs {
			if len(d.Errs) > 0 {
				continue
			}
			j, err := json.Marshal(&d.Manifest, json.Deterministic(true))
			noError(t, err)
			inst, err := jsonschema.UnmarshalJSON(bytes.NewReader(j))
			noError(t, err)
			if err := schema.Validate(inst); err != nil {
				t.Fatalf("accepted, and refused by the schema: %v\n%s", err, j)
			}
			y, err := WriteYAML([]Manifest{d.Manifest})
			noError(t, err)
			for _, form := range [][]byte{j, y} {
				again, err := ParseManifests("f", form)
				noError(t, err)
				if len(again) != 1 || len(again[0].Errs) > 0 {
					t.Fatalf("written and not read back: %v\n%s", again[0].Errs, form)
				}
				if len(Diff(&d.Manifest, &again[0].Manifest)) > 0 {
					t.Fatalf("read back differently:\n%s", cmp.Diff(d.Manifest, again[0].Manifest))
				}
			}
		}
	})
}

func TestClosest(t *testing.T) {
	words := []string{"apply", "describe", "delete", "ls", "resolve", "wait"}
	for typed, want := range map[string]string{
		"aply": "apply", "appyl": "apply", "lst": "ls", "resovle": "resolve", "destroy": "", "xyz": "", "": "", "wiat": "wait",
	} {
		if got := Closest(typed, words); got != want {
			t.Errorf("%q: got %q, want %q", typed, got, want)
		}
	}
}
