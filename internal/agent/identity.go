package agent

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/barista-fleet/barista/pkg/fleet"
	"github.com/barista-fleet/barista/pkg/journal"
	"github.com/barista-fleet/barista/pkg/lease"
	"github.com/barista-fleet/barista/pkg/reconcile"
	"github.com/barista-fleet/barista/pkg/runtime"
	"github.com/barista-fleet/barista/pkg/runtime/leasefile"
)

// BootTime is the machine's boot-time clock. It goes on during suspend, and is
// the same clock for every process of one boot.
func BootTime() lease.Instant { return lease.Instant(leasefile.Now()) }

func machineID() string { return firstLine("/etc/machine-id") }

func firstLine(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	line, _, _ := strings.Cut(string(b), "\n")
	return strings.TrimSpace(line)
}

// identify works out who this node is from its journal, or, where there is none
// that can be trusted, from the labels of what runs here. suspicious says that
// the machine, the boot or the directory is another than the journal's.
//
// What a suspicious node journals is still the old place: it becomes this one only
// with the next registration. Otherwise a copy that was refused would take itself,
// when it is started again, for the agent that it was copied from.
func identify(old *journal.Identity, runs []runtime.Workload, here place) (id journal.Identity, suspicious bool) {
	if old == nil || old.NodeID == "" {
		id = journal.Identity{NodeID: fleet.NewNodeID(), Writer: fleet.NewNonce()}
		for _, r := range runs {
			if r.NodeID != "" {
				id.NodeID, id.FleetID = r.NodeID, r.FleetID
				suspicious = true
			}
		}
	} else {
		id = *old
		suspicious = here != place{id.MachineID, id.BootID, id.DirID}
	}
	if !suspicious {
		here.mark(&id)
	}
	return id, suspicious
}

// place is where an agent lives: a machine, a boot of it, a data directory.
type place struct{ machine, boot, dir string }

func thisPlace(dirID string) place { return place{machineID(), leasefile.BootID(), dirID} }

func (p place) mark(id *journal.Identity) {
	id.MachineID, id.BootID, id.DirID = p.machine, p.boot, p.dir
}

// book is the reconciler's journal over pkg/journal.
type book struct {
	j      *journal.Journal
	id     journal.Identity // as last submitted; used by the loop's goroutine only
	here   place
	node   string
	name   string
	life   string
	events uint64
	wall   func() time.Time
	broken func(error) // called when the journal can take nothing any more
}

var _ reconcile.Journal = (*book)(nil)

func (b *book) submit(batch journal.Batch) func() error {
	t := b.j.Submit(batch)
	return func() error {
		_, err := t.Wait(noDeadline)
		if errors.Is(err, journal.ErrFailed) && b.broken != nil {
			b.broken(err)
		}
		return err
	}
}

// Commit journals a batch. Only one that begins something may fail for lack of
// space: ends and results use the reserve.
func (b *book) Commit(in reconcile.Batch) func() error {
	out := journal.Batch{Class: journal.Essential, DelOwned: in.Drop, DelOps: in.DropOp}
	for _, o := range in.Put {
		data, err := encodeDesired(o.Desired)
		if err != nil {
			return func() error { return err }
		}
		out.PutOwned = append(out.PutOwned, journal.Owned{
			Name: o.Name, UID: o.UID, Epoch: o.Epoch, Incarnation: o.Incarnation, Generation: o.Generation,
			Instance: o.Instance, Attempt: o.Attempt, Phase: string(o.Phase), Data: data,
		})
	}
	for _, p := range in.PutOp {
		if p.Kind == reconcile.OpStart {
			out.Class = journal.Ordinary
		}
		out.PutOps = append(out.PutOps, journal.Op{
			Name: p.Name, Kind: p.Kind.String(), Instance: p.Instance, UID: p.UID,
			Epoch: p.Epoch, Incarnation: p.Incarnation, Attempt: p.Attempt,
		})
	}
	for _, e := range in.Events {
		b.events++
		body, err := json.Marshal(fleet.Event{
			ID:   fmt.Sprintf("%s-%d", b.life, b.events),
			Time: b.wall().UTC(), Node: b.name, Name: e.Name, Epoch: e.Epoch, Type: e.Type, Message: fleet.Sentence(e.Message),
		})
		if err != nil {
			return func() error { return err }
		}
		out.Events = append(out.Events, body)
	}
	return b.submit(out)
}

func (b *book) SaveIdentity(id lease.Identity) func() error {
	if id.Registered() {
		b.here.mark(&b.id)
	}
	b.id.Incarnation, b.id.Writer, b.id.Intended, b.id.NewWriter = id.Incarnation, id.Writer, id.Intended, id.NewWriter
	return b.saveID()
}

func (b *book) SaveFleet(fleetID string) func() error {
	b.id.FleetID = fleetID
	return b.saveID()
}

func (b *book) saveID() func() error {
	id := b.id
	return b.submit(journal.Batch{Class: journal.Essential, Identity: &id})
}

func (b *book) leaseIdentity() lease.Identity {
	return lease.Identity{Incarnation: b.id.Incarnation, Writer: b.id.Writer, Intended: b.id.Intended, NewWriter: b.id.NewWriter}
}

func encodeDesired(d *fleet.Desired) ([]byte, error) {
	if d == nil {
		return nil, nil
	}
	return fleet.Encode(d)
}

func decodeOwned(in []journal.Owned) []reconcile.Owned {
	out := make([]reconcile.Owned, 0, len(in))
	for _, o := range in {
		r := reconcile.Owned{
			Name: o.Name, UID: o.UID, Epoch: o.Epoch, Incarnation: o.Incarnation, Generation: o.Generation,
			Instance: o.Instance, Attempt: o.Attempt, Phase: fleet.Phase(o.Phase),
		}
		if d, err := fleet.DecodeDesired(o.Name, o.Data); err == nil {
			r.Desired = d
		}
		out = append(out, r)
	}
	return out
}

// writeLease publishes the lease for the guard and the helpers that start
// workloads.
func writeLease(dir string, p reconcile.Publish) error {
	return leasefile.Write(dir, leasefile.Lease{
		BootID: leasefile.BootID(), Confirmed: int64(p.Confirmed), KillAt: int64(p.KillAt), Deadline: int64(p.Deadline), Incarnation: p.Incarnation,
	})
}

// readLease returns what the last life published; the zero lease if that was in
// another boot or is not known.
func readLease(dir string) leasefile.Lease {
	l, err := leasefile.Read(filepath.Join(dir, leasefile.Name))
	if err != nil || l.Confirmed > leasefile.Now() {
		return leasefile.Lease{}
	}
	return l
}

// about reports whether an encoded event is about name; every one is about "".
func about(event []byte, name string) bool {
	if name == "" {
		return true
	}
	var e fleet.Event
	return json.Unmarshal(event, &e) == nil && e.Name == name
}
