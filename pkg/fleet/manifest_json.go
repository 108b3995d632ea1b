package fleet

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"go.yaml.in/yaml/v3"
)

// parseJSON reads JSON values, one after another, into the tree that YAML is
// read into, with their line numbers.
func parseJSON(file string, data []byte) ([]*yaml.Node, error) {
	r := jsonReader{dec: jsontext.NewDecoder(bytes.NewReader(data)), data: data, line: 1}
	var roots []*yaml.Node
	for {
		n, err := r.value()
		if errors.Is(err, io.EOF) {
			return roots, nil
		}
		if err != nil {
			line := r.lineAt(r.dec.InputOffset())
			if syn, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
				line, err = r.lineAt(syn.ByteOffset), syn.Err
			}
			return nil, &ManifestError{File: file, Line: line, Err: fmt.Errorf("not JSON: %w", err)}
		}
		roots = append(roots, n)
	}
}

type jsonReader struct {
	dec  *jsontext.Decoder
	data []byte
	line int   // of offset
	off  int64 // where counting stopped
}

// lineAt returns the line of a byte offset. Offsets mostly rise, so lines are
// counted once.
func (r *jsonReader) lineAt(off int64) int {
	off = min(off, int64(len(r.data)))
	if off < r.off {
		return 1 + bytes.Count(r.data[:off], []byte{'\n'})
	}
	r.line += bytes.Count(r.data[r.off:off], []byte{'\n'})
	r.off = off
	return r.line
}

func (r *jsonReader) value() (*yaml.Node, error) {
	tok, err := r.dec.ReadToken()
	if err != nil {
		return nil, err
	}
	n := &yaml.Node{Kind: yaml.ScalarNode, Line: r.lineAt(r.dec.InputOffset())}
	switch tok.Kind() {
	case 'n':
		n.Tag = "!!null"
	case 't', 'f':
		n.Tag, n.Value = tagBool, tok.String()
	case '"':
		n.Tag, n.Value = tagStr, tok.String()
	case '0':
		n.Tag, n.Value = tagInt, tok.String()
		if strings.ContainsAny(n.Value, ".eE") {
			n.Tag = tagFloat
		}
	case '[', '{':
		n.Kind, n.Tag = yaml.SequenceNode, "!!seq"
		if tok.Kind() == '{' {
			n.Kind, n.Tag = yaml.MappingNode, "!!map"
		}
		for {
			if k := r.dec.PeekKind(); k == ']' || k == '}' {
				_, err := r.dec.ReadToken()
				return n, err
			}
			c, err := r.value()
			if err != nil {
				if errors.Is(err, io.EOF) {
					err = io.ErrUnexpectedEOF
				}
				return nil, err
			}
			n.Content = append(n.Content, c)
		}
	default: // the decoder returns no other token here
	}
	return n, nil
}
