package main

import (
	"context"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/barista-fleet/barista/pkg/fleet"
)

func (a *app) nodesCommand() *cli.Command {
	return &cli.Command{
		Name: "nodes", Category: "nodes", Usage: "list nodes, as they last described themselves",
		Description: "State is what the node's record says; silent is said of a live one whose record the store\nhas not seen renewed for longer than its lease. Nobody decides by that: nodes watch each other.",
		Action:      a.nodes,
	}
}

func (a *app) nodeCommand() *cli.Command {
	return &cli.Command{
		Name: "node", Category: "nodes", Usage: "one node",
		Commands: []*cli.Command{{
			Name: "describe", Usage: "everything about a node, with its names", ArgsUsage: "NODE",
			Action: a.nodeDescribe, ShellComplete: a.completeNodes(),
		}},
	}
}

// nodeJSON is one node; see docs/cli-json.md.
type nodeJSON struct {
	ID           string            `json:"id"`
	Name         string            `json:"name,omitempty"`
	State        string            `json:"state"`
	Cordoned     bool              `json:"cordoned"`
	Draining     bool              `json:"draining"`
	Incarnation  uint64            `json:"incarnation,omitzero"`
	Beat         uint64            `json:"beat,omitzero"`
	SilentMillis int64             `json:"silent_ms,omitzero"`
	TTLMillis    int64             `json:"ttl_ms,omitzero"`
	FencedBy     string            `json:"fenced_by,omitempty"`
	Endpoint     string            `json:"endpoint,omitempty"`
	Runtime      string            `json:"runtime,omitempty"`
	Capabilities []string          `json:"capabilities,omitempty"`
	Labels       map[string]string `json:"labels,omitempty"`
	Version      string            `json:"agent_version,omitempty"`
	Names        int               `json:"names"`
	Capacity     fleet.Capacity    `json:"capacity"`
	Directive    *directiveJSON    `json:"directive,omitempty"`
	Error        string            `json:"error,omitempty"`
}

type directiveJSON struct {
	Seq      uint64     `json:"seq"`
	Cordon   bool       `json:"cordon"`
	Drain    bool       `json:"drain"`
	Deadline *time.Time `json:"deadline,omitempty"`
	Reason   string     `json:"reason,omitempty"`
}

func newDirectiveJSON(d *fleet.Directive) *directiveJSON {
	if d == nil {
		return nil
	}
	j := &directiveJSON{Seq: d.Seq, Cordon: d.Cordon, Drain: d.Drain, Reason: d.Reason}
	if !d.Deadline.IsZero() {
		j.Deadline = &d.Deadline
	}
	return j
}

func newNodeJSON(v *fleet.NodeView) nodeJSON {
	j := nodeJSON{ID: v.ID, Names: v.Owned, Directive: newDirectiveJSON(v.Directive), State: "unreadable"}
	if v.Err != nil {
		j.Error = v.Err.Error()
	} else if v.DirectiveErr != nil {
		j.Error = v.DirectiveErr.Error()
	}
	if n := v.Node; n != nil {
		j.Name, j.State, j.Cordoned, j.Draining = n.Name, string(n.State), n.Cordoned, n.Draining
		j.Incarnation, j.Beat, j.TTLMillis, j.FencedBy = n.Incarnation, n.Beat, n.TTLMillis, n.FencedBy
		j.Endpoint, j.Runtime, j.Capabilities, j.Labels = n.Endpoint, n.Runtime, n.Capabilities, n.Labels
		j.Version, j.Capacity = n.Version, n.Capacity
	}
	if v.Silent() {
		j.SilentMillis = v.Unrenewed.Milliseconds()
	}
	return j
}

// stateWords is the node's state with what it was asked for.
func stateWords(v *fleet.NodeView) string {
	if v.Node == nil {
		return "unreadable"
	}
	words := []string{string(v.Node.State)}
	if v.Silent() {
		words[0] = "silent"
	}
	asked := v.Directive
	switch {
	case v.Node.Draining:
		words = append(words, "draining")
	case asked != nil && asked.Drain:
		words = append(words, "drain asked")
	case v.Node.Cordoned:
		words = append(words, "cordoned")
	case asked != nil && asked.Cordon:
		words = append(words, "cordon asked")
	}
	return strings.Join(words, ", ")
}

func (a *app) nodes(ctx context.Context, cmd *cli.Command) error {
	out, err := formatOf(cmd)
	if err != nil {
		return err
	}
	if _, err := a.names(cmd, 0, 0); err != nil {
		return err
	}
	c, err := a.client(ctx, cmd)
	if err != nil {
		return err
	}
	f, err := c.List(ctx)
	if err != nil {
		return err
	}
	a.problems(f.Problems)
	list := struct {
		Version  int           `json:"version"`
		Nodes    []nodeJSON    `json:"nodes"`
		Problems []problemJSON `json:"problems"`
	}{contract, []nodeJSON{}, problemsJSON(f.Problems)}
	t := &table{header: []string{"NODE", "STATE", "NAMES", "SESSIONS", "JOBS", "CPU", "MEMORY", "RUNTIME"}}
	if out == formatWide {
		t.header = append(t.header, "ID", "INCARNATION", "ENDPOINT", "VERSION", "LABELS", "CAPABILITIES")
	}
	for i := range f.Nodes {
		n := &f.Nodes[i]
		list.Nodes = append(list.Nodes, newNodeJSON(n))
		if out == formatName {
			if err := a.line("%s", n.Called()); err != nil {
				return err
			}
			continue
		}
		t.add(nodeRow(n, out)...)
	}
	if done, err := a.emit(out, list); done || out == formatName {
		return err
	}
	if len(t.rows) == 0 {
		a.note("no node has joined %s", c.Describe())
		return nil
	}
	_, err = t.write(a.stdout, nil, true)
	return err
}

func nodeRow(v *fleet.NodeView, out format) []string {
	row := []string{v.Called(), stateWords(v), strconv.Itoa(v.Owned), "", "", "", "", ""}
	n := v.Node
	if n == nil {
		n = &fleet.Node{}
	} else {
		c := n.Capacity
		row[3], row[4], row[7] = strconv.Itoa(c.Sessions), strconv.Itoa(c.Jobs), n.Runtime
		if c.MaxSessions > 0 {
			row[3] += "/" + strconv.Itoa(c.MaxSessions)
		}
		if c.CPUMillis > 0 {
			row[5] = fleet.FormatCPU(c.CPUMillis)
		}
		if c.MemoryBytes > 0 {
			row[6] = roundMemory(c.MemoryBytes)
		}
	}
	if out == formatWide {
		row = append(row, v.ID, number(n.Incarnation), n.Endpoint, n.Version, pairsText(n.Labels), strings.Join(n.Capabilities, ","))
	}
	return row
}

// roundMemory is for a glance, where FormatMemory is exact.
func roundMemory(bytes int64) string {
	for _, u := range []struct {
		suffix string
		shift  uint
	}{{"Gi", 30}, {"Mi", 20}, {"Ki", 10}} {
		if bytes >= 1<<u.shift {
			return strconv.FormatFloat(float64(bytes)/float64(int64(1)<<u.shift), 'f', 1, 64) + u.suffix
		}
	}
	return strconv.FormatInt(bytes, 10)
}

func pairsText(m map[string]string) string {
	pairs := make([]string, 0, len(m))
	for k, v := range m {
		pairs = append(pairs, k+"="+v)
	}
	sort.Strings(pairs)
	return strings.Join(pairs, ",")
}

func (a *app) nodeDescribe(ctx context.Context, cmd *cli.Command) error {
	called, out, c, err := a.one(ctx, cmd)
	if err != nil {
		return err
	}
	f, err := c.List(ctx)
	if err != nil {
		return err
	}
	n, err := fleet.FindNode(f.Nodes, called)
	if err != nil {
		return err
	}
	if out == formatName {
		return a.line("%s", n.Called())
	}
	t := a.nameTable(cmd, out)
	j := struct {
		Version int `json:"version"`
		nodeJSON
		Owned []nameJSON `json:"owned"`
	}{contract, newNodeJSON(n), []nameJSON{}}
	for i := range f.Names {
		if v := &f.Names[i]; v.Session != nil && v.Session.Owner == n.ID {
			j.Owned = append(j.Owned, newNameJSON(v))
			addName(t, v, out)
		}
	}
	if done, err := a.emit(out, j); done {
		return err
	}
	if err := describeNode(n, j.nodeJSON).print(a); err != nil {
		return err
	}
	if len(t.rows) == 0 {
		return nil
	}
	if err := a.line("names:"); err != nil {
		return err
	}
	_, err = t.write(a.stdout, nil, true)
	return err
}

func describeNode(n *fleet.NodeView, j nodeJSON) *fields {
	var f fields
	f.add("node", "%s", n.Called())
	f.add("id", "%s", j.ID)
	f.add("state", "%s", stateWords(n))
	f.add("error", "%s", j.Error)
	if n.Node != nil {
		f.add("incarnation", "%d", j.Incarnation)
		f.add("lease", "%s", fleet.FormatMillis(j.TTLMillis))
		if n.Silent() {
			f.add("silent", "its record was last renewed %s ago, by the store's clock", n.Unrenewed.Round(time.Second))
		}
		f.add("fenced by", "%s", j.FencedBy)
		f.add("endpoint", "%s", j.Endpoint)
		f.add("runtime", "%s", j.Runtime)
		f.add("version", "%s", j.Version)
		f.add("can", "%s", strings.Join(j.Capabilities, ", "))
		f.add("labels", "%s", pairsText(j.Labels))
		f.add("capacity", "%s CPUs, %s of memory", fleet.FormatCPU(j.Capacity.CPUMillis), roundMemory(j.Capacity.MemoryBytes))
		f.add("running", "%d sessions, %d jobs", j.Capacity.Sessions, j.Capacity.Jobs)
	}
	if d := j.Directive; d != nil {
		text := "nothing"
		switch {
		case d.Drain:
			text = "drain"
		case d.Cordon:
			text = "cordon"
		}
		if d.Deadline != nil {
			text += " until " + d.Deadline.Format(time.RFC3339)
		}
		if d.Reason != "" {
			text += ": " + d.Reason
		}
		f.add("asked", "%s", text)
	}
	return &f
}
