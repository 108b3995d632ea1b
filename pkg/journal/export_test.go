package journal

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
