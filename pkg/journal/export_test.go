package journal

import (
	"os"
	"strconv"
	"testing"
)

// SetGroupGate makes the committer call gate before it takes a group. It must
// be set before the first Submit.
func (j *Journal) SetGroupGate(gate func()) { j.groupGate = gate }

// Queued returns how many batches wait.
func (j *Journal) Queued() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return len(j.queue)
}

// HoldTransactions lets no transaction begin until release is called.
func (j *Journal) HoldTransactions() (release func()) {
	j.dbMu.Lock()
	return j.dbMu.Unlock
}

// Rounds scales a random test: n for every run, JOURNAL_ROUNDS times as many
// for a long one.
func Rounds(t *testing.T, n int) int {
	t.Helper()
	s := os.Getenv("JOURNAL_ROUNDS")
	if s == "" {
		return n
	}
	times, err := strconv.Atoi(s)
	if err != nil || times < 1 {
		t.Fatalf("JOURNAL_ROUNDS=%q", s)
	}
	return n * times
}
