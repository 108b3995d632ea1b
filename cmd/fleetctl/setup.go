package main

import (
	"context"

	"github.com/urfave/cli/v3"

	"github.com/barista-fleet/barista/pkg/fleet"
)

func (a *app) initCommand() *cli.Command {
	return &cli.Command{
		Name: "init", Category: "setup", Usage: "make a fleet in a directory, or in a bucket that exists", ArgsUsage: "[URL]",
		Description: "fleetctl init file:///srv/fleet\n\nIn a place that has a fleet it changes nothing.",
		Action:      a.init,
	}
}

func (a *app) init(ctx context.Context, cmd *cli.Command) error {
	out, err := formatOf(cmd)
	if err != nil {
		return err
	}
	args, err := a.names(cmd, 0, 1)
	if err != nil {
		return err
	}
	p, err := a.placeOf(cmd)
	if err != nil {
		return err
	}
	url := p.bucket
	if len(args) == 1 {
		url = args[0]
	}
	if url == "" {
		return usagef("fleetctl init file:///DIRECTORY, or set "+envBucket, "URL is missing")
	}
	s, err := initBucket(ctx, url)
	if err != nil {
		return err
	}
	c := fleet.NewClient(s, fleet.ClientConfig{Logger: a.logger(cmd)})
	meta, created, err := c.Init(ctx)
	if err != nil {
		return err
	}
	if done, err := a.emit(out, struct {
		Version int    `json:"version"`
		FleetID string `json:"fleet_id"`
		Bucket  string `json:"bucket"`
		Created bool   `json:"created"`
	}{contract, meta.FleetID, c.Describe(), created}); done {
		return err
	}
	switch {
	case out == formatName:
		return a.line("%s", meta.FleetID)
	case created:
		return a.line("fleet %s created in %s", meta.FleetID, c.Describe())
	}
	return a.line("fleet %s exists in %s", meta.FleetID, c.Describe())
}
