package fleet

import (
	"regexp"
	"testing"
)

func TestQuantities(t *testing.T) {
	type parse func(string) (int64, error)
	for _, c := range []struct {
		name string
		f    parse
		in   string
		want int64 // -1: refused
	}{
		{"cpu", ParseCPU, "2", 2000},
		{"cpu", ParseCPU, "0.5", 500},
		{"cpu", ParseCPU, "1.25", 1250},
		{"cpu", ParseCPU, "500m", 500},
		{"cpu", ParseCPU, "0", 0},
		{"cpu", ParseCPU, "", -1},
		{"cpu", ParseCPU, "m", -1},
		{"cpu", ParseCPU, "-1", -1},
		{"cpu", ParseCPU, "1.", -1},
		{"cpu", ParseCPU, ".5", -1},
		{"cpu", ParseCPU, "0.0005", -1}, // less than a thousandth
		{"cpu", ParseCPU, "1e3", -1},
		{"cpu", ParseCPU, "0.5m", -1},
		{"cpu", ParseCPU, "9999999999m", -1},
		{"memory", ParseMemory, "256Mi", 256 << 20},
		{"memory", ParseMemory, "1Gi", 1 << 30},
		{"memory", ParseMemory, "1.5Gi", 3 << 29},
		{"memory", ParseMemory, "1G", 1e9},
		{"memory", ParseMemory, "10k", 10000},
		{"memory", ParseMemory, "0.1Ki", 103}, // 102.4, rounded up
		{"memory", ParseMemory, "1048576", 1 << 20},
		{"memory", ParseMemory, "256MB", -1},
		{"memory", ParseMemory, "256mi", -1},
		{"memory", ParseMemory, "Mi", -1},
		{"memory", ParseMemory, "999999999999999Ti", -1}, // more than an int64
		{"millis", ParseMillis, "30s", 30000},
		{"millis", ParseMillis, "10m", 600000},
		{"millis", ParseMillis, "1h30m", 5400000},
		{"millis", ParseMillis, "7d", 7 * 86400000},
		{"millis", ParseMillis, "1.5s", 1500},
		{"millis", ParseMillis, "250ms", 250},
		{"millis", ParseMillis, "0.0001s", 1}, // never shortened to nothing
		{"millis", ParseMillis, "0s", 0},
		{"millis", ParseMillis, "", -1},
		{"millis", ParseMillis, "30", -1}, // of what?
		{"millis", ParseMillis, "-30s", -1},
		{"millis", ParseMillis, "s", -1},
		{"millis", ParseMillis, "1 h", -1},
		{"millis", ParseMillis, "5us", -1},
		{"millis", ParseMillis, "999999999999d", -1},
		{"millis", ParseMillis, "3660d1ms", -1}, // longer than ten years only as a sum
		{"seconds", ParseSeconds, "3600", 3600},
		{"seconds", ParseSeconds, "1h", 3600},
		{"seconds", ParseSeconds, "1500ms", -1},
		{"seconds", ParseSeconds, "x", -1},
	} {
		got, err := c.f(c.in)
		if c.want < 0 {
			if err == nil {
				t.Errorf("%s %q is read as %d", c.name, c.in, got)
			}
			continue
		}
		if err != nil || got != c.want {
			t.Errorf("%s %q: got %d, %v, want %d", c.name, c.in, got, err, c.want)
		}
	}
}

// FuzzQuantities: what is parsed can be formatted and parsed to the same, and
// the schema's patterns admit what the parsers do.
func FuzzQuantities(f *testing.F) {
	for _, s := range []string{"500m", "0.5", "256Mi", "1.5Gi", "1h30m", "250ms", "7d", "3600", "1048576", "007s", ""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		for _, q := range quantities {
			v, err := q.parse(s)
			if err != nil {
				continue
			}
			if !q.pattern.MatchString(s) {
				t.Errorf("%s %q is parsed but not in the schema's pattern", q.name, s)
			}
			again, err := q.parse(q.format(v))
			if err != nil || again != v {
				t.Errorf("%s %q = %d is written as %q, which is %d, %v", q.name, s, v, q.format(v), again, err)
			}
		}
	})
}

var quantities = []struct {
	name    string
	pattern *regexp.Regexp
	parse   func(string) (int64, error)
	format  func(int64) string
}{
	{name: "cpu", pattern: regexp.MustCompile(patternCPU), parse: ParseCPU, format: FormatCPU},
	{name: "memory", pattern: regexp.MustCompile(patternMemory), parse: ParseMemory, format: FormatMemory},
	{name: "duration", pattern: regexp.MustCompile(patternDuration), parse: ParseMillis, format: FormatMillis},
}
