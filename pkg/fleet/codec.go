package fleet

import (
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// codec reads and writes one kind of manifest value.
type codec interface {
	// schema is the JSON schema of what decode accepts.
	schema() map[string]any
	// decode reads a manifest's value into *ptr.
	decode(n *yaml.Node, ptr any) error
	// parse reads a flag's values into *ptr.
	parse(values []string, ptr any) error
	// encode returns the value for a manifest, nil if there is nothing to say.
	encode(ptr any) any
}

// valueError is a value that is wrong at a place of its own.
type valueError struct {
	line int
	err  error
}

func (e *valueError) Error() string { return e.err.Error() }
func (e *valueError) Unwrap() error { return e.err }

func at(n *yaml.Node, format string, args ...any) error {
	return &valueError{line: n.Line, err: fmt.Errorf(format, args...)}
}

// Short tags of scalars, as the YAML resolver gives them.
const (
	tagStr   = "!!str"
	tagInt   = "!!int"
	tagFloat = "!!float"
	tagBool  = "!!bool"
	tagTime  = "!!timestamp"
)

// scalar is the codec of one-word values.
type scalar[T comparable] struct {
	js     map[string]any
	tags   []string
	want   string // what to write, for messages
	whole  bool   // a number without a unit is a whole one
	read   func(string) (T, error)
	format func(T) any
}

func (c scalar[T]) schema() map[string]any { return c.js }

func (c scalar[T]) decode(n *yaml.Node, ptr any) error {
	if n.Kind != yaml.ScalarNode || !slices.Contains(c.tags, n.ShortTag()) {
		return at(n, "%s, want %s", describe(n), c.want)
	}
	value := n.Value
	if c.whole && n.ShortTag() == tagFloat {
		whole, err := wholeNumber(value)
		if err != nil {
			return at(n, "%w", err)
		}
		value = strconv.FormatInt(whole, 10)
	}
	v, err := c.read(value)
	if err != nil {
		return at(n, "%w", err)
	}
	*ptr.(*T) = v
	return nil
}

func (c scalar[T]) parse(values []string, ptr any) error {
	v, err := c.read(values[len(values)-1])
	if err != nil {
		return err
	}
	*ptr.(*T) = v
	return nil
}

func (c scalar[T]) encode(ptr any) any {
	var zero T
	if v := *ptr.(*T); v != zero {
		return c.format(v)
	}
	return nil
}

func text() codec {
	return scalar[string]{
		js: map[string]any{"type": "string"}, tags: []string{tagStr}, want: "text",
		read:   func(s string) (string, error) { return s, nil },
		format: func(s string) any { return s },
	}
}

func nameCodec() codec {
	return scalar[string]{
		js:   map[string]any{"type": "string", "pattern": patternName, "maxLength": MaxName},
		tags: []string{tagStr}, want: "a name",
		read:   func(s string) (string, error) { return s, CheckName(s) },
		format: func(s string) any { return s },
	}
}

func enum[T ~string](values ...T) codec {
	words := make([]any, len(values))
	list := make([]string, len(values))
	for i, v := range values {
		words[i], list[i] = string(v), string(v)
	}
	want := "one of " + strings.Join(list, ", ")
	return scalar[T]{
		js: map[string]any{"type": "string", "enum": words}, tags: []string{tagStr}, want: want,
		read: func(s string) (T, error) {
			if !slices.Contains(list, s) {
				return "", fmt.Errorf("%q, want %s", s, want)
			}
			return T(s), nil
		},
		format: func(v T) any { return string(v) },
	}
}

func integer[T int | int64]() codec {
	return scalar[T]{
		js: map[string]any{"type": "integer", "minimum": 0, "maximum": 1 << 53}, tags: []string{tagInt, tagFloat}, want: "a whole number",
		read: func(s string) (T, error) {
			v, err := wholeNumber(s)
			return T(v), err
		},
		format: func(v T) any { return int64(v) },
	}
}

// wholeNumber reads a number as JSON schema's "integer" does: 8, and also 8.0.
func wholeNumber(s string) (int64, error) {
	bad := fmt.Errorf("%q is no whole number from 0 on", s)
	whole, frac, dot := strings.Cut(s, ".")
	if !digits(whole, 16) || dot && (frac == "" || strings.Trim(frac, "0") != "") {
		return 0, bad
	}
	v, err := strconv.ParseInt(whole, 10, 64)
	if err != nil || v > 1<<53 {
		return 0, bad
	}
	return v, nil
}

// quantity is a number or a text with a unit.
func quantity(pattern string, number map[string]any) map[string]any {
	return map[string]any{"anyOf": []any{map[string]any{"type": "string", "pattern": pattern}, number}}
}

func cpu() codec {
	return scalar[int64]{
		js:   quantity(patternCPU, map[string]any{"type": "number", "minimum": 0}),
		tags: []string{tagStr, tagInt, tagFloat}, want: "CPUs such as 2, 0.5 or 500m",
		read: ParseCPU, format: func(v int64) any { return FormatCPU(v) },
	}
}

func memory() codec {
	return scalar[int64]{
		js:   quantity(patternMemory, map[string]any{"type": "integer", "minimum": 0}),
		tags: []string{tagStr, tagInt, tagFloat}, whole: true, want: "an amount such as 256Mi",
		read: ParseMemory, format: func(v int64) any { return FormatMemory(v) },
	}
}

func millis() codec {
	return scalar[int64]{
		js:   map[string]any{"type": "string", "pattern": patternDuration},
		tags: []string{tagStr}, want: "a duration such as 30s or 10m",
		read: ParseMillis, format: func(v int64) any { return FormatMillis(v) },
	}
}

func seconds() codec {
	return scalar[int64]{
		js: quantity(`^[0-9]{1,9}$|`+patternDuration,
			map[string]any{"type": "integer", "minimum": 0, "maximum": 999999999}),
		tags: []string{tagStr, tagInt, tagFloat}, whole: true, want: "seconds such as 3600, or a duration such as 1h",
		read: ParseSeconds, format: func(v int64) any { return FormatMillis(v * 1000) },
	}
}

func instant() codec {
	return scalar[time.Time]{
		js:   map[string]any{"type": "string", "format": "date-time"},
		tags: []string{tagStr, tagTime}, want: "an instant such as 2026-12-24T18:00:00Z",
		read: func(s string) (time.Time, error) {
			t, err := time.Parse(time.RFC3339, s)
			if err != nil {
				return time.Time{}, fmt.Errorf("%q is no instant: write it as 2026-12-24T18:00:00Z", s)
			}
			return t.UTC(), nil
		},
		format: func(t time.Time) any { return t.UTC().Format(time.RFC3339Nano) },
	}
}

type boolCodec struct{}

func (boolCodec) schema() map[string]any { return map[string]any{"type": "boolean"} }

func (boolCodec) decode(n *yaml.Node, ptr any) error {
	if n.Kind != yaml.ScalarNode || n.ShortTag() != tagBool {
		return at(n, "%s, want true or false", describe(n))
	}
	*ptr.(*bool) = strings.EqualFold(n.Value, "true")
	return nil
}

func (boolCodec) parse(values []string, ptr any) error {
	v, err := strconv.ParseBool(values[len(values)-1])
	*ptr.(*bool) = v
	return err
}

func (boolCodec) encode(ptr any) any {
	if *ptr.(*bool) {
		return true
	}
	return nil
}

// literalSchema is what literal accepts: people write PORT: 8080 and mean text.
var literalSchema = map[string]any{"type": []any{"string", "number", "boolean"}}

// literal reads a scalar as the text it was written with.
func literal(n *yaml.Node) (string, error) {
	if n.Kind == yaml.ScalarNode {
		switch n.ShortTag() {
		case tagStr, tagInt, tagFloat, tagBool, tagTime:
			return n.Value, nil
		}
	}
	return "", at(n, "%s, want text", describe(n))
}

// listCodec is a list of texts; with literal numbers are taken as text too.
type listCodec struct{ literal bool }

func (c listCodec) schema() map[string]any {
	items := map[string]any{"type": "string"}
	if c.literal {
		items = literalSchema
	}
	return map[string]any{"type": "array", "items": items}
}

func (c listCodec) decode(n *yaml.Node, ptr any) error {
	if n.Kind != yaml.SequenceNode {
		return at(n, "%s, want a list", describe(n))
	}
	list := make([]string, 0, len(n.Content))
	for _, item := range n.Content {
		s, err := literal(item)
		if err != nil {
			return err
		}
		if !c.literal && item.ShortTag() != tagStr {
			return at(item, "%s, want text", describe(item))
		}
		list = append(list, s)
	}
	*ptr.(*[]string) = list
	return nil
}

func (listCodec) parse(values []string, ptr any) error {
	*ptr.(*[]string) = slices.Clone(values)
	return nil
}

func (listCodec) encode(ptr any) any {
	if v := *ptr.(*[]string); len(v) > 0 {
		return v
	}
	return nil
}

type mapCodec struct{}

func (mapCodec) schema() map[string]any {
	return map[string]any{"type": "object", "additionalProperties": literalSchema}
}

func (mapCodec) decode(n *yaml.Node, ptr any) error {
	if n.Kind != yaml.MappingNode {
		return at(n, "%s, want a map", describe(n))
	}
	m := make(map[string]string, len(n.Content)/2)
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, v := n.Content[i], n.Content[i+1]
		key, err := literal(k)
		if err != nil {
			return err
		}
		if _, dup := m[key]; dup {
			return at(k, "%q is given twice", key)
		}
		value, err := literal(v)
		if err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
		m[key] = value
	}
	*ptr.(*map[string]string) = m
	return nil
}

func (mapCodec) parse(values []string, ptr any) error {
	m := make(map[string]string, len(values))
	for _, kv := range values {
		k, v, ok := strings.Cut(kv, "=")
		if !ok {
			return fmt.Errorf("%q has no =: write KEY=VALUE", kv)
		}
		m[k] = v
	}
	*ptr.(*map[string]string) = m
	return nil
}

func (mapCodec) encode(ptr any) any {
	if v := *ptr.(*map[string]string); len(v) > 0 {
		return v
	}
	return nil
}

type portCodec struct{}

func (portCodec) schema() map[string]any {
	return map[string]any{"type": "array", "items": map[string]any{"type": "integer", "minimum": 1, "maximum": 65535}}
}

func (portCodec) decode(n *yaml.Node, ptr any) error {
	if n.Kind != yaml.SequenceNode {
		return at(n, "%s, want a list of ports", describe(n))
	}
	var values []string
	for _, item := range n.Content {
		if item.Kind != yaml.ScalarNode || item.ShortTag() != tagInt && item.ShortTag() != tagFloat {
			return at(item, "%s, want a port", describe(item))
		}
		values = append(values, item.Value)
	}
	if err := (portCodec{}).parse(values, ptr); err != nil {
		return at(n, "%w", err)
	}
	return nil
}

func (portCodec) parse(values []string, ptr any) error {
	ports := make([]int, 0, len(values))
	for _, s := range values {
		v, err := wholeNumber(s)
		if err != nil || v < 1 || v > 65535 {
			return fmt.Errorf("%q is no port: write a number from 1 to 65535", s)
		}
		ports = append(ports, int(v))
	}
	*ptr.(*[]int) = ports
	return nil
}

func (portCodec) encode(ptr any) any {
	if v := *ptr.(*[]int); len(v) > 0 {
		return v
	}
	return nil
}

// payloadText and payloadBase64 are the two ways to write Spec.Payload.
type payloadText struct{}

func (payloadText) schema() map[string]any { return map[string]any{"type": "string"} }

func (payloadText) decode(n *yaml.Node, ptr any) error {
	if n.Kind != yaml.ScalarNode || n.ShortTag() != tagStr {
		return at(n, "%s, want text", describe(n))
	}
	*ptr.(*[]byte) = []byte(n.Value)
	return nil
}

func (payloadText) parse([]string, any) error {
	return errors.New("a payload comes from a file: use --payload FILE")
}

func (payloadText) encode(ptr any) any {
	if v := *ptr.(*[]byte); len(v) > 0 && plainText(v) {
		return string(v)
	}
	return nil
}

type payloadBase64 struct{ payloadText }

func (payloadBase64) schema() map[string]any {
	return map[string]any{"type": "string", "contentEncoding": "base64"}
}

func (payloadBase64) decode(n *yaml.Node, ptr any) error {
	if n.Kind != yaml.ScalarNode || n.ShortTag() != tagStr {
		return at(n, "%s, want base64", describe(n))
	}
	v, err := base64.StdEncoding.DecodeString(n.Value)
	if err != nil {
		return at(n, "not base64: %w", err)
	}
	*ptr.(*[]byte) = v
	return nil
}

func (payloadBase64) encode(ptr any) any {
	if v := *ptr.(*[]byte); len(v) > 0 && !plainText(v) {
		return base64.StdEncoding.EncodeToString(v)
	}
	return nil
}

// plainText reports bytes that every YAML reader gives back as they are.
func plainText(b []byte) bool {
	return utf8.Valid(b) && !slices.ContainsFunc([]rune(string(b)), func(r rune) bool {
		return r != '\n' && r != '\t' && !unicode.IsPrint(r)
	})
}
