package fleet

import (
	"errors"
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"
)

// Quantities are text for people and integers in the records. Parsing is exact:
// no floating point, and what does not fit is refused rather than rounded to
// something nobody asked for.

// The patterns of the JSON schema. The parsers below accept exactly these
// languages (and then check the range), which TestSchemaAgreesWithParser holds
// them to.
const (
	patternCPU      = `^([0-9]{1,9}m|[0-9]{1,6}(\.[0-9]{1,3})?)$`
	patternMemory   = `^[0-9]{1,15}(\.[0-9]{1,9})?(k|M|G|T|Ki|Mi|Gi|Ti)?$`
	patternDuration = `^([0-9]{1,12}(\.[0-9]{1,9})?(ms|s|m|h|d))+$`
)

// maxMillis bounds every duration: ten years. It keeps sums of several far from
// overflow.
const maxMillis = 10 * 366 * 24 * 3600 * 1000

var errQuantity = errors.New("not a quantity")

// ParseCPU reads CPUs: "2", "0.5" or "500m". The result is in thousandths.
func ParseCPU(s string) (int64, error) {
	bad := func() error {
		return fmt.Errorf("%w: %q is no number of CPUs: write 2, 0.5 or 500m", errQuantity, s)
	}
	if milli, ok := strings.CutSuffix(s, "m"); ok {
		if !digits(milli, 9) {
			return 0, bad()
		}
		return strconv.ParseInt(milli, 10, 64)
	}
	whole, frac, dot := strings.Cut(s, ".")
	if !digits(whole, 6) || dot && !digits(frac, 3) {
		return 0, bad()
	}
	return strconv.ParseInt(whole+(frac + "000")[:3], 10, 64)
}

// FormatCPU is the inverse of ParseCPU.
func FormatCPU(milli int64) string {
	if milli%1000 == 0 {
		return strconv.FormatInt(milli/1000, 10)
	}
	return strconv.FormatInt(milli, 10) + "m"
}

var memoryUnits = []struct {
	suffix string
	bytes  int64
}{
	{"Ti", 1 << 40},
	{"Gi", 1 << 30},
	{"Mi", 1 << 20},
	{"Ki", 1 << 10},
	{"T", 1e12},
	{"G", 1e9},
	{"M", 1e6},
	{"k", 1e3},
}

// ParseMemory reads bytes: "256Mi", "1.5Gi", "1G" or plain "1048576". A
// fraction of a byte is rounded up.
func ParseMemory(s string) (int64, error) {
	bad := func() error {
		return fmt.Errorf("%w: %q is no amount of memory: write 256Mi, 1Gi or a number of bytes", errQuantity, s)
	}
	number, unit := s, int64(1)
	for _, u := range memoryUnits {
		if n, ok := strings.CutSuffix(s, u.suffix); ok {
			number, unit = n, u.bytes
			break
		}
	}
	whole, frac, dot := strings.Cut(number, ".")
	if !digits(whole, 15) || dot && !digits(frac, 9) {
		return 0, bad()
	}
	v, err := decimal(whole, frac, unit)
	if err != nil {
		return 0, fmt.Errorf("%w: %q is more memory than exists", errQuantity, s)
	}
	return v, nil
}

// FormatMemory is the inverse of ParseMemory, in the largest binary unit that
// divides.
func FormatMemory(bytes int64) string {
	if bytes > 0 {
		for _, u := range memoryUnits[:4] {
			if bytes%u.bytes == 0 {
				return strconv.FormatInt(bytes/u.bytes, 10) + u.suffix
			}
		}
	}
	return strconv.FormatInt(bytes, 10)
}

// ParseMillis reads a duration as a sum of parts with the units ms, s, m, h and
// d: "30s", "1h30m", "7d". The result is in milliseconds. Less than one is
// rounded up, so that what was asked for is never shortened to nothing.
func ParseMillis(s string) (int64, error) {
	bad := func() error {
		return fmt.Errorf("%w: %q is no duration: write 30s, 10m, 1h30m or 7d", errQuantity, s)
	}
	var total int64
	rest := s
	for first := true; first || rest != ""; first = false {
		i := 0
		for i < len(rest) && (isDigit(rest[i]) || rest[i] == '.') {
			i++
		}
		number := rest[:i]
		rest = rest[i:]
		unit, n := millisUnit(rest)
		if n == 0 {
			return 0, bad()
		}
		rest = rest[n:]
		whole, frac, dot := strings.Cut(number, ".")
		if !digits(whole, 12) || dot && !digits(frac, 9) {
			return 0, bad()
		}
		v, err := decimal(whole, frac, unit)
		if err != nil || v > maxMillis || total+v > maxMillis {
			return 0, fmt.Errorf("%w: %q is longer than ten years", errQuantity, s)
		}
		total += v
	}
	return total, nil
}

// millisUnit returns the unit that s begins with, and its length.
func millisUnit(s string) (millis int64, length int) {
	switch {
	case strings.HasPrefix(s, "ms"):
		return 1, 2
	case strings.HasPrefix(s, "s"):
		return 1000, 1
	case strings.HasPrefix(s, "m"):
		return 60 * 1000, 1
	case strings.HasPrefix(s, "h"):
		return 3600 * 1000, 1
	case strings.HasPrefix(s, "d"):
		return 24 * 3600 * 1000, 1
	}
	return 0, 0
}

// FormatMillis is the inverse of ParseMillis.
func FormatMillis(ms int64) string {
	if ms <= 0 {
		return strconv.FormatInt(ms, 10) + "s"
	}
	var b strings.Builder
	for _, u := range []struct {
		suffix string
		millis int64
	}{{"h", 3600 * 1000}, {"m", 60 * 1000}, {"s", 1000}, {"ms", 1}} {
		if n := ms / u.millis; n > 0 {
			b.WriteString(strconv.FormatInt(n, 10) + u.suffix)
			ms %= u.millis
		}
	}
	return b.String()
}

// ParseSeconds reads whole seconds, plain ("3600") or as a duration ("1h").
func ParseSeconds(s string) (int64, error) {
	if digits(s, 9) {
		return strconv.ParseInt(s, 10, 64)
	}
	ms, err := ParseMillis(s)
	if err != nil {
		return 0, fmt.Errorf("%w: %q is no number of seconds: write 3600 or 1h", errQuantity, s)
	}
	if ms%1000 != 0 {
		return 0, fmt.Errorf("%w: %q is not a whole number of seconds", errQuantity, s)
	}
	return ms / 1000, nil
}

// decimal returns (whole.frac × unit), rounded up.
func decimal(whole, frac string, unit int64) (int64, error) {
	v, ok := new(big.Int).SetString(whole+frac, 10)
	if !ok {
		return 0, errQuantity
	}
	scale := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(len(frac))), nil)
	v.Mul(v, big.NewInt(unit))
	v.Add(v, scale).Sub(v, big.NewInt(1)).Div(v, scale)
	if !v.IsInt64() || v.Int64() > math.MaxInt64/2 {
		return 0, errQuantity
	}
	return v.Int64(), nil
}

// digits reports whether s is 1 to most decimal digits.
func digits(s string, most int) bool {
	if s == "" || len(s) > most {
		return false
	}
	for i := range len(s) {
		if !isDigit(s[i]) {
			return false
		}
	}
	return true
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }
