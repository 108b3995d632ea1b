module github.com/barista-fleet/barista

go 1.26.0

require (
	github.com/go-json-experiment/json v1.27.2
	go.etcd.io/bbolt v1.5.0
)

require golang.org/x/sys v0.45.0 // indirect
