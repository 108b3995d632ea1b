// Package fleet holds the nouns that node-agent and fleetctl share: names,
// specs, the records of the bucket with their JSON form, the manifests that
// people write, and the client that operators' verbs are made of.
//
// # Records
//
// Every record is one JSON object of at most MaxRecord bytes with a schema
// number and a random nonce. A field that this version does not know survives a
// read and a rewrite. A record that cannot be decoded is reported as
// UnreadableError: it is there, and must never be taken for an absent one.
// docs/bucket-layout.md describes the keys, who writes each and when.
//
// # Manifests
//
// A manifest is a name with its spec as people write it: YAML or JSON, with
// quantities such as 500m and 256Mi. One table of fields (see Fields) is the
// parser, the JSON schema, the exporter and fleetctl's flags.
//
// # The client
//
// A Client reads what the fleet says of itself and writes what operators want.
// It guarantees that
//
//   - every write is one conditional write of one object: two operators at once
//     lose nothing, and the one that comes second sees what the first did;
//   - a write whose outcome is unknown is read back, and reported as
//     UnknownOutcomeError only when nobody could say; every call is idempotent,
//     so it can be made again after any error;
//   - a verb is asked for at most once per call, also when replies are lost;
//   - deletion is a write: a record that vanishes deletes nothing, and applying a
//     vanished record again restores it around what runs.
//
// It does not decide who owns a name, and cannot say that a node is silent:
// that takes watching its beat over time on one's own clock, which is for nodes
// (see pkg/lease). What it shows of a claim is what JudgeClaim makes of one look.
package fleet
