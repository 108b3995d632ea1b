package fleet

import (
	"fmt"
	"strings"

	"go.yaml.in/yaml/v3"
)

// mountCodec is a list of {source, target, read_only}.
type mountCodec struct{}

func (mountCodec) schema() map[string]any {
	return map[string]any{"type": "array", "items": map[string]any{
		"type": "object",
		"properties": map[string]any{
			"source":    map[string]any{"type": "string"},
			"target":    map[string]any{"type": "string"},
			"read_only": map[string]any{"type": "boolean"},
		},
		"required":             []any{"source", "target"},
		"additionalProperties": false,
	}}
}

func (mountCodec) decode(n *yaml.Node, ptr any) error {
	if n.Kind != yaml.SequenceNode {
		return at(n, "%s, want a list of mounts", describe(n))
	}
	var mounts []Mount
	for _, item := range n.Content {
		m, err := decodeMount(item)
		if err != nil {
			return err
		}
		mounts = append(mounts, m)
	}
	*ptr.(*[]Mount) = mounts
	return nil
}

func decodeMount(n *yaml.Node) (Mount, error) {
	var m Mount
	if n.Kind != yaml.MappingNode {
		return m, at(n, "%s, want source, target and read_only", describe(n))
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, v := n.Content[i], n.Content[i+1]
		if seen[k.Value] {
			return m, at(k, "%q is given twice", k.Value)
		}
		seen[k.Value] = true
		var err error
		switch k.Value {
		case "source":
			err = text().decode(v, &m.Source)
		case "target":
			err = text().decode(v, &m.Target)
		case "read_only":
			err = boolCodec{}.decode(v, &m.ReadOnly)
		default:
			err = at(k, "unknown field %q of a mount: it has source, target and read_only", k.Value)
		}
		if err != nil {
			return m, err
		}
	}
	if !seen["source"] || !seen["target"] {
		return m, at(n, "a mount needs a source and a target")
	}
	return m, nil
}

func (mountCodec) parse(values []string, ptr any) error {
	var mounts []Mount
	for _, s := range values {
		parts := strings.Split(s, ":")
		m := Mount{Source: parts[0]}
		switch {
		case len(parts) == 2:
			m.Target = parts[1]
		case len(parts) == 3 && parts[2] == "ro":
			m.Target, m.ReadOnly = parts[1], true
		case len(parts) == 3 && parts[2] == "rw":
			m.Target = parts[1]
		default:
			return fmt.Errorf("%q is no mount: write SOURCE:TARGET or SOURCE:TARGET:ro", s)
		}
		mounts = append(mounts, m)
	}
	*ptr.(*[]Mount) = mounts
	return nil
}

// writtenMount is a mount as a manifest writes it.
type writtenMount struct {
	Source   string `json:"source" yaml:"source"`
	Target   string `json:"target" yaml:"target"`
	ReadOnly bool   `json:"read_only,omitzero" yaml:"read_only,omitempty"`
}

func (mountCodec) encode(ptr any) any {
	var list []writtenMount
	for _, m := range *ptr.(*[]Mount) {
		list = append(list, writtenMount{Source: m.Source, Target: m.Target, ReadOnly: m.ReadOnly})
	}
	if list == nil {
		return nil
	}
	return list
}
