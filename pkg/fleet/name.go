package fleet

import (
	"fmt"
)

// MaxName is the longest name, in bytes: a DNS label's length, so that a name
// can become one.
const MaxName = 63

// NameRule is the rule that CheckName enforces, in words for people.
const NameRule = "a name has 1 to 63 of the characters a-z 0-9 . _ - and begins and ends with a letter or digit"

// patternName is NameRule as a regular expression, but for the length.
const patternName = `^[a-z0-9]([a-z0-9._-]*[a-z0-9])?$`

// NameError is a name that breaks NameRule.
type NameError struct{ Name string }

func (e *NameError) Error() string { return fmt.Sprintf("bad name %q: %s", e.Name, NameRule) }

// CheckName refuses a name that breaks NameRule. It is called at every edge:
// flags, files, the local API, and keys read from the bucket.
func CheckName(name string) error {
	if name == "" || len(name) > MaxName || !alnum(name[0]) || !alnum(name[len(name)-1]) {
		return &NameError{Name: name}
	}
	for i := range len(name) {
		if c := name[i]; !alnum(c) && c != '.' && c != '_' && c != '-' {
			return &NameError{Name: name}
		}
	}
	return nil
}

func alnum(c byte) bool { return 'a' <= c && c <= 'z' || '0' <= c && c <= '9' }
