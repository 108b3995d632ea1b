package fleet

import (
	"encoding/base64"
	"errors"
	"slices"
	"unicode"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

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
