package fleet

import (
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

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
