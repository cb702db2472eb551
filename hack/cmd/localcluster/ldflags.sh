#!/bin/sh
# [VERSION] prints the linker flags that set the version, by default that of bin/localcluster:
#
#   go build -C hack/cmd/localcluster -ldflags "$(hack/cmd/localcluster/ldflags.sh)" -o ../../../bin/localcluster .
#
# Kubernetes' own build sets these. Without them the API server reports v0.0.0-master, and kubectl
# cannot check its version. The same input gives the same flags: no dates, no host.
set -eu

cd "$(dirname "$0")"
version=${1:-$(awk '$1 == "k8s.io/kubernetes" { print $2; exit }' go.mod)}
case $version in
v[0-9]*.[0-9]*.[0-9]*) ;;
*)
	echo "ldflags.sh: no version of Kubernetes: $version" >&2
	exit 1
	;;
esac
major=${version#v}
minor=${major#*.}

flags=
for package in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
	flags="$flags -X $package.gitVersion=$version"
	flags="$flags -X $package.gitMajor=${major%%.*}"
	flags="$flags -X $package.gitMinor=${minor%%.*}"
	# A module has no commit. Kubernetes' scripts use "archive" for a tree without git.
	flags="$flags -X $package.gitCommit=unknown"
	flags="$flags -X $package.gitTreeState=archive"
	flags="$flags -X $package.buildDate=1970-01-01T00:00:00Z"
done
echo "${flags# }"
