#!/usr/bin/env bash
# hack/deploy.sh deploy|undeploy|manifests, for `make deploy`, `make undeploy` and `make manifests`.
#
# IMAGE is the image of the controller. KUBECONFIG is the cluster: without it, that of `make cluster`, never that of
# ~/.kube/config, so that nobody installs a test version in a real cluster. TIMEOUT is how long to wait for pods.
set -o errexit -o nounset -o pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
readonly command=${1-} image=${IMAGE:-foo-controller:latest} timeout=${TIMEOUT:-180s} namespace=foo-system
readonly here=${CLUSTER_DIR:-.cluster}/kubeconfig deployment=deployment/foo-controller
readonly kubeconfig=${KUBECONFIG:-$here}

step() { printf '\n==> %s\n' "$*"; }
fail() { printf 'deploy: %s\n' "$@" >&2; exit 1; } # LINES...
hint() { [[ $kubeconfig -ef $here ]] && echo "  make kubectl ARGS=\"$*\"" || echo "  kubectl --kubeconfig=$kubeconfig $*"; }

# The bundled kubectl wants the directory of a local cluster. --kubeconfig has precedence over the empty file in it.
# kustomize reads only relative paths, so the directory is in the repository.
work=$(mktemp -d bin/deploy.XXXXXX)
trap 'rm -rf "$work"' EXIT
touch "$work/kubeconfig"
kubectl() { bin/localcluster kubectl --dir "$work" -- --kubeconfig="$kubeconfig" "$@"; }

customize() { # CONTROLLER: makes $work its kustomization, with the image and the CustomResourceDefinition.
	cat >"$work/kustomization.yaml" <<-EOT
		resources: [../../artifacts/crd, ../../$1]
		patches:
		- target: {kind: Deployment, name: foo-controller}
		  patch: '[{"op": "replace", "path": "/spec/template/spec/containers/0/image", "value": "$image"}]'
	EOT
}

# check_cluster fails if the controller cannot be in the cluster. It sets runner to a node that runs pods, if one does.
check_cluster() {
	local version owner
	[[ -f $kubeconfig || -n ${KUBECONFIG-} ]] || fail "There is no local cluster. In another terminal: make cluster" \
		"Or give another cluster: make $command KUBECONFIG=\$HOME/.kube/config"
	[[ -f $kubeconfig ]] || fail "KUBECONFIG=$kubeconfig is not a file. Give one file." \
		"If it was that of a cluster that has stopped: unset KUBECONFIG"
	version=$(kubectl get --raw /version --request-timeout=15s 2>&1) ||
		fail "The cluster in $kubeconfig does not answer: ${version##*$'\n'}" "Does it run? Are the credentials valid?"
	[[ $version =~ \"minor\":\ *\"([0-9]+) ]] && ((BASH_REMATCH[1] >= 32)) ||
		fail "Kubernetes 1.32 or newer is needed, for the CustomResourceDefinition. This is 1.${BASH_REMATCH[1]-?}."
	runner=$(kubectl get nodes -l foo-controller.example/pods=run -o name)
	[[ -n $runner || ! $kubeconfig -ef $here ]] || fail "The pods of this cluster are simulated." \
		"Stop make run with Ctrl-C, and start a cluster that runs the controller's pods: make cluster"
	owner=$(kubectl get clusterrolebinding foo-controller --ignore-not-found -o jsonpath='{.subjects[*].namespace}')
	[[ ${owner:-$namespace} == "$namespace" ]] || fail "The cluster has a controller in another namespace: $owner" \
		"make $command is only for $namespace. Apply or delete the kustomization of that installation."
}

deploy() {
	step "Installing $image in the cluster in $kubeconfig"
	check_cluster
	if [[ -n $runner ]]; then customize hack/cluster/deploy-local; else customize artifacts/deploy; fi
	kubectl apply --server-side --force-conflicts --field-manager=foo-controller-deploy -k "$work"
	kubectl rollout status "$deployment" -n "$namespace" --timeout="$timeout" && step "It runs. Now create a Foo:" &&
		hint apply -f artifacts/examples/example-foo.yaml && return
	step "The pods, the latest events, and the log of the controller"
	kubectl get pods -n "$namespace" -o wide || true
	kubectl get events -n "$namespace" --sort-by=.lastTimestamp | tail -n 10 || true
	kubectl logs "$deployment" -n "$namespace" --tail=20 || true
	fail "The controller does not run yet. The cluster continues to try. Frequent causes:" \
		"- ErrImagePull, ErrImageNeverPull: the nodes do not have the image $image. Load it (docs/image.md), or" \
		"  give one that is in a registry: make deploy IMAGE=registry.example/me/foo-controller:v1.2.3" \
		"- Pending: no node has room. Running, but not ready: its log has what is missing, and what to do"
}

undeploy() {
	local kinds others
	step "Removing the controller from the cluster in $kubeconfig"
	check_cluster
	kubectl delete "$deployment" -n "$namespace" --ignore-not-found --cascade=foreground --timeout="$timeout" ||
		{ kubectl get pods -n "$namespace" -o wide && echo "These do not stop. Is a node gone? kubectl delete node NAME"; }
	kubectl delete -k artifacts/deploy -l '!pod-security.kubernetes.io/enforce' --ignore-not-found # Not the Namespace.
	kubectl delete lease foo-controller -n "$namespace" --ignore-not-found
	# A namespace is deleted with everything in it, so it is kept if it has something that somebody else put there: that
	# Kubernetes does not put in each namespace, and does not delete with its owner.
	kinds=$(kubectl api-resources --namespaced --verbs=list,delete -o name |
		grep -vxE 'endpoints|events(\.events\.k8s\.io)?' | paste -sd,) &&
		others=$(kubectl get "$kinds" -n "$namespace" -o go-template='{{range .items}}{{$o := printf "%s/%s" .kind
			.metadata.name}}{{if not (or .metadata.ownerReferences (eq $o "ConfigMap/kube-root-ca.crt"
			"ServiceAccount/default"))}} {{$o}}{{end}}{{end}}') || others=" not all kinds of objects can be listed"
	[[ -z $others ]] || echo "The namespace $namespace is kept, because of what else is in it:$others"
	[[ -n $others ]] || kubectl delete namespace "$namespace" --ignore-not-found --timeout="$timeout" ||
		echo "It will be gone when its last pod is."
	step "The controller is removed. The CustomResourceDefinition, all Foos and their Deployments are kept."
	echo "This deletes all Foos, their Deployments and pods:" && hint delete -k artifacts/crd
}

manifests() {
	local all
	customize artifacts/deploy
	all=$(kubectl kustomize "$work")
	printf '%s\n' "# Do not delete this file as a whole: without the CustomResourceDefinition, all Foos are gone." \
		"$all" >bin/install.yaml
	echo "Wrote bin/install.yaml, with the image $image. Apply it with: kubectl apply --server-side -f bin/install.yaml"
}

[[ $command =~ ^(deploy|undeploy|manifests)$ ]] || { echo "usage: $0 deploy|undeploy|manifests" >&2 && exit 2; }
"$command"
