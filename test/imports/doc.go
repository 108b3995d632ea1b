// Package imports holds the tree to its layout: which package may import which,
// and that the packages which decide read neither clock nor chance nor machine.
//
// The edges are data ([Rules]), judged by [Check] over what go list reports; the
// purity of deciding code is judged by [Impure] over its syntax, because an
// import of package time is fine and a call of time.Now is not. Each rule says
// why it is there, and its reason is printed with what breaks it.
//
// A package is named as in Go's command line: "./pkg/lease" is one of the
// project, "./pkg/..." it and everything below, "std" any package of the standard
// library, and anything else a path outside the project.
package imports
