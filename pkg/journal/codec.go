package journal

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
)

const (
	frameFormat = 1
	frameHeader = 5 // format byte and checksum
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// frameSum ties a payload to its place, so that a record found under another
// key is as damaged as one with a flipped bit.
func frameSum(bucket, key, payload []byte) uint32 {
	sum := crc32.Update(0, castagnoli, bucket)
	sum = crc32.Update(sum, castagnoli, []byte{0})
	sum = crc32.Update(sum, castagnoli, key)
	sum = crc32.Update(sum, castagnoli, []byte{0})
	return crc32.Update(sum, castagnoli, payload)
}

func frame(bucket, key, payload []byte) []byte {
	v := make([]byte, frameHeader, frameHeader+len(payload))
	v[0] = frameFormat
	binary.BigEndian.PutUint32(v[1:], frameSum(bucket, key, payload))
	return append(v, payload...)
}

// unframe returns the payload of a stored value. It aliases v.
func unframe(bucket, key, v []byte) ([]byte, error) {
	switch {
	case len(v) < frameHeader:
		return nil, fmt.Errorf("%d bytes are too few for a record", len(v))
	case v[0] != frameFormat:
		return nil, fmt.Errorf("record format %d, want %d", v[0], frameFormat)
	}
	payload := v[frameHeader:]
	if want, got := binary.BigEndian.Uint32(v[1:]), frameSum(bucket, key, payload); want != got {
		return nil, fmt.Errorf("checksum %08x, recorded %08x", got, want)
	}
	return payload, nil
}

func u64(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }

func parseU64(payload []byte) (uint64, error) {
	if len(payload) != 8 {
		return 0, fmt.Errorf("a number of %d bytes, want 8", len(payload))
	}
	return binary.BigEndian.Uint64(payload), nil
}

// numbered is the payload of a snapshot or an object: a number, then bytes.
func numbered(n uint64, data []byte) []byte {
	return append(binary.BigEndian.AppendUint64(make([]byte, 0, 8+len(data)), n), data...)
}

func parseNumbered(payload []byte) (uint64, []byte, error) {
	if len(payload) < 8 {
		return 0, nil, fmt.Errorf("%d bytes are too few for a number", len(payload))
	}
	return binary.BigEndian.Uint64(payload), payload[8:], nil
}

// encodeRecord renders the JSON form of head followed by data.
func encodeRecord(head any, data []byte) ([]byte, error) {
	j, err := json.Marshal(head)
	if err != nil {
		return nil, err
	}
	out := make([]byte, 0, binary.MaxVarintLen32+len(j)+len(data))
	out = binary.AppendUvarint(out, uint64(len(j)))
	out = append(out, j...)
	return append(out, data...), nil
}

// decodeRecord parses payload into head and returns a copy of the data after
// it, nil when there is none.
func decodeRecord(payload []byte, head any) ([]byte, error) {
	n, w := binary.Uvarint(payload)
	if w <= 0 || n > uint64(len(payload)-w) {
		return nil, errors.New("record header exceeds the record")
	}
	j, data := payload[w:w+int(n)], payload[w+int(n):]
	if err := json.Unmarshal(j, head); err != nil {
		return nil, err
	}
	if len(data) == 0 {
		return nil, nil
	}
	return append([]byte(nil), data...), nil
}
