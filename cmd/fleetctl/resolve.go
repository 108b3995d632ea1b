package main

import (
	"context"
	"strconv"
	"strings"

	"github.com/urfave/cli/v3"
)

func (a *app) resolveCommand() *cli.Command {
	return &cli.Command{
		Name: "resolve", Category: "names", Usage: "say which node owns a name, and at which epoch", ArgsUsage: "NAME",
		Description: "Exits 0 with the owner, 1 if nobody owns the name now, 7 if there is no such name, 8 if it is held.",
		Action:      a.resolve, ShellComplete: a.completeNames(1),
	}
}

type resolvedJSON struct {
	Version     int    `json:"version"`
	Name        string `json:"name"`
	UID         string `json:"uid,omitempty"`
	Node        string `json:"node"`
	NodeID      string `json:"node_id"`
	Endpoint    string `json:"endpoint"`
	Epoch       uint64 `json:"epoch"`
	Incarnation uint64 `json:"incarnation"`
	Status      string `json:"status"`
	Claim       string `json:"claim"`
}

func (a *app) resolve(ctx context.Context, cmd *cli.Command) error {
	name, out, c, err := a.one(ctx, cmd)
	if err != nil {
		return err
	}
	r, err := c.Resolve(ctx, name)
	if err != nil {
		return err
	}
	j := resolvedJSON{
		Version: contract, Name: r.Name, UID: r.UID, Node: r.Node, NodeID: r.NodeID, Endpoint: r.Endpoint,
		Epoch: r.Epoch, Incarnation: r.Incarnation, Status: strings.ToLower(string(r.Status)), Claim: string(r.Claim),
	}
	if done, err := a.emit(out, j); done {
		return err
	}
	if out == formatName {
		return a.line("%s", r.Node)
	}
	t := &table{header: []string{"NAME", "NODE", "ENDPOINT", "EPOCH", "STATUS"}}
	row := []string{r.Name, r.Node, r.Endpoint, strconv.FormatUint(r.Epoch, 10), string(r.Status)}
	if out == formatWide {
		t.header = append(t.header, "NODE_ID", "INCARNATION", "CLAIM", "UID")
		row = append(row, r.NodeID, strconv.FormatUint(r.Incarnation, 10), string(r.Claim), r.UID)
	}
	t.add(row...)
	_, err = t.write(a.stdout, nil, true)
	return err
}
