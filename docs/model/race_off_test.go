//go:build !race

package model

// raced: the race detector makes a state cost ten times as much.
const raced = false
