#!/usr/bin/env bash
# `make cluster`: a local control plane in .cluster, with a node that really runs pods, for `make image deploy` in
# another terminal. Ctrl-C stops everything and removes .cluster.
#
# The nodes of the control plane are simulated, except one: the pod runner (hack/e2e/podrunner) starts the containers of
# the pods that select its node. hack/deploy-local makes the pods of the controller do so.
#
# With CLUSTER_UNTIL_READY=1 it ends as soon as it is ready, for scripts.
set -o errexit -o nounset -o pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly dir=.cluster layout=bin/image/layout
cluster='' runner='' stopping=''

kubectl() { bin/localcluster kubectl --dir "$dir" -- "$@"; }
step() { printf '\n==> %s\n' "$*"; }

# alive PID: reports whether a child process still runs.
alive() { [[ -n $1 ]] && kill -0 "$1" 2>/dev/null; }

stop() { # PID
	alive "$1" || return 0
	kill -TERM "$1" 2>/dev/null || true
	wait "$1" 2>/dev/null || true
}

clean_up() {
	local status=$?
	trap '' INT TERM PIPE # Further signals, and a closed output, must not interrupt the cleanup.
	set +o errexit
	step "Stopping: the pods, then the control plane"
	stop "$runner"
	stop "$cluster"
	rm -rf "$dir"
	echo "Nothing is left behind."
	[[ -z $stopping ]] || exit 0
	exit "$status"
}

fail() { # MESSAGE LOG
	printf '%s. The end of its log:\n' "$1" >&2
	tail -n 20 "$2" >&2
	exit 1
}

if ! reason=$(bin/podrunner check 2>&1); then
	printf 'cluster: this machine cannot run pods:\n%s\n' "$reason" >&2
	echo "cluster: it needs Linux and user namespaces. \`make run\` needs neither: the controller is a process there." >&2
	exit 1
fi
if [[ -d $dir ]] && kubectl get --raw /readyz --request-timeout=5s >/dev/null 2>&1; then
	echo "cluster: a cluster runs in $dir already. Stop it there with Ctrl-C, or use it: make image deploy" >&2
	exit 1
fi
rm -rf "$dir" # What a killed one has left.
mkdir "$dir"
trap clean_up EXIT
trap 'stopping=yes; exit' INT TERM

step "Starting Kubernetes: etcd, API server, controllers, scheduler and a simulated node, all on loopback"
# Only this script holds its standard input open, so the cluster ends when the script does.
mkfifo "$dir/hold"
exec 9<>"$dir/hold"
bin/localcluster up --dir "$dir" --stop-with-stdin <"$dir/hold" >"$dir/cluster.log" 2>&1 9>&- &
cluster=$!
until grep -qx ready "$dir/cluster.log"; do
	alive "$cluster" || fail "The control plane did not start" "$dir/cluster.log"
	sleep 0.2
done
kubectl version

step "Starting the pod runner, the node real-node: it runs the pods of the controller"
bin/podrunner --kubeconfig "$dir/kubeconfig" --layout "$layout" --dir "$dir/podrunner" --stop-with-stdin \
	<"$dir/hold" >"$dir/podrunner.log" 2>&1 9>&- &
runner=$!
until grep -qx ready "$dir/podrunner.log"; do
	alive "$runner" || fail "The pod runner did not start" "$dir/podrunner.log"
	sleep 0.1
done
kubectl wait --for=condition=Ready node/real-node --timeout=30s
kubectl get nodes
echo "It logs to $dir/podrunner.log, and the containers to files in $dir/podrunner/logs"

step "In another terminal, in this directory, install the controller and talk to the cluster like this:"
echo "  make image deploy"
echo "  export KUBECONFIG=$PWD/$dir/kubeconfig"
echo "  alias k='bin/localcluster kubectl --dir $dir --'"
echo "  k get pods -n foo-system"
step "Ctrl-C stops everything and removes $dir"
[[ -z ${CLUSTER_UNTIL_READY:-} ]] || exit 0

while sleep 0.5; do
	alive "$runner" || fail "The pod runner ended" "$dir/podrunner.log"
	alive "$cluster" || fail "The control plane ended" "$dir/cluster.log"
done
