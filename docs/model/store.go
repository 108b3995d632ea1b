package model

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/barista-fleet/barista/internal/bucket"
	"github.com/barista-fleet/barista/pkg/fleet"
	"github.com/barista-fleet/barista/pkg/lease"
)

// send puts a machine's requests on their way.
func (w *world) send(i int, effects []lease.Effect) {
	for _, e := range effects {
		msg := &message{node: i, life: w.nodes[i].life}
		switch e := e.(type) {
		case lease.Get:
			msg.op, msg.what, msg.key = e.Op, msgGet, keyIndex(e.Key)
		case lease.List:
			msg.op, msg.what = e.Op, msgList
		case lease.Put:
			msg.op, msg.what, msg.key, msg.cond = e.Op, msgPut, keyIndex(e.Key), e.Cond
			msg.put = w.decode(msg.key, e.Body)
			if err := e.Cond.Validate(); err != nil {
				w.fail("a put without a condition: " + err.Error())
			}
		case lease.SaveIdentity:
			if e.Op == 0 {
				id := e.Identity
				w.nodes[i].unsaved = &id
				continue
			}
			msg.op, msg.what, msg.id = e.Op, msgSave, e.Identity
		default:
			w.notice(i, e)
			continue
		}
		w.msgs = append(w.msgs, msg)
	}
}

func (w *world) decode(key int, body []byte) object {
	o := object{body: body}
	var err error
	if key == keyX {
		o.sess, err = fleet.DecodeSession(theName, body)
	} else {
		o.node, err = fleet.DecodeNode(nodeIDs[key], body)
	}
	if err != nil {
		w.fail("a record that nobody can read: " + err.Error())
	}
	return o
}

// serve lets the store answer a request. This is the instant at which it happens.
func (w *world) serve(m *message) {
	m.served = true
	switch m.what {
	case msgGet:
		m.got = w.objects[m.key]
	case msgList:
		for i := range nodeCount {
			m.entries[i] = w.objects[i].etag
		}
	case msgPut:
		m.result = w.apply(m)
		m.put, m.cond = object{}, bucket.Condition{}
	case msgSave:
		w.nodes[m.node].journal.id = m.id
		w.nodes[m.node].unsaved = nil // an older one is durable before a newer one
	}
}

func (w *world) apply(m *message) bucket.PutResult {
	if !m.cond.Holds(w.objects[m.key].etag) {
		w.say("the store refuses it: %s is another version", keyOf(m.key))
		return bucket.PutResult{Outcome: bucket.Rejected, Err: bucket.ErrCondition}
	}
	if m.key == keyX {
		w.checkWrite(m.node, w.x(), m.put.sess)
	} else {
		w.checkNodeWrite(m.node, m.key, m.put.node)
	}
	w.version++
	o := m.put
	o.etag = bucket.ETag("v" + strconv.FormatUint(w.version, 10))
	w.objects[m.key] = o
	w.say("applied: %v", w.objects[m.key])
	w.dropDead()
	return bucket.PutResult{Outcome: bucket.Applied, ETag: o.etag}
}

// dropDead forgets late Puts that can never land: versions do not come back.
func (w *world) dropDead() {
	w.msgs = slices.DeleteFunc(w.msgs, func(m *message) bool {
		return m.orphan && !m.cond.Holds(w.objects[m.key].etag)
	})
}

// answer is the event that brings a served request back to its machine.
func (m *message) answer() lease.Event {
	switch m.what {
	case msgGet:
		if m.got.etag == "" {
			return lease.GotObject{Op: m.op, Object: bucket.Object{Status: bucket.Absent}}
		}
		return lease.GotObject{Op: m.op, Object: bucket.Object{Status: bucket.Found, Body: m.got.body, ETag: m.got.etag}}
	case msgList:
		var l bucket.Listing
		for i, etag := range m.entries {
			if etag != "" {
				l.Entries = append(l.Entries, bucket.Entry{Key: keyOf(i), ETag: etag})
			}
		}
		return lease.Listed{Op: m.op, Listing: l}
	case msgSave:
		return lease.IdentitySaved{Op: m.op}
	default:
		return lease.PutDone{Op: m.op, Result: m.result}
	}
}

func (o object) String() string {
	switch {
	case o.sess != nil && o.sess.Owner == "":
		return fmt.Sprintf("sessions/x = nobody's, epoch %d (%s)", o.sess.Epoch, o.sess.Phase)
	case o.sess != nil:
		return fmt.Sprintf("sessions/x = %s's, incarnation %d, epoch %d (%s)", o.sess.Owner, o.sess.Incarnation, o.sess.Epoch, o.sess.Phase)
	case o.node != nil:
		return fmt.Sprintf("nodes/%s = %s, incarnation %d, writer %s", o.node.ID, o.node.State, o.node.Incarnation, o.node.Writer)
	}
	return "absent"
}

func (m *message) String() string {
	switch m.what {
	case msgGet:
		return "get " + keyOf(m.key)
	case msgList:
		return "list nodes/"
	case msgSave:
		return fmt.Sprintf("journal the intent of incarnation %d", m.id.Intended)
	default:
		return "put " + m.put.String() + " " + m.cond.String()
	}
}
