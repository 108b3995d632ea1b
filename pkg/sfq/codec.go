package sfq

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// ErrEncoding is wrapped by every error about malformed bytes.
var ErrEncoding = errors.New("sfq: malformed encoding")

// field is one optional part of an encoded event, in encoding order.
type field uint16

const (
	fieldClass field = 1 << iota
	fieldFlags
	fieldTenant
	fieldJob
	fieldTicket
	fieldPeer
	fieldCost
	fieldNow
	fieldType
	fieldOrder
	fieldSpec
)

// kindFields is the journal format: an event is its kind in one byte, then the
// fields of its kind in the order of the constants, each an unsigned varint
// (Cost is zigzag-signed, Order and Spec are several). Encodings are canonical:
// there is one per event, and the decoder refuses all others.
//
//	SetTenant     tenant spec
//	RemoveTenant  tenant
//	SetSlots      class cost
//	Add           class flags tenant job cost type order
//	Drop          job
//	Hold          job
//	Unhold        job
//	Pick          class job ticket now
//	Commit        ticket now
//	Abort         ticket
//	Complete      ticket cost now
//	Requeue       ticket cost now
//	Correct       ticket cost now
//	Observe       tenant peer cost now
//	ForgetPeer    peer
//	Rebase
var kindFields = [eventKinds]field{
	EventSetTenant:    fieldTenant | fieldSpec,
	EventRemoveTenant: fieldTenant,
	EventSetSlots:     fieldClass | fieldCost,
	EventAdd:          fieldClass | fieldFlags | fieldTenant | fieldJob | fieldCost | fieldType | fieldOrder,
	EventDrop:         fieldJob,
	EventHold:         fieldJob,
	EventUnhold:       fieldJob,
	EventPick:         fieldClass | fieldJob | fieldTicket | fieldNow,
	EventCommit:       fieldTicket | fieldNow,
	EventAbort:        fieldTicket,
	EventComplete:     fieldTicket | fieldCost | fieldNow,
	EventRequeue:      fieldTicket | fieldCost | fieldNow,
	EventCorrect:      fieldTicket | fieldCost | fieldNow,
	EventObserve:      fieldTenant | fieldPeer | fieldCost | fieldNow,
	EventForgetPeer:   fieldPeer,
	EventRebase:       0,
}

const (
	flagPinned = 1 << iota
	flagHeld
	flagsEnd
)

// AppendEvent appends the encoding of an event to dst. Fields that do not
// belong to the event's kind are left out.
func AppendEvent(dst []byte, ev *Event) []byte {
	dst = append(dst, byte(ev.Kind))
	if ev.Kind >= eventKinds {
		return dst
	}
	f := kindFields[ev.Kind]
	if f&fieldClass != 0 {
		dst = append(dst, byte(ev.Class))
	}
	if f&fieldFlags != 0 {
		dst = append(dst, flagByte(ev.Pinned, ev.Held))
	}
	if f&fieldTenant != 0 {
		dst = binary.AppendUvarint(dst, uint64(ev.Tenant))
	}
	if f&fieldJob != 0 {
		dst = binary.AppendUvarint(dst, uint64(ev.Job))
	}
	if f&fieldTicket != 0 {
		dst = binary.AppendUvarint(dst, uint64(ev.Ticket))
	}
	if f&fieldPeer != 0 {
		dst = binary.AppendUvarint(dst, uint64(ev.Peer))
	}
	if f&fieldCost != 0 {
		dst = binary.AppendVarint(dst, ev.Cost)
	}
	if f&fieldNow != 0 {
		dst = binary.AppendUvarint(dst, uint64(ev.Now))
	}
	if f&fieldType != 0 {
		dst = binary.AppendUvarint(dst, uint64(ev.Type))
	}
	if f&fieldOrder != 0 {
		dst = binary.AppendUvarint(dst, ev.Order.Created)
		dst = binary.AppendUvarint(dst, ev.Order.UID)
	}
	if f&fieldSpec != 0 {
		dst = appendSpec(dst, &ev.Spec)
	}
	return dst
}

func flagByte(pinned, held bool) byte {
	var b byte
	if pinned {
		b |= flagPinned
	}
	if held {
		b |= flagHeld
	}
	return b
}

func appendSpec(dst []byte, s *TenantSpec) []byte {
	dst = append(dst, byte(s.Tier))
	for _, v := range [...]uint64{
		uint64(s.Multiplier), uint64(s.MaxRunning), uint64(s.MaxRunningCost), uint64(s.MaxQueued), uint64(s.MaxQueuedCost),
	} {
		dst = binary.AppendUvarint(dst, v)
	}
	return dst
}

// DecodeEvent decodes one event from the start of b into ev and returns how
// many bytes it took. Errors wrap [ErrEncoding]; ev is then undefined.
func DecodeEvent(b []byte, ev *Event) (int, error) {
	d := decoder{b: b}
	kind := EventKind(d.byte())
	if d.err == nil && (kind == 0 || kind >= eventKinds) {
		d.fail("unknown event kind")
	}
	if d.err != nil {
		return 0, d.err
	}
	*ev = Event{Kind: kind}
	f := kindFields[kind]
	if f&fieldClass != 0 {
		ev.Class = Class(d.byte())
	}
	if f&fieldFlags != 0 {
		flags := d.byte()
		if flags >= flagsEnd {
			d.fail("unknown flags")
		}
		ev.Pinned, ev.Held = flags&flagPinned != 0, flags&flagHeld != 0
	}
	if f&fieldTenant != 0 {
		ev.Tenant = TenantID(d.uvarint())
	}
	if f&fieldJob != 0 {
		ev.Job = JobID(d.uvarint())
	}
	if f&fieldTicket != 0 {
		ev.Ticket = Ticket(d.uvarint())
	}
	if f&fieldPeer != 0 {
		ev.Peer = PeerID(d.uvarint())
	}
	if f&fieldCost != 0 {
		z := d.uvarint()
		ev.Cost = int64(z>>1) ^ -int64(z&1)
	}
	if f&fieldNow != 0 {
		ev.Now = d.int64()
	}
	if f&fieldType != 0 {
		ev.Type = d.uint32()
	}
	if f&fieldOrder != 0 {
		ev.Order = Order{Created: d.uvarint(), UID: d.uvarint()}
	}
	if f&fieldSpec != 0 {
		ev.Spec = d.spec()
	}
	return d.off, d.err
}

// decoder reads canonical varints and remembers the first failure, after which
// it returns zeros.
type decoder struct {
	b   []byte
	off int
	err error
}

func (d *decoder) fail(why string) {
	if d.err == nil {
		d.err = fmt.Errorf("%w: byte %d: %s", ErrEncoding, d.off, why)
	}
}

func (d *decoder) byte() byte {
	if d.err != nil {
		return 0
	}
	if d.off >= len(d.b) {
		d.fail("cut short")
		return 0
	}
	d.off++
	return d.b[d.off-1]
}

func (d *decoder) uvarint() uint64 {
	if d.err != nil {
		return 0
	}
	v, n := binary.Uvarint(d.b[d.off:])
	switch {
	case n == 0:
		d.fail("cut short")
		return 0
	case n < 0:
		d.fail("number above 64 bits")
		return 0
	case n > 1 && d.b[d.off+n-1] == 0:
		d.fail("number with leading zeros")
		return 0
	}
	d.off += n
	return v
}

func (d *decoder) bounded(limit uint64) uint64 {
	v := d.uvarint()
	if v > limit {
		d.fail("number out of range")
		return 0
	}
	return v
}

func (d *decoder) int64() int64   { return int64(d.bounded(math.MaxInt64)) }
func (d *decoder) uint32() uint32 { return uint32(d.bounded(math.MaxUint32)) }

func (d *decoder) spec() TenantSpec {
	return TenantSpec{
		Tier: Tier(d.byte()), Multiplier: d.uint32(), MaxRunning: d.uint32(),
		MaxRunningCost: d.int64(), MaxQueued: d.uint32(), MaxQueuedCost: d.int64(),
	}
}
