package fleet

import (
	"time"
)

// Manifest is a name and what to run under it, as people write it down. Its
// text form is described by the fields below; in the bucket it becomes a
// Desired record.
type Manifest struct {
	Name string
	Spec Spec
	// WakeAt arms the name's alarm. Zero leaves the alarm as it is.
	WakeAt time.Time
}

// ManifestVersion is the version of the manifest's text form.
const ManifestVersion = 1

// Field is one field of the manifest. The parser, the JSON schema, the
// exporter, the differ and fleetctl's flags are all made from one table of
// these, so they cannot disagree.
type Field struct {
	Name string // in a manifest
	Flag string // fleetctl's flag; empty if it has none
	Arg  string // what the flag takes, for help
	Doc  string

	codec codec
	ptr   func(*Manifest) any // where the value lives
}

// Bool reports a field whose flag takes no value.
func (f *Field) Bool() bool { _, ok := f.codec.(boolCodec); return ok }

// Repeats reports a field whose flag may be given more than once.
func (f *Field) Repeats() bool {
	switch f.codec.(type) {
	case listCodec, mapCodec, portCodec, mountCodec:
		return true
	}
	return false
}

// Set parses the values of the field's flag into m.
func (f *Field) Set(m *Manifest, values []string) error {
	return f.codec.parse(values, f.ptr(m))
}

// Fields returns the table, in the order a manifest is written.
func Fields() []Field {
	spec := func(get func(*Spec) any) func(*Manifest) any {
		return func(m *Manifest) any { return get(&m.Spec) }
	}
	return []Field{
		{
			Name: "name", codec: nameCodec(), ptr: func(m *Manifest) any { return &m.Name },
			Doc: "What it is called, in the whole fleet: " + NameRule + ".",
		},
		{
			Name: "kind", Flag: "kind", Arg: "session|job", codec: enum(KindSession, KindJob),
			ptr: spec(func(s *Spec) any { return &s.Kind }),
			Doc: "A session is kept running until told otherwise; a job runs to its end, once. Default session.",
		},
		{
			Name: "image", Flag: "image", Arg: "IMAGE", codec: text(), ptr: spec(func(s *Spec) any { return &s.Image }),
			Doc: "Container image, for runtimes that take one.",
		},
		{
			Name: "digest", Flag: "digest", Arg: "sha256:HEX", codec: text(), ptr: spec(func(s *Spec) any { return &s.Digest }),
			Doc: "The image's digest; anything else under its name is refused.",
		},
		{
			Name: "command", codec: listCodec{literal: true}, ptr: spec(func(s *Spec) any { return &s.Command }),
			Doc: "Program and arguments.",
		},
		{
			Name: "env", Flag: "env", Arg: "K=V", codec: mapCodec{}, ptr: spec(func(s *Spec) any { return &s.Env }),
			Doc: "Environment variables.",
		},
		{
			Name: "user", Flag: "user", Arg: "USER[:GROUP]", codec: text(), ptr: spec(func(s *Spec) any { return &s.User }),
			Doc: "Who runs the program.",
		},
		{
			Name: "workdir", Flag: "workdir", Arg: "DIR", codec: text(), ptr: spec(func(s *Spec) any { return &s.Workdir }),
			Doc: "Where the program starts.",
		},
		{
			Name: "cpu", Flag: "cpu", Arg: "CPUS", codec: cpu(), ptr: spec(func(s *Spec) any { return &s.CPUMillis }),
			Doc: "CPUs: 2, 0.5 or 500m.",
		},
		{
			Name: "memory", Flag: "memory", Arg: "BYTES", codec: memory(), ptr: spec(func(s *Spec) any { return &s.MemoryBytes }),
			Doc: "Memory: 256Mi, 1Gi or a number of bytes.",
		},
		{
			Name: "pids", Flag: "pids", Arg: "N", codec: integer[int64](), ptr: spec(func(s *Spec) any { return &s.Pids }),
			Doc: "Most processes and threads.",
		},
		{
			Name: "size", Flag: "size", Arg: "sm|md|lg", codec: text(), ptr: spec(func(s *Spec) any { return &s.Size }),
			Doc: "A named request for CPU and memory, and the kind of slot that a job takes.",
		},
		{
			Name: "tenant", Flag: "tenant", Arg: "TENANT", codec: text(), ptr: spec(func(s *Spec) any { return &s.Tenant }),
			Doc: "Whose share of the fleet it uses. Default " + DefaultTenant + ".",
		},
		{
			Name: "job_type", Flag: "job-type", Arg: "TYPE", codec: text(), ptr: spec(func(s *Spec) any { return &s.JobType }),
			Doc: "Groups jobs whose CPU use is alike, so that it can be estimated.",
		},
		{
			Name: "cost", Flag: "cost", Arg: "CPU_MS", codec: integer[int64](), ptr: spec(func(s *Spec) any { return &s.CostMs }),
			Doc: "Expected CPU, in milliseconds.",
		},
		{
			Name: "labels", Flag: "label", Arg: "K=V", codec: mapCodec{}, ptr: spec(func(s *Spec) any { return &s.Labels }),
			Doc: "Labels to select names by.",
		},
		{
			Name: "require", Flag: "require", Arg: "K=V", codec: mapCodec{}, ptr: spec(func(s *Spec) any { return &s.Require }),
			Doc: "Labels that a node must have to run it.",
		},
		{
			Name: "runtime", Flag: "runtime", Arg: "RUNTIME", codec: text(), ptr: spec(func(s *Spec) any { return &s.Runtime }),
			Doc: "Runtime it must run under: process, containerd, runsc, or a shim's name.",
		},
		{
			Name: "on_owner_loss", Flag: "on-owner-loss", Arg: "coldboot|hold", codec: enum(OwnerLossColdBoot, OwnerLossHold),
			ptr: spec(func(s *Spec) any { return &s.OnOwnerLoss }),
			Doc: "What happens when its node is lost: coldboot starts it afresh elsewhere, hold keeps it for an operator to decide. Default coldboot.",
		},
		{
			Name: "owner_loss_grace", Flag: "owner-loss-grace", Arg: "DURATION", codec: millis(),
			ptr: spec(func(s *Spec) any { return &s.OwnerLossGraceMs }),
			Doc: "How long a paused session waits for its lost node before it is given to another. Default 10m.",
		},
		{
			Name: "on_bucket_loss", Flag: "on-bucket-loss", Arg: "keep|stop", codec: enum(BucketLossKeep, BucketLossStop),
			ptr: spec(func(s *Spec) any { return &s.OnBucketLoss }),
			Doc: "What its node does when it cannot renew: keep it running, or stop it before anyone else may start it. Default keep for a session, stop for a job.",
		},
		{
			Name: "ttl", Flag: "ttl", Arg: "SECONDS", codec: seconds(), ptr: spec(func(s *Spec) any { return &s.TTLSeconds }),
			Doc: "A session is paused this long after it started or resumed: seconds, or a duration such as 1h.",
		},
		{
			Name: "timeout", Flag: "timeout", Arg: "DURATION", codec: millis(), ptr: spec(func(s *Spec) any { return &s.TimeoutMs }),
			Doc: "A job is ended this long after it started.",
		},
		{
			Name: "max_attempts", Flag: "max-attempts", Arg: "N", codec: integer[int](), ptr: spec(func(s *Spec) any { return &s.MaxAttempts }),
			Doc: "How often a failing job is started in all. Default 3.",
		},
		{
			Name: "stop_grace", Flag: "stop-grace", Arg: "DURATION", codec: millis(), ptr: spec(func(s *Spec) any { return &s.StopGraceMs }),
			Doc: "Time between SIGTERM and SIGKILL. Default 10s.",
		},
		{
			Name: "network", Flag: "network", Arg: "none|host|cni", codec: enum("none", "host", "cni"),
			ptr: spec(func(s *Spec) any { return &s.Network }),
			Doc: "Network. The node must allow host.",
		},
		{
			Name: "ports", Flag: "port", Arg: "PORT", codec: portCodec{}, ptr: spec(func(s *Spec) any { return &s.Ports }),
			Doc: "Ports to publish on the node.",
		},
		{
			Name: "mounts", Flag: "mount", Arg: "SOURCE:TARGET[:ro]", codec: mountCodec{}, ptr: spec(func(s *Spec) any { return &s.Mounts }),
			Doc: "Directories of the node to show. The node must allow each.",
		},
		{
			Name: "read_only", Flag: "read-only", codec: boolCodec{}, ptr: spec(func(s *Spec) any { return &s.ReadOnly }),
			Doc: "Read-only root file system.",
		},
		{
			Name: "secrets", Flag: "secret", Arg: "NAME", codec: listCodec{}, ptr: spec(func(s *Spec) any { return &s.Secrets }),
			Doc: "Names of files in the node's secrets directory. Their contents never enter the bucket.",
		},
		{
			Name: "payload", codec: payloadText{}, ptr: spec(func(s *Spec) any { return &s.Payload }),
			Doc: "Text to hand over as the read-only file $BARISTA_PAYLOAD; at most 64 KiB.",
		},
		{
			Name: "payload_base64", codec: payloadBase64{}, ptr: spec(func(s *Spec) any { return &s.Payload }),
			Doc: "The same for bytes that are not text. Give one of the two.",
		},
		{
			Name: "keep_logs", Flag: "keep-logs", codec: boolCodec{}, ptr: spec(func(s *Spec) any { return &s.KeepLogs }),
			Doc: "Put the end of each run's output into the bucket.",
		},
		{
			Name: "wake_at", codec: instant(), ptr: func(m *Manifest) any { return &m.WakeAt },
			Doc: "Resume the session at this instant (RFC 3339). Left out, an alarm that is set stays.",
		},
	}
}
