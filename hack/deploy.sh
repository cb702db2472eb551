#!/usr/bin/env bash
# hack/deploy.sh deploy|undeploy|manifests [KUBECONFIG], for `make deploy`, `make undeploy` and `make manifests`.
# Without KUBECONFIG, the cluster is that of `make cluster`: never that of ~/.kube/config or of the environment, so that
# nobody installs a test version in a real cluster. IMAGE is the image, and TIMEOUT is how long to wait for pods.
# For another cluster, it runs the kubectl of PATH, if there is one: then nothing has to be compiled.
set -o errexit -o nounset -o pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
readonly command=${1-} image=${IMAGE:-foo-controller:latest} timeout=${TIMEOUT:-180s} namespace=foo-system
readonly here=${CLUSTER_DIR:-.cluster}/kubeconfig deployment=deployment/foo-controller
readonly config=${2:-$here} ours=samplecontroller.k8s.io/installation=foo-controller

step() { printf '\n==> %s\n' "$*"; }
fail() { printf 'deploy: %s\n' "$@" >&2; exit 1; } # LINES...
hint() { [[ $config -ef $here ]] && echo "  make kubectl ARGS=\"$*\"" || echo "  kubectl --kubeconfig=${config@Q} $*"; }

# The bundled kubectl wants the directory of a local cluster. --kubeconfig has precedence over the empty file in it.
# kustomize reads only relative paths, so the directory is in the repository. (With -n '', no warning.) Another kubectl
# reads and writes nothing in ~/.kube.
mkdir -p bin
work=$(mktemp -d bin/deploy.XXXXXX)
trap 'rm -rf "$work"' EXIT
touch "$work/kubeconfig"
export KUBECACHEDIR=$work/kubectl-cache KUBERC=off
cli=(bin/localcluster kubectl --dir "$work" --)
[[ -z ${2-} && $command != manifests ]] || ! type -P kubectl >/dev/null || cli=("$(type -P kubectl)")
kubectl() { "${cli[@]}" --kubeconfig="$config" --namespace="$namespace" "$@"; }
customize() { # CONTROLLER: makes $work its kustomization, with the image and the CustomResourceDefinition.
	cat >"$work/kustomization.yaml" <<-EOT
		resources: [../../artifacts/crd, ../../$1]
		patches:
		- target: {kind: Deployment, name: foo-controller}
		  patch: '[{"op": "replace", "path": "/spec/template/spec/containers/0/image", "value": "$image"}]'
	EOT
}

# check_cluster fails if the controller cannot be in the cluster.
check_cluster() {
	local version owner runtimes managed
	[[ -f $config ]] || fail "There is no cluster: $config is not a file." \
		"Start one in another terminal: make cluster. Or give one: make $command KUBECONFIG=\$HOME/.kube/config"
	version=$(kubectl get --raw /version --request-timeout=15s 2>&1) ||
		fail "The cluster in $config does not answer: ${version##*$'\n'}" "Does it run? Are the credentials valid?"
	[[ $version =~ \"minor\":\ *\"([0-9]+) ]] && ((BASH_REMATCH[1] >= 32)) ||
		fail "Kubernetes 1.32 or newer is needed, for the CustomResourceDefinition. This is 1.${BASH_REMATCH[1]-?}."
	runtimes=$(kubectl get nodes -o jsonpath='{.items[*].status.nodeInfo.containerRuntimeVersion}')
	[[ ! $config -ef $here || $runtimes == *containerd* ]] || fail "The pods of this cluster are simulated." \
		"Stop make run with Ctrl-C, and start a cluster that runs the controller's pods: make cluster"
	managed=$(kubectl get "$deployment" --ignore-not-found -o jsonpath='{.metadata.labels.app\.kubernetes\.io/managed-by}')
	[[ $managed != Helm ]] || fail "The controller is a release of Helm. Use helm upgrade, or helm uninstall (docs/install.md)."
	owner=$(kubectl get clusterrolebinding foo-controller --ignore-not-found -o jsonpath='{.subjects[*].namespace}')
	[[ ${owner:-$namespace} == "$namespace" ]] || fail "The cluster has a controller in another namespace: $owner" \
		"make $command is only for $namespace. Apply the kustomization of that installation, or delete it, if it has" \
		"no CustomResourceDefinition: without that, no Foo is left."
}

# load_image gives the image of make image to the nodes of make cluster, if it is the one to install.
load_image() {
	local layout=bin/image/layout name
	name=$(sed -n 's/.*"io.containerd.image.name": *"\([^"]*\)".*/\1/p' "$layout/index.json" 2>/dev/null) || true
	[[ $config -ef $here && /$name == */$image ]] || return 0
	bin/localcluster load "$layout" "$name" --dir "$(dirname "$here")"
	echo "The nodes have the image $name, of $layout"
}

deploy() {
	local hash=pod-template-hash label=app.kubernetes.io/name=foo-controller new old pod
	local revision='.metadata.annotations.deployment\.kubernetes\.io/revision' others before
	local applied='.metadata.annotations.kubectl\.kubernetes\.io/last-applied-configuration'
	step "Installing $image in the cluster in $config"
	check_cluster
	load_image
	customize artifacts/deploy
	others=$(kubectl get deployments --all-namespaces -l "$ours" \
		-o jsonpath='{range .items[*]}{.metadata.namespace}/{.metadata.name} {end}')
	[[ ! ${others/$namespace\/foo-controller /} ]] || fail "Other installations have the label $ours: $others" \
		"Each needs its own value: make deploy removes what has this one and is not in its manifests (docs/install.md)."
	# What was applied on the server side, as this script once did, has no record of its fields on the client side. So a
	# last time, those that this version has not are removed on the server side.
	before=$(kubectl get "$deployment" --ignore-not-found -o jsonpath="{.metadata.name} {$applied}")
	[[ $before != "foo-controller " ]] ||
		kubectl apply --server-side --force-conflicts --field-manager=foo-controller-deploy -k "$work"
	# --prune removes objects of another version that this one has not. It does not work on the server side.
	kubectl apply -k "$work" --prune -l "$ours" --prune-allowlist={core/v1/{Service,ServiceAccount},apps/v1/Deployment} \
		--prune-allowlist={policy/v1/PodDisruptionBudget,networking.k8s.io/v1/NetworkPolicy} \
		--prune-allowlist=rbac.authorization.k8s.io/v1/{Role,RoleBinding,ClusterRole,ClusterRoleBinding} \
		--prune-allowlist=admissionregistration.k8s.io/v1/ValidatingAdmissionPolicy{,Binding}
	kubectl rollout status "$deployment" --timeout="$timeout" && step "It runs. Now create a Foo:" &&
		hint apply -f artifacts/examples/example-foo.yaml && return
	set +o errexit # There may be no pod, no event or no log.
	new=$hash=$(kubectl get rs -l "$label" --sort-by="$revision" -o jsonpath="{.items[-1:].metadata.labels.$hash}")
	old=$(kubectl get pods -l "$label,${new/=/!=}" 2>/dev/null | grep -cE ' ([1-9])/\1 ')
	step "The new pods, their events, and the end of their logs"
	kubectl get pods -l "$new" -o wide
	kubectl get events --sort-by=.lastTimestamp | grep -e "-${new#*=}" | tail -n 10
	for pod in $(kubectl get pods -l "$new" -o name); do kubectl logs "$pod" --tail=20; done
	fail "The new version does not run yet. Copies of the old one that serve: $old. The cluster goes on trying. Causes:" \
		"- ErrImagePull, ErrImageNeverPull: the nodes do not have the image $image: push or load it (docs/release.md)" \
		"- Pending: no node has room. Running, but not ready: its log has what is missing, and what to do"
}

undeploy() {
	local kinds others
	step "Removing the controller from the cluster in $config"
	check_cluster
	kubectl delete "$deployment" --ignore-not-found --cascade=foreground --timeout="$timeout" ||
		{ kubectl get pods -o wide && echo "These do not stop. Is a node gone? kubectl delete node NAME"; }
	kubectl delete -k artifacts/deploy -l '!pod-security.kubernetes.io/enforce' --ignore-not-found -n '' # Not the Namespace.
	kubectl delete lease foo-controller --ignore-not-found
	# A namespace is deleted with everything in it, so it is kept if it has something that somebody else put there: that
	# Kubernetes does not put in each namespace, and does not delete with its owner.
	kinds=$(kubectl api-resources --namespaced --verbs=list,delete -o name |
		grep -vxE 'endpoints|events(\.events\.k8s\.io)?' | paste -sd,) &&
		others=$(kubectl get "$kinds" -o go-template='{{range .items}}{{$o := printf "%s/%s" .kind
			.metadata.name}}{{if not (or .metadata.ownerReferences (eq $o "ConfigMap/kube-root-ca.crt"
			"ServiceAccount/default"))}} {{$o}}{{end}}{{end}}') || others=" not all kinds of objects can be listed"
	[[ -z $others ]] || echo "The namespace $namespace is kept, because of what else is in it:$others"
	[[ -n $others ]] || kubectl delete namespace "$namespace" --ignore-not-found --timeout="$timeout" -n '' ||
		echo "It will be gone when its last pod is."
	step "The controller is removed. The CustomResourceDefinition, all Foos and their Deployments are kept."
	echo "This deletes all Foos, their Deployments and pods:" && hint delete -k artifacts/crd
}

manifests() {
	customize artifacts/deploy
	kubectl kustomize "$work" |
		sed '1i# Do not delete this file as a whole: without the CustomResourceDefinition, no Foo is left.' >bin/install.yaml
	echo "Wrote bin/install.yaml, with the image $image. docs/install.md has how to apply it"
}

[[ -z ${KUBECONFIG-} || $# -gt 1 || $KUBECONFIG -ef $here || $command == manifests ]] ||
	fail "KUBECONFIG is only in the environment. For that cluster, type: make $command KUBECONFIG=${KUBECONFIG@Q}"
[[ $command =~ ^(deploy|undeploy|manifests)$ ]] || { echo "usage: $0 deploy|undeploy|manifests" >&2 && exit 2; }
"$command"
