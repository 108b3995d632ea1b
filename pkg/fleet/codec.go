package fleet

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

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
