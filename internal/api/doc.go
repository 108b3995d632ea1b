// Package api is the agent's local interface and its client: HTTP with JSON
// over a unix socket in the data directory. Who may open the socket may do
// everything that the agent may; there is no other authentication, and the agent
// never listens on the network.
//
//	GET    /v1/status                 Status
//	POST   /v1/logs                   LogRequest → frames (see stream.go)
//	GET    /v1/events?from=N&follow=1 one JSON object per line (see stream.go)
//	POST   /v1/do/{verb}              arguments as JSON, or a file as
//	                                  application/octet-stream → the verb's JSON
//	GET    /v1/objects?prefix=P       listing
//	GET    /v1/objects/{key}          If-None-Match → body, ETag, 304, 404
//	PUT    /v1/objects/{key}          If-Match, If-None-Match: *, or
//	                                  Barista-Unconditional: true → ETag, 412
//	DELETE /v1/objects/{key}          204
//
// Object endpoints exist on a machine without a bucket only; an agent of a fleet
// refuses them with code "fleet_member", so that nobody writes a wish where no
// other node reads it.
//
// # Errors
//
// Any other status carries one object:
//
//	{"error": {"code", "message", "hint", "retryable", "outcome"}}
//
// code is one of the Code constants. outcome is present on failed writes:
// "rejected" (certainly not done) or "ambiguous". A write whose answer never
// came is ambiguous too; one that found nobody listening is rejected.
//
// # Compatibility
//
// fleetctl and agents of different versions meet here. Fields are only added;
// unknown ones are ignored. A verb or path that an agent does not know is
// answered with code "unsupported".
package api
