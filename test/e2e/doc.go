// Package e2e tells Barista's stories with the real programs, real stores and
// real kills. Its tests are in the test files; BARISTA_LONG=1 makes the long ones
// as long as they are meant to be.
package e2e
