package fleet

import (
	"bytes"
	"maps"
	"reflect"
	"slices"
	"strings"
	"unicode"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"go.yaml.in/yaml/v3"
)

// Pair is one written field of a manifest.
type Pair struct {
	Name  string
	Value any // string, bool, int64, []string, []int, map[string]string or a list of mounts
}

// Pairs returns what a manifest says, in the order it is written. Fields that
// say nothing are left out.
func (m *Manifest) Pairs() []Pair {
	var out []Pair
	for _, f := range Fields() {
		if v := f.codec.encode(f.ptr(m)); v != nil {
			out = append(out, Pair{Name: f.Name, Value: v})
		}
	}
	return out
}

// MarshalYAML writes the manifest so that ParseManifests reads it back.
func (m *Manifest) MarshalYAML() (any, error) { return m.yamlNode() }

func (m *Manifest) yamlNode() (*yaml.Node, error) {
	n := &yaml.Node{Kind: yaml.MappingNode}
	add := func(k string, v any) error {
		var key, value yaml.Node
		key.SetString(k)
		if err := value.Encode(v); err != nil {
			return err
		}
		quoteHidden(&value)
		n.Content = append(n.Content, &key, &value)
		return nil
	}
	if err := add("manifest", ManifestVersion); err != nil {
		return nil, err
	}
	for _, p := range m.Pairs() {
		if err := add(p.Name, p.Value); err != nil {
			return nil, err
		}
	}
	return n, nil
}

// quoteHidden puts text that holds invisible characters into double quotes, the
// one style in which they can be written, and later escaped, without becoming
// something else.
func quoteHidden(n *yaml.Node) {
	hidden := func(r rune) bool { return r != '\n' && r != ' ' && !unicode.IsPrint(r) }
	if n.Kind == yaml.ScalarNode && strings.ContainsFunc(n.Value, hidden) {
		n.Style = yaml.DoubleQuotedStyle
	}
	for _, c := range n.Content {
		quoteHidden(c)
	}
}

// WriteYAML renders manifests as one YAML stream.
func WriteYAML(manifests []Manifest) ([]byte, error) {
	var b bytes.Buffer
	enc := yaml.NewEncoder(&b)
	enc.SetIndent(2)
	for i := range manifests {
		if err := enc.Encode(&manifests[i]); err != nil {
			return nil, err
		}
	}
	if len(manifests) == 0 {
		return nil, nil
	}
	if err := enc.Close(); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// MarshalJSONTo writes the manifest as one JSON object, which is a manifest too.
func (m *Manifest) MarshalJSONTo(enc *jsontext.Encoder) error {
	if err := enc.WriteToken(jsontext.BeginObject); err != nil {
		return err
	}
	for _, p := range append([]Pair{{Name: "manifest", Value: ManifestVersion}}, m.Pairs()...) {
		if err := enc.WriteToken(jsontext.String(p.Name)); err != nil {
			return err
		}
		if err := json.MarshalEncode(enc, p.Value, json.Deterministic(true)); err != nil {
			return err
		}
	}
	return enc.WriteToken(jsontext.EndObject)
}

// Change is one field in which two manifests differ.
type Change struct {
	Field string `json:"field"`
	From  any    `json:"from,omitzero"` // nil: was not set
	To    any    `json:"to,omitzero"`   // nil: is not set any more
}

// Diff lists the fields in which two manifests differ, in the order they are
// written. Policies that are left open are compared as their defaults.
func Diff(from, to *Manifest) []Change {
	a, b := *from, *to
	a.Spec, b.Spec = a.Spec.WithDefaults(), b.Spec.WithDefaults()
	if b.WakeAt.IsZero() {
		b.WakeAt = a.WakeAt // left out means: leave it as it is
	}
	var out []Change
	for _, f := range Fields() {
		x, y := f.codec.encode(f.ptr(&a)), f.codec.encode(f.ptr(&b))
		if !reflect.DeepEqual(x, y) {
			out = append(out, Change{Field: f.Name, From: x, To: y})
		}
	}
	return out
}

// SchemaJSON returns the JSON schema of one manifest document.
func SchemaJSON() ([]byte, error) {
	props := map[string]any{
		"manifest": map[string]any{
			"const":       ManifestVersion,
			"description": "Version of this form.",
		},
	}
	order := []string{"manifest"}
	for _, f := range Fields() {
		js := map[string]any{"description": strings.ReplaceAll(f.Doc, "\n", " ")}
		maps.Copy(js, f.codec.schema())
		props[f.Name] = js
		order = append(order, f.Name)
	}
	b, err := json.Marshal(map[string]any{
		"$schema":              "https://json-schema.org/draft/2020-12/schema",
		"$id":                  "https://github.com/barista-fleet/barista/manifest-v1.json",
		"title":                "Barista manifest",
		"description":          "One name and what to run under it, as fleetctl apply -f reads it.",
		"type":                 "object",
		"properties":           ordered{keys: order, m: props},
		"required":             []string{"name"},
		"anyOf":                []any{required("command"), required("image")},
		"additionalProperties": false,
	}, json.Deterministic(true), jsontext.WithIndent("  "))
	return append(b, '\n'), err
}

func required(field string) map[string]any { return map[string]any{"required": []string{field}} }

// ordered is a JSON object whose members keep the order of keys.
type ordered struct {
	keys []string
	m    map[string]any
}

// MarshalJSONTo writes the members in order.
func (o ordered) MarshalJSONTo(enc *jsontext.Encoder) error {
	if err := enc.WriteToken(jsontext.BeginObject); err != nil {
		return err
	}
	for _, k := range slices.Compact(o.keys) {
		if err := enc.WriteToken(jsontext.String(k)); err != nil {
			return err
		}
		if err := json.MarshalEncode(enc, o.m[k], json.Deterministic(true)); err != nil {
			return err
		}
	}
	return enc.WriteToken(jsontext.EndObject)
}
