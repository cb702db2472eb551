#!/usr/bin/env bash
# Builds bin/localcluster. The first build compiles Kubernetes, so the script prints the progress and estimates the
# remaining time. If nothing has changed it ends at once, because go build needs one or two seconds to find that out.
set -o errexit -o nounset -o pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/localcluster"
readonly binary=../../bin/localcluster stamp=../../bin/.localcluster.stamp
flags=$(./ldflags.sh)
cores=$(getconf _NPROCESSORS_ONLN)

# Compiler and linker are short-lived programs. Less frequent garbage collection saves about an eighth of the processor
# time, and needs up to 50 % more memory in the largest packages. The result is the same, byte for byte.
export GOGC=${GOGC:-400}

# The time of one package on one core, and of the linker, on the machine of docs/decisions/0002-local-control-plane.md. A
# build starts with these figures and then measures its own. The first packages are smaller than the others, so these
# figures count until 400 packages are compiled.
readonly package_ms=$((240 / cores)) link_s=20 known=400

# inputs prints the inputs of the build. go.sum has the hash of every module.
inputs() {
	go env GOVERSION GOFLAGS GOOS GOARCH GOAMD64 GOARM64 GOEXPERIMENT CGO_ENABLED CC CGO_CFLAGS CGO_LDFLAGS
	echo "$flags"
	git hash-object --no-filters ../build-localcluster.sh $(find . -path ./test -prune -o -type f -print | LC_ALL=C sort)
}

# is_current reports whether the binary is up to date: the inputs, its size and its time are those of the last build. If
# a module is replaced by a directory, the binary is never current, because changes there are unknown.
is_current() {
	[[ -x $binary && -f $stamp && ! $binary -nt $stamp && $(go env GOWORK) == @(|off) ]] || return 1
	! grep -qE '=> *[./]' go.mod && [[ $(inputs && ls -ln "$binary") == "$(<"$stamp")" ]]
}

minutes() { # SECONDS
	if (($1 < 100)); then
		echo "about $((($1 + 9) / 10 * 10)) s"
	else
		echo "about $((($1 + 30) / 60)) minutes"
	fi
}

# progress reads the output of go build -v: a line for each package when it begins, and errors, which contain spaces.
progress() { # PACKAGES
	local total=$1 count=0 last=0 left line
	while IFS= read -r line; do
		case $line in
		*[[:space:]]*) printf '%s\n' "$line" >&2 && continue ;;
		*/hack/localcluster) echo "  linking after $SECONDS s: $(minutes $link_s) left" && continue ;;
		esac
		count=$((count + 1))
		((SECONDS - last >= 15 && count < total)) || continue
		last=$SECONDS
		left=$(((SECONDS * 1000 + known * package_ms) * (total - count) / (count + known) / 1000 + link_s))
		echo "  compiled $count of $total packages after $SECONDS s: $(minutes $left) left"
	done
}

if is_current; then
	exit
fi
rm -f "$stamp"
before=$(inputs) # Before the build, so that files that are edited during the build are built the next time.
echo "Building bin/localcluster. Missing modules are downloaded first."
total=$(go list -deps -f '{{if and .DepOnly .Stale}}{{.ImportPath}}{{end}}' . | awk 'NF { n++ } END { print n + 0 }')
SECONDS=0
if ((total == 0)); then
	echo "Only the program itself has to be compiled and linked: $(minutes $link_s)."
else
	echo "$total packages of Kubernetes and Go have to be compiled: $(minutes $((total * package_ms / 1000 + link_s)))" \
		"where $cores cores have nothing else to do."
fi
# Without -buildvcs=false the binary would contain the commit, and each commit would link it again.
go build -v -buildvcs=false -ldflags "$flags" -o "$binary" . 2>&1 | progress "$total"
(echo "$before" && ls -ln "$binary") >"$stamp"
echo "  built after $SECONDS s"
