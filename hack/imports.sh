#!/usr/bin/env bash
# Imports point one way:
#
#   main.go -> controller.go -> pkg/plan -> pkg/apis
#              controller.go -> pkg/report -> pkg/apis
#
# pkg/generated has the clients of pkg/apis. All of them may use pkg/kit, and pkg/plan only its reconcile, state and
# trim. The packages of the kit are for any controller: they know nothing of Foos, and each can be left out, so they do
# not import each other, but reconcile, which uses state. Only the root of the kit joins them, and webhook, which is a
# controller of certificates on it.
# pkg/sim is for tests of any controller, and so the program does not contain it and it knows no Foo. Its package
# scenario is for controllers on the kit, and walktest, which uses reconcile, for any plan. pkg/footest has the tests'
# part about Foos. pkg/plan and pkg/kit/reconcile decide and do nothing else, so they must not import a client, a clock
# or a logger.
set -o errexit -o nounset -o pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
module=$(go list -m)
bad=0

complain() {
	echo "imports: $*" >&2
	bad=1
}

while read -r package import; do
	from=${package#"$module"} to=${import#"$module"}
	case $from:$to in
	/pkg/generated/*:*) ;;
	*:/hack/*) [[ $from == /hack/* || $from == /docs/* ]] || complain "$from imports $to: it is a tool" ;;
	*:/pkg/footest) [[ $from == /hack/* ]] || complain "$from imports $to: only tests may" ;;
	/pkg/footest:*) ;;
	/pkg/sim/scenario:/pkg/kit | /pkg/sim/scenario:/pkg/kit/* | /pkg/sim/scenario:/pkg/sim/*) ;; # It plays controllers on the kit.
	/pkg/sim/simtest:/pkg/sim/apiserver | /pkg/sim/faults:/pkg/sim/apiserver) ;;
	/pkg/sim/walktest:/pkg/kit/reconcile) ;;
	*:/pkg/sim/*) [[ $from == /hack/* || $from == /docs/* ]] || complain "$from imports $to: only tests may" ;;
	/pkg/kit:/pkg/kit/*) ;;
	/pkg/kit/reconcile:/pkg/kit/state) ;; # A report, and what Keep compares.
	/pkg/kit/webhook:/pkg/kit | /pkg/kit/webhook:/pkg/kit/*) ;; # It is a controller of certificates on the kit.
	/pkg/kit/conversion/conversiontest:/pkg/kit/conversion) ;;
	/pkg/kit:* | /pkg/kit/*:* | /pkg/sim/*:*)
		complain "$from imports $to: it is for all controllers, and can be left out or used alone"
		;;
	/pkg/apis/*:*) complain "$from imports $to: the API must not depend on its users" ;;
	/pkg/plan:/pkg/apis/* | /pkg/plan:/pkg/kit/reconcile | /pkg/plan:/pkg/kit/state | /pkg/plan:/pkg/kit/trim) ;;
	/pkg/plan:*) complain "$from imports $to: it must not use a client" ;;
	/pkg/report:/pkg/apis/* | /pkg/report:/pkg/kit/*) ;;
	/pkg/report:*) complain "$from imports $to: it only reports" ;;
	esac
done < <(go list -f '{{$p := .ImportPath}}{{range .Imports}}{{$p}} {{.}}{{"\n"}}{{end}}' ./... | grep " $module/")

# The table in the README of the kit has what each package compiles.
without() { # PATTERN PACKAGES...
	local pattern=$1 package
	shift
	for package; do
		! go list -deps "./$package" | grep -qE "$pattern" || complain "$package compiles $pattern: the README says that it does not"
	done
}
without '^k8s.io/client-go/' pkg/kit/{reconcile,state,trim} pkg/sim/walktest
without '^k8s.io/client-go/kubernetes' pkg/kit/{consistency,fairqueue,syncs}
without '^k8s.io/apiserver/' . pkg/kit pkg/sim/{apiserver,faults,simtest}

for pure in pkg/plan pkg/kit/{reconcile,conversion}; do
	while read -r import; do
		case $import in
		k8s.io/api/* | k8s.io/apimachinery/* | "$module"/pkg/apis/* | "$module"/pkg/kit/*) ;;
		runtime/debug) ;; # The stack of a panic.
		context | log | log/* | math/rand* | net | net/* | os | os/* | runtime | runtime/* | sync | sync/* | syscall | *.*/*)
			complain "$pure imports $import: no client, clock, logger or goroutine"
			;;
		esac
	done < <(go list -f '{{range .Imports}}{{.}}{{"\n"}}{{end}}' "./$pure" | grep .)
	if grep -nE '\btime\.(Now|Since|Until|Sleep|After|AfterFunc|Tick|NewTimer|NewTicker)\b' \
		$(ls $pure/*.go | grep -v _test.go); then
		complain "$pure reads a clock: let the caller pass the time in"
	fi
done

while read -r dir; do
	grep -q 'goleak\.VerifyTestMain' "$dir"/*_test.go || complain "$dir starts goroutines: its TestMain must call goleak.VerifyTestMain"
done < <(git ls-files 'pkg/*.go' | grep -v -e _test.go -e /generated/ | xargs grep -lE 'go func|\.Go\(|AfterFunc\(' |
	xargs grep -L '^package main$' | xargs -n1 dirname | sort -u)
exit $bad
