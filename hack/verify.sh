#!/usr/bin/env bash
# `make verify`: all checks that do not run the program. It changes no file, runs all checks, and exits with 1 if one of
# them fails. With names of checks, it runs only these: `make lint` does that.
set -o errexit -o nounset -o pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
wanted=" $* " failed=()
readarray -t modules < <(git ls-files '*go.mod' | xargs -n1 dirname)

check() { # NAME COMMAND...
	local name=$1 started=$SECONDS
	[[ $wanted == "  " || $wanted == *" $name "* ]] || return 0
	shift
	if "$@"; then
		echo "verify: $name: ok ($((SECONDS - started)) s)"
	else
		echo "verify: $name: FAILED" >&2
		failed+=("$name")
	fi
}

generated() { hack/generate.sh --verify && hack/starter/hack/generate.sh --verify; }

format() {
	local bad
	bad=$(git ls-files --cached --others --exclude-standard '*.go' | grep -v 'pkg/generated/' | xargs gofmt -l)
	[[ -z $bad ]] || { echo "not formatted, run gofmt -w on: $bad" >&2 && false; }
}

# packages prints those of the module in this directory that linters read. Those of hack/test/monitoring are left to
# `make test-monitoring`: compiling Prometheus takes minutes.
packages() { go list ./... | grep -v -e /pkg/generated/ -e /hack/test/monitoring; }

vet() {
	local module
	for module in "${modules[@]}"; do
		(cd "$module" && go vet $(packages)) || return 1
	done
}

staticcheck() {
	local module tools=$PWD/hack/tools/tools.mod
	for module in "${modules[@]}"; do
		[[ $module != hack/cmd/localcluster ]] || continue
		(cd "$module" && go tool -modfile="$tools" staticcheck $(packages)) || return 1
	done
}

tidy() {
	local module bad=0
	for module in "${modules[@]}"; do
		go mod tidy -C "$module" -diff || { echo "$module/go.mod is not tidy: run 'go mod tidy' there" >&2 && bad=1; }
	done
	return $bad
}

scripts() {
	local script
	for script in hack/*.sh hack/cmd/*/*.sh hack/starter/{hack/*.sh,.ci/run} docs/tutorial/*/*.sh .ci/run; do
		bash -n "$script" || return 1
	done
	go tool -modfile=hack/tools/tools.mod actionlint {,hack/starter/}.github/workflows/*.yml
}

# versions: all modules have the same versions of what they share of k8s.io, sigs.k8s.io and golang.org/x, so that each
# package is compiled once.
versions() {
	git ls-files '*go.mod' '*tools.mod' | xargs awk '
		/^replace|=>/ { next } # Of the control plane; it names the versions of the same release.
		$1 == "require" { $1 = ""; $0 = $0 }
		$1 ~ /^(k8s\.io|sigs\.k8s\.io|golang\.org\/x)\// && $2 != "v0.0.0" {
			if ($1 in version && version[$1] != $2) {
				printf "versions: %s is %s in %s, and %s in %s\n", $1, version[$1], file[$1], $2, FILENAME
				bad = 1
			}
			version[$1] = $2
			file[$1] = FILENAME
		}
		END { exit bad }' >&2
}

# lint: no line has more than 120 columns, but markers and the output of an Example. The program and the kit have no
# else, and hack/tools/revive.toml has the limits of their functions.
lint() {
	! git grep -nE '^.{121,}$' -- '*.go' ':!*pkg/generated/*' | grep -vE '// [+{]' &&
		! git grep -nE '\} else\b' -- '*.go' ':!*_test.go' ':!pkg/generated' ':!pkg/sim' ':!hack' ':!docs' &&
		go tool -modfile=hack/tools/tools.mod revive -config hack/tools/revive.toml -set_exit_status \
			-exclude pkg/generated/... -exclude pkg/sim/... . ./pkg/...
}

# api: what makers import is as api/kit.txt promises, which only grows.
api() {
	local base
	base=$(<.ci/base)
	go run ./hack/tools/api || return 1
	! git cat-file -e "$base:api/kit.txt" 2>/dev/null || ! git diff "$base" -- api/kit.txt | grep '^-[^-]' ||
		{ echo "api: lines are gone from api/kit.txt: leave them there, and add them to api/except.txt" >&2 && false; }
}

# definitions: what users have stored, and their clients, keep working: no field goes, no rule is tighter.
definitions() { go run ./hack/tools/crd-changes artifacts/crd/*.yaml; }

# commits: each commit since the one in .ci/base has a subject of at most 72 characters, without a semicolon, and a body.
# Merges are left out.
commits() {
	local base commit subject bad=0
	base=$(<.ci/base)
	git cat-file -e "$base^{commit}" 2>/dev/null || { echo "commits: skipped: this clone lacks ${base:0:9}" && return; }
	for commit in $(git rev-list --abbrev-commit --no-merges "$base..HEAD"); do
		subject=$(git log -1 --format=%s "$commit")
		((${#subject} <= 72)) || { echo "commit $commit: its subject has ${#subject} characters, limit 72" >&2 && bad=1; }
		[[ $subject != *";"* ]] || { echo "commit $commit: its subject has a semicolon: make it two commits" >&2 && bad=1; }
		[[ $(git log -1 --format=%b "$commit") ]] || { echo "commit $commit: it has no body that says why" >&2 && bad=1; }
	done
	return $bad
}

check "generated code" generated
check format format
check vet vet
check staticcheck staticcheck
check imports hack/imports.sh
check tidy tidy
check versions versions
check scripts scripts
check lint lint
check api api
check definitions definitions
check commits commits

if ((${#failed[@]})); then
	printf 'verify: failed: %s\n' "${failed[*]}" >&2
	exit 1
fi
