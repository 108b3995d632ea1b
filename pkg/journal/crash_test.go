package journal_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/barista-fleet/barista/pkg/journal"
)

// The test binary runs itself as a child that journals until it is killed.
const childEnv = "JOURNAL_TEST_CHILD"

func TestMain(m *testing.M) {
	if mode, dir, ok := strings.Cut(os.Getenv(childEnv), ":"); ok {
		var err error
		switch mode {
		case "commit":
			err = childCommits(dir)
		case "hold":
			err = childHolds(dir)
		default:
			err = fmt.Errorf("unknown mode %q", mode)
		}
		fmt.Fprintln(os.Stderr, "child:", err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

func child(t *testing.T, mode, dir string) *exec.Cmd {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), childEnv+"="+mode+":"+dir)
	cmd.Stderr = os.Stderr
	return cmd
}

const crashWorkers = 4

// childCommits commits in several goroutines and prints each batch once it is
// acknowledged. Batch i of worker w changes five buckets, all to i.
func childCommits(dir string) error {
	j, opened, err := journal.Open(dir, journal.Options{})
	if err != nil {
		return err
	}
	if opened.Quarantined != nil || len(opened.Damaged) > 0 {
		return fmt.Errorf("kill -9 damaged the journal: %+v", opened)
	}
	s, err := j.Load()
	if err != nil {
		return err
	}
	at := map[string]uint64{}
	for _, o := range s.Owned {
		at[o.Name] = o.Epoch
	}
	fmt.Println("open")
	failed := make(chan error)
	for w := range crashWorkers {
		go func() {
			name := fmt.Sprintf("w%d", w)
			for i := at[name] + 1; ; i++ {
				if err := j.Commit(context.Background(), crashBatch(name, i)); err != nil {
					failed <- err
					return
				}
				fmt.Printf("%s %d\n", name, i)
			}
		}()
	}
	return <-failed
}

func crashBatch(name string, i uint64) journal.Batch {
	text := fmt.Sprint(i)
	b := journal.Batch{
		DelOps:   []string{name},
		PutOps:   []journal.Op{{Name: name, Kind: text, Data: []byte(strings.Repeat("x", int(i%3000)))}},
		PutOwned: []journal.Owned{{Name: name, Epoch: i, Phase: text}},
		Events:   [][]byte{[]byte(name + " " + text)},
		PutObjects: []journal.ObjectPut{{
			Key: "o/" + name, Body: []byte(text), Cond: journal.Always(),
		}},
	}
	if i%64 == 0 {
		b.DropEvents = i // anything that makes the tree shrink, too
	}
	return b
}

// TestKill9 kills a committing process at random moments, its start included.
// Everything it acknowledged must be there, nothing by halves.
func TestKill9(t *testing.T) {
	const kills = 60
	seed := uint64(time.Now().UnixNano())
	if s := os.Getenv("JOURNAL_SEED"); s != "" {
		var err error
		if seed, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("JOURNAL_SEED=%d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	dir := t.TempDir()
	acked := map[string]uint64{}
	total := 0
	for kill := range kills {
		cmd := child(t, "commit", dir)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		opened := make(chan struct{})
		var once sync.Once
		var reader sync.WaitGroup
		reader.Go(func() {
			lines := bufio.NewScanner(out)
			for lines.Scan() {
				once.Do(func() { close(opened) })
				if name, n, ok := strings.Cut(lines.Text(), " "); ok {
					i, err := strconv.ParseUint(n, 10, 64)
					if err != nil {
						t.Errorf("child said %q", lines.Text())
					}
					acked[name] = i
					total++
				}
			}
			once.Do(func() { close(opened) })
		})
		if kill%6 != 0 { // every sixth dies while it starts
			<-opened
		}
		time.Sleep(time.Duration(rng.IntN(40_000)) * time.Microsecond)
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		reader.Wait()
		if err := cmd.Wait(); err == nil || !strings.Contains(err.Error(), "killed") {
			t.Fatalf("kill %d: the child ended by itself: %v", kill, err)
		}
		checkCrash(t, kill, dir, acked)
		if t.Failed() {
			return
		}
	}
	if total < kills {
		t.Errorf("only %d batches were acknowledged in %d lives: this tests nothing", total, kills)
	}
	t.Logf("%d acknowledged batches, %d kills", total, kills)
}

func checkCrash(t *testing.T, kill int, dir string, acked map[string]uint64) {
	t.Helper()
	report, err := journal.Check(dir, journal.Options{})
	if errors.Is(err, journal.ErrNoJournal) && len(acked) == 0 {
		return // killed before there was one
	}
	if err != nil || !report.OK() {
		t.Fatalf("kill %d: check: %v, %v", kill, report.Findings, err)
	}
	j, opened, err := journal.Open(dir, journal.Options{})
	if err != nil {
		t.Fatalf("kill %d: %v", kill, err)
	}
	defer func() { _ = j.Close() }()
	if opened.Quarantined != nil || len(opened.Damaged) > 0 {
		t.Fatalf("kill %d: %+v", kill, opened)
	}
	s := load(t, j)
	ops := map[string]string{}
	for _, op := range s.Ops {
		ops[op.Name] = op.Kind
	}
	events, err := j.Events(0, 1<<30)
	if err != nil {
		t.Fatal(err)
	}
	last := map[string]uint64{}
	for _, e := range events {
		name, n, _ := strings.Cut(string(e.Data), " ")
		i, err := strconv.ParseUint(n, 10, 64)
		if err != nil || last[name] != 0 && i != last[name]+1 {
			t.Fatalf("kill %d: event %q after %d", kill, e.Data, last[name])
		}
		last[name] = i
	}
	for _, o := range s.Owned {
		text := fmt.Sprint(o.Epoch)
		object, _, err := j.GetObject("o/" + o.Name)
		if err != nil || string(object.Body) != text || ops[o.Name] != text || o.Phase != text || s.Seen[o.Name] != o.Epoch {
			t.Errorf("kill %d: %s at epoch %d: phase %s, op %s, object %s, seen %d, %v: half a batch",
				kill, o.Name, o.Epoch, o.Phase, ops[o.Name], object.Body, s.Seen[o.Name], err)
		}
		if last[o.Name] != o.Epoch && last[o.Name] != 0 {
			t.Errorf("kill %d: %s at epoch %d, its last event is %d", kill, o.Name, o.Epoch, last[o.Name])
		}
		if o.Epoch < acked[o.Name] {
			t.Errorf("kill %d: %s at epoch %d, %d was acknowledged", kill, o.Name, o.Epoch, acked[o.Name])
		}
		delete(acked, o.Name)
	}
	if len(acked) > 0 {
		t.Errorf("kill %d: names acknowledged and missing: %v", kill, acked)
	}
	for _, o := range s.Owned {
		acked[o.Name] = o.Epoch
	}
}
