package sim

import (
	"time"

	"github.com/barista-fleet/barista/pkg/lease"
)

// ppm is a part per million of a clock's rate.
const ppm = 1_000_000

// clock is one machine's clocks as functions of true time: a boot-time clock
// that starts anywhere and runs up to a percent fast or slow, and a wall clock
// that may be anywhere and may step.
type clock struct {
	from  time.Duration // true time of the boot
	start lease.Instant // the boot-time clock at that moment
	rate  int64         // error of the rate, ppm
	wall  time.Duration // error of the wall clock
}

// epoch is the wall-clock time at true time 0.
var epoch = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

// boot is the boot-time clock at true time t. It goes on while the machine is
// suspended.
func (c *clock) boot(t time.Duration) lease.Instant {
	d := int64(t - c.from)
	return c.start + lease.Instant(d+d*c.rate/ppm)
}

// when is the first true time at which the boot-time clock shows at least i.
func (c *clock) when(i lease.Instant) time.Duration {
	if i == lease.Never {
		return never
	}
	d := int64(i - c.start)
	t := c.from + time.Duration(d-d*c.rate/(ppm+c.rate))
	for c.boot(t) < i {
		t++
	}
	return t
}

// span is how long d on this clock is in true time.
func (c *clock) span(d time.Duration) time.Duration {
	return d - d*time.Duration(c.rate)/time.Duration(ppm+c.rate)
}

func (c *clock) wallNow(t time.Duration) time.Time { return epoch.Add(t + c.wall) }

const never = time.Duration(1<<63 - 1)
