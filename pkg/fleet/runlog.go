package fleet

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/barista-fleet/barista/internal/bucket"
)

// MaxRunLog bounds the output in a RunLog, in bytes: encoded it takes a third more,
// which still fits one record.
const MaxRunLog = 128 << 10

// RunLog is logs/<name>/<epoch>: the end of what a run wrote, put there by its node
// when the run ended. A later run at the same epoch replaces it. It is for people.
type RunLog struct {
	Head
	Name     string    `json:"name"`
	Epoch    uint64    `json:"epoch"`
	Attempt  int       `json:"attempt,omitzero"`
	Instance string    `json:"instance,omitempty"`
	NodeName string    `json:"node_name,omitempty"`
	Ended    time.Time `json:"ended,omitzero"` // the node's wall clock
	Exit     *Exit     `json:"exit,omitempty"`
	// Dropped is how many bytes before Output are not here.
	Dropped int64  `json:"dropped_bytes,omitzero"`
	Output  []byte `json:"output"` // both streams, as they came

	Unknown jsontext.Value `json:",embed"`
}

// RunLogKey is the key of the kept output of a name at an epoch.
func RunLogKey(name string, epoch uint64) string {
	return PrefixLogs + name + "/" + strconv.FormatUint(epoch, 10)
}

// DecodeRunLog reads the record under key.
func DecodeRunLog(key string, body []byte) (*RunLog, error) {
	l := new(RunLog)
	if err := decode(key, body, l); err != nil {
		return nil, err
	}
	if RunLogKey(l.Name, l.Epoch) != key {
		return nil, &UnreadableError{Key: key, Err: fmt.Errorf("says it is %s", RunLogKey(l.Name, l.Epoch))}
	}
	return l, nil
}

// KeptLog reads the newest output that was kept of a name, or with previous the one
// before it. Without one it is a *NotFoundError.
func (c *Client) KeptLog(ctx context.Context, name string, previous bool) (*RunLog, error) {
	if err := CheckName(name); err != nil {
		return nil, err
	}
	listing, err := c.list(ctx, PrefixLogs+name+"/")
	if err != nil {
		return nil, err
	}
	var epochs []uint64
	for _, e := range listing.Entries {
		if n, err := strconv.ParseUint(strings.TrimPrefix(e.Key, PrefixLogs+name+"/"), 10, 64); err == nil && n > 0 {
			epochs = append(epochs, n)
		}
	}
	slices.Sort(epochs)
	at := len(epochs) - 1
	if previous {
		at--
	}
	if at >= 0 {
		key := RunLogKey(name, epochs[at])
		obj, err := c.get(ctx, key)
		if err != nil {
			return nil, err
		}
		if obj.Status == bucket.Found {
			return DecodeRunLog(key, obj.Body)
		}
	}
	return nil, &NotFoundError{What: "kept output of", Name: name, Hint: "fleetctl apply --keep-logs keeps the end of each run's output in the bucket"}
}
