package model

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"slices"

	"github.com/barista-fleet/barista/pkg/lease"
)

// key is the hash of a state's canonical encoding.
type key uint64

// encoder makes keys. It is not safe for concurrent use.
type encoder struct {
	c     lease.Canon
	order []int
	slots []string
}

func (e *encoder) key(w *world) key {
	c := &e.c
	c.Reset()
	c.Unit = unit
	l := w.left
	for _, v := range []uint8{l.Crash, l.Boot, l.Wipe, l.Reboot, l.Lost, l.Late, l.Drift, l.Drain, l.Stop} {
		c.Byte(uint64(v))
	}
	c.Byte(uint64(w.drain))
	c.Byte(w.ghost.epoch)
	c.Text(w.ghost.owner)
	c.Byte(w.ghost.inc)
	for i := range w.objects {
		e.object(&w.objects[i])
	}
	for i := range w.nodes {
		e.node(&w.nodes[i])
	}
	e.messages(w)
	sum := sha256.Sum256(c.Buf)
	return key(binary.LittleEndian.Uint64(sum[:]))
}

func (e *encoder) object(o *object) {
	e.c.ID(string(o.etag))
	e.c.Node(o.node)
	e.c.Session(o.sess)
}

func (e *encoder) node(n *node) {
	c := &e.c
	c.Identity(n.journal.id)
	c.Byte(n.journal.epoch)
	c.Byte(n.journal.inc)
	if c.Bool(n.unsaved != nil); n.unsaved != nil {
		c.Identity(*n.unsaved)
	}
	c.Bool(n.suspect)
	c.Time(n.file.confirmed, n.clock, ttl)
	c.Byte(n.file.inc)
	c.Time(n.before, n.clock, ttl)
	c.Bool(n.raiseOK)
	c.Bool(n.poked)
	c.Bool(n.stopped)
	c.Byte(uint64(len(n.runs)))
	for _, r := range n.runs {
		c.Byte(uint64(r.state))
		c.Bool(r.op)
		c.Bool(r.stopping)
		c.Byte(r.epoch)
		c.Byte(r.inc)
		c.Text(r.inst)
	}
	c.Bool(n.life == 0)
	if c.Bool(n.m != nil); n.m != nil {
		n.m.Append(c, n.clock)
	}
}

// messages are a set: those that are awaited are told apart by what awaits them.
func (e *encoder) messages(w *world) {
	e.order, e.slots = e.order[:0], e.slots[:0]
	for k := range w.msgs {
		m := w.msgs[k]
		slot := ""
		if !m.orphan {
			slot, _ = w.nodes[m.node].m.Slot(m.op)
		}
		e.order, e.slots = append(e.order, k), append(e.slots, slot)
	}
	slices.SortStableFunc(e.order, func(i, j int) int {
		a, b := w.msgs[i], w.msgs[j]
		return cmp.Or(cmp.Compare(a.node, b.node), cmp.Compare(e.slots[i], e.slots[j]), cmp.Compare(a.key, b.key))
	})
	c := &e.c
	c.Byte(uint64(len(w.msgs)))
	for _, k := range e.order {
		m := w.msgs[k]
		c.Byte(uint64(m.node))
		c.Text(e.slots[k])
		c.Bool(m.orphan)
		c.Bool(m.life == w.nodes[m.node].life)
		c.Bool(m.served)
		c.Bool(m.slow)
		c.Byte(uint64(m.what))
		c.Byte(uint64(m.key))
		e.object(&m.put)
		etag, match := m.cond.WantMatch()
		c.Bool(match)
		c.ID(string(etag))
		e.object(&m.got)
		for _, v := range m.entries {
			c.ID(string(v))
		}
		c.Byte(uint64(m.result.Outcome))
		c.ID(string(m.result.ETag))
		c.Identity(m.id)
	}
}
