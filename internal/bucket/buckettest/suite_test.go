package buckettest

import (
	"testing"

	"github.com/barista-fleet/barista/internal/bucket"
)

func TestMem(t *testing.T) {
	Suite{
		Rounds: 50,
		Plant:  func(_ *testing.T, s bucket.Store, key string, body []byte) { s.(*Mem).Plant(key, body) },
	}.Run(t, func(*testing.T) bucket.Store { return NewMem() })
}
