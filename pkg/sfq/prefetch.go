//go:build amd64 || arm64

package sfq

// The functions below ask for memory that will be needed by a later call, and
// return at once. They change no state and no result: all they do is that lines
// that would be waited for one after another, each for a hundred nanoseconds, are
// on their way while other work is done.

// warm3 asks for the lines of three words.
//
//go:noescape
func warm3(a, b, c *uint64)

// warmTenant asks for a tenant and one of its class queues.
//
//go:noescape
func warmTenant(t *tenant, q *classQueue)

// warmPage asks for a page of identifiers.
//
//go:noescape
func warmPage(p *idPage)
