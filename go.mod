module github.com/barista-fleet/barista

go 1.26.0

require (
	github.com/go-json-experiment/json v1.27.2
	go.etcd.io/bbolt v1.5.0
	go.yaml.in/yaml/v3 v3.0.6
)

require (
	github.com/stretchr/testify v1.12.1 // indirect
	golang.org/x/sys v0.50.0 // indirect
)
