package main

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// safe makes a string from the bucket harmless to print: anything that a
// terminal could obey, or that would make text look like other text, becomes
// its escape. Whoever can write the bucket must not be able to write the
// operator's screen.
func safe(s string) string {
	clean := true
	for _, r := range s {
		if hostile(r) || r == utf8.RuneError {
			clean = false
			break
		}
	}
	if clean {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && n == 1:
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case !hostile(r):
			b.WriteRune(r)
		case r < 0x100:
			fmt.Fprintf(&b, `\x%02x`, r)
		case r < 0x10000:
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			fmt.Fprintf(&b, `\U%08x`, r)
		}
		i += n
	}
	return b.String()
}

// hostile reports control characters, C1 ones included, and the invisible ones
// that reorder, join or hide text.
func hostile(r rune) bool {
	return unicode.IsControl(r) || unicode.Is(unicode.Cf, r) || unicode.Is(unicode.Zl, r) || unicode.Is(unicode.Zp, r)
}

// safeJSON escapes what is hostile in encoded JSON, where it can only stand
// inside a string. Line ends are the encoder's own.
func safeJSON(b []byte) []byte {
	return escapeQuoted(b, func(r rune) string {
		if r > 0xffff {
			r -= 0x10000
			return fmt.Sprintf(`\u%04x\u%04x`, 0xd800+r>>10, 0xdc00+r&0x3ff)
		}
		return fmt.Sprintf(`\u%04x`, r)
	})
}

// safeYAML does the same for YAML whose hostile strings are in double quotes.
func safeYAML(b []byte) []byte {
	return escapeQuoted(b, func(r rune) string {
		if r > 0xffff {
			return fmt.Sprintf(`\U%08x`, r)
		}
		return fmt.Sprintf(`\u%04x`, r)
	})
}

func escapeQuoted(b []byte, escape func(rune) string) []byte {
	if !strings.ContainsFunc(string(b), func(r rune) bool { return r != '\n' && hostile(r) }) {
		return b
	}
	out := make([]byte, 0, len(b)+64)
	for _, r := range string(b) {
		if r == '\n' || !hostile(r) {
			out = utf8.AppendRune(out, r)
		} else {
			out = append(out, escape(r)...)
		}
	}
	return out
}
