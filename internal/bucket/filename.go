package bucket

import (
	"strings"
)

// File names of a FileStore.
//
// A key's segments become nested directories and one file. The mapping is
// one-to-one also where it would go wrong if segments were used as they are:
//
//   - a directory's name ends in "+" and a file's never does, so the keys "x"
//     and "x/y" live side by side;
//   - names are lower case, with the places of capital letters as a hexadecimal
//     bit map after a "+", so that "A" and "a" differ on a file system that
//     folds case: "Ab" is "ab+8";
//   - the longest segment (MaxKey bytes) takes MaxKey + 1 + MaxKey/4 + 1 = 252
//     bytes, below the 255 that file systems allow.
//
// A "+" cannot occur in a key. A name that no key maps to is not an object.

// lockName is the lock file of a directory. No segment maps to it, because no
// segment is empty.
const lockName = "+lock"

// keyPath returns the directory and the file name of a valid key, relative to
// the objects directory. The directory is "" for a key of one segment.
func keyPath(key string) (dir, name string) {
	segs := strings.Split(key, "/")
	last := len(segs) - 1
	for i := range last {
		segs[i] = encodeSegment(segs[i]) + "+"
	}
	return strings.Join(segs[:last], "/"), encodeSegment(segs[last])
}

func encodeSegment(seg string) string {
	lower := strings.ToLower(seg)
	if lower == seg {
		return seg
	}
	bits := make([]byte, (len(seg)+3)/4)
	for i := range len(seg) {
		if seg[i] != lower[i] {
			bits[i/4] |= 8 >> (i % 4)
		}
	}
	const hex = "0123456789abcdef"
	for i, b := range bits {
		bits[i] = hex[b]
	}
	return lower + "+" + strings.TrimRight(string(bits), "0")
}

// decodeSegment is the inverse of encodeSegment; it refuses every name that
// encodeSegment does not produce.
func decodeSegment(name string) (string, bool) {
	lower, bits, marked := strings.Cut(name, "+")
	seg := []byte(lower)
	if marked {
		for i := range len(bits) {
			nibble := strings.IndexByte("0123456789abcdef", bits[i])
			for j := range 4 {
				at := 4*i + j
				if nibble < 0 || at >= len(seg) {
					break
				}
				if nibble&(8>>j) != 0 && 'a' <= seg[at] && seg[at] <= 'z' {
					seg[at] -= 'a' - 'A'
				}
			}
		}
	}
	if CheckKey(string(seg)) != nil || strings.Contains(name, "/") || encodeSegment(string(seg)) != name {
		return "", false
	}
	return string(seg), true
}
