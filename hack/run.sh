#!/usr/bin/env bash
# `make run`: a real Kubernetes control plane on loopback, the controller as a process of its own, an example Foo, and
# `kubectl get foos --watch`. Ctrl-C stops everything and removes all files.
#
# With RUN_UNTIL_READY=1 it ends as soon as the example Foo is Ready, for scripts.
set -o errexit -o nounset -o pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

dir=$(mktemp -d "${TMPDIR:-/tmp}/foo-run-XXXXXX")
readonly dir
readonly example=artifacts/examples/example-foo.yaml foo=foo/example-foo
controller='' cluster='' watch='' watchdog='' stopping=''

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
	step "Stopping: the controller, then the control plane"
	stop "$watch"
	stop "$watchdog"
	stop "$controller"
	stop "$cluster"
	rm -rf "$dir"
	echo "Nothing is left behind."
	[[ -z $stopping ]] || exit 0
	exit "$status"
}
trap clean_up EXIT
trap 'stopping=yes; exit' INT TERM

fail() { # MESSAGE LOG
	printf '%s. The end of its log:\n' "$1" >&2
	tail -n 20 "$2" >&2
	exit 1
}

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

step "Installing the CustomResourceDefinition, and the ServiceAccount and permissions of the controller"
kubectl apply -f artifacts/crd -f artifacts/deploy/rbac.yaml
kubectl wait --for=condition=Established crd/foos.samplecontroller.k8s.io

step "Starting the controller: bin/foo-controller --kubeconfig=$dir/controller.kubeconfig -v=2"
token=$(kubectl create token foo-controller --namespace=foo-system --duration=24h)
cp "$dir/kubeconfig" "$dir/controller.kubeconfig" # Like all files in $dir, only this user can read it.
kubectl --kubeconfig="$dir/controller.kubeconfig" config set-credentials foo-controller --token="$token" >/dev/null
kubectl --kubeconfig="$dir/controller.kubeconfig" config set-context --current --user=foo-controller >/dev/null
bin/foo-controller --kubeconfig="$dir/controller.kubeconfig" -v=2 >"$dir/controller.log" 2>&1 9>&- &
controller=$!
{ cat <"$dir/hold" || true; kill -TERM "$controller"; } >"$dir/watchdog.log" 2>&1 9>&- & # The controller ends with the script, too.
watchdog=$!
until grep -q '"Started"' "$dir/controller.log"; do
	alive "$controller" || fail "The controller did not start" "$dir/controller.log"
	sleep 0.1
done
echo "It logs to $dir/controller.log"

step "Creating a Foo from $example"
kubectl apply -f "$example"

step "Paste this line into another terminal, in this directory. Then k is kubectl for this cluster:"
echo "  alias k='bin/localcluster kubectl --dir $dir --'"
echo "For example: k scale $foo --replicas=5. The README has more to try"

step "kubectl get foos --watch"
kubectl get foos --watch 9>&- &
watch=$!
kubectl wait --for=condition=Ready "$foo" --timeout=120s >"$dir/wait.log" 2>&1 9>&- || fail "The example Foo did not become Ready" "$dir/controller.log"
sleep 0.5 # Lets the watch print its last line before.
available=$(kubectl get "$foo" --output=jsonpath='{.status.availableReplicas} of {.spec.replicas}')
step "$foo is Ready with $available replicas available. Changes show below; Ctrl-C stops everything"
[[ -z ${RUN_UNTIL_READY:-} ]] || exit 0

# Wait for Ctrl-C, or until one of the processes ends.
while alive "$watch"; do
	alive "$controller" || fail "The controller ended" "$dir/controller.log"
	alive "$cluster" || fail "The control plane ended" "$dir/cluster.log"
	sleep 0.5
done
fail "The watch ended" "$dir/cluster.log"
