#!/usr/bin/env bash
# All modules of this repository have the same versions of what they share of k8s.io, sigs.k8s.io and golang.org/x, so
# that each package is compiled once. This prints those that differ, and fails if there are any.
set -o errexit -o nounset -o pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
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
