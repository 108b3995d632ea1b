package main

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"go.yaml.in/yaml/v3"
)

func TestSafe(t *testing.T) {
	for in, want := range map[string]string{
		"plain ä 世界 😀":  "plain ä 世界 😀",
		"\x1b[31mred":   `\x1b[31mred`,
		"a\r\nb\tc":     `a\x0d\x0ab\x09c`,
		"\x7f\u0085":    `\x7f\x85`,
		"\u202eabc":     `\u202eabc`,
		"\u2028\u200b":  `\u2028\u200b`,
		"\xff\xfe":      `\xff\xfe`,
		"ok\xc3":        `ok\xc3`,
		"\ufffd":        "\ufffd",
		"\U000e0041tag": `\U000e0041tag`,
	} {
		if got := safe(in); got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
}

// FuzzOutput: no string of the bucket gets anything hostile to the screen, and
// JSON and YAML say exactly what the string was.
func FuzzOutput(f *testing.F) {
	for _, s := range []string{"", "a: b", "\x1b[31m", "\u202e\u2066", "\u0085\u2028", "- x\n\ty", "\U000e0041", "null", "'\"\\", " lead", "😀\u200d", "#\n"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		for _, r := range safe(s) {
			if hostile(r) {
				t.Fatalf("%q came through as %q", s, safe(s))
			}
		}
		if !utf8.ValidString(safe(s)) {
			t.Fatalf("%q became invalid", s)
		}
		in := map[string]string{"k": s, "key" + s: "v"}
		j, err := toJSON(in, true)
		if err != nil {
			t.Fatal(err)
		}
		y, err := toYAML(in)
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range [][]byte{j, y} {
			if strings.ContainsFunc(string(b), func(r rune) bool { return r != '\n' && hostile(r) }) {
				t.Fatalf("%q came through in %q", s, b)
			}
		}
		if !utf8.ValidString(s) {
			return // replaced, and so not the same
		}
		var fromJSON, fromYAML map[string]string
		if err := json.Unmarshal(j, &fromJSON); err != nil || fromJSON["k"] != s || fromJSON["key"+s] != "v" {
			t.Fatalf("%q reads back from JSON as %q, %v:\n%s", s, fromJSON, err, j)
		}
		if err := yaml.Unmarshal(y, &fromYAML); err != nil || fromYAML["k"] != s || fromYAML["key"+s] != "v" {
			t.Fatalf("%q reads back from YAML as %q, %v:\n%s", s, fromYAML, err, y)
		}
	})
}
