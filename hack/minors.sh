#!/usr/bin/env bash
# hack/minors.sh [MINOR...] plays the end-to-end tests that need a real API server on other minor versions of Kubernetes,
# for instance 1.32 1.33; without arguments on all of hack/cmd/localcluster/minors, and on the one of bin/localcluster. It builds
# each control plane from its Go modules. Then it upgrades a control plane from each version to the next one, and prints
# a table. What has passed at this commit is not played again.
set -o errexit -o nounset -o pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
trap 'exit 130' INT TERM # go test ends by itself, and the shell would continue.
readonly sums=hack/cmd/localcluster/minors # VERSION.sum is the go.sum of that control plane. The names are the versions.
readonly out=$PWD/bin/minors
mkdir -p "$out"

# The rows of the table: what is tested, and the tests.
readonly rows=(
	"the definition|TestAPI.*"
	"the admission policies|TestAdmissionPolicies|TestAControllerWithAdmissionPolicies|TestPodSecurity.*|TestTheAPIServerAccepts.*"
	"policies and quotas of others|TestRefusals"
	"create, scale, correct, delete|TestFooBecomesReady.*|TestDrift.*|TestTheDeploymentOf.*|TestStatusWrites.*"
	"rename|TestRename|TestRivals"
	"takeover|TestTakeover|TestForeignDeployment.*"
	"HorizontalPodAutoscaler|TestScaling"
	"election and handover|TestTheStandby.*|TestTheLease.*|TestALeaderThatWas.*|TestAWriteThatIsLate.*"
	"objects that cannot be read|TestAFooWith.*|TestAFooTooDeep.*"
	"objects from before a rule|TestFoosStored.*"
	"permissions and tenants|TestThePermissions.*|TestWithoutAPermission.*|TestAFooAuthor.*|TestADeploymentEditor.*|TestATenant.*|TestOwners.*"
	"restored objects|TestAfterAnOlderState.*|TestFoosThatAreRestored.*"
	'`--explain`|TestExplain'
)

minor() { # vX.Y.Z
	local version=${1#v}
	echo "${version%.*}"
}

# write_module makes the module of a control plane: Kubernetes with its own libraries, which its go.mod takes from its
# source tree.
write_module() { # VERSION
	local version=$1 kubernetes
	kubernetes=$(go mod download -json "k8s.io/kubernetes@$version") || { printf '%s\n' "$kubernetes" >&2 && exit 1; }
	kubernetes=$(sed -n 's/^\t"GoMod": "\(.*\)",$/\1/p' <<<"$kubernetes")
	{
		echo "module example.com/foo-controller/hack/cmd/localcluster"
		sed -n '/^go /p; /^godebug /p' "$kubernetes"
		echo "require k8s.io/kubernetes $version"
		sed -n "s|.*\(k8s\.io/[^ ]*\) => \./staging/.*|replace \1 => \1 v0${version#v1}|p" "$kubernetes" | grep -v /sample-
		# The module proxy lacks v0.32.13 of this module. v0.32.12 is its latest.
		[[ $version != v1.32.13 ]] || echo "replace k8s.io/endpointslice v0.0.0 => k8s.io/endpointslice v0.32.12"
	} >"$out/$version.mod"
	cp "$sums/$version.sum" "$out/$version.sum"
}

build() { # VERSION
	write_module "$1"
	hack/build.sh "kubernetes-$1"
	cmp -s "$sums/$1.sum" "$out/$1.sum" || {
		echo "minors.sh: $1 needs other modules than those of $sums/$1.sum. If it is a new version:" \
			"cp bin/minors/$1.sum $sums/" >&2
		exit 1
	}
}

# play runs tests of hack/test/e2e, unless they have passed at this commit. Their output is in NAME.log.
play() { # NAME TESTS FLAGS...
	local log=$out/$1.log passed=$out/$1.passed
	[[ $state == *-dirty || $state != "$(cat "$passed" 2>/dev/null)" ]] || return 0
	rm -f "$passed"
	echo "Playing $1: $(date +%T), 10 minutes"
	if go test -C hack/test/e2e -count=1 -v -parallel 16 -timeout 40m -run "^($2)\$" . "${@:3}" >"$log" 2>&1; then
		echo "$state" >"$passed"
		return 0
	fi
	status=1
	{ grep -E '^\s*--- FAIL|^(FAIL|panic)' "$log" || true; echo "Its log: $log"; } >&2
}

# word returns in $word how the tests of a row have ended: "part" if some do not apply to the version, "-" if none does.
word() { # NAME TESTS
	local ends
	ends=$(grep -E "^ *--- [A-Z]+: ($2)[ /]" "$out/$1.log") || ends=''
	case $(grep -oE 'PASS|FAIL|SKIP' <<<"$ends" | sort -u | xargs) in
	PASS) word=yes ;;
	'PASS SKIP') word=part ;;
	SKIP) word=- ;;
	*) word='**no**' status=1 ;;
	esac
	! grep -qE '^panic: ' "$out/$1.log" || word='**no**' status=1
}

ours=$(awk '$1 == "k8s.io/kubernetes" { print $2; exit }' hack/cmd/localcluster/go.mod)
state=$(git rev-parse HEAD)$([[ -z $(git status --porcelain) ]] || echo -dirty)
versions=() have=() status=0 word=''
for version in $(cd "$sums" && ls -- *.sum) "$ours"; do
	version=${version%.sum}
	have+=("$(minor "$version")")
	(($# > 0)) && [[ " $* " != *" $(minor "$version") "* ]] || versions+=("$version")
done
for wanted in "$@"; do
	[[ " ${have[*]} " == *" $wanted "* ]] || {
		echo "minors.sh: there is no $wanted. Choose from ${have[*]}" >&2
		exit 1
	}
done

for version in "${versions[@]}"; do
	if [[ $version == "$ours" ]]; then ln -sfn ../localcluster "$out/kubernetes-$version"; else build "$version"; fi
done
tests=$(printf '|%s' "${rows[@]#*|}")
for version in "${versions[@]}"; do
	play "$version" "${tests#|}" -kubernetes "$out/kubernetes-$version"
done
((${#versions[@]} < 2)) ||
	play upgrade TestTheControlPlaneIsUpgraded -upgrade "$(printf ",$out/kubernetes-%s" "${versions[@]}")"

printf '| |'
printf ' %s |' "${versions[@]#v}"
printf '\n| --- |'
printf ' --- |%.0s' "${versions[@]}"
for row in "${rows[@]}"; do
	printf '\n| %s |' "${row%%|*}"
	for version in "${versions[@]}"; do
		word "$version" "${row#*|}"
		printf ' %s |' "$word"
	done
done
if ((${#versions[@]} > 1)); then
	word upgrade TestTheControlPlaneIsUpgraded
	printf '\n| an upgrade from each to the next, under load |%s' "$(printf " $word |%.0s" "${versions[@]}")"
fi
echo
exit "$status"
