#!/usr/bin/env bash
# Builds bin/localcluster. The first time this compiles Kubernetes, so it says how far it is.
set -o errexit -o nounset -o pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/localcluster"
readonly binary=../../bin/localcluster

build() { go build "$@" -ldflags "$(./ldflags.sh)" -o "$binary" .; }

if [[ -x $binary ]]; then
	build
	exit
fi
echo "Building bin/localcluster. The first time this compiles Kubernetes: about 5 minutes on two cores, and"
echo "as much again for downloading its modules where the connection is slow."
total=$(go list -deps . | wc -l)
started=$SECONDS
# go build -v prints each package as it is compiled, and errors with spaces in them.
build -v 2>&1 | {
	count=0
	while IFS= read -r line; do
		if [[ $line == *[[:space:]]* ]]; then
			printf '%s\n' "$line" >&2
			continue
		fi
		count=$((count + 1))
		((count % 200)) || echo "  compiled $count of at most $total packages after $((SECONDS - started)) s"
	done
}
echo "  built after $((SECONDS - started)) s"
