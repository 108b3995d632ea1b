package api

import (
	"fmt"
	"path/filepath"
)

// SocketName is the name of the socket in the data directory.
const SocketName = "agent.sock"

// MaxSocketPath is the longest path of a unix socket, in bytes: sun_path has
// 108, the last of them zero.
const MaxSocketPath = 107

// SocketPath returns the path of the socket in a data directory, or an error
// that says by how much it is too long.
func SocketPath(dataDir string) (string, error) {
	path := filepath.Join(dataDir, SocketName)
	return path, checkSocketPath(path)
}

func checkSocketPath(path string) error {
	if len(path) <= MaxSocketPath {
		return nil
	}
	return &Error{
		Op: "socket", Code: CodeInvalid,
		Message: fmt.Sprintf("the path %s has %d bytes, a unix socket's may have %d", path, len(path), MaxSocketPath),
		Hint:    "use a data directory with a shorter path, or a symbolic link to it",
	}
}
