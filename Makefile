# Barista: build, demo, tests. `make help` lists the targets.

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
LDFLAGS := -s -w -X main.version=$(VERSION)
GO      ?= go
SEEDS   ?= 2000

# What the tests had to skip for want of something on this machine.
SKIPS := $(CURDIR)/.cache/skips

.DEFAULT_GOAL := help

.PHONY: help
help: ## list the targets
	@awk -F':.*## ' '/^[a-z0-9-]+:.*## /{printf "%-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: build
build: ## build bin/node-agent, bin/fleetctl and bin/node-shim
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '$(LDFLAGS)' -o bin/ ./cmd/...

.PHONY: demo
demo: build ## three agents, a dead machine, a takeover, an orphan that is fenced
	$(GO) run ./test/demo -bin bin

.PHONY: test
test: build ## every layer but the long ones; what the tests need is fetched
	$(GO) vet ./...
	@mkdir -p .cache && rm -f $(SKIPS)
	BARISTA_TEST_SKIPS=$(SKIPS) $(GO) test -race -timeout 20m ./...; rc=$$?; cat $(SKIPS) 2>/dev/null; exit $$rc

.PHONY: test-s3
test-s3: ## the S3 suite: MINIO_BIN, VERSITYGW_BIN or an endpoint choose the server
	$(GO) test -race -count=1 -timeout 10m ./internal/s3bucket/... ./test/minio/...

.PHONY: lint
lint: .cache/tools/golangci-lint ## linters and formatting, as .golangci.yml says; the first run builds them
	GOLANGCI_LINT_CACHE=$(CURDIR)/.cache/golangci-lint $< run ./...

.PHONY: fmt
fmt: .cache/tools/golangci-lint ## format as `make lint` wants it
	$< fmt ./...

# One build makes every tool of tools/go.mod, at the versions it pins.
.cache/tools/golangci-lint: tools/go.mod tools/go.sum
	cd tools && $(GO) build -trimpath -o ../.cache/tools/ tool
	@touch $@

.PHONY: sim
sim: ## simulated fleets under faults, SEEDS of them: make sim SEEDS=20000
	SEEDS=$(SEEDS) $(GO) test -count=1 -timeout 120m -v -run 'TestSim$$' ./internal/sim

.PHONY: sim-mutants
sim-mutants: ## break the protocol in some fifty ways; the simulation must catch each within SEEDS seeds
	SIM_MUTANTS=1 SEEDS=$(SEEDS) $(GO) test -count=1 -timeout 120m -v -run 'TestMutantsAreCaught$$' ./internal/sim/mutants

.PHONY: model
model: ## every interleaving of two nodes within bounds, and the bugs that must be found there
	MODEL=full $(GO) test -count=1 -timeout 30m -v ./docs/model

.PHONY: bench
bench: ## benchmarks; what matters is printed as a ratio to a baseline of the same run
	$(GO) test -run '^$$' -bench . -benchmem ./pkg/... ./internal/...

.PHONY: fuzz
fuzz: ## each fuzz target for a minute
	@set -e; for pkg in $$($(GO) list ./...); do \
	  for f in $$($(GO) test -list '^Fuzz' $$pkg | grep '^Fuzz' || true); do \
	    echo "== $$pkg $$f"; $(GO) test -run '^$$' -fuzz "^$$f\$$" -fuzztime 60s $$pkg; \
	  done; done

.PHONY: clean
clean: ## remove what was built
	rm -rf bin .cache
