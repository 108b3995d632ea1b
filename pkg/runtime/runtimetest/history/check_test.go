package history

import (
	"slices"
	"strings"
	"testing"
	"time"
)

func parse(t *testing.T, text string) []Line {
	t.Helper()
	var b strings.Builder
	for line := range strings.Lines(text) {
		if s := strings.TrimSpace(line); s != "" {
			b.WriteString(s + "\n")
		}
	}
	lines, err := Parse(strings.NewReader(b.String()))
	if err != nil {
		t.Fatal(err)
	}
	return lines
}

// TestCheck feeds the checker broken histories: one that stays silent on them
// would prove nothing elsewhere.
func TestCheck(t *testing.T) {
	for _, c := range []struct {
		name  string
		rules Rules
		text  string
		want  []string
	}{
		{"clean", Rules{}, `
			10 start a 1 n1 i1 100
			15 tick a 1 n1 i1 100
			20 stop a 1 n1 i1 100
			30 start a 2 n2 i2 200
			40 stop a 2 n2 i2 200`, nil},
		{"two names at once are fine", Rules{}, `
			10 start a 1 n1 i1 100
			11 start b 1 n1 i2 101
			20 stop a 1 n1 i1 100
			21 stop b 1 n1 i2 101`, nil},
		{"overlap", Rules{}, `
			10 start a 1 n1 i1 100
			15 start a 2 n2 i2 200
			20 stop a 1 n1 i1 100
			40 stop a 2 n2 i2 200`, []string{KindOverlap}},
		{"overlap at one instant", Rules{}, `
			10 start a 1 n1 i1 100
			15 stop a 1 n1 i1 100
			15 start a 2 n2 i2 200
			40 stop a 2 n2 i2 200`, []string{KindOverlap}},
		{"overlap shown by a tick of a killed run", Rules{MayBeKilled: true}, `
			10 start a 1 n1 i1 100
			15 start a 2 n2 i2 200
			16 tick a 1 n1 i1 100
			40 stop a 2 n2 i2 200`, []string{KindOverlap}},
		{"killed before the next began", Rules{MayBeKilled: true}, `
			10 start a 1 n1 i1 100
			14 tick a 1 n1 i1 100
			15 start a 2 n2 i2 200
			40 stop a 2 n2 i2 200`, nil},
		{"one around two others", Rules{}, `
			10 start a 1 n1 i1 100
			20 start a 2 n2 i2 200
			21 stop a 2 n2 i2 200
			30 start a 3 n2 i3 300
			31 stop a 3 n2 i3 300
			90 stop a 1 n1 i1 100`, []string{KindOverlap, KindOverlap}},
		{"lines out of order are ordered by time", Rules{}, `
			40 stop a 2 n2 i2 200
			15 start a 2 n2 i2 200
			20 stop a 1 n1 i1 100
			10 start a 1 n1 i1 100`, []string{KindOverlap}},
		{"allowed overlap", Rules{OverlapUpTo: 10 * time.Nanosecond}, `
			10 start a 1 n1 i1 100
			15 start a 2 n2 i2 200
			20 stop a 1 n1 i1 100
			40 stop a 2 n2 i2 200`, nil},
		{"overlap longer than allowed", Rules{OverlapUpTo: 4 * time.Nanosecond}, `
			10 start a 1 n1 i1 100
			15 start a 2 n2 i2 200
			20 stop a 1 n1 i1 100
			40 stop a 2 n2 i2 200`, []string{KindOverlap}},
		{"missing end", Rules{}, `
			10 start a 1 n1 i1 100
			12 tick a 1 n1 i1 100`, []string{KindNoEnd}},
		{"missing start", Rules{}, `
			12 tick a 1 n1 i1 100
			13 stop a 1 n1 i1 100`, []string{KindNoStart}},
		{"instance started twice, by two processes", Rules{}, `
			10 start a 1 n1 i1 100
			12 stop a 1 n1 i1 100
			14 start a 1 n1 i1 101
			16 stop a 1 n1 i1 101`, []string{KindDuplicate}},
		{"instance started twice, by one process", Rules{}, `
			10 start a 1 n1 i1 100
			11 start a 1 n1 i1 100
			12 stop a 1 n1 i1 100`, []string{KindDuplicate}},
		{"a job run twice", Rules{OncePerName: true}, `
			10 start j 1 n1 i1 100
			12 stop j 1 n1 i1 100
			14 start j 2 n2 i2 200
			16 stop j 2 n2 i2 200`, []string{KindDuplicate}},
		{"epoch went back", Rules{}, `
			10 start a 5 n1 i1 100
			12 stop a 5 n1 i1 100
			14 start a 4 n2 i2 200
			16 stop a 4 n2 i2 200`, []string{KindEpochBack}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got []string
			for _, p := range Check(parse(t, c.text), c.rules) {
				got = append(got, p.Kind)
				if p.First == nil || p.Name != p.First.Name || p.Text == "" {
					t.Errorf("problem without its run: %+v", p)
				}
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("problems %q, want %q", got, c.want)
			}
		})
	}
}

func TestParse(t *testing.T) {
	want := Line{At: 12, Event: Tick, Name: "a.b", Epoch: 9, Node: "", Instance: "b-1", Pid: 5}
	got, err := ParseLine(want.String())
	if err != nil || got != want {
		t.Errorf("round trip: %+v, %v; want %+v", got, err, want)
	}
	for _, bad := range []string{"", "x", "1 start a 1 n i", "1 begin a 1 n i 2", "x start a 1 n i 2", "1 start a x n i 2", "1 start a 1 n i x"} {
		if l, err := ParseLine(bad); err == nil {
			t.Errorf("%q parsed as %+v", bad, l)
		}
	}
	// A torn last line is what a kill in mid-write leaves; elsewhere it is damage.
	lines, err := Parse(strings.NewReader("1 start a 1 n i 2\n2 tic"))
	if err != nil || len(lines) != 1 {
		t.Errorf("torn last line: %v, %v", lines, err)
	}
	if _, err := Parse(strings.NewReader("1 start a 1 n i 2\n2 tic\n3 stop a 1 n i 2\n")); err == nil {
		t.Error("a damaged line in the middle was accepted")
	}
}
