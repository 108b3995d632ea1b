package sfq

import "testing"

// ids draws identifiers that collide, and that come in runs.
func ids(n int, each func(step int, id uint64, add bool)) {
	x := uint64(1)
	for i := range n {
		x = x*6364136223846793005 + 1442695040888963407
		each(i, x>>40%2000*4+x>>60%2, x>>33&1 == 0)
	}
}

// TestIDIndex: random insertions and deletions against a map.
func TestIDIndex(t *testing.T) {
	x := newIDIndex()
	ref, cells := map[uint64]uint32{}, map[uint64]uint32{}
	ids(200_000, func(step int, id uint64, add bool) {
		cell, taken := x.reserve(id)
		if _, want := ref[id]; taken != want {
			t.Fatalf("step %d: %d is there: %v, want %v", step, id, taken, want)
		}
		switch {
		case !taken && add:
			cells[id], ref[id] = x.put(id, cell, uint32(step)), uint32(step)
		case taken && !add:
			if cell != cells[id] {
				t.Fatalf("step %d: %d moved from cell %d to %d", step, id, cells[id], cell)
			}
			x.del(cell)
			delete(ref, id)
		}
		got, ok := x.get(id)
		if want, there := ref[id]; ok != there || ok && got != want {
			t.Fatalf("step %d: %d is %d, %v; want %d, %v", step, id, got, ok, want, there)
		}
		if x.used != len(ref) {
			t.Fatalf("step %d: %d used, want %d", step, x.used, len(ref))
		}
	})
	for id, slot := range ref {
		if got, ok := x.get(id); !ok || got != slot {
			t.Fatalf("%d is %d, %v; want %d", id, got, ok, slot)
		}
	}
	for id := range ref {
		x.del(cells[id])
	}
	if x.table.used > 1+maxUnseen {
		t.Fatalf("%d pages are left of what was deleted", x.table.used)
	}
	free := 0
	for at := x.free; at != none && free <= len(x.pages); at = uint32(x.keys[at] &^ freeKey) {
		free++
	}
	if free != len(x.pages)-x.table.used {
		t.Fatalf("%d of %d pages are free, %d in use", free, len(x.pages), x.table.used)
	}
}

// TestIDTable: random insertions and deletions against a map, with identifiers
// that collide.
func TestIDTable(t *testing.T) {
	var tab idTable
	ref := map[uint64]uint32{}
	ids(200_000, func(step int, id uint64, add bool) {
		_, ok := tab.get(id)
		if _, want := ref[id]; ok != want {
			t.Fatalf("step %d: %d is there: %v, want %v", step, id, ok, want)
		}
		if !ok && add {
			tab.put(id, uint32(step))
			ref[id] = uint32(step)
		} else if ok && !add {
			tab.del(id)
			delete(ref, id)
		}
		if got, ok := tab.get(id); ok && got != ref[id] || tab.used != len(ref) {
			t.Fatalf("step %d: %d is %d, %v; %d used, want %d", step, id, got, ok, tab.used, len(ref))
		}
	})
	for id := range ref {
		tab.del(id)
	}
	for _, c := range tab.cells {
		if c.slot != 0 {
			t.Fatal("something is left of what was deleted")
		}
	}
}

// TestTagTree: random keys, many of them equal in their leading bits, inserted,
// changed and removed; the root is always the least.
func TestTagTree(t *testing.T) {
	const owners = 100
	keys, leaves := [owners]uint64{}, [owners]uint32{}
	tree := tagTree{before: func(a, b uint32) bool {
		return keys[a] < keys[b] || keys[a] == keys[b] && a < b
	}}
	for o := range leaves {
		leaves[o] = none
	}
	lead := func(o uint32) uint64 { return keys[o] >> 4 }
	x := uint64(7)
	for step := range 100_000 {
		x = x*6364136223846793005 + 1442695040888963407
		o := uint32(x >> 40 % owners)
		switch {
		case leaves[o] == none:
			keys[o] = x >> 50 % 64
			leaves[o] = tree.insert(o, lead(o))
		case x>>33%3 == 0:
			tree.remove(leaves[o])
			leaves[o] = none
		default:
			keys[o] = x >> 50 % 64
			tree.play(leaves[o], o, lead(o))
		}
		want := none
		for o := range uint32(owners) {
			if leaves[o] != none && (want == none || tree.before(o, want)) {
				want = o
			}
		}
		if got := tree.root(); got != want {
			t.Fatalf("step %d: %d is first, want %d", step, got, want)
		}
	}
}

// TestLead: leading bits never order two tags the other way round, and tell
// apart what ordinary tags differ in.
func TestLead(t *testing.T) {
	rising := []u128{
		{}, {lo: 1 << 48}, {lo: 1 << 63}, {hi: 1}, {hi: 1, lo: 1 << 48}, {hi: 1<<48 - 1}, {hi: 1 << 48}, {hi: 1 << 62}, {hi: tagLimit - 1},
	}
	for i := range rising[1:] {
		a, b := rising[i], rising[i+1]
		if leadQ64(a) > leadQ64(b) || leadInt(a) > leadInt(b) {
			t.Errorf("%v and %v change places", a, b)
		}
		if leadQ64(a) == leadQ64(b) && b.hi < 1<<48 {
			t.Errorf("%v and %v look the same", a, b)
		}
	}
}

// TestTicketIndex: tickets given out in order, some of which live long, with a
// leap as after a restore, against a map.
func TestTicketIndex(t *testing.T) {
	x, ref := newTicketIndex(), map[Ticket]uint32{}
	next := Ticket(0)
	for _, start := range []Ticket{1, 2000, 2100, 2100 + recentTickets, 1 << 62} {
		for next = max(next, start); next < start+5000; next++ {
			x.put(next, uint32(next%1000))
			ref[next] = uint32(next % 1000)
			done := next - next*next%7*100 // some at once, some out of the recent
			if next%11 != 0 && ref[done] != 0 {
				x.del(done)
				delete(ref, done)
			}
			for _, id := range []Ticket{next, next - 1, done, next - recentTickets, next + 1, next - 1000, 0} {
				want, live := ref[id]
				if got, ok := x.get(id); ok != live || ok && got != want {
					t.Fatalf("at %d: %d is %d, %v; want %d, %v", next, id, got, ok, want, live)
				}
			}
			if x.used != len(ref) {
				t.Fatalf("at %d: %d used, want %d", next, x.used, len(ref))
			}
		}
	}
	for id, want := range ref {
		if got, ok := x.get(id); !ok || got != want {
			t.Fatalf("%d is %d, %v; want %d", id, got, ok, want)
		}
		x.del(id)
	}
	if x.old.used != 0 || *x.recent != [recentTickets]uint32{} {
		t.Fatal("something is left of what was deleted")
	}
}
