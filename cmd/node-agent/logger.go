package main

import (
	"fmt"
	"log/slog"
	"os"

	"github.com/lmittmann/tint"
	"golang.org/x/term"
)

// newLogger writes to standard error: in colour on a terminal, as text elsewhere,
// as JSON when asked for.
func newLogger(format, level string) (*slog.Logger, error) {
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		return nil, fmt.Errorf("bad --log-level %q: debug, info, warn or error", level)
	}
	tty := term.IsTerminal(int(os.Stderr.Fd()))
	switch {
	case format == "json":
		return slog.New(slog.NewJSONHandler(os.Stderr, &slog.HandlerOptions{Level: l})), nil
	case format == "text" || format == "auto" && !tty:
		return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: l})), nil
	case format == "auto":
		noColor := os.Getenv("NO_COLOR") != "" || os.Getenv("TERM") == "dumb"
		return slog.New(tint.NewTextHandler(os.Stderr, &tint.Options{Level: l, NoColor: noColor})), nil
	}
	return nil, fmt.Errorf("bad --log-format %q: auto, text or json", format)
}
