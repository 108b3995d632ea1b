package bucket

import (
	"path"
	"strings"
	"testing"
)

func TestKeyPath(t *testing.T) {
	for key, want := range map[string]string{
		"top":          "top",
		"nodes/n1":     "nodes+/n1",
		"a/b/c":        "a+/b+/c",
		"Ab":           "ab+8",
		"nodes/aBcD.E": "nodes+/abcd.e+54",
		"A/b":          "a+8+/b",
		"x/..a":        "x+/..a",
	} {
		dir, name := keyPath(key)
		if got := path.Join(dir, name); got != want {
			t.Errorf("%q: %q, want %q", key, got, want)
		}
	}
	for _, key := range []string{strings.Repeat("Z", MaxKey), strings.Repeat("z", MaxKey), strings.Repeat("aZ", MaxKey/2)} {
		if _, name := keyPath(key); len(name)+1 > 255 {
			t.Errorf("a key of %d bytes has a file name of %d", len(key), len(name)+1)
		}
	}
}

func TestDecodeSegmentRefuses(t *testing.T) {
	for _, name := range []string{
		"", "+", "+lock", "a+", "a+0", "a+80", "1+8", "A", "a+4", "a+g", "a+88", "a b", "a~", ".", "..", "a/b", "a+8+", "a+8+8", "ä",
	} {
		if seg, ok := decodeSegment(name); ok {
			t.Errorf("%q is read as %q", name, seg)
		}
	}
}

// Every segment comes back from its name, and two segments never share one,
// also where the file system folds case.
func FuzzSegment(f *testing.F) {
	for _, s := range []string{"a", "A", "aB", "Nodes", "x.y-z_=", strings.Repeat("Q", MaxKey), "+lock", "a+8"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if seg, ok := decodeSegment(s); ok && encodeSegment(seg) != s {
			t.Errorf("name %q reads as %q, which is written %q", s, seg, encodeSegment(seg))
		}
		if CheckKey(s) != nil || strings.Contains(s, "/") {
			return
		}
		name := encodeSegment(s)
		if seg, ok := decodeSegment(name); !ok || seg != s {
			t.Errorf("%q is written %q and reads as %q, %v", s, name, seg, ok)
		}
		if name != strings.ToLower(name) || strings.HasSuffix(name, "+") || len(name) > 254 {
			t.Errorf("%q is written %q", s, name)
		}
	})
}
