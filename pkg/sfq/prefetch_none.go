//go:build !amd64 && !arm64

package sfq

func warm3(_, _, _ *uint64)           {}
func warmPage(*idPage)                {}
func warmTenant(*tenant, *classQueue) {}
