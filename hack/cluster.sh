#!/usr/bin/env bash
# `make cluster`: a local control plane in .cluster, with a node that really runs pods, for `make image deploy` in
# another terminal. Ctrl-C stops everything and removes .cluster.
#
# The nodes of the control plane are simulated, except one: the pod runner (hack/cluster/podrunner) starts the containers of
# the pods that select its node. hack/cluster/deploy-local makes the pods of the controller do so.
#
# With CLUSTER_UNTIL_READY=1 it ends as soon as it is ready, for scripts.
set -o errexit -o nounset -o pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly layout=bin/image/layout
source hack/local.sh

if ! reason=$(bin/podrunner check 2>&1); then
	printf 'cluster: this machine cannot run pods:\n%s\n' "$reason" >&2
	echo "cluster: it needs Linux and user namespaces. \`make run\` needs neither: the controller is a process there." >&2
	exit 1
fi
take_directory
stop_at_end "the pods, then the control plane"
start_cluster

step "Starting the pod runner, the node real-node: it runs the pods of the controller"
bin/podrunner --kubeconfig "$dir/kubeconfig" --layout "$layout" --dir "$dir/podrunner" --stop-with-stdin \
	<"$dir/hold" >"$dir/podrunner.log" 2>&1 9>&- &
started+=("$!")
runner=$!
wait_for_log '^ready$' "$dir/podrunner.log" "The pod runner did not start"
kubectl get nodes
echo "It logs to $dir/podrunner.log, and the containers to files in $dir/podrunner/logs"

step "In another terminal, in this directory, install the controller and talk to the cluster like this:"
echo "  make image deploy"
print_usage "get pods -n foo-system"
step "Ctrl-C stops everything and removes $dir"
[[ -z ${CLUSTER_UNTIL_READY:-} ]] || exit 0

while sleep 0.5; do
	alive "$runner" || fail "The pod runner ended" "$dir/podrunner.log"
	alive "$cluster" || fail "The control plane ended" "$dir/cluster.log"
done
