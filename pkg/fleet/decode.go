package fleet

import (
	"errors"
	"fmt"
)

// DecodeNode reads the record of node id. A nil body is an oversized object.
func DecodeNode(id string, body []byte) (*Node, error) {
	key := PrefixNodes + id
	n := new(Node)
	if err := decode(key, body, n); err != nil {
		return nil, err
	}
	switch {
	case n.ID != id:
		return nil, &UnreadableError{Key: key, Err: fmt.Errorf("names node %q", n.ID)}
	case n.Incarnation == 0:
		return nil, &UnreadableError{Key: key, Err: errors.New("incarnation 0")}
	case n.State != NodeLive && n.State != NodeFenced && n.State != NodeLeft:
		return nil, &UnreadableError{Key: key, Err: fmt.Errorf("state %q", n.State)}
	case n.TTLMillis <= 0:
		return nil, &UnreadableError{Key: key, Err: fmt.Errorf("ttl_ms %d", n.TTLMillis)}
	}
	return n, nil
}

// DecodeDesired reads the desired record of name.
func DecodeDesired(name string, body []byte) (*Desired, error) {
	key := PrefixDesired + name
	d := new(Desired)
	if err := decode(key, body, d); err != nil {
		return nil, err
	}
	switch {
	case d.Name != name:
		return nil, &UnreadableError{Key: key, Err: fmt.Errorf("names %q", d.Name)}
	case d.UID == "":
		return nil, &UnreadableError{Key: key, Err: errors.New("no uid")}
	case d.State != DesiredPresent && d.State != DesiredDeleted:
		return nil, &UnreadableError{Key: key, Err: fmt.Errorf("state %q", d.State)}
	}
	return d, nil
}

// DecodeSession reads the ownership record of name.
func DecodeSession(name string, body []byte) (*Session, error) {
	key := PrefixSessions + name
	s := new(Session)
	if err := decode(key, body, s); err != nil {
		return nil, err
	}
	switch {
	case s.Name != name:
		return nil, &UnreadableError{Key: key, Err: fmt.Errorf("names %q", s.Name)}
	case s.Epoch == 0:
		return nil, &UnreadableError{Key: key, Err: errors.New("epoch 0")}
	case (s.Owner == "") != (s.Incarnation == 0):
		return nil, &UnreadableError{Key: key, Err: errors.New("owner without incarnation, or the reverse")}
	case s.Phase == "":
		return nil, &UnreadableError{Key: key, Err: errors.New("no phase")}
	}
	return s, nil
}

// DecodeMeta reads meta/fleet.
func DecodeMeta(body []byte) (*Meta, error) {
	m := new(Meta)
	if err := decode(KeyMeta, body, m); err != nil {
		return nil, err
	}
	if m.FleetID == "" {
		return nil, &UnreadableError{Key: KeyMeta, Err: errors.New("no fleet id")}
	}
	return m, nil
}

// DecodeEpochFloor reads meta/epoch-floor.
func DecodeEpochFloor(body []byte) (*EpochFloor, error) {
	f := new(EpochFloor)
	return f, decode(KeyEpochFloor, body, f)
}

// DecodeSignal reads signals/changed.
func DecodeSignal(body []byte) (*Signal, error) {
	s := new(Signal)
	return s, decode(KeySignal, body, s)
}
