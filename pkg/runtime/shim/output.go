//go:build linux

package shim

import (
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// Bounds of the way from the pipes to the log.
const (
	// bufferSize is how much is read at once: half of what a pipe holds by
	// default, so that reading overlaps with the workload's writing.
	bufferSize = 32 << 10
	// maxBuffers bounds what waits for the disk: 2 MiB, 40 ms of output at
	// 50 MB/s. Buffers exist only while they are full.
	maxBuffers = 64
	// keepBuffers are kept when the output pauses; the rest is garbage.
	keepBuffers = 2
	// pipeSize is asked for the pipes themselves; the kernel uses memory only
	// for what is in them, and may refuse.
	pipeSize = 256 << 10

	// StallLimit is how long the workload may have to wait, once, for a disk
	// that has stopped taking output; then output is dropped until it takes
	// some again. An agent may ask for another limit.
	StallLimit = 100 * time.Millisecond
	// MinRate, in bytes a second, is below what a slow disk does not slow the
	// workload down: what it does not take then is dropped. Above it nothing
	// is lost, and a workload that prints faster than that waits for the disk.
	MinRate = 8 << 20
	// drainLimit bounds what is still read once every process of the run is
	// dead: the pipe's content, unless a stranger was handed its other end.
	drainLimit = 4 << 20
)

// chunk is what one read returned.
type chunk struct {
	stream Stream
	at     time.Time
	buf    []byte
}

// output takes the workload's output from two pipes to a log. The readers
// never keep the workload waiting for longer than credit allows.
type output struct {
	log     *recorder
	queue   chan chunk
	free    chan []byte
	inUse   atomic.Int64 // buffers that exist
	credit  credit
	lost    atomic.Int64 // bytes dropped by the readers since the last marker
	pipes   []*os.File
	readers sync.WaitGroup
	done    chan struct{}
}

func newOutput(segs *segments, stall time.Duration) *output {
	return &output{
		log:    newRecorder(segs),
		credit: credit{limit: stall},
		queue:  make(chan chunk, maxBuffers),
		free:   make(chan []byte, keepBuffers),
		done:   make(chan struct{}),
	}
}

// pipe makes the pipe of one stream and returns the end for the workload.
func (o *output) pipe(s Stream) (w *os.File, err error) {
	var fds [2]int
	if err := syscall.Pipe2(fds[:], syscall.O_CLOEXEC); err != nil {
		return nil, os.NewSyscallError("pipe2", err)
	}
	const setPipeSize = 1031 // F_SETPIPE_SZ
	_, _, _ = syscall.Syscall(syscall.SYS_FCNTL, uintptr(fds[0]), setPipeSize, pipeSize)
	// Only our end: the workload's must block like any pipe.
	if err := syscall.SetNonblock(fds[0], true); err != nil {
		return nil, os.NewSyscallError("fcntl", err)
	}
	r := os.NewFile(uintptr(fds[0]), streamNames[s])
	o.pipes = append(o.pipes, r)
	o.readers.Go(func() {
		o.read(s, r)
	})
	return os.NewFile(uintptr(fds[1]), streamNames[s]), nil
}

// start runs the writer, which ends after finish.
func (o *output) start() {
	go func() {
		defer close(o.done)
		o.write()
	}()
}

// finish is called when no process of the run is alive. It takes what is in
// the pipes, also if a stranger keeps them open, and waits until it is written,
// but no longer than limit.
func (o *output) finish(limit time.Duration) {
	for _, r := range o.pipes {
		_ = r.SetReadDeadline(time.Unix(1, 0)) // the reader goes on to drain
	}
	go func() {
		o.readers.Wait()
		close(o.queue)
	}()
	select {
	case <-o.done:
	case <-time.After(limit):
	}
}

// read moves one stream into the queue until its end.
func (o *output) read(s Stream, r *os.File) {
	defer r.Close()
	rc, err := r.SyscallConn()
	if err != nil {
		return // cannot happen: the file was opened above
	}
	for {
		var n int
		var rerr error
		var buf []byte
		err := rc.Read(func(fd uintptr) bool {
			buf = o.buffer()
			n, rerr = readInto(int(fd), buf)
			if !errors.Is(rerr, syscall.EAGAIN) {
				return true
			}
			o.release(buf)
			return false // wait without holding a buffer
		})
		if err != nil {
			if errors.Is(err, os.ErrDeadlineExceeded) {
				o.drain(s, rc)
			}
			return
		}
		if !o.push(s, buf, n, rerr) {
			return
		}
	}
}

// drain takes what is in a pipe that nobody is expected to write to any more.
func (o *output) drain(s Stream, rc syscall.RawConn) {
	for total := 0; total < drainLimit; {
		var n int
		var rerr error
		buf := o.buffer()
		err := rc.Control(func(fd uintptr) { n, rerr = readInto(int(fd), buf) })
		if err != nil || !o.push(s, buf, n, rerr) {
			return
		}
		total += n
	}
}

// push hands a filled buffer on; false at the end of the stream.
func (o *output) push(s Stream, buf []byte, n int, err error) bool {
	switch {
	case err != nil || n == 0:
		o.release(buf)
		return false
	case cap(buf) < bufferSize: // the place for output that is dropped
		o.lost.Add(int64(n))
	default:
		o.credit.earn(n)
		o.queue <- chunk{stream: s, at: time.Now(), buf: buf[:n]} // has room for every buffer
	}
	return true
}

func readInto(fd int, buf []byte) (int, error) {
	for {
		n, err := syscall.Read(fd, buf)
		if err != syscall.EINTR {
			return n, err
		}
	}
}

// credit is how long the workload may still be kept waiting. It is earned with
// output that was taken, at MinRate, so that waiting never adds up to more.
type credit struct {
	limit time.Duration
	spent atomic.Int64 // of limit, in nanoseconds
}

func (c *credit) left() time.Duration { return c.limit - time.Duration(c.spent.Load()) }

func (c *credit) spend(d time.Duration) { c.spent.Add(int64(d)) }

func (c *credit) earn(n int) {
	d := int64(n) * int64(time.Second) / MinRate
	for {
		old := c.spent.Load()
		if old == 0 || c.spent.CompareAndSwap(old, max(old-d, 0)) {
			return
		}
	}
}

// buffer returns an empty buffer, or a smaller one when the log takes too
// little: what is read into that is dropped.
func (o *output) buffer() []byte {
	select {
	case b := <-o.free:
		return b[:bufferSize]
	default:
	}
	if o.inUse.Add(1) <= maxBuffers {
		return make([]byte, bufferSize)
	}
	o.inUse.Add(-1)
	if limit := o.credit.left(); limit > 0 {
		begin := time.Now()
		t := time.NewTimer(limit)
		defer t.Stop()
		select {
		case b := <-o.free:
			o.credit.spend(time.Since(begin))
			return b[:bufferSize]
		case <-t.C:
			o.credit.spend(limit)
		}
	}
	return make([]byte, bufferSize/2)
}

// release gives a buffer back.
func (o *output) release(buf []byte) {
	if cap(buf) < bufferSize {
		return
	}
	select {
	case o.free <- buf:
	default:
		o.inUse.Add(-1)
	}
}

// write moves the queue into the log until the queue is closed.
func (o *output) write() {
	flush := time.NewTimer(PartialDelay)
	flush.Stop()
	armed := false
	for {
		select {
		case c, ok := <-o.queue:
			if !ok {
				o.log.drop(o.lost.Swap(0), errStalled)
				o.log.finish()
				return
			}
			o.take(c)
			// One write for everything that is waiting.
			for more := true; more; {
				select {
				case c, ok = <-o.queue:
					if more = ok; ok {
						o.take(c)
					}
				default:
					more = false
				}
			}
			o.log.flush()
			o.log.trim()
			// Counted from when the line was left unfinished, whatever the
			// other stream does.
			if o.log.unfinished() && !armed {
				flush.Reset(PartialDelay)
				armed = true
			}
		case <-flush.C:
			armed = false
			o.log.flushPartial()
		}
	}
}

func (o *output) take(c chunk) {
	o.log.drop(o.lost.Swap(0), errStalled)
	o.log.add(c.stream, c.at, c.buf)
	o.release(c.buf)
}

var errStalled = errors.New("the disk of the log is too slow")

// dropped returns how many bytes were lost. It is called after finish.
func (o *output) dropped() int64 {
	select {
	case <-o.done:
		return o.log.total
	default: // the writer hangs in a write: what it holds is lost
		return o.lost.Load()
	}
}
