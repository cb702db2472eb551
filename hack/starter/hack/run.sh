#!/usr/bin/env bash
# `make run`: a real Kubernetes control plane on loopback, in .cluster, the controller as a process of its own, an
# example Widget, and `kubectl get widgets --watch`. Ctrl-C stops everything and removes .cluster.
#
# With RUN_UNTIL_READY=1 it ends as soon as the example Widget is Ready, for scripts.
set -o errexit -o nounset -o pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
readonly dir=.cluster examples=artifacts/examples widget=widget/example
started=() stopping=''

kubectl() { bin/localcluster kubectl --dir "$dir" -- "$@"; }
step() { printf '\n==> %s\n' "$*"; }
alive() { kill -0 "$1" 2>/dev/null; }

fail() { # MESSAGE LOG
	printf '%s. The end of its log:\n' "$1" >&2
	tail -n 20 "$2" >&2
	exit 1
}

# clean_up stops all that has started, the latest first.
clean_up() {
	local status=$? i
	trap '' INT TERM PIPE
	set +o errexit
	step "Stopping the controller, then the control plane"
	for ((i = ${#started[@]} - 1; i >= 0; i--)); do
		((i)) && kill -TERM "${started[i]}" 2>/dev/null
		((i)) || exec 9>&- # To the control plane, a signal after Ctrl-C is the second one.
		wait "${started[i]}" 2>/dev/null
	done
	[[ -z $stopping ]] || status=0
	((status)) || rm -rf "$dir"
	((!status)) || find "$dir" -mindepth 1 ! -name '*.log' -delete 2>/dev/null # A folder with logs is not empty.
	((!status)) || echo "The logs are kept until the next start: $dir"
	exit "$status"
}

# wait_for_log waits until LOG has a line with PATTERN.
wait_for_log() { # PATTERN LOG PID MESSAGE
	until grep -qs "$1" "$2"; do
		alive "$3" || fail "$4" "$2"
		sleep 0.1
	done
}

mkdir -p "$dir"
exec 8<"$dir" # The lock is that of the directory, and ends with the last process that has inherited it.
flock --nonblock 8 || { echo "A cluster runs in $dir already: end it with Ctrl-C." >&2 && exit 1; }
find "$dir" -mindepth 1 -delete # What a killed one has left.
chmod 700 "$dir"
trap clean_up EXIT
trap 'stopping=yes; exit' INT TERM

step "Starting Kubernetes: etcd, API server, controllers, scheduler and a simulated node, all on loopback"
mkfifo "$dir/hold" # Only this script holds it open, as descriptor 9. What reads from it ends when the script does.
exec 9<>"$dir/hold"
# It prints errors to the terminal, because the disk may be full.
bin/localcluster up --dir "$dir" --stop-with-stdin <"$dir/hold" >"$dir/cluster.log" 9>&- &
cluster=$!
started+=("$cluster")
wait_for_log '^ready$' "$dir/cluster.log" "$cluster" "The control plane did not start"

step "Installing the CustomResourceDefinition, and the ServiceAccount, permissions and policies of the controller"
for file in artifacts/crd artifacts/deploy/*rbac.yaml artifacts/deploy/admission.yaml; do
	kubectl apply -f "$file"
done
kubectl wait --for=condition=Established crd --all

step "Starting the controller: bin/widget-controller --kubeconfig=$dir/controller.kubeconfig"
token=$(kubectl create token widget-controller --namespace=widget-system --duration=8760h) # As the certificates.
cp "$dir/kubeconfig" "$dir/controller.kubeconfig"
kubectl --kubeconfig="$dir/controller.kubeconfig" config set-credentials widget-controller --token="$token" >/dev/null
kubectl --kubeconfig="$dir/controller.kubeconfig" config set-context --current --user=widget-controller >/dev/null
bin/widget-controller --kubeconfig="$dir/controller.kubeconfig" -v=2 --debug-bind-address=127.0.0.1:0 >"$dir/controller.log" 2>&1 9>&- &
controller=$!
started+=("$controller")
{ cat <"$dir/hold" || true; kill -TERM "$controller"; } >"$dir/watchdog.log" 2>&1 9>&- & # It ends with the script, too.
started+=("$!")
wait_for_log '"Started"' "$dir/controller.log" "$controller" "The controller did not start"
echo "It logs to $dir/controller.log"
wait_for_log '"Serving".*endpoint="debug"' "$dir/controller.log" "$controller" "The controller did not start"
debug=$(sed -n 's/.*"Serving".*endpoint="debug".*address="\([^"]*\)".*/\1/p' "$dir/controller.log")
echo "What it does, live: http://$debug/debug/syncs"

step "Creating what is in $examples"
kubectl apply -f "$examples"

step "In another terminal, in this directory, talk to the cluster like this:"
echo "  k() { bin/localcluster kubectl --dir $dir -- \"\$@\"; }"
echo "  k scale $widget --replicas=5"

step "kubectl get widgets --watch"
kubectl get widgets --watch 9>&- &
watch=$!
started+=("$watch")
# What else is there, such as a Secret, has no conditions.
mapfile -t ours < <(kubectl get -f "$examples" -o name | grep -F .acme.example.com/)
kubectl wait --for=condition=Ready "${ours[@]}" --timeout=120s >"$dir/wait.log" 2>&1 9>&- ||
	fail "The example did not become Ready: $(<"$dir/wait.log")" "$dir/controller.log"
sleep 0.5 # Lets the watch print its last line before.
step "$widget is Ready. Changes show below; Ctrl-C stops everything"
[[ -z ${RUN_UNTIL_READY:-} ]] || exit 0

while alive "$watch"; do # Until Ctrl-C, or until one of the processes ends.
	alive "$controller" || fail "The controller ended" "$dir/controller.log"
	alive "$cluster" || fail "The control plane ended" "$dir/cluster.log"
	sleep 0.5
done
fail "The watch ended" "$dir/cluster.log"
