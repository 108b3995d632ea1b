module github.com/barista-fleet/barista

go 1.26.0

require github.com/go-json-experiment/json v1.27.2

require (
	github.com/urfave/cli/v3 v3.14.0 // indirect
	go.yaml.in/yaml/v3 v3.0.6 // indirect
	golang.org/x/sys v0.50.0 // indirect
	golang.org/x/term v0.48.0 // indirect
)
