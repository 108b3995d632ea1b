package fleet

import (
	"github.com/go-json-experiment/json/jsontext"
)

// Kind says what the end of a run means.
type Kind string

// The kinds of a spec.
const (
	KindSession Kind = "session" // kept running until told otherwise
	KindJob     Kind = "job"     // runs to its end, once
)

// OwnerLoss says what happens to a name whose node is lost.
type OwnerLoss string

// The owner-loss policies.
const (
	OwnerLossColdBoot OwnerLoss = "coldboot"
	OwnerLossHold     OwnerLoss = "hold"
)

// BucketLoss says what a node does with a workload when it cannot renew.
type BucketLoss string

// The bucket-loss policies.
const (
	BucketLossKeep BucketLoss = "keep" // an outage stops nothing
	BucketLossStop BucketLoss = "stop" // dead before anyone else may start it
)

// Spec is what to run. In the bucket quantities are plain integers in the unit
// their name ends with; the manifest form for people is in manifest.go.
type Spec struct {
	Kind    Kind              `json:"kind"`
	Image   string            `json:"image,omitempty"`
	Digest  string            `json:"digest,omitempty"`
	Command []string          `json:"command,omitempty"`
	Env     map[string]string `json:"env,omitempty"`
	User    string            `json:"user,omitempty"`
	Workdir string            `json:"workdir,omitempty"`

	CPUMillis   int64  `json:"cpu_milli,omitzero"`
	MemoryBytes int64  `json:"memory_bytes,omitzero"`
	Pids        int64  `json:"pids,omitzero"`
	Size        string `json:"size,omitempty"` // sm, md, lg or a size the nodes define

	Tenant  string            `json:"tenant,omitempty"`
	JobType string            `json:"job_type,omitempty"`
	CostMs  int64             `json:"cost_ms,omitzero"` // expected CPU, milliseconds
	Labels  map[string]string `json:"labels,omitempty"`
	Require map[string]string `json:"require,omitempty"` // labels a node must have
	Runtime string            `json:"runtime,omitempty"` // driver or handler it must run under

	OnOwnerLoss      OwnerLoss  `json:"on_owner_loss,omitempty"`
	OwnerLossGraceMs int64      `json:"owner_loss_grace_ms,omitzero"`
	OnBucketLoss     BucketLoss `json:"on_bucket_loss,omitempty"`

	TTLSeconds  int64 `json:"ttl_seconds,omitzero"` // a session is paused this long after it started or resumed
	TimeoutMs   int64 `json:"timeout_ms,omitzero"`  // a job is ended this long after it started
	MaxAttempts int   `json:"max_attempts,omitzero"`
	StopGraceMs int64 `json:"stop_grace_ms,omitzero"` // between SIGTERM and SIGKILL

	Network  string   `json:"network,omitempty"` // none, host or cni
	Ports    []int    `json:"ports,omitempty"`
	Mounts   []Mount  `json:"mounts,omitempty"`
	ReadOnly bool     `json:"read_only,omitzero"` // root file system
	Secrets  []string `json:"secrets,omitempty"`  // names; values never enter the bucket
	Payload  []byte   `json:"payload,omitempty"`  // at most MaxPayload bytes
	KeepLogs bool     `json:"keep_logs,omitzero"` // upload the tail of each run

	Unknown jsontext.Value `json:",embed"`
}

// Mount is a directory of the node shown to the workload.
type Mount struct {
	Source   string         `json:"source"`
	Target   string         `json:"target"`
	ReadOnly bool           `json:"read_only,omitzero"`
	Unknown  jsontext.Value `json:",embed"`
}

// Defaults of a spec.
const (
	// MaxPayload bounds Spec.Payload: with base64 it still leaves most of a
	// record for everything else.
	MaxPayload = 64 << 10

	DefaultOwnerLossGraceMs = 10 * 60 * 1000
	DefaultStopGraceMs      = 10 * 1000
	DefaultMaxAttempts      = 3
	DefaultTenant           = "default"
)

// WithDefaults returns the spec as nodes read it: every policy that was left
// open gets its default, by kind.
func (s Spec) WithDefaults() Spec {
	if s.Kind == "" {
		s.Kind = KindSession
	}
	if s.OnOwnerLoss == "" {
		s.OnOwnerLoss = OwnerLossColdBoot
	}
	if s.OnBucketLoss == "" {
		s.OnBucketLoss = BucketLossKeep
		if s.Kind == KindJob {
			s.OnBucketLoss = BucketLossStop
		}
	}
	if s.OwnerLossGraceMs == 0 {
		s.OwnerLossGraceMs = DefaultOwnerLossGraceMs
	}
	if s.StopGraceMs == 0 {
		s.StopGraceMs = DefaultStopGraceMs
	}
	if s.MaxAttempts == 0 {
		s.MaxAttempts = DefaultMaxAttempts
	}
	if s.Tenant == "" {
		s.Tenant = DefaultTenant
	}
	return s
}
