// Package fleet holds the nouns that node-agent and fleetctl share: names,
// specs, the records of the bucket with their JSON form, and the client that
// operators' verbs are made of.
//
// Every record is one JSON object of at most MaxRecord bytes with a schema
// number and a random nonce. A field that this version does not know survives a
// read and a rewrite. A record that cannot be decoded is reported as
// UnreadableError: it is there, and must never be taken for an absent one.
//
// docs/bucket-layout.md describes the keys, who writes each and when.
package fleet
