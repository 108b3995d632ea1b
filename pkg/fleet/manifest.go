package fleet

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// MaxManifestBytes bounds one manifest file: some tens of thousands of names.
const MaxManifestBytes = 64 << 20

// maxDocumentNodes bounds the values of one document, aliases counted each time
// they are used: a few lines of aliases can otherwise stand for billions.
const (
	maxDocumentNodes = 20_000
	maxDocumentDepth = 64
)

// ManifestError is one thing that is wrong with a manifest, and where.
type ManifestError struct {
	File  string
	Line  int    // 0 if no line can be named
	Field string // empty where it is about the document
	Err   error
	Hint  string // what to write instead; may be empty
}

func (e *ManifestError) Error() string {
	var b strings.Builder
	b.WriteString(e.File)
	if e.Line > 0 {
		fmt.Fprintf(&b, ":%d", e.Line)
	}
	b.WriteString(": ")
	if e.Field != "" {
		b.WriteString(e.Field + ": ")
	}
	b.WriteString(e.Err.Error())
	if e.Hint != "" {
		b.WriteString(": " + e.Hint)
	}
	return b.String()
}

func (e *ManifestError) Unwrap() error { return e.Err }

// Document is one manifest of a file.
type Document struct {
	File     string
	Line     int // of its first line
	Manifest Manifest
	// Errs is everything that is wrong with this document. The others of its
	// file can be used all the same.
	Errs []error
}

// ParseManifests reads a file of manifests: YAML documents, JSON objects one
// after another, or a list of either. The error is one that makes the file as a
// whole unreadable; what is wrong with one document is in its Errs.
func ParseManifests(file string, data []byte) ([]Document, error) {
	if len(data) > MaxManifestBytes {
		return nil, &ManifestError{File: file, Err: fmt.Errorf("%d bytes, at most %d", len(data), MaxManifestBytes), Hint: "split the file"}
	}
	roots, err := parseTree(file, data)
	if err != nil {
		return nil, err
	}
	var docs []Document
	for _, n := range roots {
		items := []*yaml.Node{n}
		if n.Kind == yaml.SequenceNode {
			items = n.Content
		}
		for _, item := range items {
			docs = append(docs, parseDocument(file, item))
		}
	}
	return docs, nil
}

// parseTree returns the root values of a file. JSON is told by its first byte
// and read as JSON, because it may be written in ways that YAML does not allow.
func parseTree(file string, data []byte) ([]*yaml.Node, error) {
	trimmed := bytes.TrimLeft(data, " \t\r\n\ufeff")
	if len(trimmed) > 0 && (trimmed[0] == '{' || trimmed[0] == '[') {
		roots, jsonErr := parseJSON(file, data)
		if jsonErr == nil {
			return roots, nil
		}
		// It may still be YAML in flow style.
		if roots, err := parseYAML(file, data); err == nil {
			return roots, nil
		}
		return nil, jsonErr
	}
	return parseYAML(file, data)
}

func parseYAML(file string, data []byte) ([]*yaml.Node, error) {
	dec := yaml.NewDecoder(bytes.NewReader(data))
	var roots []*yaml.Node
	for {
		var doc yaml.Node
		err := dec.Decode(&doc)
		if errors.Is(err, io.EOF) {
			return roots, nil
		}
		if err != nil {
			return nil, &ManifestError{File: file, Err: errors.New(strings.TrimPrefix(err.Error(), "yaml: "))}
		}
		if doc.Kind != yaml.DocumentNode || len(doc.Content) != 1 {
			continue
		}
		root := doc.Content[0]
		if root.Kind == yaml.ScalarNode && root.ShortTag() == "!!null" {
			continue // an empty document, as after a last ---
		}
		roots = append(roots, root)
	}
}

// expand replaces aliases by what they stand for, within a budget of values. An
// alias of something that holds it would never end: the depth ends it.
func expand(n *yaml.Node, budget *int, depth int) (*yaml.Node, error) {
	if *budget--; *budget < 0 || depth > maxDocumentDepth {
		return nil, at(n, "more than %d values in one document (aliases count each time), or %d levels", maxDocumentNodes, maxDocumentDepth)
	}
	if n.Kind == yaml.AliasNode {
		return expand(n.Alias, budget, depth+1)
	}
	for i, c := range n.Content {
		x, err := expand(c, budget, depth+1)
		if err != nil {
			return nil, err
		}
		n.Content[i] = x
	}
	return n, nil
}

func parseDocument(file string, n *yaml.Node) Document {
	d := Document{File: file, Line: n.Line}
	budget := maxDocumentNodes
	n, err := expand(n, &budget, 0)
	if err != nil {
		d.Errs = append(d.Errs, wrapValue(file, "", err))
		return d
	}
	fail := func(field string, err error) { d.Errs = append(d.Errs, wrapValue(file, field, err)) }
	if n.Kind != yaml.MappingNode {
		fail("", at(n, "%s, want a manifest: a map with name and command", describe(n)))
		return d
	}
	fields := Fields()
	seen := make(map[string]int, len(fields))
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, v := n.Content[i], n.Content[i+1]
		key := k.Value
		if k.Kind != yaml.ScalarNode {
			fail("", at(k, "%s as a field's name", describe(k)))
			continue
		}
		if line, dup := seen[key]; dup {
			fail(key, at(k, "given twice, first on line %d", line))
			continue
		}
		seen[key] = k.Line
		if key == "manifest" {
			if v.Value != fmt.Sprint(ManifestVersion) || v.ShortTag() != tagInt {
				fail(key, at(v, "version %q: this program reads version %d", v.Value, ManifestVersion))
			}
			continue
		}
		j := slices.IndexFunc(fields, func(f Field) bool { return f.Name == key })
		if j < 0 {
			d.Errs = append(d.Errs, unknownField(file, k, fields))
			continue
		}
		if err := fields[j].codec.decode(v, fields[j].ptr(&d.Manifest)); err != nil {
			fail(key, err)
		}
	}
	_, named := seen["name"]
	if !named {
		fail("name", at(n, "missing: every manifest needs one"))
	}
	if _, both := seen["payload"]; both && seen["payload_base64"] > 0 {
		fail("payload", at(n, "given twice: keep payload or payload_base64"))
	}
	if len(d.Errs) > 0 {
		return d // what Validate would add is likely to follow from these
	}
	if err = d.Manifest.Validate(); err != nil {
		var bad *SpecError
		if !errors.As(err, &bad) {
			fail("", err)
			return d
		}
		for _, p := range bad.Problems {
			line := n.Line
			if l, ok := seen[p.Field]; ok {
				line = l
			}
			d.Errs = append(d.Errs, &ManifestError{File: file, Line: line, Field: p.Field, Err: errors.New(p.Message)})
		}
	}
	return d
}

func unknownField(file string, k *yaml.Node, fields []Field) error {
	names := make([]string, len(fields))
	for i, f := range fields {
		names[i] = f.Name
	}
	e := &ManifestError{File: file, Line: k.Line, Err: fmt.Errorf("unknown field %q", k.Value)}
	if best := Closest(k.Value, names); best != "" {
		e.Hint = fmt.Sprintf("did you mean %s?", best)
	} else {
		e.Hint = "fleetctl schema lists the fields"
	}
	return e
}

// Validate refuses a manifest that no fleet could hold. The error is a *SpecError.
func (m *Manifest) Validate() error {
	var p problems
	if CheckName(m.Name) != nil {
		p.add("name", "%q: %s", m.Name, NameRule)
	}
	if bad, ok := errors.AsType[*SpecError](m.Spec.Validate()); ok {
		p = append(p, bad.Problems...)
	}
	if !m.WakeAt.IsZero() && m.Spec.Kind == KindJob {
		p.add("wake_at", "it resumes a paused session, and a job is never paused: leave it out")
	}
	if y := m.WakeAt.UTC().Year(); !m.WakeAt.IsZero() && (y < 2000 || y > 9998) {
		p.add("wake_at", "year %d: that is no instant to wake at", y)
	}
	return p.err("")
}

func wrapValue(file, field string, err error) error {
	e := &ManifestError{File: file, Field: field, Err: err}
	if v, ok := errors.AsType[*valueError](err); ok {
		e.Line = v.line
	}
	return e
}

// describe says what a node is, in words for a message.
func describe(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a map"
	case yaml.SequenceNode:
		return "a list"
	case yaml.ScalarNode:
		switch n.ShortTag() {
		case tagStr:
			return fmt.Sprintf("text %q", shorten(n.Value))
		case tagInt, tagFloat:
			return "number " + shorten(n.Value)
		case tagBool:
			return n.Value
		case "!!null":
			return "nothing"
		case tagTime:
			return "date " + shorten(n.Value)
		}
		return "a value tagged " + shorten(n.Tag)
	default: // documents and aliases do not get here
		return "an unknown value"
	}
}

// shorten keeps a quoted value from filling the screen.
func shorten(s string) string {
	const most = 60
	if len(s) > most {
		return strings.ToValidUTF8(s[:most], "") + "…"
	}
	return s
}
