package journal

import (
	"errors"
	"os"
	"syscall"
)

// fallocate extends f to off+n with allocated blocks.
func fallocate(f *os.File, off, n int64) error {
	for {
		err := syscall.Fallocate(int(f.Fd()), 0, off, n)
		if !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}
