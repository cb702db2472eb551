# `make help` lists the targets with the comments after their names.
SHELL := bash
.SHELLFLAGS := -o errexit -o nounset -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

# Files that git does not know make the version dirty too, because Go compiles them. `git describe --dirty` does not
# count them.
VERSION := $(shell git describe --tags --always 2>/dev/null || echo unknown)$(if \
	$(shell git status --porcelain --untracked-files=normal 2>/dev/null),-dirty)
TOOL := go tool -modfile=hack/tools/tools.mod

.PHONY: help
help: ## show this list
	@awk -F ':.*## ' '/^[a-z\/-]+:.*## / {printf "  make %-24s %s\n", $$1, $$2}' Makefile

.PHONY: run
run: build ## run a local control plane, the controller and an example Foo; Ctrl-C stops and removes everything
	@hack/run.sh

.PHONY: cluster
cluster: bin/localcluster bin/podrunner ## run a local control plane that runs pods, for make image deploy; Ctrl-C removes it
	@hack/cluster.sh

.PHONY: smoke
smoke: ## install the controller in a new kind cluster and try it; needs kind, kubectl and Docker; not in CI
	@hack/smoke.sh

.PHONY: tutorial
tutorial: $(if $(filter 7,$(STEP)),,build) ## play a step of docs/tutorial on a local control plane: make tutorial STEP=1; Ctrl-C removes everything
	@go build -o bin/tutorial ./hack/tutorial
	@bin/tutorial --step=$(or $(STEP),1) --fault=$(FAULT)

# -count=1 disables Go's cache of test results, which does not notice changes of binaries and of files that other
# processes read. End-to-end tests wait for each other where they have to, so -parallel does not limit them.
.PHONY: test
test: build bin/foo-controller-race bin/podrunner bin/image-native ## run all tests, including those that use a local control plane
	@$(TOOL) gotestsum --format standard-quiet -- -race -count=1 -p 4 -timeout 15m ./...
	@$(TOOL) gotestsum --format standard-quiet -- -count=1 -run 'TestASimulatedDay|TestSchedules|TestNeighbours' . -foos 1000 -schedules 1000
	@go test -count=1 -v -timeout 15m -run 'TestWalk' ./pkg/plan
	@go test -count=1 -v -timeout 15m -run TestGatesNeverOverlap ./pkg/kit/leader -phases 2000
	@cd hack/e2e && go tool -modfile=../tools/tools.mod gotestsum --format standard-quiet -- -race -count=1 -parallel 100 -timeout 30m ./...
	@cd hack/cluster/podrunner && go test -race -count=1 ./...
	@cd hack/conformance && go tool -modfile=../tools/tools.mod gotestsum --format standard-quiet -- -count=1 -timeout 15m ./...
	@cd hack/cluster/localcluster && go tool -modfile=../../tools/tools.mod gotestsum --format standard-quiet -- -count=1 -timeout 10m ./test/...
	@cd hack/image && go tool -modfile=../tools/tools.mod gotestsum --format standard-quiet -- -count=1 -timeout 15m ./...

# What takes too long for every day, once for each larger change.
.PHONY: test-all
test-all: test ## make test, and the long versions of its tests: two bad answers in the walk, more schedules, phases and handovers; two hours
	@cd hack/mutants && go test -count=1 ./...
	@go test -count=1 -v -timeout 60m -run 'TestWalk$$' ./pkg/plan -walk-bad 2
	@go test -count=1 -timeout 60m -run TestSchedules . -schedules 20000
	@go test -count=1 -v -timeout 60m -run TestEachFault ./hack/tutorial -faults
	@go test -count=1 -v -timeout 30m -run TestNothingIsKept . -churn 10000
	@go test -count=1 -v -timeout 120m -run TestGatesNeverOverlap ./pkg/kit/leader -phases 100000
	@cd hack/e2e && go test -count=1 -v -timeout 60m -run 'TestHandovers|StoppedDoesNotWrite' ./... -handovers 10 -stops 20
	@cd hack/conformance && CONFORMANCE_OPS=100000 CONFORMANCE_VALUES=100000 go test -count=1 -timeout 60m ./...
	@$(MAKE) --no-print-directory test-monitoring

.PHONY: test-monitoring
test-monitoring: ## test the alerts with Prometheus' rule engine; the first build takes minutes
	@cd hack/monitoring && go tool -modfile=../tools/tools.mod gotestsum --format standard-quiet -- -count=1 -timeout 10m ./...

.PHONY: unit
unit: ## run the tests that need no control plane, about a minute
	@$(TOOL) gotestsum --format standard-quiet --hide-summary=skipped -- -short ./...

.PHONY: conformance
conformance: build ## compare the simulated API server with a real one in 100,000 requests, about 8 minutes
	@cd hack/conformance && CONFORMANCE_OPS=100000 CONFORMANCE_VALUES=100000 go test -count=1 -v -timeout 60m ./...

.PHONY: mutants
mutants: ## make small faults in the code, one at a time, and check that tests fail; about 20 minutes on two cores
	@go run -C hack/mutants .

.PHONY: verify
verify: ## check generated code, format, vet, lint, imports, modules, docs, about a minute; changes nothing
	@hack/verify.sh

.PHONY: generate
generate: ## generate the files derived from pkg/apis: deep copies, CRD, clients, listers, informers, docs/api.md
	@hack/generate.sh

.PHONY: build
build: bin/foo-controller bin/localcluster ## build the controller and the local control plane in bin/

.PHONY: bin/foo-controller bin/foo-controller-race bin/localcluster bin/podrunner bin/imagebuilder
bin/foo-controller: ## build the controller
bin/foo-controller-race: ## build the controller with Go's race detector, for the end-to-end tests
bin/localcluster: ## build the local control plane, a whole Kubernetes in one binary; the first build takes minutes
bin/podrunner: ## build the node that runs pods on a local control plane
bin/imagebuilder: ## build the program of `make image`
bin/foo-controller bin/foo-controller-race bin/localcluster bin/podrunner bin/imagebuilder:
	@VERSION=$(VERSION) hack/build.sh $(@F)

.PHONY: bin/image-native
bin/image-native: bin/imagebuilder ## build the container image for this machine, for the end-to-end tests
	@bin/imagebuilder --platforms linux/$$(go env GOARCH) --output $@ --version e2e >/dev/null

.PHONY: image
image: bin/imagebuilder ## build the container image in bin/image, with an SBOM; needs no Docker; the first build takes minutes
	@bin/imagebuilder --version $(VERSION) $(ARGS)

# They use the bundled kubectl. KUBECONFIG=FILE names the cluster; without it, it is the one of `make cluster`.
# An empty IMAGE is none: in a script it is a variable without a value.
override IMAGE := $(or $(IMAGE),foo-controller:$(VERSION))

.PHONY: deploy
deploy: bin/localcluster ## install the controller in the cluster of KUBECONFIG, else of `make cluster`, with the image IMAGE
	@IMAGE=$(IMAGE) hack/deploy.sh deploy

.PHONY: undeploy
undeploy: bin/localcluster ## remove the controller from that cluster; keeps the CustomResourceDefinition and the Foos
	@hack/deploy.sh undeploy

.PHONY: manifests
manifests: bin/localcluster ## write bin/install.yaml, with all that `make deploy` installs
	@IMAGE=$(IMAGE) hack/deploy.sh manifests

.PHONY: clean
clean: ## remove the binaries
	@rm -rf bin
