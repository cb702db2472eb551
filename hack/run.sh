#!/usr/bin/env bash
# `make run`: a real Kubernetes control plane on loopback, in .cluster, the controller as a process of its own, an example
# Foo, and `kubectl get foos --watch`. Ctrl-C stops everything and removes .cluster.
#
# With RUN_UNTIL_READY=1 it ends as soon as the example Foo is Ready, for scripts.
set -o errexit -o nounset -o pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly example=artifacts/examples/example-foo.yaml foo=foo/example-foo
source hack/local.sh

take_directory
stop_at_end "the controller, then the control plane"
start_cluster "etcd, API server, controllers, scheduler and a simulated node"

step "Installing the CustomResourceDefinition, and the ServiceAccount and permissions of the controller"
kubectl apply -f artifacts/crd -f artifacts/deploy/rbac.yaml
kubectl wait --for=condition=Established crd/foos.samplecontroller.k8s.io

token=$(kubectl create token foo-controller --namespace=foo-system --duration=8760h) # As long as the certificates.
cp "$dir/kubeconfig" "$dir/controller.kubeconfig" # Like all files in $dir, only this user can read it.
kubectl --kubeconfig="$dir/controller.kubeconfig" config set-credentials foo-controller --token="$token" >/dev/null
kubectl --kubeconfig="$dir/controller.kubeconfig" config set-context --current --user=foo-controller >/dev/null
start_controller "$dir/controller.kubeconfig"

step "Creating a Foo from $example"
kubectl apply -f "$example"

step "In another terminal, in this directory, talk to the cluster like this (docs/try.md has more to try):"
print_usage "scale $foo --replicas=5"

step "kubectl get foos --watch"
kubectl get foos --watch 9>&- &
started+=("$!")
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
