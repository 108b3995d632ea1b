package sim

import (
	"maps"
	"slices"
	"time"

	"github.com/barista-fleet/barista/pkg/lease"
	"github.com/barista-fleet/barista/pkg/reconcile"
)

// disk is what an agent's journal holds: what survives its process, and the
// machine's boot.
type disk struct {
	nodeID   string // empty: an empty journal
	fleetID  string
	identity lease.Identity
	machine  string // of the machine and the boot that wrote it
	boot     int
	owned    map[string]reconcile.Owned
	epochs   map[string]uint64
}

func newDisk() *disk {
	return &disk{owned: map[string]reconcile.Owned{}, epochs: map[string]uint64{}}
}

func (d *disk) clone() *disk {
	c := *d
	c.owned, c.epochs = maps.Clone(d.owned), maps.Clone(d.epochs)
	return &c
}

// commit is one transaction on its way to the disk.
type commit struct {
	change func(*disk)
	reply  func(error) reconcile.Input // nil: nobody waits
	err    error
}

// persist makes a change durable after a while, after every earlier one.
func (a *agent) persist(c *commit) {
	w := a.n.w
	a.commits = append(a.commits, c)
	d := w.between(100*time.Microsecond, 5*time.Millisecond)
	if w.chance(a.n.w.sc.slowDisk) {
		d = w.between(0, w.sc.longestTTL)
	}
	a.synced = max(a.synced, w.now+d)
	w.at(a.synced, func() {
		if a.dead {
			return // crash decided what became of it
		}
		a.commits = a.commits[1:]
		if c.err == nil {
			c.change(a.n.disk)
		}
		w.note(a.n.idx, "durable", "", uint64(len(a.commits)))
		if c.reply != nil {
			a.input(c.reply(c.err))
		}
	})
}

// crashDisk settles what was on its way to the disk: some of it, in order, got there.
func (a *agent) crashDisk() {
	if len(a.commits) == 0 {
		return
	}
	for _, c := range a.commits[:a.n.w.pick(len(a.commits)+1)] {
		if c.err == nil {
			c.change(a.n.disk)
		}
	}
	a.commits = nil
}

func (a *agent) commit(e reconcile.Commit) {
	c := &commit{change: func(d *disk) { d.take(e.Batch) }}
	if e.Op != 0 {
		c.reply = func(err error) reconcile.Input { return reconcile.Committed{Op: e.Op, Err: err} }
	}
	// Only what begins something can fail for lack of space.
	starts := slices.ContainsFunc(e.Batch.PutOp, func(p reconcile.Pending) bool { return p.Kind == reconcile.OpStart })
	if starts && a.n.w.chance(a.n.w.sc.fullDisk) {
		c.err = errNoSpace
	}
	a.n.w.check.told(a, e.Batch.Events)
	a.persist(c)
}

// take applies a batch as the agent's journal does: it remembers the highest
// epoch of every name it ever owned.
func (d *disk) take(b reconcile.Batch) {
	for _, name := range b.Drop {
		delete(d.owned, name)
	}
	for _, o := range b.Put {
		d.owned[o.Name] = o
		d.epochs[o.Name] = max(d.epochs[o.Name], o.Epoch)
	}
}

func (d *disk) ownedList() []reconcile.Owned {
	out := make([]reconcile.Owned, 0, len(d.owned))
	for _, name := range slices.Sorted(maps.Keys(d.owned)) {
		out = append(out, d.owned[name])
	}
	return out
}
