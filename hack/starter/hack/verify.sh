#!/usr/bin/env bash
# `make verify`: all checks that do not run the program. It changes no file.
set -o errexit -o nounset -o pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
module=$(go list -m)
echo "verify: generated files"
hack/generate.sh --verify

echo "verify: format, vet"
unformatted=$(git ls-files '*.go' | grep -v '^pkg/generated/' | xargs gofmt -l)
[[ -z $unformatted ]] || { echo "not formatted, run gofmt -w on: $unformatted" >&2 && exit 1; }
go vet ./...
echo "verify: staticcheck, which takes minutes the first time"
go tool -modfile=hack/tools/tools.mod staticcheck $(go list ./... | grep -v /pkg/generated/)
go mod tidy -diff

echo "verify: what users have stored, and their clients, keep working"
go tool crd-changes artifacts/crd/*.yaml

# A plan decides and does nothing else.
readonly impure="context|log|log/.*|net|net/.*|os|sync|k8s.io/(client-go|klog)/.*|$module/pkg/generated/.*|.*/pkg/kit"
if go list -f '{{join .Imports "\n"}}' $(go list ./... | grep "/plan\$") | grep -xE "$impure"; then
	echo "A plan imports a client, a clock or a logger" >&2
	exit 1
fi
