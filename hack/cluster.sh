#!/usr/bin/env bash
# `make cluster`: a local Kubernetes in .cluster with real nodes, which run containers, for `make image deploy` in another
# terminal. NODES is their number. REGISTRY_PORT is the port of a registry on loopback, from which they pull images.
# Ctrl-C stops everything and removes .cluster.
#
# `hack/cluster.sh check` only checks whether this machine can have such nodes. With CLUSTER_UNTIL_READY=1 the script
# ends as soon as the cluster is ready, for scripts.
set -o errexit -o nounset -o pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source hack/local.sh

# The nodes do not reach the internet. This is the image of the examples.
readonly nodes=${NODES:-1} image=docker.io/library/nginx:1.29
if ((EUID)); then root=(sudo -n); fi
if [[ $(uname) != Linux ]] || ! "${root[@]}" true 2>/dev/null; then
	echo "cluster: nodes that run pods need Linux and root: type \`sudo -v\`, and \`make cluster\` again." \
		"Without root, \`make run\` runs the controller as a process." >&2
	exit 1
fi
[[ ${1-} != check ]] || exit 0

take_directory
stop_at_end "the nodes with their pods, then the control plane"
start_cluster "etcd, API server, controllers, scheduler and $nodes nodes" \
	--nodes="$nodes" --node-programs="$PWD/bin/node" --registry-port="${REGISTRY_PORT:-0}"
kubectl get nodes
bin/localcluster load pause "$image" --dir "$dir"
echo "The nodes pull nothing from the internet: here, $image is an image that only waits."
echo "To give them another image: bin/localcluster load --help"

step "In another terminal, in this directory, install the controller and talk to the cluster like this:"
echo "  make image deploy"
print_usage "get pods -n foo-system"
step "Ctrl-C stops everything and removes $dir"
[[ -z ${CLUSTER_UNTIL_READY:-} ]] || exit 0

while sleep 0.5; do
	alive "$cluster" || fail "The cluster ended" "$dir/cluster.log"
done
