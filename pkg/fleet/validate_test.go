package fleet

import (
	"fmt"
	"strings"
	"testing"
)

func TestSpecValidate(t *testing.T) {
	digest := "sha256:" + strings.Repeat("0", 64)
	for _, c := range []struct {
		name   string
		change func(*Spec)
		want   string // what the message must hold; empty: accepted
	}{
		{"nothing else", func(*Spec) {}, ""},
		{"image and digest", func(s *Spec) { s.Image, s.Digest = "busybox", digest }, ""},
		{"image without command", func(s *Spec) { s.Command, s.Image = nil, "busybox" }, ""},
		{"everything", func(s *Spec) { *s = fullSpec() }, ""},
		{"nothing to run", func(s *Spec) { s.Command = nil }, "command: nothing to run"},
		{"empty program", func(s *Spec) { s.Command = []string{""} }, "program's name is empty"},
		{"zero byte", func(s *Spec) { s.Command = []string{"a\x00b"} }, "zero byte"},
		{"not UTF-8", func(s *Spec) { s.Command = []string{"a", "\xff"} }, "not UTF-8"},
		{"kind", func(s *Spec) { s.Kind = "daemon" }, "neither session nor job"},
		{"digest alone", func(s *Spec) { s.Digest = digest }, "give the image too"},
		{"digest as printed in a page", func(s *Spec) { s.Image, s.Digest = "b", "sha256:…" }, "64 hex digits"},
		{"upper-case digest", func(s *Spec) { s.Image, s.Digest = "b", "sha256:"+strings.Repeat("A", 64) }, "64 hex digits"},
		{"image with a space", func(s *Spec) { s.Image = "busy box" }, "image:"},
		{"relative workdir", func(s *Spec) { s.Workdir = "srv" }, "not absolute"},
		{"negative CPU", func(s *Spec) { s.CPUMillis = -1 }, "cpu: -1m is negative"},
		{"too much CPU", func(s *Spec) { s.CPUMillis = MaxCPUMillis + 1 }, "cpu:"},
		{"forgotten unit", func(s *Spec) { s.MemoryBytes = 256 }, "did you mean 256Mi?"},
		{"size", func(s *Spec) { s.Size = "Large" }, "no size"},
		{"tenant", func(s *Spec) { s.Tenant = "a b" }, "no tenant"},
		{"label", func(s *Spec) { s.Labels = map[string]string{"a b": "c"} }, "no label"},
		{"label value", func(s *Spec) { s.Require = map[string]string{"a": "\x1b[31m"} }, "control characters"},
		{"owner loss", func(s *Spec) { s.OnOwnerLoss = "panic" }, "neither coldboot nor hold"},
		{"bucket loss", func(s *Spec) { s.OnBucketLoss = "panic" }, "neither keep nor stop"},
		{"ttl of a job", func(s *Spec) { s.Kind, s.TTLSeconds = KindJob, 60 }, "use timeout to end the job"},
		{"grace of a job", func(s *Spec) { s.Kind, s.OwnerLossGraceMs = KindJob, 60 }, "owner_loss_grace"},
		{"timeout of a session", func(s *Spec) { s.TimeoutMs = 60 }, "use ttl to pause it"},
		{"attempts of a session", func(s *Spec) { s.MaxAttempts = 2 }, "max_attempts"},
		{"job type of a session", func(s *Spec) { s.JobType = "render" }, "job_type"},
		{"negative ttl", func(s *Spec) { s.TTLSeconds = -1 }, "ttl: -1000s is negative"},
		{"reserved variable", func(s *Spec) { s.Env = map[string]string{"BARISTA_EPOCH": "1"} }, "set by the node"},
		{"variable's name", func(s *Spec) { s.Env = map[string]string{"": "1"} }, "no variable's name"},
		{"network", func(s *Spec) { s.Network = "bridge" }, "none of none, host and cni"},
		{"port without network", func(s *Spec) { s.Network, s.Ports = "none", []int{80} }, "use network cni or host"},
		{"port 0", func(s *Spec) { s.Ports = []int{0} }, "between 1 and 65535"},
		{"port twice", func(s *Spec) { s.Ports = []int{80, 80} }, "twice"},
		{"mount upwards", func(s *Spec) { s.Mounts = []Mount{{Source: "/a/../b", Target: "/c"}} }, "absolute paths"},
		{"mount twice", func(s *Spec) { s.Mounts = []Mount{{Source: "/a", Target: "/c"}, {Source: "/b", Target: "/c"}} }, "twice as a target"},
		{"secret with a path", func(s *Spec) { s.Secrets = []string{"../../etc/passwd"} }, "no secret's name"},
		{"payload", func(s *Spec) { s.Payload = make([]byte, MaxPayload+1) }, "where the workload can fetch it"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := Spec{Kind: KindSession, Command: []string{"true"}}
			c.change(&s)
			err := s.Validate()
			if c.want == "" {
				noError(t, err)
				return
			}
			var bad *SpecError
			if !asError(err, &bad) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want a SpecError with %q", err, c.want)
			}
		})
	}
}

// TestValidateNamesEverything: one look at the messages is enough to repair.
func TestValidateNamesEverything(t *testing.T) {
	s := Spec{Kind: "x", Size: "X", Network: "y", Secrets: []string{"/"}}
	var bad *SpecError
	if !asError(s.Validate(), &bad) || len(bad.Problems) != 5 {
		t.Errorf("got %v, want five problems", bad)
	}
}

func TestTenantValidate(t *testing.T) {
	for _, c := range []struct {
		name   string
		tenant Tenant
		want   string
	}{
		{"least", Tenant{Name: "a", Tier: TierFree}, ""},
		{"prefix that ends with a separator", Tenant{Name: "a", Tier: TierFree, Prefix: "a-"}, ""},
		{"name", Tenant{Name: "A", Tier: TierFree}, "name"},
		{"tier", Tenant{Name: "a", Tier: "platinum"}, "use free, bronze"},
		{"multiplier", Tenant{Name: "a", Tier: TierFree, Multiplier: MaxMultiplier + 1}, "multiplier"},
		{"negative cap", Tenant{Name: "a", Tier: TierFree, Cap: -1}, "cap: -1 is out of range"},
		{"caps that contradict", Tenant{Name: "a", Tier: TierFree, Cap: 2, CapPerNode: 3}, "whole fleet's cap"},
		{"prefix", Tenant{Name: "a", Tier: TierFree, Prefix: "-a"}, "begin no name"},
	} {
		err := c.tenant.Validate()
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: got %v, want %q", c.name, err, c.want)
		}
	}
	if w := (&Tenant{Tier: TierDiamond, Multiplier: 3}).Weight(); w != 48 {
		t.Errorf("a diamond tenant with multiplier 3 weighs %d, want 48", w)
	}
}

func TestCheckName(t *testing.T) {
	for _, good := range []string{"a", "0", "a1", "agent-42", "a.b_c-d", strings.Repeat("a", MaxName)} {
		noError(t, CheckName(good))
	}
	for _, bad := range []string{"", "-a", "a-", ".a", "a.", "A", "a/b", "a b", "ä", "a\x00", "a\n", strings.Repeat("a", MaxName+1)} {
		if err := CheckName(bad); err == nil || !strings.Contains(err.Error(), NameRule) {
			t.Errorf("%q: got %v, want the rule", bad, err)
		}
	}
}

func ExampleSpec_Validate() {
	s := Spec{Kind: KindJob, Command: []string{"make"}, MemoryBytes: 512, TTLSeconds: 60}
	fmt.Println(s.Validate())
	// Output:
	// memory: 512 bytes is less than any program needs: did you mean 512Mi?; ttl: it pauses a session, and a job is never paused: use timeout to end the job
}
