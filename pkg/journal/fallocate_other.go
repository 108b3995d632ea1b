//go:build !linux

package journal

import (
	"errors"
	"os"
)

// fallocate makes preallocate write zeros.
func fallocate(*os.File, int64, int64) error { return errors.ErrUnsupported }
