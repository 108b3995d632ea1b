//go:build !amd64 && !arm64

package sfq

func warmTenant(*tenant, *classQueue) {}
func warmCands(_, _, _ *cand)         {}
func warmPage(*idPage)                {}
