#!/usr/bin/env bash
# `make deploy`, `make undeploy` and `make manifests`.
#
#   hack/deploy.sh deploy     installs the CustomResourceDefinition and the controller, and waits until it runs
#   hack/deploy.sh undeploy   removes the controller; keeps the CustomResourceDefinition and the Foos
#   hack/deploy.sh manifests  writes OUTPUT, bin/install.yaml if it is not set, with everything that deploy applies
#
# IMAGE is the image of the controller. KUBECONFIG is the cluster, and .cluster/kubeconfig if it is not set: the cluster
# of `make cluster`. ~/.kube/config is never used by itself, so that nobody installs a test version in a real cluster.
# TIMEOUT is how long deploy and undeploy wait for the pods, 180s if it is not set.
set -o errexit -o nounset -o pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly local_kubeconfig=.cluster/kubeconfig namespace=foo-system deployment=deployment/foo-controller
kubeconfig=${KUBECONFIG:-$local_kubeconfig}
readonly kubeconfig image=${IMAGE:-foo-controller:latest} installed=${OUTPUT:-bin/install.yaml} timeout=${TIMEOUT:-180s}

step() { printf '\n==> %s\n' "$*"; }

fail() { # LINES...
	printf '\n' >&2
	printf 'deploy: %s\n' "$@" >&2
	exit 1
}

# The bundled kubectl wants the directory of a local cluster. --kubeconfig has precedence over the empty file in it.
# kustomize reads only relative paths, so the directory is in the repository.
mkdir -p bin
work=$(mktemp -d bin/deploy.XXXXXX)
readonly work
trap 'rm -rf "$work"' EXIT
touch "$work/kubeconfig"
kubectl() { bin/localcluster kubectl --dir "$work" -- --kubeconfig="$kubeconfig" "$@"; }

# kustomization FOLDER BASE...: writes a kustomization of BASES with the image.
kustomization() {
	local folder=$work/$1 base
	shift
	mkdir -p "$folder"
	{
		printf 'apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources:\n'
		for base in "$@"; do printf -- '- ../../../%s\n' "$base"; done
		printf 'images:\n- name: foo-controller\n  newName: %s\n' "$(image_name)"
		case $image in
		*@*) printf '  digest: %s\n' "${image#*@}" ;;
		*) printf '  newTag: "%s"\n' "$(image_tag)" ;;
		esac
	} >"$folder/kustomization.yaml"
}

image_name() {
	local name=${image%@*}
	[[ ${name##*/} != *:* ]] || name=${name%:*} # A colon before the last slash is that of a port.
	echo "$name"
}

image_tag() {
	local last=${image##*/}
	[[ $last == *:* ]] && echo "${last##*:}" || echo latest
}

# check_cluster: the cluster answers.
check_cluster() {
	local error=$work/error
	if [[ ! -f $kubeconfig ]]; then
		[[ $kubeconfig == "$local_kubeconfig" ]] || fail "KUBECONFIG=$kubeconfig is not a file. Give one file." \
			"If it was that of a cluster that has stopped: unset KUBECONFIG"
		fail "There is no local cluster. Start one in another terminal: make cluster" \
			"Or give another cluster: make $command KUBECONFIG=\$HOME/.kube/config"
	fi
	kubectl get --raw /readyz --request-timeout=15s >/dev/null 2>"$error" ||
		fail "The cluster in $kubeconfig does not answer:" "$(tail -n 1 "$error")" \
			"Check that it runs, and that the credentials are valid: kubectl --kubeconfig=$kubeconfig version"
}

# check_version: older API servers do not accept the rules of the CustomResourceDefinition.
check_version() {
	local minor
	minor=$(kubectl get --raw /version | sed -n 's/.*"minor": *"\([0-9]*\).*/\1/p')
	((${minor:-0} >= 32)) || fail "Kubernetes 1.32 or newer is needed:" "$(kubectl version 2>&1 | tail -n 1)"
}

# check_owner: no installation in another namespace has the objects that are not in a namespace.
check_owner() {
	local namespaces
	namespaces=$(kubectl get clusterrolebinding foo-controller --ignore-not-found \
		--output=jsonpath='{range .subjects[*]}{.namespace}{"\n"}{end}')
	[[ -z $namespaces || $namespaces == "$namespace" ]] ||
		fail "The permissions and policies in this cluster are those of a controller in another namespace:" $namespaces \
			"make $command is only for the namespace $namespace. Apply or delete the kustomization of that installation." \
			"Its permissions: kubectl get clusterrolebinding foo-controller -o yaml"
}

# check_crd: no CustomResourceDefinition that is about to disappear with all Foos.
check_crd() {
	local deleted
	deleted=$(kubectl get crd foos.samplecontroller.k8s.io --ignore-not-found \
		--output=jsonpath='{.metadata.deletionTimestamp}')
	[[ -z $deleted ]] || fail "The CustomResourceDefinition is being deleted since $deleted, and all Foos with it." \
		"Wait until it is gone: kubectl wait --for=delete crd/foos.samplecontroller.k8s.io"
}

# base prints the kustomization of the controller. In a cluster with the pod runner, its pods have to run there, because
# the other nodes of a local cluster are simulated.
base() {
	if [[ -n $(kubectl get nodes -l foo-controller.example/pods=run -o name) ]]; then
		echo hack/cluster/deploy-local
	else
		echo artifacts/deploy
	fi
}

apply() { kubectl apply --server-side --force-conflicts --field-manager=foo-controller-deploy "$@"; }

deploy() {
	step "Deploying $image to the cluster in $kubeconfig"
	check_cluster
	check_version
	check_owner
	check_crd
	step "Installing the CustomResourceDefinition"
	apply -k artifacts/crd
	kubectl wait --for=condition=Established crd/foos.samplecontroller.k8s.io --timeout=60s
	step "Installing the controller in the namespace $namespace"
	kustomization controller "$(base)"
	apply -k "$work/controller"
	step "Waiting until the controller runs"
	kubectl rollout status "$deployment" -n "$namespace" --timeout="$timeout" || explain
	step "The controller runs. Look at it, and create a Foo:"
	echo "  $(k) get pods -n $namespace"
	echo "  $(k) apply -f artifacts/examples/example-foo.yaml"
	echo "  $(k) get foos --watch"
}

# k prints the kubectl command for a person.
k() {
	if [[ $kubeconfig == "$local_kubeconfig" ]]; then
		echo "bin/localcluster kubectl --dir .cluster --"
	else
		echo "kubectl --kubeconfig=$kubeconfig"
	fi
}

# explain prints why the controller does not run, and ends the script.
explain() {
	step "The pods, and the latest events"
	kubectl get pods -n "$namespace" -o wide || true
	kubectl get events -n "$namespace" --sort-by=.lastTimestamp | tail -n 10 || true
	step "The log of the controller"
	kubectl logs "$deployment" -n "$namespace" --tail=20 || true
	fail "The controller does not run yet. Frequent causes:" \
		"- ErrImagePull, ErrImageNeverPull: the nodes do not have the image $image. Load it (docs/image.md), or" \
		"  give one that is in a registry: make deploy IMAGE=registry.example/me/foo-controller:v1.2.3" \
		"- Pending: no node has room; the events have the reason" \
		"- Running, but not ready: its log has what is missing, and what to do" \
		"The cluster continues to try. When the cause is removed: $(k) rollout status $deployment -n $namespace"
}

undeploy() {
	step "Removing the controller from the cluster in $kubeconfig"
	check_cluster
	check_owner
	step "Stopping it: it finishes its syncs and releases the Lease"
	kubectl delete "$deployment" -n "$namespace" --ignore-not-found --cascade=foreground --timeout="$timeout" ||
		report_pods
	step "Removing its permissions, its admission policies and the rest"
	kustomization controller artifacts/deploy
	cat >>"$work/controller/kustomization.yaml" <<-EOT
		patches:
		- patch: '{apiVersion: v1, kind: Namespace, metadata: {name: $namespace}, \$patch: delete}'
	EOT
	kubectl delete -k "$work/controller" --ignore-not-found
	kubectl delete lease foo-controller -n "$namespace" --ignore-not-found
	remove_namespace
	report_kept
}

# report_pods prints which pods do not stop. Without permissions they do no harm, so undeploy continues.
report_pods() {
	kubectl get pods -n "$namespace" -o wide
	echo "These pods do not stop. If their node is gone for good: $(k) delete node NAME"
}

# remove_namespace deletes the namespace, unless it has what somebody else has put there: a namespace is deleted with
# everything in it.
remove_namespace() {
	local others
	if ! others=$(others_in_namespace); then
		echo "The namespace $namespace is kept, because not all kinds of objects can be listed."
	elif [[ -n $others ]]; then
		echo "The namespace $namespace is kept, because it is not empty:" $others
	else
		kubectl delete namespace "$namespace" --ignore-not-found --timeout="$timeout" ||
			echo "The namespace $namespace will be gone when its last pod is."
	fi
}

# others_in_namespace prints the objects that are still there, except what Kubernetes itself puts in each namespace, and
# what is deleted with its owner.
others_in_namespace() {
	local kinds names
	kinds=$(kubectl api-resources --namespaced --verbs=list,delete --output=name) || return 1
	kinds=$(grep -vxE 'endpoints|events(\.events\.k8s\.io)?' <<<"$kinds" | paste -sd,)
	names=$(kubectl get "$kinds" -n "$namespace" --output=go-template='{{range .items}}{{if not .metadata.ownerReferences}}{{
		.kind}}/{{.metadata.name}}{{"\n"}}{{end}}{{end}}') || return 1
	grep -vxE 'ConfigMap/kube-root-ca.crt|ServiceAccount/default' <<<"$names" || true
}

report_kept() {
	local foos
	foos=$(kubectl get foos --all-namespaces -o name | wc -l) || foos="their number is not known"
	step "The controller is removed. The CustomResourceDefinition, all Foos ($foos) and their Deployments are kept"
	cat <<-EOT
		Pods continue to run, but nobody corrects Deployments and reports on Foos. After the next 'make deploy', the
		controller continues with the same Foos.

		To delete the CustomResourceDefinition too:
		  $(k) delete -k artifacts/crd
		That deletes all Foos of the cluster, and with them their Deployments and pods.
	EOT
}

manifests() {
	kustomization all artifacts/crd artifacts/deploy
	{
		echo "# The CustomResourceDefinition of Foos, and foo-controller with the image $image."
		echo "# \`make manifests\` has made this file. Apply it with: kubectl apply --server-side -f install.yaml"
		echo "# Do not delete it as a whole: without the CustomResourceDefinition, all Foos and their Deployments are gone."
		kubectl kustomize "$work/all"
	} >"$work/install.yaml"
	mv "$work/install.yaml" "$installed"
	echo "Wrote $installed, with the image $image. Apply it with: kubectl apply --server-side -f $installed"
}

readonly command=${1-}
case $command in
deploy | undeploy | manifests) "$command" ;;
*)
	echo "usage: hack/deploy.sh deploy|undeploy|manifests" >&2
	exit 2
	;;
esac
