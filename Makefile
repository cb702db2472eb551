# `make help` lists the targets with a comment after `##`, under the headings after `##@`. `make help-all` has those with
# a comment after `#-`, too.
SHELL := bash
.SHELLFLAGS := -o errexit -o nounset -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.NOTPARALLEL: # Tests that wait for real time need the machine for themselves.

# Files that git does not know make the version dirty too, because Go compiles them. `git describe --dirty` does not
# count them.
VERSION := $(shell git describe --tags --always 2>/dev/null || echo unknown)$(if \
	$(shell git status --porcelain --untracked-files=normal 2>/dev/null),-dirty)
# A shell would execute parts of a value with special characters: recipes read it from their environment.
export VERSION IMAGE NODES REGISTRY REGISTRY_PORT MINORS
TOOL := go tool -modfile=hack/tools/tools.mod

##@ To learn

# A checkout has one local cluster at a time, in this directory. Tests that run several set another one.
export CLUSTER_DIR ?= .cluster

.PHONY: play
play: simulated bin/play ## the controller on a simulated API server, seconds once built
	@hack/play.sh

.PHONY: simulated
simulated:
	@echo "Simulated: one process answers as the API server of Kubernetes does, and as its Deployment controller. There are no"
	@echo "pods and no nodes, nothing is stored, and everybody may do everything. The controller is the real one. Tests compare"
	@echo "the answers with those of a real API server: pkg/sim/README.md. \`make run\` starts a real one."

.PHONY: run
run: build ## a Kubernetes, the controller and a Foo; Ctrl-C removes all
	@hack/run.sh

.PHONY: kubectl
kubectl: ## kubectl for that cluster: make kubectl ARGS="get foos"
	@[[ -f $$CLUSTER_DIR/env ]] || { echo "No cluster runs here. In another terminal: make play, or make run" >&2; exit 1; }
	@source "$$CLUSTER_DIR/env" && k $(ARGS)

.PHONY: tutorial
tutorial: $(if $(filter 9,$(STEP)),,build) ## play a step of docs/tutorial: make tutorial STEP=1
	@go build -o bin/tutorial ./hack/cmd/tutorial
	@bin/tutorial --step=$(or $(STEP),1) --fault=$(FAULT)

.PHONY: simulate
simulate: ## the controller among faults: make simulate SEED=2
	@go test -c -o bin/simulate .
	@bin/simulate -test.run '^TestSimulate$$' -seed $(or $(SEED),1) | sed '/^PASS$$/d'

##@ To operate

.PHONY: cluster
cluster: ## a Kubernetes that really runs pods, as root: NODES=2
	@hack/cluster.sh check
	@$(MAKE) --no-print-directory bin/node bin/localcluster
	@hack/cluster.sh

.PHONY: image
image: bin/imagebuilder ## build the container image in bin/image; needs no Docker
	@bin/imagebuilder image --version "$$VERSION" $(fips) $(ARGS)

# GOFIPS140 counts on the command line only: settings of Go in the environment do not change what is built.
fips = $(if $(filter command,$(origin GOFIPS140)),--fips140 "$$GOFIPS140")

.PHONY: release
release: bin/imagebuilder #- all files of a release, in bin/release: VERSION=v1.2.3
	@bin/imagebuilder release --version "$$VERSION" $(if $(REGISTRY),--name "$$REGISTRY/foo-controller") $(fips) $(ARGS)

.PHONY: push
push: bin/imagebuilder #- push bin/release: REGISTRY=registry.example/me
	@bin/imagebuilder push bin/release "$$REGISTRY"

# KUBECONFIG=FILE on the command line names the cluster; without it, it is the one of `make cluster`. For the latter,
# and where PATH has no kubectl, they use that of bin/localcluster. An empty IMAGE is none: in a script it is a variable
# without a value.
override IMAGE := $(or $(IMAGE),foo-controller:$(VERSION))
deploy undeploy: given = $(if $(filter command,$(origin KUBECONFIG)),"$$KUBECONFIG")
bundled := $(if $(shell command -v kubectl),,bin/localcluster)
deploy undeploy: $(if $(and $(filter command,$(origin KUBECONFIG)),$(KUBECONFIG)),$(bundled),bin/localcluster)
manifests: $(bundled) # hack/deploy.sh chooses the same one.

.PHONY: deploy
deploy: ## install IMAGE in the cluster of make cluster or KUBECONFIG=
	@hack/deploy.sh deploy $(given)

.PHONY: undeploy
undeploy: ## remove the controller there; keep the Foos
	@hack/deploy.sh undeploy $(given)

.PHONY: manifests
manifests: ## write all that make deploy installs to bin/install.yaml
	@hack/deploy.sh manifests

##@ To make it your own

# It reads the values as they are given, and only those of the command line: VERSION has another meaning above.
.PHONY: mine
mine: ## a repository for a kind of yours; make mine ARGS=--help
	@go build -o bin/mine ./hack/cmd/mine
	@bin/mine $(ARGS) $(foreach v,KIND GROUP MODULE VERSION PLURAL SCOPE DIR KIT,$(if $(filter command,$(origin $v)),'$v=$(subst ','\'',$($v))'))

.PHONY: publish
publish: #- the kit under a path of yours, for others to import; ARGS=--help
	@go build -o bin/mine ./hack/cmd/mine
	@bin/mine publish $(ARGS) $(foreach v,MODULE DIR,$(if $(filter command,$(origin $v)),'$v=$(subst ','\'',$($v))'))

.PHONY: generate
generate: ## generate the CRD, clients and docs/api.md from pkg/apis
	@hack/generate.sh

.PHONY: build
build: bin/foo-controller bin/localcluster ## build the controller and the local Kubernetes in bin/

.PHONY: lint
lint: ## format, vet, staticcheck, and the limits of functions
	@hack/verify.sh format vet staticcheck lint

.PHONY: cover
cover: #- which lines the tests without a control plane execute: bin/cover.html
	@rm -rf bin/cover && mkdir -p bin/cover
	@go test -short -cover -coverpkg=.,./pkg/kit/...,./pkg/plan,./pkg/report . ./pkg/... \
		-args -test.gocoverdir="$$PWD/bin/cover" >bin/cover/log || { grep -v '^ok' bin/cover/log >&2; exit 1; }
	@go tool covdata percent -i=bin/cover
	@go tool covdata textfmt -i=bin/cover -o bin/cover/lines
	@go tool cover -html=bin/cover/lines -o bin/cover.html
	@echo "Which lines: bin/cover.html"

##@ To contribute

.PHONY: verify
verify: ## all checks that run no program; changes nothing
	@hack/verify.sh

# -count=1 disables Go's cache of test results, which does not notice changes of binaries and of files that other
# processes read.
GOTEST = gotestsum --format standard-quiet $(SUMMARY) -- -count=1
in = cd $(1) && go tool -modfile="$$OLDPWD/hack/tools/tools.mod" $(GOTEST)
# The packages with Go's race detector. hack/cmd/mine and hack/cmd/tutorial mostly run other programs.
RACED := . ./docs/... ./pkg/... ./hack/tools/...

.PHONY: test
test: SUMMARY = --hide-summary=skipped
test: ## what needs no Kubernetes, before each commit: a minute
	@$(TOOL) $(GOTEST) -short ./...
	@$(call in,hack/starter) ./...
	@echo "This was a part: about one in twenty worlds of each walk, and 50 schedules. The rest:"
	@echo "make test-walk, test-race, and, on a Kubernetes, test-e2e. .ci/run has what a change needs, make test-all everything."

.PHONY: test-race
test-race: #- these and longer ones, with Go's race detector: 4 minutes
	@$(TOOL) $(GOTEST) -race -p 4 -timeout 15m $(RACED)

.PHONY: test-walk
test-walk: #- all worlds of each walk, 500 schedules, memory: 4 minutes
	@go test -count=1 -v -timeout 15m -run 'TestWalk|TestAPlanWithAFinalizer' ./pkg/plan ./pkg/sim/walktest -walk-all
	@cd hack/starter && go test -count=1 -v -timeout 15m -run TestWalk ./pkg/plan -walk-all
	@$(TOOL) $(GOTEST) -timeout 15m . -schedules 500

# The end-to-end tests of a part are in the files of its name, such as process_core_test.go. RACE=-race is for the tests and
# for the controller.
E2E = $(call in,hack/test/e2e) $(RACE) -parallel 16 -timeout 30m
binary = $(RACE:%=bin/foo-controller%)
tests = $(or $(shell sed -nE 's/^func (Test[A-Za-z0-9_]+).*/\1/p' $(1:%=hack/test/e2e/*_%_test.go) | paste -sd '|' -),$(error no tests of $(1)))
named = '^($(call tests,$(1)))$$'

.PHONY: test-e2e
test-e2e: build bin/play $(binary) ## the tests for each change on a Kubernetes: 2 minutes
	@$(E2E) -skip $(call named,core artifacts node) ./...

# The parts of test-all. .ci/run runs those whose files have changed.
.PHONY: test-core test-node test-artifacts test-mine test-sim test-cluster test-image test-tutorial test-monitoring
test-core: RACE = -race
test-core: build bin/foo-controller-race #- what takes long or a cluster of its own: upgrades, autoscalers, memory
	@$(E2E) -run $(call named,core) ./...
	@go test -count=1 -v -timeout 15m -run TestGatesNeverOverlap ./pkg/kit/leader -phases 2000

test-node: build bin/image-native bin/helm #- the controller in pods on real nodes; needs root
	@if ((EUID)); then echo "make test-node is SKIPPED: nodes need root"; else $(MAKE) --no-print-directory real-nodes; fi

.PHONY: real-nodes
real-nodes: bin/node
	@$(call in,hack/test/e2e) -parallel 2 -timeout 20m -run $(call named,node) ./...
	@$(call in,hack/cmd/localcluster) -timeout 10m -run TestRealNodes ./test/...

test-artifacts: build $(binary) bin/helm #- permissions, policies, make deploy
	@$(E2E) -run $(call named,artifacts) ./...

test-mine: bin/localcluster #- the repositories of make mine, and the recipes of docs/make-it-yours.md
	@$(TOOL) $(GOTEST) -timeout 20m ./hack/cmd/mine ./hack/recipes

test-sim: build #- compare the simulated API server with a real one
	@cd pkg/sim/crd && go test -count=1 ./...
	@$(call in,hack/test/conformance) -timeout 15m ./...

test-cluster: build #- the local Kubernetes
	@$(call in,hack/cmd/localcluster) -timeout 10m -skip TestRealNodes ./test/...

test-image: #- the container image
	@$(call in,hack/release) -timeout 15m ./...

test-tutorial: build #- play each step of the tutorial
	@go test -count=1 -v -timeout 30m ./hack/cmd/tutorial

test-monitoring: #- test the alerts and the dashboard with Prometheus' engines
	@$(call in,hack/test/monitoring) -timeout 10m ./...

.PHONY: test-all
test-all: RACE = -race
test-all: bin/foo-controller-race test test-race test-walk test-e2e test-core test-node test-artifacts test-mine test-sim test-cluster test-image test-tutorial test-monitoring ## all tests: 2 hours
	@go test -count=1 ./hack/tools/mutants
	@cd hack/cmd/bench && go test -count=1 ./...
	@go test -count=1 -v -timeout 90m -run TestWalk ./pkg/plan -walk-all -walk-bad 2
	@go test -run NONE -fuzz FuzzDecode -fuzztime 2m -fuzzminimizetime 1s ./pkg/kit/decode
	@go test -run NONE -fuzz FuzzRoundTrips -fuzztime 1m -fuzzminimizetime 1s ./pkg/kit/conversion
	@go test -run NONE -fuzz FuzzReviews -fuzztime 1m -fuzzminimizetime 1s ./pkg/kit/webhook
	@go test -count=1 -timeout 60m -run TestSchedules . -schedules 20000
	@go test -count=1 -timeout 60m -run TestASeedReplaysExactly . -seeds 100 -replays 10
	@go test -count=1 -v -timeout 60m -run TestEachFault ./hack/cmd/tutorial -faults
	@go test -count=1 -v -timeout 30m -run TestNothingIsKept . -churn 10000
	@go test -count=1 -v -timeout 60m -run 'TestKinds|TestAPublishedKit' ./hack/cmd/mine -kinds
	@go test -count=1 -v -timeout 120m -run TestGatesNeverOverlap ./pkg/kit/leader -phases 100000
	@cd hack/test/e2e && go test $(RACE) -count=1 -v -timeout 60m -run 'TestHandovers|StoppedDoesNotWrite' ./... -handovers 10 -stops 20
	@$(MAKE) --no-print-directory conformance && git diff --exit-code -- pkg/sim/apiserver/testdata

.PHONY: test-minors
test-minors: build #- the end-to-end tests on each minor of Kubernetes: 2 hours
	@hack/minors.sh $$MINORS

.PHONY: conformance
conformance: build #- compare the simulated API server with a real one, record its answers, 8 minutes
	@cd hack/test/conformance && CONFORMANCE_RECORD=1 CONFORMANCE_OPS=100000 CONFORMANCE_VALUES=100000 go test -count=1 -v -timeout 60m ./...

.PHONY: mutants
mutants: #- plant small faults and check that tests fail, 20 minutes
	@go run -C hack/tools/mutants .

# After an interruption it continues. What is done is in bin/bench/*.json.
.PHONY: bench
bench: bin/localcluster bin/bench ## measure it beside other controllers, 2 hours
	@bin/bench/bench $(ARGS)

.PHONY: clean
clean: #- remove bin/
	@rm -rf bin

.PHONY: bin/foo-controller bin/foo-controller-race bin/play bin/localcluster bin/imagebuilder bin/helm
bin/foo-controller: #- the controller
bin/foo-controller-race: #- the controller with Go's race detector, for the end-to-end tests
bin/play: #- the simulated API server with Foos, and bin/foo-controller
bin/localcluster: #- the local Kubernetes: all its components in one binary
bin/imagebuilder: #- the program of make image
bin/helm: #- Helm, to test the chart
bin/foo-controller bin/foo-controller-race bin/play bin/localcluster bin/imagebuilder bin/helm:
	@hack/build.sh $(@F)

.PHONY: bin/bench
bin/bench: #- the program of make bench, and the controller as in the image
	@hack/build.sh bench bench-foo-controller

.PHONY: bin/node
bin/node: #- the programs of a real node: kubelet, containerd, runc, network plugins
	@hack/build.sh runc containerd kubelet

.PHONY: bin/image-native
bin/image-native: bin/imagebuilder #- the container image for this machine, for the end-to-end tests
	@bin/imagebuilder image --platforms linux/$$(go env GOARCH) --output $@ --version e2e >/dev/null

.PHONY: help help-all
help: ; @$(call list,##,12)
help-all: ## this list, with the rest
	@$(call list,#[\#-],24)

# list prints the targets whose comments begin with a pattern, under their headings.
list = awk -F ':.*$(1) ' '/^\#\#@ / { print "\n" substr($$0, 5) } \
	/^[a-z0-9\/-]+:.*$(1) / { printf "  make %-$(2)s %s\n", $$1, $$2 }' Makefile
