package model

import (
	"fmt"
	"slices"
)

// compareMerged explores at most limit states and, wherever a state is reached a
// second time by another path, compares the keys of its successors with those of
// the first time.
func compareMerged(sc *Scenario, limit int) (pairs int, wrong string) {
	var e encoder
	w := sc.begin()
	first := map[key][]key{}
	queue := []*world{w}
	first[e.key(w)] = next(&e, w)
	for len(queue) > 0 && len(first) < limit {
		w, queue = queue[0], queue[1:]
		for _, a := range w.actions(nil) {
			c := w.clone()
			c.do(a)
			k := e.key(c)
			then := next(&e, c)
			if was, ok := first[k]; ok {
				pairs++
				if !slices.Equal(was, then) {
					return pairs, fmt.Sprintf("after %q two states with one key part ways: %v and %v", a.describe(), was, then)
				}
				continue
			}
			first[k] = then
			if !c.bounded() {
				queue = append(queue, c)
			}
		}
	}
	return pairs, ""
}

// next returns the keys of what may follow, as a set.
func next(e *encoder, w *world) []key {
	var out []key
	for _, a := range w.actions(nil) {
		c := w.clone()
		c.do(a)
		out = append(out, e.key(c))
	}
	slices.Sort(out)
	return slices.Compact(out)
}
