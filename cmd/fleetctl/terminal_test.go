package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// openTerminal returns both ends of a pseudo-terminal.
func openTerminal(t *testing.T) (master, tty *os.File) {
	t.Helper()
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	tty, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	master = os.NewFile(uintptr(fd), "ptmx")
	t.Cleanup(func() {
		_ = tty.Close()
		_ = master.Close()
	})
	return master, tty
}

// onTerminal runs a command on a terminal where typed is typed, and returns what
// the screen shows.
func onTerminal(t *testing.T, typed string, args ...string) (code int, screen string) {
	t.Helper()
	master, tty := openTerminal(t)
	var shown lockedBuffer
	go func() { _, _ = io.Copy(&shown, master) }()
	if _, err := io.WriteString(master, typed); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	code = run(ctx, append([]string{"fleetctl"}, args...), tty, tty, tty)
	if _, err := io.WriteString(tty, "the end"); err != nil {
		t.Fatal(err)
	}
	await(t, &shown, "the end")
	return code, strings.TrimSuffix(strings.ReplaceAll(shown.String(), "\r\n", "\n"), "the end")
}

func TestDeleteAsksOnATerminal(t *testing.T) {
	newFleet(t)
	fleetctl(t, "", "apply", "a1", "--", "x")
	code, screen := onTerminal(t, "n\n", "delete", "a1")
	if code != exitFailed || !strings.Contains(screen, "Delete a1? [y/N]") || !strings.Contains(screen, "nothing was done") {
		t.Errorf("no: exit %d\n%s", code, screen)
	}
	code, screen = onTerminal(t, "\n", "delete", "a1")
	if code != exitFailed {
		t.Errorf("just enter: exit %d\n%s", code, screen)
	}
	if _, stdout, _ := fleetctl(t, "", "ls", "-o", "name"); stdout != "a1\n" {
		t.Errorf("left: %q", stdout)
	}
	code, screen = onTerminal(t, "y\n", "delete", "a1")
	if code != exitOK || !strings.Contains(screen, "a1 deleted") {
		t.Errorf("yes: exit %d\n%s", code, screen)
	}
}

func TestColourOnATerminalOnly(t *testing.T) {
	newFleet(t)
	fleetctl(t, "", "apply", "a1", "--", "x")
	const yellow = "\x1b[33mPENDING\x1b[0m"
	t.Setenv("TERM", "xterm")
	t.Setenv("NO_COLOR", "")
	if _, screen := onTerminal(t, "", "ls"); !strings.Contains(screen, yellow) {
		t.Errorf("no colour on a terminal: %q", screen)
	}
	if _, stdout, _ := fleetctl(t, "", "ls"); strings.Contains(stdout, "\x1b") {
		t.Errorf("colour in a pipe: %q", stdout)
	}
	if _, screen := onTerminal(t, "", "ls", "--no-color"); strings.Contains(screen, "\x1b") {
		t.Errorf("colour although --no-color: %q", screen)
	}
	t.Setenv("TERM", "dumb")
	if _, screen := onTerminal(t, "", "ls"); strings.Contains(screen, "\x1b") {
		t.Errorf("colour on a dumb terminal: %q", screen)
	}
	t.Setenv("TERM", "xterm")
	t.Setenv("NO_COLOR", "1")
	if _, screen := onTerminal(t, "", "ls"); strings.Contains(screen, "\x1b") {
		t.Errorf("colour although NO_COLOR: %q", screen)
	}
}
