package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/urfave/cli/v3"
	"go.yaml.in/yaml/v3"
	"golang.org/x/term"
)

// contract is the version of the JSON output, which docs/cli-json.md describes.
// It rises when a field is removed or changes its meaning, not when one is added.
const contract = 1

type format string

const (
	formatTable format = "table"
	formatWide  format = "wide"
	formatJSON  format = "json"
	formatYAML  format = "yaml"
	formatName  format = "name"
)

// formatOf reads --output and --json.
func formatOf(cmd *cli.Command) (format, error) {
	f := format(cmd.String(flagOutput))
	if cmd.Bool(flagJSON) {
		f = formatJSON
	}
	switch f {
	case formatTable, formatWide, formatJSON, formatYAML, formatName:
		return f, nil
	}
	return "", usagef("use table, wide, json, yaml or name", "unknown output format %q", f)
}

// wantsJSON reports whether errors are to be JSON too. It is asked also when
// parsing failed, so it looks at whatever was understood.
func wantsJSON(root *cli.Command) bool {
	return root.Bool(flagJSON) || root.String(flagOutput) == string(formatJSON)
}

// toJSON encodes v for output; indented, or as one line of a stream.
func toJSON(v any, indent bool) ([]byte, error) {
	opts := []json.Options{json.Deterministic(true), jsontext.AllowInvalidUTF8(true)}
	if indent {
		opts = append(opts, jsontext.WithIndent("  "))
	}
	b, err := json.Marshal(v, json.JoinOptions(opts...))
	if err != nil {
		return nil, fmt.Errorf("encode output: %w", err)
	}
	return append(safeJSON(b), '\n'), nil
}

// toYAML encodes what toJSON would, as YAML with the same field names.
func toYAML(v any) ([]byte, error) {
	b, err := json.Marshal(v, json.Deterministic(true), jsontext.AllowInvalidUTF8(true))
	if err != nil {
		return nil, fmt.Errorf("encode output: %w", err)
	}
	n, err := yamlOf(jsontext.NewDecoder(bytes.NewReader(b)))
	if err != nil {
		return nil, fmt.Errorf("encode output: %w", err)
	}
	var out bytes.Buffer
	enc := yaml.NewEncoder(&out)
	enc.SetIndent(2)
	if err := enc.Encode(n); err != nil {
		return nil, fmt.Errorf("encode output: %w", err)
	}
	return safeYAML(out.Bytes()), enc.Close()
}

// yamlOf turns the next JSON value into a tree that is written as YAML, its
// members in the same order. What safeYAML has to be able to escape is put into
// double quotes.
func yamlOf(dec *jsontext.Decoder) (*yaml.Node, error) {
	tok, err := dec.ReadToken()
	if err != nil {
		return nil, err
	}
	n := &yaml.Node{Kind: yaml.ScalarNode, Value: tok.String()}
	switch tok.Kind() {
	case 'n':
		n.Tag = "!!null"
	case 't', 'f':
		n.Tag = "!!bool"
	case '0':
		if n.Tag = "!!int"; strings.ContainsAny(n.Value, ".eE") {
			n.Tag = "!!float"
		}
	case '"':
		n.Tag = "!!str"
		if strings.ContainsFunc(n.Value, hostile) {
			n.Style = yaml.DoubleQuotedStyle
		}
	default:
		n.Kind, n.Tag, n.Value = yaml.MappingNode, "!!map", ""
		if tok.Kind() == '[' {
			n.Kind, n.Tag = yaml.SequenceNode, "!!seq"
		}
		for dec.PeekKind() != '}' && dec.PeekKind() != ']' {
			c, err := yamlOf(dec)
			if err != nil {
				return nil, err
			}
			n.Content = append(n.Content, c)
		}
		_, err = dec.ReadToken()
	}
	return n, err
}

// emit writes v as JSON or YAML, and says whether the format was one of them.
func (a *app) emit(f format, v any) (bool, error) {
	var b []byte
	var err error
	switch f {
	case formatJSON:
		b, err = toJSON(v, true)
	case formatYAML:
		b, err = toYAML(v)
	default:
		return false, nil
	}
	if err != nil {
		return true, err
	}
	_, err = a.stdout.Write(b)
	return true, err
}

// line writes one line of text to stdout, escaped.
func (a *app) line(format string, args ...any) error {
	_, err := fmt.Fprintf(a.stdout, "%s\n", safe(fmt.Sprintf(format, args...)))
	return err
}

// note writes one line of text to stderr, escaped.
func (a *app) note(format string, args ...any) {
	_, _ = fmt.Fprintf(a.stderr, "%s\n", safe(fmt.Sprintf(format, args...)))
}

// terminal reports a stream that a person looks at.
func terminal(v any) bool {
	f, ok := isFile(v)
	return ok && term.IsTerminal(int(f.Fd()))
}

// colors reports whether stdout may have colour.
func (a *app) colors(cmd *cli.Command) bool {
	return terminal(a.stdout) && !cmd.Bool(flagNoColor) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}

// table is rows of escaped text in aligned columns.
type table struct {
	header []string
	rows   [][]string
	// paint colours the cells of one column; it must not change their width.
	column int
	paint  func(string) string
}

func (t *table) add(cells ...string) {
	row := make([]string, len(cells))
	for i, c := range cells {
		if row[i] = safe(c); c == "" {
			row[i] = "-"
		}
	}
	t.rows = append(t.rows, row)
}

// write prints the table. widths carries the columns' widths from one call to
// the next, so that a watch stays aligned; nil starts afresh.
func (t *table) write(w io.Writer, widths []int, header bool) ([]int, error) {
	rows := t.rows
	if header {
		rows = append([][]string{t.header}, rows...)
	}
	for _, row := range append([][]string{t.header}, t.rows...) {
		for i, c := range row {
			for len(widths) <= i {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(c))
		}
	}
	var b strings.Builder
	for _, row := range rows {
		line := strings.Builder{}
		for i, c := range row {
			pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(c)+2)
			if t.paint != nil && i == t.column {
				c = t.paint(c)
			}
			line.WriteString(c + pad)
		}
		b.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
	_, err := io.WriteString(w, b.String())
	return widths, err
}
