package sim

import (
	"math/rand/v2"
	"time"

	"github.com/barista-fleet/barista/pkg/fleet"
	"github.com/barista-fleet/barista/pkg/lease"
)

// profile is what kind of trouble a schedule has. A schedule with everything in it
// reaches deep states; one with a single kind allows stricter checks.
type profile uint8

const (
	profileNodeLoss profile = iota // one machine goes down for good, nothing else: I7
	profileOutage                  // the bucket is away for all nodes, nothing else: I6
	profileNetwork                 // requests are lost, late, repeated by nobody, refused
	profileCrash                   // agents and machines die and come back
	profilePause                   // agents are stopped, machines suspended
	profileHands                   // objects are removed, damaged, restored by hand
	profileAll
	profiles
)

func (p profile) String() string {
	return [...]string{"node loss", "outage", "network", "crash", "pause", "hands", "all"}[p]
}

// scenario is everything about a schedule that is fixed before it begins.
type scenario struct {
	seed    uint64
	profile profile
	nodes   int
	names   int
	guard   bool
	slots   int

	baseTTL    time.Duration
	longestTTL time.Duration
	resync     time.Duration
	chaos      time.Duration // how long faults go on

	// Chances, each drawn where it applies.
	crashAtEffect float64 // per effect
	slowStart     float64
	startFails    float64
	slowGoroutine float64
	exits         float64 // a run ends by itself, or a job fails
	lateReleases  float64 // see targeted.go
	lostClaims    float64
	deafWatch     float64 // the end of a run is not told
	slowDisk      float64
	fullDisk      float64

	faultEvery    time.Duration
	operatorEvery time.Duration
	faults        []weighted
}

type weighted struct {
	weight int
	do     func(*world)
}

func scenarioOf(seed uint64) (scenario, *rand.Rand) {
	rng := rand.New(rand.NewPCG(seed, 0x6261726973746121))
	sc := scenario{seed: seed, baseTTL: 3 * time.Second, slots: 8, guard: rng.IntN(3) != 0}
	sc.profile = [...]profile{
		profileNodeLoss, profileOutage, profileNetwork, profileNetwork, profileCrash, profileCrash,
		profilePause, profilePause, profileHands, profileAll, profileAll, profileAll,
	}[rng.IntN(12)]
	sc.nodes = [...]int{2, 2, 2, 2, 3, 3, 3, 3, 4, 5, 6, 7}[rng.IntN(12)]
	sc.names = [...]int{1, 1, 2, 2, 3, 4}[rng.IntN(6)]
	sc.resync = time.Duration(4+rng.IntN(8)) * time.Second
	sc.chaos = time.Duration(12+rng.IntN(18)) * time.Second
	sc.faultEvery = time.Duration(400+rng.IntN(2500)) * time.Millisecond
	sc.operatorEvery = never
	sc.shape(rng)
	return sc, rng
}

// shape sets what the profile brings.
func (sc *scenario) shape(rng *rand.Rand) {
	some := func(p float64) float64 {
		if rng.IntN(2) == 0 {
			return 0
		}
		return p
	}
	switch sc.profile {
	case profileNodeLoss:
		sc.faults = nil
		return
	case profileOutage:
		sc.faults = []weighted{{1, (*world).faultOutage}}
		sc.faultEvery = 8 * time.Second
		return
	case profileNetwork:
		sc.faults = networkFaults
		sc.lostClaims = some(0.1)
	case profileCrash:
		sc.faults = append(append([]weighted{}, crashFaults...), weighted{1, (*world).faultCut}, weighted{1, (*world).faultWeather})
		sc.crashAtEffect = some(0.01)
		sc.slowDisk, sc.fullDisk = some(0.05), some(0.1)
		sc.lateReleases, sc.lostClaims = some(0.3), some(0.1)
	case profilePause:
		sc.faults = append(append([]weighted{}, pauseFaults...), weighted{1, (*world).faultCut}, weighted{1, (*world).faultCrash})
		sc.slowGoroutine = some(0.2)
	case profileHands:
		sc.faults = append(append([]weighted{}, handFaults...), weighted{1, (*world).faultCrash}, weighted{1, (*world).faultCut})
	default:
		sc.faults = allFaults
		sc.crashAtEffect = some(0.003)
		sc.slowGoroutine, sc.slowDisk, sc.fullDisk = some(0.1), some(0.05), some(0.1)
		sc.lateReleases, sc.lostClaims = some(0.1), some(0.05)
	}
	sc.slowStart, sc.startFails, sc.exits, sc.deafWatch = some(0.2), some(0.2), some(0.4), some(0.3)
	if rng.IntN(3) != 0 {
		sc.operatorEvery = time.Duration(500+rng.IntN(4000)) * time.Millisecond
	}
}

// build makes the fleet: its machines, its names, and what operators wrote first.
func (w *world) build() {
	sc := &w.sc
	sc.longestTTL = sc.baseTTL
	for i := range sc.nodes {
		n := &node{w: w, idx: i, host: hosts[i], disk: newDisk(), powered: true, boots: 1, machine: hosts[i]}
		ttl := sc.baseTTL
		if w.chance(0.2) {
			ttl = sc.baseTTL * time.Duration(2+w.pick(5)) / 4 // another TTL than the others'
		}
		n.times = lease.Config{TTL: ttl, Heartbeat: ttl / time.Duration(3+w.pick(3))}.WithDefaults()
		sc.longestTTL = max(sc.longestTTL, ttl)
		n.clock = clock{start: lease.Instant(w.between(time.Second, time.Hour)), rate: int64(w.pick(2*ppm/100+1)) - ppm/100}
		if w.chance(0.3) {
			n.clock.wall = w.between(-time.Hour, time.Hour)
		}
		n.noPause = w.chance(0.2)
		n.badStarts = i == 1 && sc.startFails > 0 && w.chance(0.3)
		w.nodes = append(w.nodes, n)
	}
	for i := range sc.names {
		w.names = append(w.names, &subject{name: subjects[i]})
	}
	for _, s := range w.names {
		w.operator.create(s)
	}
	for _, n := range w.nodes {
		w.after(w.between(0, sc.baseTTL/4), n.start)
	}
}

var (
	hosts    = []string{"n1", "n2", "n3", "n4", "n5", "n6", "n7", "n8"}
	subjects = []string{"ant", "bee", "cat", "dog"}
)

// subject is one name, with what the checks remember of it.
type subject struct {
	name string
	kind fleet.Kind
	truth
}

func (w *world) subject(name string) *subject {
	for _, s := range w.names {
		if s.name == name {
			return s
		}
	}
	return nil
}

// newSpec draws what to run.
func (w *world) newSpec(kind fleet.Kind) fleet.Spec {
	spec := fleet.Spec{
		Kind: kind, Command: []string{"x"},
		OwnerLossGraceMs: (w.sc.baseTTL * 2).Milliseconds(),
		StopGraceMs:      w.between(20*time.Millisecond, 500*time.Millisecond).Milliseconds(),
	}
	if w.chance(0.15) {
		spec.StopGraceMs = w.between(w.sc.baseTTL/2, 2*w.sc.baseTTL).Milliseconds()
	}
	if w.chance(0.3) {
		spec.OnOwnerLoss = fleet.OwnerLossHold
	}
	if kind == fleet.KindSession {
		if w.chance(0.4) {
			spec.OnBucketLoss = fleet.BucketLossStop
		}
		if w.chance(0.1) {
			spec.TTLSeconds = int64(1 + w.pick(6))
		}
		return spec
	}
	if w.chance(0.3) {
		spec.OnBucketLoss = fleet.BucketLossKeep
	}
	if w.chance(0.2) {
		spec.TimeoutMs = w.between(w.sc.baseTTL/4, 2*w.sc.baseTTL).Milliseconds()
	}
	spec.MaxAttempts = 1 + w.pick(6)
	return spec
}
