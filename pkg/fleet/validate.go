package fleet

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Bounds of a spec. Each is far above any use seen and keeps a record well
// below MaxRecord, or a node from being asked for nonsense.
const (
	MaxLabels       = 64
	MaxLabelValue   = 256 // bytes
	MaxEnv          = 512
	MaxPorts        = 64
	MaxMounts       = 64
	MaxSecrets      = 64
	MinMemoryBytes  = 1 << 20 // below it is a forgotten unit, not a limit
	MaxCPUMillis    = 1024 * 1000
	MaxMemoryBytes  = 64 << 40
	MaxStopGraceMs  = 3600 * 1000
	MaxMaxAttempts  = 1000
	MaxCostMs       = 1 << 40 // 34 years of CPU
	MaxPids         = 4 << 20 // the kernel's own limit
	MaxTTLSeconds   = 366 * 24 * 3600
	reservedEnvName = "BARISTA_"
)

// SpecProblem is one reason why a spec or another operator's object is refused.
type SpecProblem struct {
	Field   string
	Message string // ends with what to write instead, where that can be known
}

func (p SpecProblem) String() string { return p.Field + ": " + p.Message }

// SpecError is a refused spec, with every reason and not only the first.
type SpecError struct {
	What     string // "spec of a1", "tenant acme"; may be empty
	Problems []SpecProblem
}

func (e *SpecError) Error() string {
	parts := make([]string, len(e.Problems))
	for i, p := range e.Problems {
		parts[i] = p.String()
	}
	text := strings.Join(parts, "; ")
	if e.What == "" {
		return text
	}
	return e.What + ": " + text
}

// problems collects what is wrong.
type problems []SpecProblem

func (p *problems) add(field, format string, args ...any) {
	*p = append(*p, SpecProblem{Field: field, Message: fmt.Sprintf(format, args...)})
}

func (p problems) err(what string) error {
	if len(p) == 0 {
		return nil
	}
	return &SpecError{What: what, Problems: p}
}

// Validate refuses a spec that no node could run, or whose fields contradict
// each other. It judges the spec as written, before defaults. The error is a
// *SpecError.
func (s *Spec) Validate() error {
	var p problems
	s.validateProgram(&p)
	s.validateResources(&p)
	s.validatePlacement(&p)
	s.validatePolicy(&p)
	s.validateEnvironment(&p)
	return p.err("")
}

func (s *Spec) validateProgram(p *problems) {
	switch s.Kind {
	case "", KindSession, KindJob:
	default:
		p.add("kind", "%q is neither session nor job", s.Kind)
	}
	if s.Image == "" && len(s.Command) == 0 {
		p.add("command", "nothing to run: give an image, or a command after --")
	}
	if len(s.Command) > 0 && s.Command[0] == "" {
		p.add("command", "the program's name is empty")
	}
	for _, arg := range s.Command {
		checkText(p, "command", arg)
	}
	if strings.ContainsFunc(s.Image, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }) {
		p.add("image", "%q has a space or a control character", s.Image)
	}
	switch {
	case s.Digest == "":
	case s.Image == "":
		p.add("digest", "there is no image it could belong to: give the image too")
	case !validDigest(s.Digest):
		p.add("digest", "%q is no digest: write sha256: and 64 hex digits", s.Digest)
	}
	checkText(p, "user", s.User)
	if s.Workdir != "" && !path.IsAbs(s.Workdir) {
		p.add("workdir", "%q is not absolute", s.Workdir)
	}
	checkText(p, "workdir", s.Workdir)
	if len(s.Payload) > MaxPayload {
		p.add("payload", "%d bytes, at most %d fit: put it where the workload can fetch it", len(s.Payload), MaxPayload)
	}
}

func (s *Spec) validateResources(p *problems) {
	inRange(p, "cpu", s.CPUMillis, MaxCPUMillis, FormatCPU)
	inRange(p, "memory", s.MemoryBytes, MaxMemoryBytes, FormatMemory)
	if s.MemoryBytes > 0 && s.MemoryBytes < MinMemoryBytes {
		p.add("memory", "%d bytes is less than any program needs: did you mean %dMi?", s.MemoryBytes, s.MemoryBytes)
	}
	inRange(p, "pids", s.Pids, MaxPids, plain)
	if s.Size != "" && CheckName(s.Size) != nil {
		p.add("size", "%q is no size: use sm, md, lg or one that the nodes define", s.Size)
	}
	inRange(p, "cost", s.CostMs, MaxCostMs, plain)
}

func (s *Spec) validatePlacement(p *problems) {
	if s.Tenant != "" && CheckName(s.Tenant) != nil {
		p.add("tenant", "%q is no tenant: %s", s.Tenant, NameRule)
	}
	if s.JobType != "" && CheckName(s.JobType) != nil {
		p.add("job_type", "%q is no job type: %s", s.JobType, NameRule)
	}
	checkLabels(p, "labels", s.Labels)
	checkLabels(p, "require", s.Require)
	if s.Runtime != "" && strings.ContainsFunc(s.Runtime, func(r rune) bool { return r <= ' ' || r >= 0x7f }) {
		p.add("runtime", "%q is no runtime: use process, containerd, runsc or a shim's name", s.Runtime)
	}
}

// validatePolicy checks the fields that mean something for one kind only: a
// policy that would silently do nothing is refused.
func (s *Spec) validatePolicy(p *problems) {
	switch s.OnOwnerLoss {
	case "", OwnerLossColdBoot, OwnerLossHold:
	default:
		p.add("on_owner_loss", "%q is neither coldboot nor hold", s.OnOwnerLoss)
	}
	switch s.OnBucketLoss {
	case "", BucketLossKeep, BucketLossStop:
	default:
		p.add("on_bucket_loss", "%q is neither keep nor stop", s.OnBucketLoss)
	}
	inRange(p, "owner_loss_grace", s.OwnerLossGraceMs, maxMillis, FormatMillis)
	inRange(p, "ttl", s.TTLSeconds, MaxTTLSeconds, func(v int64) string { return FormatMillis(v * 1000) })
	inRange(p, "timeout", s.TimeoutMs, maxMillis, FormatMillis)
	inRange(p, "stop_grace", s.StopGraceMs, MaxStopGraceMs, FormatMillis)
	inRange(p, "max_attempts", int64(s.MaxAttempts), MaxMaxAttempts, plain)
	if s.Kind == KindJob {
		if s.TTLSeconds != 0 {
			p.add("ttl", "it pauses a session, and a job is never paused: use timeout to end the job")
		}
		if s.OwnerLossGraceMs != 0 {
			p.add("owner_loss_grace", "it delays the loss of a paused session, and a job is never paused: leave it out")
		}
		return
	}
	if s.TimeoutMs != 0 {
		p.add("timeout", "it ends a job, and a session has no end: use ttl to pause it, or kind job")
	}
	if s.MaxAttempts != 0 {
		p.add("max_attempts", "a session is started again for ever: leave it out, or use kind job")
	}
	if s.JobType != "" {
		p.add("job_type", "it groups jobs for cost estimates: leave it out, or use kind job")
	}
}

func (s *Spec) validateEnvironment(p *problems) {
	if len(s.Env) > MaxEnv {
		p.add("env", "%d variables, at most %d", len(s.Env), MaxEnv)
	}
	for _, k := range sortedKeys(s.Env) {
		switch {
		case k == "" || strings.ContainsAny(k, "=\x00") || !utf8.ValidString(k):
			p.add("env", "%q is no variable's name", k)
		case strings.HasPrefix(k, reservedEnvName):
			p.add("env", "%s: names that begin with %s are set by the node", k, reservedEnvName)
		}
		checkText(p, "env", s.Env[k])
	}
	switch s.Network {
	case "", "none", "host", "cni":
	default:
		p.add("network", "%q is none of none, host and cni", s.Network)
	}
	if s.Network == "none" && len(s.Ports) > 0 {
		p.add("ports", "nothing can reach a port without a network: use network cni or host")
	}
	bounded(p, "ports", len(s.Ports), MaxPorts)
	for i, port := range s.Ports {
		if port < 1 || port > 65535 {
			p.add("ports", "%d is not between 1 and 65535", port)
		} else if slices.Contains(s.Ports[:i], port) {
			p.add("ports", "%d is given twice", port)
		}
	}
	bounded(p, "mounts", len(s.Mounts), MaxMounts)
	for i, m := range s.Mounts {
		if !cleanPath(m.Source) || !cleanPath(m.Target) {
			p.add("mounts", "%q to %q: both must be absolute paths without . or .. in them", m.Source, m.Target)
		} else if slices.ContainsFunc(s.Mounts[:i], func(o Mount) bool { return o.Target == m.Target }) {
			p.add("mounts", "%q is given twice as a target", m.Target)
		}
	}
	bounded(p, "secrets", len(s.Secrets), MaxSecrets)
	for i, name := range s.Secrets {
		if CheckName(name) != nil {
			p.add("secrets", "%q is no secret's name: %s", name, NameRule)
		} else if slices.Contains(s.Secrets[:i], name) {
			p.add("secrets", "%q is given twice", name)
		}
	}
}

func bounded(p *problems, field string, n, most int) {
	if n > most {
		p.add(field, "%d of them, at most %d", n, most)
	}
}

func inRange(p *problems, field string, v, most int64, format func(int64) string) {
	if v < 0 {
		p.add(field, "%s is negative", format(v))
	} else if v > most {
		p.add(field, "%s is more than the most, %s", format(v), format(most))
	}
}

func checkText(p *problems, field, s string) {
	if strings.ContainsRune(s, 0) || !utf8.ValidString(s) {
		p.add(field, "%q has a zero byte or is not UTF-8", s)
	}
}

func checkLabels(p *problems, field string, m map[string]string) {
	if len(m) > MaxLabels {
		p.add(field, "%d of them, at most %d", len(m), MaxLabels)
	}
	for _, k := range sortedKeys(m) {
		if !labelKey(k) {
			p.add(field, "%q is no label: 1 to 63 of the characters A-Z a-z 0-9 . _ - /", k)
		}
		v := m[k]
		if len(v) > MaxLabelValue || !utf8.ValidString(v) || strings.ContainsFunc(v, unicode.IsControl) {
			p.add(field, "%s: a value has at most %d bytes of text without control characters", k, MaxLabelValue)
		}
	}
}

func labelKey(k string) bool {
	if k == "" || len(k) > MaxName {
		return false
	}
	for i := range len(k) {
		c := k[i]
		if !alnum(c) && (c < 'A' || c > 'Z') && !strings.ContainsRune("._-/", rune(c)) {
			return false
		}
	}
	return true
}

func validDigest(s string) bool {
	hex, ok := strings.CutPrefix(s, "sha256:")
	if !ok || len(hex) != 64 {
		return false
	}
	for i := range len(hex) {
		if c := hex[i]; !isDigit(c) && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

func cleanPath(s string) bool {
	return path.IsAbs(s) && path.Clean(s) == s && !strings.ContainsRune(s, 0) && utf8.ValidString(s)
}

func plain(v int64) string { return fmt.Sprint(v) }

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
