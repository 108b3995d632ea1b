module github.com/barista-fleet/barista

go 1.26.0

require (
	github.com/go-json-experiment/json v1.27.2
	github.com/urfave/cli/v3 v3.14.0
	go.yaml.in/yaml/v3 v3.0.6
	golang.org/x/term v0.48.0
)

require golang.org/x/sys v0.50.0 // indirect
