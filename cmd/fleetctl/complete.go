package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/urfave/cli/v3"
)

// completionTimeout bounds what a Tab key may cost.
const completionTimeout = time.Second

// completeNames suggests live names while fewer than most (negative: any
// number) are typed. Any failure suggests nothing: a Tab key reports no errors.
func (a *app) completeNames(most int) cli.ShellCompleteFunc {
	return a.complete(most, func(ctx context.Context, cmd *cli.Command) ([]string, error) {
		c, err := a.client(ctx, cmd)
		if err != nil {
			return nil, err
		}
		return c.ListNames(ctx)
	})
}

func (a *app) completeNodes() cli.ShellCompleteFunc {
	return a.complete(1, func(ctx context.Context, cmd *cli.Command) ([]string, error) {
		c, err := a.client(ctx, cmd)
		if err != nil {
			return nil, err
		}
		nodes, _, err := c.Nodes(ctx)
		var names []string
		for i := range nodes {
			names = append(names, nodes[i].Called())
		}
		return names, err
	})
}

func (a *app) complete(most int, words func(context.Context, *cli.Command) ([]string, error)) cli.ShellCompleteFunc {
	return func(ctx context.Context, cmd *cli.Command) {
		typed := cmd.Args().Slice()
		if n := len(typed); n > 0 && strings.HasPrefix(typed[n-1], "-") {
			cli.DefaultCompleteWithFlags(ctx, cmd)
			return
		}
		if most >= 0 && len(typed) >= most {
			return
		}
		ctx, cancel := context.WithTimeout(ctx, completionTimeout)
		defer cancel()
		list, err := words(ctx, cmd)
		if err != nil {
			return
		}
		for _, w := range list {
			_, _ = fmt.Fprintln(a.stdout, safe(w))
		}
	}
}
