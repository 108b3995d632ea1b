package sim

import (
	"time"

	"github.com/barista-fleet/barista/pkg/lease"
)

// loseNode is the whole of the node-loss profile: once the fleet has come to rest
// a machine that owns something goes down for good, and the clock of I7 starts.
func (w *world) loseNode() {
	var n *node
	for _, s := range w.names {
		if rec := w.session(s.name); rec != nil && rec.Owner != "" {
			n, _ = w.ownerOf(rec)
		}
	}
	if n == nil {
		n = w.nodes[0]
	}
	w.note(n.idx, "power off", "for good", 0)
	n.retired = true
	w.lost = n
	n.powerOff()
	w.calm, w.healed = true, w.now
}

// boundI7 is within what time everything that the lost node owned runs again:
// silence as a contender counts it, the spread of contenders, a listing of nodes/,
// two polls, a stop that was on its way, the turns of the others, and a start.
func (w *world) boundI7() time.Duration {
	if w.lost == nil {
		return time.Hour
	}
	slowest := time.Duration(0)
	var beat, stagger time.Duration
	for _, n := range w.nodes {
		beat, stagger = max(beat, n.times.Heartbeat), max(stagger, n.times.Stagger)
		slowest = max(slowest, n.times.KillTime)
	}
	wait := lease.ContenderWait(w.lost.times.TTL, slowest)
	const requests, start = 400 * time.Millisecond, 100 * time.Millisecond
	polls, turns := 2*beat, 2*beat
	jobs := 2 * w.sc.longestTTL          // a job that starts afresh has to come to its end
	rest := 8*auditEvery + 2*time.Second // and then some quiet, after a back-off
	return wait + wait/50 + stagger + beat + polls + turns + requests + start + jobs + rest
}
