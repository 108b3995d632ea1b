package sim

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/barista-fleet/barista/pkg/fleet"
	"github.com/barista-fleet/barista/pkg/lease"
)

var (
	networkFaults = []weighted{
		{4, (*world).faultWeather},
		{3, (*world).faultCut},
		{1, (*world).faultOutage},
		{1, (*world).faultWallStep},
	}
	crashFaults = []weighted{
		{4, (*world).faultCrash},
		{2, (*world).faultReboot},
		{1, (*world).faultWipe},
		{1, (*world).faultRetire},
		{1, (*world).faultNewTTL},
		{1, (*world).faultDrain},
	}
	pauseFaults = []weighted{{5, (*world).faultStop}, {1, (*world).faultSuspend}, {1, (*world).faultWallStep}}
	handFaults  = []weighted{
		{3, (*world).faultRemoved},
		{2, (*world).faultDamaged},
		{1, (*world).faultBackup},
		{1, (*world).faultRestore},
		{1, (*world).faultClone},
		{1, (*world).faultWiped},
	}
	allFaults = slices.Concat(networkFaults, crashFaults, pauseFaults, handFaults)
)

// chaosLoop lets faults happen until the time for them is over.
func (w *world) chaosLoop() {
	if len(w.sc.faults) == 0 {
		return
	}
	w.after(w.between(w.sc.faultEvery/4, 2*w.sc.faultEvery), func() {
		if w.calm {
			return
		}
		total := 0
		for _, f := range w.sc.faults {
			total += f.weight
		}
		p := w.pick(total)
		for _, f := range w.sc.faults {
			if p -= f.weight; p < 0 {
				f.do(w)
				break
			}
		}
		w.chaosLoop()
	})
}

func (w *world) anyNode() *node { return w.nodes[w.pick(len(w.nodes))] }

// unless is what a fault does at its end, if the end of all faults has not done it.
func (w *world) later(d time.Duration, f func()) {
	w.after(d, func() {
		if !w.calm {
			f()
		}
	})
}

func (w *world) faultWeather() {
	w.weather = weather{outage: w.weather.outage, noWrites: w.weather.noWrites}
	p := func() float64 { return [...]float64{0, 0, 0.05, 0.2, 0.5}[w.pick(5)] / 3 }
	w.weather.dropped, w.weather.lost, w.weather.zombie = p(), p(), p()
	w.weather.after5xx, w.weather.before5xx, w.weather.throttled, w.weather.slow = p(), p(), p(), p()
	w.note(-1, "weather", fmt.Sprintf("%.2f", []float64{
		w.weather.dropped, w.weather.lost, w.weather.zombie, w.weather.after5xx, w.weather.before5xx, w.weather.throttled, w.weather.slow,
	}), 0)
	w.later(w.between(w.sc.baseTTL/4, 3*w.sc.baseTTL), func() { w.weather = weather{outage: w.weather.outage, noWrites: w.weather.noWrites} })
}

func (w *world) faultCut() {
	n := w.anyNode()
	kind := w.pick(3)
	n.cutUp, n.cutDown = kind != 1, kind != 0
	w.note(n.idx, "cut", [...]string{"requests", "answers", "both"}[kind], 0)
	w.later(w.between(w.sc.baseTTL/4, 4*w.sc.baseTTL), func() { n.cutUp, n.cutDown = false, false })
}

// faultOutage takes the bucket away from everyone; nodes find it again one by one.
func (w *world) faultOutage() {
	if w.now < w.nextOutage {
		return // two that overlap are an absence of some nodes, not of the bucket
	}
	d := w.between(w.sc.baseTTL/4, 3*w.sc.baseTTL)
	w.nextOutage = w.now + d + 2*w.sc.longestTTL
	if w.chance(0.3) {
		w.weather.noWrites = w.now + d
		w.note(-1, "no writes", d.String(), 0)
		return
	}
	w.weather.outage = w.now + d
	w.note(-1, "outage", d.String(), 0)
	for _, n := range w.nodes {
		if w.chance(0.5) {
			n.cutUp, n.cutDown = true, true
			w.later(d+w.between(0, w.shortestTTL()*2/3), func() {
				n.cutUp, n.cutDown = false, false
				w.note(n.idx, "reaches", "the bucket again", 0)
			})
		}
	}
}

func (w *world) shortestTTL() time.Duration {
	ttl := w.sc.longestTTL
	for _, n := range w.nodes {
		ttl = min(ttl, n.times.TTL)
	}
	return ttl
}

func (w *world) faultCrash() {
	n := w.anyNode()
	if n.agent == nil {
		return
	}
	w.note(n.idx, "kill -9", "", 0)
	n.crash()
	n.restartLater(w.between(time.Millisecond, 2*w.sc.longestTTL))
}

// faultWipe kills an agent and loses its journal.
func (w *world) faultWipe() {
	n := w.anyNode()
	if n.agent == nil {
		return
	}
	w.note(n.idx, "wipe", "", 0)
	n.crash()
	n.disk = newDisk()
	if w.chance(0.5) {
		n.published = published{} // the whole data directory
	}
	n.restartLater(w.between(time.Millisecond, w.sc.longestTTL))
}

// faultNewTTL restarts an agent with another lease.
func (w *world) faultNewTTL() {
	n := w.anyNode()
	if n.agent == nil {
		return
	}
	n.crash()
	ttl := w.sc.baseTTL * time.Duration(2+w.pick(7)) / 4
	n.times = lease.Config{TTL: ttl, Heartbeat: ttl / 4}.WithDefaults()
	w.sc.longestTTL = max(w.sc.longestTTL, ttl)
	w.note(n.idx, "new ttl", ttl.String(), 0)
	n.restartLater(w.between(time.Millisecond, w.sc.longestTTL))
}

func (w *world) faultReboot() {
	n := w.anyNode()
	if !n.powered {
		return
	}
	w.note(n.idx, "power off", "", 0)
	n.powerOff()
	w.later(w.between(w.sc.baseTTL/3, 3*w.sc.baseTTL), n.powerOn)
}

// faultRetire switches a machine off for good, while another is left.
func (w *world) faultRetire() {
	n := w.anyNode()
	left := 0
	for _, o := range w.nodes {
		if !o.retired && o.clone == nil {
			left++
		}
	}
	if left <= 1 || n.retired || n.clone != nil {
		return
	}
	w.note(n.idx, "power off", "for good", 0)
	n.retired = true
	n.powerOff()
}

func (w *world) faultStop() {
	n := w.anyNode()
	if n.agent == nil || n.agent.stopped {
		return
	}
	n.pause()
	d := w.between(0, w.sc.baseTTL)
	if w.chance(0.6) {
		d = w.between(w.sc.baseTTL, 3*w.sc.baseTTL)
	}
	a := n.agent
	w.later(d, func() {
		if n.agent == a {
			n.unpause()
		}
	})
}

func (w *world) faultSuspend() {
	n := w.anyNode()
	if n.frozen || !n.powered {
		return
	}
	n.freeze()
	w.later(w.between(0, 3*w.sc.baseTTL), n.thaw)
}

func (w *world) faultWallStep() {
	n := w.anyNode()
	n.clock.wall += w.between(-time.Hour, time.Hour)
	w.note(n.idx, "wall clock", n.clock.wall.String(), 0)
}

// faultDrain asks a node to give everything up, or no longer.
func (w *world) faultDrain() {
	n := w.anyNode()
	if n.disk.nodeID == "" {
		return
	}
	key := fleet.PrefixDirectives + n.disk.nodeID
	if _, ok := w.store.objects[key]; ok {
		w.store.remove(key)
		w.note(n.idx, "undrain", "", 0)
		return
	}
	for _, o := range w.nodes { // someone must take what it gives up
		if _, ok := w.store.objects[fleet.PrefixDirectives+o.disk.nodeID]; ok && o != n {
			return
		}
	}
	d := fleet.Directive{Head: w.head(), Node: n.disk.nodeID, Seq: 1, Drain: true}
	if w.chance(0.5) {
		d.Deadline = epoch.Add(w.now + w.between(0, w.sc.baseTTL))
	}
	body, err := fleet.Encode(&d)
	if err != nil {
		w.fail(invariantSim, "directive: %v", err)
		return
	}
	w.store.plant(key, body)
	w.note(n.idx, "drain", "", 0)
}

// anyObject picks a record of the fleet's.
func (w *world) anyObject() (string, bool) {
	var keys []string
	for _, key := range slices.Sorted(maps.Keys(w.store.objects)) {
		if strings.HasPrefix(key, fleet.PrefixSessions) || strings.HasPrefix(key, fleet.PrefixNodes) || strings.HasPrefix(key, fleet.PrefixDesired) || key == fleet.KeySignal {
			keys = append(keys, key)
		}
	}
	if len(keys) == 0 {
		return "", false
	}
	return keys[w.pick(len(keys))], true
}

func (w *world) faultRemoved() {
	if key, ok := w.anyObject(); ok {
		w.note(-1, "removed", key, 0)
		w.store.remove(key)
		w.check.tampered(key)
	}
}

func (w *world) faultDamaged() {
	key, ok := w.anyObject()
	if !ok {
		return
	}
	body := []byte([...]string{"", "\x00\x00\x00", `{"schema":1}`, `{"schema":`}[w.pick(4)])
	w.note(-1, "damaged", key, uint64(len(body)))
	w.store.plant(key, body)
	w.check.tampered(key)
}

// faultWiped removes everything that is desired, as a wrong rule or hand would.
func (w *world) faultWiped() {
	w.note(-1, "wiped", fleet.PrefixDesired, 0)
	for _, s := range w.names {
		w.store.remove(fleet.PrefixDesired + s.name)
		w.check.tampered(fleet.PrefixDesired + s.name)
	}
}

func (w *world) faultBackup() {
	w.backups = append(w.backups, w.store.backup())
	w.note(-1, "backup", "", uint64(len(w.backups)))
}

func (w *world) faultRestore() {
	if len(w.backups) == 0 {
		return
	}
	w.note(-1, "restore", "", 0)
	before := w.store.objects
	w.store.restore(w.backups[w.pick(len(w.backups))])
	w.check.restored(before)
}

// faultClone starts a copy of a node's data directory on a machine of its own.
func (w *world) faultClone() {
	n := w.anyNode()
	if len(w.nodes) >= len(hosts) || n.disk.nodeID == "" || n.clone != nil || w.nodes[len(w.nodes)-1].clone != nil {
		return
	}
	c := &node{
		w: w, idx: len(w.nodes), host: hosts[len(w.nodes)], disk: n.disk.clone(), powered: true, boots: n.boots,
		machine: "copy of " + n.machine, times: n.times, clone: n,
		clock: clock{from: w.now, start: lease.Instant(w.between(time.Second, time.Hour))},
	}
	w.nodes = append(w.nodes, c)
	w.note(c.idx, "clone", n.host, 0)
	c.start()
}
