package model

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/barista-fleet/barista/internal/bucket"
	"github.com/barista-fleet/barista/pkg/fleet"
	"github.com/barista-fleet/barista/pkg/lease"
)

// unit is how much time one tick is. Nothing is stepped between two ticks, so
// every time of the protocol counts as rounded up to them.
const unit = time.Second

// Times of each node, in ticks: a lease of three, a heartbeat of one. A contender
// waits ContenderWait = 3.56, which is four ticks; the guard kills at 5/6 of the
// lease = 2.5, which is three.
const (
	ttl      = 3 * unit
	beat     = unit
	killTime = unit / 2
	epoch0   = lease.Instant(time.Hour) // where clocks begin; 0 means "never"
)

const (
	nodeCount = 2
	theName   = "x"
	keyX      = nodeCount // index of sessions/x among the objects
)

var nodeIDs = [nodeCount]string{"a", "b"}

func keyOf(i int) string {
	if i == keyX {
		return fleet.PrefixSessions + theName
	}
	return fleet.PrefixNodes + nodeIDs[i]
}

func keyIndex(key string) int {
	for i := range nodeCount + 1 {
		if keyOf(i) == key {
			return i
		}
	}
	panic("no such key in the model: " + key)
}

// world is one state: the bucket, what travels, the machines and what runs.
type world struct {
	sc      *Scenario
	objects [nodeCount + 1]object
	msgs    []*message // never changed in place
	nodes   [nodeCount]node
	left    Budget // faults that may still happen
	drain   drain  // what operators ask of node a
	ghost   ghost

	version uint64 // of the next write; not part of the state
	writers uint64 // likewise
	found   string // a violation
	goals   goals  // what the last action showed
	note    func(string)
}

// object is one key of the bucket; absent while its version is empty.
type object struct {
	etag bucket.ETag
	body []byte
	node *fleet.Node
	sess *fleet.Session
}

// message is a request on its way, or its answer.
type message struct {
	node   int
	op     uint64
	life   uint64 // of the node that sent it
	orphan bool   // a Put that nobody waits for any more: it may still land
	served bool   // the store has answered; the answer is on its way
	slow   bool   // it takes as long as it likes

	what msgKind
	key  int
	put  object // what a Put writes; without a version
	cond bucket.Condition
	id   lease.Identity // what a save makes durable

	got     object // the answer of a Get
	entries [nodeCount]bucket.ETag
	result  bucket.PutResult
}

type msgKind uint8

const (
	msgGet msgKind = iota
	msgPut
	msgList
	msgSave
)

// node is one machine: its agent, its disk, its guard and its workloads.
type node struct {
	m       *lease.Machine // nil: the agent is not running
	clock   lease.Instant
	life    uint64
	journal journal
	unsaved *lease.Identity // asked to be made durable, not yet done
	suspect bool            // the next life does not trust the journal's identity
	file    leaseFile
	before  lease.Instant // the last renewal of the previous life; 0: not known
	raiseOK bool
	poked   bool // something happened that the agent has not looked at
	stopped bool // SIGSTOP: the agent is not scheduled
	runs    []run
}

type journal struct {
	id    lease.Identity
	epoch uint64 // the highest seen of x
	inc   uint64 // of the claim of x; 0: not owned
}

// leaseFile is what the agent publishes for the guard and the helpers.
type leaseFile struct {
	confirmed, killAt lease.Instant
	inc               uint64
}

// run is one workload of x on a machine, from the decision to start it.
type run struct {
	state    runState
	op       bool // the agent that runs now waits for this start's result
	stopping bool // told to end
	epoch    uint64
	inc      uint64
	inst     string
}

type runState uint8

const (
	runCommitting runState = iota // its intent is on its way to the journal
	runStarting                   // its helper has not looked at the lease yet
	runAlive
)

// drain is a wish about node a: it gives up what it owns and takes nothing.
type drain uint8

const (
	notYet drain = iota
	wanted
	withdrawn
)

// draining reports that node i is to be emptied.
func (w *world) draining(i int) bool { return i == 0 && w.drain == wanted }

// ghost is what only the checker sees.
type ghost struct {
	epoch uint64 // the highest ever in the bucket
	owner string // who owned x first at that epoch; empty: nobody yet
	inc   uint64
}

// clone returns a world of its own, but for machines and records: a machine is
// cloned when it is stepped.
func (w *world) clone() *world {
	c := *w
	c.msgs = slices.Clone(w.msgs)
	for i := range c.nodes {
		c.nodes[i].runs = slices.Clone(w.nodes[i].runs)
	}
	c.goals, c.note = 0, nil
	return &c
}

// say notes what happens, for a trace.
func (w *world) say(format string, args ...any) {
	if w.note != nil {
		w.note(fmt.Sprintf(format, args...))
	}
}

func (w *world) fail(s string) {
	if w.found == "" {
		w.found = s
	}
}

// x is the ownership record; nil while there is none.
func (w *world) x() *fleet.Session { return w.objects[keyX].sess }

// newWorld returns a bucket without records and two machines that are off.
func newWorld(sc *Scenario) *world {
	w := &world{sc: sc, left: sc.Budget}
	for i := range w.nodes {
		w.nodes[i].clock = epoch0
	}
	return w
}

func (w *world) newWriter() string {
	w.writers++
	return "w" + strconv.FormatUint(w.writers, 10)
}
