package journal

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// timeFormat sorts by time and has no character that a shell would mind.
const timeFormat = "20060102T150405Z"

// replace moves the file aside for people to look at. It needs no disk space.
func (j *Journal) replace(path, reason string, opened *Opened) error {
	base := path + damagedSuffix + j.opts.Now().UTC().Format(timeFormat)
	aside := base
	for n := 2; ; n++ {
		_, err := os.Lstat(aside)
		if errors.Is(err, fs.ErrNotExist) {
			break
		}
		if err != nil {
			return &Error{Op: "quarantine", Name: aside, Err: err}
		}
		aside = fmt.Sprintf("%s-%d", base, n)
	}
	if err := os.Rename(path, aside); err != nil {
		return &Error{Op: "quarantine", Name: path, Err: err}
	}
	if err := syncDir(j.dir); err != nil {
		return &Error{Op: "quarantine", Name: j.dir, Err: err}
	}
	opened.Created = true
	opened.Quarantined = &Quarantine{Path: aside, Reason: reason}
	opened.Damaged, opened.TornMeta = nil, ""
	return j.prune(path, aside)
}

// prune removes the oldest of the files set aside, beyond maxDamaged.
func (j *Journal) prune(path, keep string) error {
	names, err := filepath.Glob(globEscape(path+damagedSuffix) + "*")
	if err != nil {
		return &Error{Op: "quarantine", Name: path, Err: err}
	}
	slices.Sort(names)
	for _, name := range names[:max(0, len(names)-maxDamaged)] {
		if name == keep {
			continue
		}
		if err := os.RemoveAll(name); err != nil {
			return &Error{Op: "quarantine", Name: name, Err: err}
		}
	}
	return nil
}

// globEscape makes a path match only itself.
func globEscape(path string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(path)
}
