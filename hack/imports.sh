#!/usr/bin/env bash
# Imports point one way: main -> controller -> packages under pkg -> apis. A package under pkg that needs another one is
# two packages too many. Packages named *test are exempt: they help the tests of others, and the program has none of
# them. And pkg/plan, which decides, must reach no client, clock or logger.
set -o errexit -o nounset -o pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
module=$(go list -m)
bad=0

complain() {
	echo "imports: $*" >&2
	bad=1
}

while read -r package import; do
	case $package in "$module"/pkg/generated/*) continue ;; esac
	case $import in
	"$module"/pkg/*test) complain "$package imports $import: only tests may" ;;
	"$module"/pkg/apis/* | "$module"/pkg/generated/*)
		[[ $package != "$module"/pkg/apis/* ]] || complain "$package imports $import: the API knows nothing of its users"
		[[ $package != "$module"/pkg/apisim ]] || complain "$package imports $import: it is for every controller, ours is only one"
		[[ $package != "$module"/pkg/plan || $import != */generated/* ]] || complain "pkg/plan imports $import: it decides, others do"
		;;
	"$module"/pkg/*test)
		[[ $package == *test ]] || complain "$package imports $import: it is for tests alone"
		;;
	"$module"/pkg/*)
		[[ $package == "$module" || $package == *test ]] || complain "$package imports $import: packages under pkg do not know each other"
		;;
	esac
done < <(go list -f '{{$p := .ImportPath}}{{range .Imports}}{{$p}} {{.}}{{"\n"}}{{end}}' ./... | grep .)

while read -r import; do
	case $import in
	k8s.io/api/* | k8s.io/apimachinery/* | "$module"/pkg/apis/*) ;;
	context | log | log/* | math/rand* | net | net/* | os | os/* | runtime | runtime/* | sync | sync/* | syscall | *.*/*)
		complain "pkg/plan imports $import: no client, clock, logger or goroutine"
		;;
	esac
done < <(go list -f '{{range .Imports}}{{.}}{{"\n"}}{{end}}' ./pkg/plan | grep .)

if grep -nE '\btime\.(Now|Since|Until|Sleep|After|AfterFunc|Tick|NewTimer|NewTicker)\b' $(ls pkg/plan/*.go | grep -v _test.go); then
	complain "pkg/plan reads a clock: let the caller pass the time in"
fi
exit $bad
