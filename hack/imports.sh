#!/usr/bin/env bash
# Imports point one way: main -> controller -> packages under pkg -> apis. Packages under pkg do not import each other.
# Packages named *test are exempt: they are helpers for tests, and the program does not contain them. pkg/plan decides and
# does nothing else, so it must not import a client, a clock or a logger.
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
		[[ $package != "$module"/pkg/apis/* ]] || complain "$package imports $import: the API must not depend on its users"
		[[ $package != "$module"/pkg/apisim ]] || complain "$package imports $import: it is for all controllers, not only for ours"
		[[ $package != "$module"/pkg/plan || $import != */generated/* ]] || complain "pkg/plan imports $import: it must not use a client"
		;;
	"$module"/pkg/*test)
		[[ $package == *test ]] || complain "$package imports $import: it is only for tests"
		;;
	"$module"/pkg/*)
		[[ $package == "$module" || $package == *test ]] || complain "$package imports $import: packages under pkg must not import each other"
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

while read -r dir; do
	ls "$dir"/leak*_test.go >/dev/null 2>&1 || complain "$dir starts goroutines: its tests must use goleak, as in pkg/leader/leak_internal_test.go"
done < <(git ls-files 'pkg/*.go' | grep -v -e _test.go -e /generated/ | xargs grep -lE 'go func|\.Go\(|AfterFunc\(' | xargs -n1 dirname | sort -u)
exit $bad
