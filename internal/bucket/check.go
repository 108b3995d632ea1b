package bucket

import (
	"errors"
	"fmt"
	"strings"
)

// CheckPut refuses what no store shall be asked to write.
func CheckPut(key string, body []byte, cond Condition) error {
	if err := CheckKey(key); err != nil {
		return err
	}
	if err := cond.Validate(); err != nil {
		return &Error{Op: "put", Key: key, Kind: ErrInvalid, Err: err}
	}
	if len(body) > MaxBody {
		return &Error{
			Op: "put", Key: key, Kind: ErrInvalid,
			Err: fmt.Errorf("the body has %d bytes, more than %d", len(body), MaxBody),
		}
	}
	return nil
}

// CheckPrefix refuses prefixes that no valid key can start with. The empty
// prefix is every key's.
func CheckPrefix(prefix string) error {
	if len(prefix) > MaxKey || strings.HasPrefix(prefix, "/") {
		return &Error{Op: "prefix", Key: prefix, Kind: ErrInvalid, Err: errors.New("no key starts like this")}
	}
	for i := range len(prefix) {
		if prefix[i] != '/' && !keyByte(prefix[i]) {
			return &Error{Op: "prefix", Key: prefix, Kind: ErrInvalid, Err: errors.New("no key starts like this")}
		}
	}
	return nil
}
