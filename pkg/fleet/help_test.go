package fleet

import (
	"errors"
	"testing"
)

// asError is errors.As with its type argument spelled once.
func asError[T error](err error, target *T) bool { return errors.As(err, target) }

func noError(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
