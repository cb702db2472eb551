#!/usr/bin/env bash
# `make cover`: how much of each package the tests without a control plane execute, those of other packages included, and bin/cover.html with
# the lines. Generated code and the simulated API server do not count.
set -o errexit -o nounset -o pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
mkdir -p bin
packages=$(go list . ./pkg/... | grep -v -e /pkg/generated/ -e /pkg/sim/ -e /pkg/footest | paste -sd,)
if ! go test -short -coverpkg="$packages" -coverprofile=bin/cover.out . ./pkg/... >bin/cover.log; then
	grep -v '^ok' bin/cover.log >&2
	exit 1
fi
# A line of the profile is FILE:FROM,TO STATEMENTS EXECUTIONS. Each package that has tests has written all lines.
awk 'NR > 1 { statements[$1] = $2; if ($3 > 0) executed[$1] = 1 }
	END {
		for (block in statements) {
			package = block
			sub(/\/[^\/]*$/, "", package)
			total[package] += statements[block]
			if (block in executed) covered[package] += statements[block]
		}
		for (package in total) printf "%6.1f %%  %5d statements  %s\n", 100 * covered[package] / total[package], total[package], package
	}' bin/cover.out | sort -k5
go tool cover -html=bin/cover.out -o bin/cover.html
echo "Which lines: bin/cover.html"
