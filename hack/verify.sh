#!/usr/bin/env bash
# `make verify`: all checks that do not run the program. It changes no file, runs all checks, and exits with 1 if one of
# them fails.
set -o errexit -o nounset -o pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
failed=()

check() { # NAME COMMAND...
	local name=$1 started=$SECONDS
	shift
	if "$@"; then
		echo "verify: $name: ok ($((SECONDS - started)) s)"
	else
		echo "verify: $name: FAILED" >&2
		failed+=("$name")
	fi
}

format() {
	local bad
	bad=$(git ls-files --cached --others --exclude-standard '*.go' | grep -v '^pkg/generated/' | xargs gofmt -l)
	[[ -z $bad ]] || { echo "not formatted, run gofmt -w on: $bad" >&2 && false; }
}

# Those of hack/monitoring are left to `make test-monitoring`: compiling Prometheus takes minutes.
vet() {
	local module
	for module in . docs/tutorial/6-controller-runtime hack/conformance hack/e2e hack/image hack/localcluster; do
		go vet -C "$module" ./... || return 1
	done
}

staticcheck() {
	local module tools=$PWD/hack/tools/go.mod
	for module in . docs/tutorial/6-controller-runtime hack/conformance hack/e2e hack/image; do
		(cd "$module" && go tool -modfile="$tools" staticcheck $(go list ./... | grep -v /pkg/generated/)) || return 1
	done
}

modules() {
	local module
	for module in . docs/tutorial/6-controller-runtime hack/conformance hack/e2e hack/image hack/localcluster \
		hack/monitoring hack/tools; do
		go mod tidy -C "$module" -diff || { echo "$module/go.mod is not tidy: run 'go mod tidy' there" >&2 && return 1; }
	done
}

scripts() {
	local script
	for script in hack/*.sh hack/localcluster/*.sh docs/tutorial/*/*.sh .ci/run; do
		bash -n "$script" || return 1
	done
}

# root_files: the only Go files at the root are the program and its test.
root_files() {
	local file bad=0
	for file in *.go; do
		case $file in
		main.go | controller.go | controller_test.go) ;;
		*) echo "$file: Go files at the root are main.go, controller.go and controller_test.go; move it" >&2 && bad=1 ;;
		esac
	done
	return $bad
}

# shape: no function is too large, and no line is too long.
shape() { go run ./hack/shape; }

# words: comments, messages and test names have no phrase for which there is a plainer word.
words() { go run ./hack/words; }

check "generated code" hack/generate.sh --verify
check format format
check vet vet
check staticcheck staticcheck
check imports hack/imports.sh
check modules modules
check "root files" root_files
check scripts scripts
check shape shape
check words words

if ((${#failed[@]})); then
	printf 'verify: failed: %s\n' "${failed[*]}" >&2
	exit 1
fi
