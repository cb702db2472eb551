#!/usr/bin/env bash
# hack/build.sh NAME... builds the binaries bin/NAME. The first build downloads the modules and compiles Kubernetes, so
# the script prints the progress and estimates the remaining time. Nearly all binaries have the same build flags, so that
# what they share is compiled once. VERSION is the version that the controller reports.
set -o errexit -o nounset -o pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
root=$PWD
cores=$(getconf _NPROCESSORS_ONLN)
mkdir -p bin

# Compiler and linker are short-lived programs. Less frequent garbage collection saves about an eighth of the processor
# time, and needs up to 50 % more memory in the largest packages. The result is the same, byte for byte.
export GOGC=${GOGC:-400}

# The time of one package on one core, and of the linker, on the machine of docs/decisions/0002-local-control-plane.md. A
# build starts with these figures and then measures its own. The first packages are smaller than the others, so these
# figures count until 400 packages are compiled.
readonly package_ms=$((240 / cores)) link_s=15 known=400

# describe sets the directory of the module, the packages, the flags and the file of a binary. Without -buildvcs=false
# the binary would contain the commit, and each commit would link it again.
describe() { # NAME
	local version=(-ldflags "-X main.buildVersion=${VERSION:-unknown}")
	dir=. packages=(.) output=$root/bin/$1 flags=(-buildvcs=false) race=()
	case $1 in
	foo-controller) flags+=("${version[@]}") ;;
	foo-controller-race) race=(-race) flags+=("${version[@]}") ;;
	localcluster) dir=hack/cmd/localcluster flags+=(-ldflags "-s -w $("$root/hack/cmd/localcluster/ldflags.sh")") ;;
	play) # And the controller that it is for: both are linked at once.
		packages=(. ./hack/cmd/play) output=$root/bin/ flags+=("${version[@]}")
		;;
	kubelet) # This and the next two: the programs of a real node, in bin/node.
		dir=hack/cmd/localcluster packages=(k8s.io/kubernetes/cmd/kubelet) output=$root/bin/node/
		flags+=(-ldflags "-s -w $("$root/hack/cmd/localcluster/ldflags.sh")")
		;;
	containerd)
		dir=hack/cmd/localcluster/node output=$root/bin/node/ flags+=(-ldflags "-s -w") && export CGO_ENABLED=0
		mapfile -t packages < <(go list -C "$dir" tool | grep -v /runc$ && echo ./pause)
		;;
	runc)
		pkg-config --exists libseccomp || {
			echo "build.sh: runc needs a C compiler, pkg-config and the headers of libseccomp;" \
				"on Debian: apt-get install gcc pkg-config libseccomp-dev" >&2
			exit 1
		}
		dir=hack/cmd/localcluster/node packages=(github.com/opencontainers/runc) output=$root/bin/node/
		flags+=(-tags seccomp -ldflags "-s -w")
		;;
	kubernetes-*) # The control plane of another version; hack/minors.sh writes its module.
		dir=hack/cmd/localcluster packages=(./kubernetes) output=$root/bin/minors/$1
		flags+=(-mod=mod -modfile "$root/bin/minors/${1#kubernetes-}.mod")
		flags+=(-ldflags "-s -w $("$root/hack/cmd/localcluster/ldflags.sh" "${1#kubernetes-}")")
		;;
	imagebuilder) dir=hack/release ;;
	helm) packages=(helm.sh/helm/v4/cmd/helm) flags+=(-modfile "$root/hack/tools/helm.mod" -ldflags "-s -w") ;;
	bench | bench-*) # And the controller that it measures: both as hack/release compiles the controller.
		output=$root/bin/bench/${1#bench-} flags+=(-trimpath -ldflags "-s -w ${version[1]}")
		[[ $1 != bench ]] || dir=hack/cmd/bench
		export CGO_ENABLED=0
		;;
	foo-controller-linux-* | foo-controller-darwin-*) output=$RELEASE_DIR/$1 ;; # Of hack/release; GOFLAGS has its flags.
	*) echo "build.sh: there is no binary $1" >&2 && exit 1 ;;
	esac
}

# download fetches the modules of the build, with a line for every 15 seconds.
download() {
	local line count=0 last=0
	SECONDS=0
	go list -C "$dir" -deps -f '{{if and .DepOnly .Stale}}{{.ImportPath}}{{end}}' \
		"${race[@]}" "${flags[@]}" "${packages[@]}" 2> >(
		while IFS= read -r line; do
			[[ $line == "go: downloading "* ]] || { printf '%s\n' "$line" >&2 && continue; }
			count=$((count + 1))
			((count == 1 || SECONDS - last >= 15)) || continue
			last=$SECONDS
			echo "  downloading modules, $count so far (${line#go: downloading })" >&2
		done
	)
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
		*/localcluster/child) continue ;;
		*[[:space:]]*) printf '%s\n' "$line" >&2 && continue ;;
		example.com/foo-controller | */hack/*)
			((total < 50)) || echo "  linking after $SECONDS s: $(minutes $link_s) left"
			continue
			;;
		esac
		count=$((count + 1))
		((SECONDS - last >= 15 && count < total)) || continue
		last=$SECONDS
		left=$(((SECONDS * 1000 + known * package_ms) * (total - count) / (count + known) / 1000 + link_s))
		echo "  compiled $count of $total packages after $SECONDS s: $(minutes $left) left"
	done
}

for name in "$@"; do
	(
		describe "$name"
		total=$(download | awk 'NF { n++ } END { print n + 0 }')
		SECONDS=0
		((total < 50)) || echo "Building bin/$name: $total packages have to be compiled," \
			"$(minutes $((total * package_ms / 1000 + link_s))) where $cores cores have nothing else to do."
		go build -C "$dir" -v "${race[@]}" "${flags[@]}" -o "$output" "${packages[@]}" 2>&1 | progress "$total"
		((total < 50)) || echo "  built after $SECONDS s"
	)
done
