//go:build linux

// Command workload is a program for tests: it does what it is told and writes
// down when, so that the truth about what ran where comes from what ran.
//
// With -history FILE (or $WORKLOAD_HISTORY) it appends lines in the format of
// package history: one when it starts, one per tick, one when it ends in an
// orderly way. Each is a single write to a file opened with O_APPEND.
package main

import (
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/barista-fleet/barista/pkg/runtime/runtimetest/history"
)

type options struct {
	history    string
	counter    string
	runFor     time.Duration
	tick       time.Duration
	exitCode   int
	ignoreTerm bool
	killSelf   int
	burnMillis int
	allocMB    int
	printMB    int
	printLines int
	rate       int
	echo       string
	stderr     string
	raw        string
	printEnv   bool
	printFile  string
	grandchild bool
	isChild    bool
	waitFile   string
}

func main() {
	var o options
	flag.StringVar(&o.history, "history", os.Getenv("WORKLOAD_HISTORY"), "append history lines to this `file`")
	flag.StringVar(&o.counter, "counter", "", "append one byte per tick, counted in memory, as lines to this `file`")
	flag.DurationVar(&o.runFor, "for", 0, "run for this long; negative: until told to end")
	flag.DurationVar(&o.tick, "tick", 0, "write a tick line this often")
	flag.IntVar(&o.exitCode, "exit", 0, "exit with this `code`")
	flag.BoolVar(&o.ignoreTerm, "ignore-term", false, "ignore SIGTERM")
	flag.IntVar(&o.killSelf, "kill-self", 0, "end by sending this `signal` to itself")
	flag.IntVar(&o.burnMillis, "burn", 0, "consume this many `milliseconds` of CPU first")
	flag.IntVar(&o.allocMB, "alloc-mb", 0, "allocate and touch this many `MB` of memory first")
	flag.IntVar(&o.printMB, "print-mb", 0, "print this many `MB` of lines of 100 bytes")
	flag.IntVar(&o.printLines, "print-lines", 0, "print this many numbered `lines`")
	flag.IntVar(&o.rate, "rate", 0, "print no more than this many `MB` a second")
	flag.StringVar(&o.echo, "echo", "", "print this `line`")
	flag.StringVar(&o.stderr, "echo-err", "", "print this `line` to standard error")
	flag.StringVar(&o.raw, "echo-raw", "", "print this `text` without a newline")
	flag.BoolVar(&o.printEnv, "print-env", false, "print the environment, and the working directory as PWD_NOW")
	flag.StringVar(&o.printFile, "print-file", "", "print the file that this environment `variable` names")
	flag.BoolVar(&o.grandchild, "grandchild", false, "leave a grandchild in its own session that ignores SIGTERM, its pid printed")
	flag.BoolVar(&o.isChild, "internal-child", false, "used by -grandchild")
	flag.StringVar(&o.waitFile, "until-file", "", "run until this `file` exists")
	flag.Parse()
	os.Exit(run(&o))
}

func run(o *options) int {
	if o.isChild {
		return middleChild(o)
	}
	term := make(chan os.Signal, 1)
	// A program that waits for nothing is ended by the Go runtime; one that
	// waits for a signal is not.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGUSR2)
	if o.ignoreTerm {
		signal.Ignore(syscall.SIGTERM)
	} else {
		signal.Notify(term, syscall.SIGTERM)
	}
	rec, err := history.OpenRecorder(o.history)
	if err != nil {
		return fail(err)
	}
	if err := rec.Write(history.Start); err != nil {
		return fail(err)
	}
	if o.grandchild {
		if err := leaveGrandchild(o); err != nil {
			return fail(err)
		}
	}
	burn(time.Duration(o.burnMillis) * time.Millisecond)
	held := allocate(o.allocMB)
	defer runtime.KeepAlive(held)
	if err := output(o); err != nil {
		return fail(err)
	}
	if err := wait(o, rec, term); err != nil {
		return fail(err)
	}
	if err := rec.Write(history.Stop); err != nil {
		return fail(err)
	}
	if o.killSelf != 0 {
		signal.Reset()
		_ = syscall.Kill(os.Getpid(), syscall.Signal(o.killSelf))
		time.Sleep(time.Minute) // the signal comes first
	}
	return o.exitCode
}

// allocate returns memory that the kernel has had to give.
func allocate(mb int) []byte {
	b := make([]byte, mb<<20)
	for i := 0; i < len(b); i += os.Getpagesize() {
		b[i] = 1
	}
	return b
}

func fail(err error) int {
	fmt.Fprintln(os.Stderr, "workload:", err)
	return 125
}

// wait ticks until the time is up, the file is there, or SIGTERM comes.
func wait(o *options, rec *history.Recorder, term <-chan os.Signal) error {
	var end, tick <-chan time.Time
	if o.runFor >= 0 && o.waitFile == "" {
		end = time.After(o.runFor)
	}
	interval := o.tick
	if interval == 0 && o.waitFile != "" {
		interval = 20 * time.Millisecond
	}
	if interval > 0 {
		t := time.NewTicker(interval)
		defer t.Stop()
		tick = t.C
	}
	counter, err := openCounter(o.counter)
	if err != nil {
		return err
	}
	for n := 1; ; n++ {
		select {
		case <-term:
			return nil
		case <-end:
			return nil
		case <-tick:
			if o.tick > 0 {
				if err := rec.Write(history.Tick); err != nil {
					return err
				}
			}
			if counter != nil {
				if _, err := fmt.Fprintln(counter, n); err != nil {
					return err
				}
			}
			if o.waitFile != "" {
				if _, err := os.Stat(o.waitFile); err == nil {
					return nil
				}
			}
		}
	}
}

func openCounter(path string) (*os.File, error) {
	if path == "" {
		return nil, nil
	}
	return os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o666)
}

func output(o *options) error {
	if o.echo != "" {
		fmt.Println(o.echo)
	}
	if o.stderr != "" {
		fmt.Fprintln(os.Stderr, o.stderr)
	}
	if o.printEnv {
		for _, e := range os.Environ() {
			fmt.Println(e)
		}
		dir, err := os.Getwd()
		if err != nil {
			return err
		}
		fmt.Println("PWD_NOW=" + dir)
		fmt.Printf("UID_NOW=%d\n", os.Getuid())
	}
	if o.printFile != "" {
		b, err := os.ReadFile(os.Getenv(o.printFile))
		if err != nil {
			return err
		}
		fmt.Printf("%s\n", b)
	}
	for i := range o.printLines {
		fmt.Printf("line %d\n", i+1)
	}
	if o.raw != "" {
		fmt.Print(o.raw)
	}
	return printMB(o)
}

// printMB writes numbered lines of 100 bytes, and says on standard error how
// long that took.
func printMB(o *options) error {
	if o.printMB == 0 {
		return nil
	}
	const lineLen, perMB = 100, 10_000
	pad := strings.Repeat("x", lineLen)
	begin := time.Now()
	buf := make([]byte, 0, 64<<10)
	for i := range o.printMB * perMB {
		at := len(buf)
		buf = fmt.Appendf(buf, "%010d ", i)
		buf = append(buf, pad[:lineLen-1-(len(buf)-at)]...)
		buf = append(buf, '\n')
		if len(buf) < cap(buf)-lineLen && i+1 < o.printMB*perMB {
			continue
		}
		if _, err := os.Stdout.Write(buf); err != nil {
			return err
		}
		buf = buf[:0]
		if o.rate > 0 {
			due := time.Duration(i) * time.Second / time.Duration(o.rate*perMB)
			time.Sleep(due - time.Since(begin))
		}
	}
	fmt.Fprintf(os.Stderr, "printed %d MB in %d ms\n", o.printMB, time.Since(begin).Milliseconds())
	return nil
}

// burn consumes CPU, as the kernel counts it.
func burn(d time.Duration) {
	for d > 0 {
		var ru syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &ru); err != nil {
			return
		}
		if time.Duration(ru.Utime.Nano()+ru.Stime.Nano()) >= d {
			return
		}
		for x := range 1 << 20 {
			_ = x * x
		}
	}
}

// leaveGrandchild starts a child that starts a grandchild and ends: what a
// daemon does to get away from its parent.
func leaveGrandchild(o *options) error {
	args := append([]string{os.Args[0], "-internal-child"}, os.Args[1:]...)
	pid, err := syscall.ForkExec("/proc/self/exe", args, &syscall.ProcAttr{
		Env: os.Environ(), Files: []uintptr{0, 1, 2}, Sys: &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		return fmt.Errorf("start child: %w", err)
	}
	_, err = syscall.Wait4(pid, nil, 0, nil)
	return err
}

// middleChild starts the grandchild and ends.
func middleChild(o *options) int {
	args := []string{os.Args[0], "-ignore-term", "-for", "60s"}
	if o.tick > 0 {
		args = append(args, "-tick", o.tick.String(), "-counter", o.counter)
	}
	env := append(os.Environ(), "WORKLOAD_HISTORY=")
	pid, err := syscall.ForkExec("/proc/self/exe", args, &syscall.ProcAttr{
		Env: env, Files: []uintptr{0, 1, 2}, Sys: &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		return fail(err)
	}
	fmt.Printf("grandchild %d\n", pid)
	return 0
}
