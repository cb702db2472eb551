#!/usr/bin/env bash
# `make smoke`: installs the controller in a new kind cluster, with the image and the manifests that others get, and
# tries it there: on real nodes, with a kubelet and containerd. The end-to-end tests do more, and need no Docker; this
# shows that nothing in them depends on the local control plane. It needs kind, kubectl and Docker (or podman), and is
# not a part of the continuous integration.
#
# The cluster is called foo-smoke. It is deleted at the end, unless KEEP=1.
set -o errexit -o nounset -o pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly name=foo-smoke system=foo-system namespace=smoke
for tool in kind kubectl make go git; do
	command -v "$tool" >/dev/null && continue
	echo "smoke: $tool is missing. \`make cluster\` and \`make image deploy\` do the same without kind and Docker." >&2
	exit 1
done
case $(uname -m) in
x86_64 | amd64) arch=amd64 ;;
aarch64 | arm64) arch=arm64 ;;
*) echo "smoke: there is no image for $(uname -m)" >&2 && exit 1 ;;
esac
readonly arch
if kind get clusters 2>/dev/null | grep -qx "$name"; then
	echo "smoke: a cluster $name exists already. Delete it first: kind delete cluster --name $name" >&2
	exit 1
fi

work=$(mktemp -d)
readonly work
export KUBECONFIG=$work/kubeconfig # Never ~/.kube/config.

step() { printf '\n==> %s\n' "$*"; }

clean_up() {
	local status=$?
	set +o errexit
	if ((status)); then
		step "Failed. The pods, the latest events and the log of the controller"
		kubectl get pods -n "$system" -o wide
		kubectl get events -n "$system" --sort-by=.lastTimestamp | tail -n 20
		kubectl logs -n "$system" -l app.kubernetes.io/name=foo-controller --tail=20 --prefix
	fi
	if [[ -n ${KEEP:-} ]]; then
		echo "The cluster is kept: export KUBECONFIG=$KUBECONFIG; kind delete cluster --name $name"
	else
		kind delete cluster --name "$name"
		rm -rf "$work"
	fi
	exit "$status"
}

fail() { # MESSAGE
	echo "smoke: $1" >&2
	exit 1
}

# eventually WHAT COMMAND...: repeats COMMAND until it succeeds, for a minute.
eventually() {
	local what=$1 end=$((SECONDS + 60))
	shift
	until "$@" >/dev/null 2>&1; do
		((SECONDS < end)) || fail "a minute is over, and this is not true: $what"
		sleep 1
	done
	echo "ok: $what"
}

replicas_are() { [[ $(kubectl get "$1" -n "$namespace" -o "jsonpath={.spec.replicas}") == "$2" ]]; }
is_gone() { ! kubectl get "$1" -n "$namespace"; }
leader() { kubectl get lease foo-controller -n "$system" -o "jsonpath={.spec.holderIdentity}" | cut -d _ -f 1; }
leader_is_not() { local now && now=$(leader) && [[ -n $now && $now != "$1" ]]; }
reason_is() { # FOO REASON
	local have
	have=$(kubectl get foo "$1" -n "$namespace" -o "jsonpath={.status.conditions[?(@.type=='Ready')].reason}")
	[[ $have == "$2" ]]
}

foo() { # NAME DEPLOYMENT REPLICAS
	kubectl apply -n "$namespace" -f - <<-EOT
		apiVersion: samplecontroller.k8s.io/v1alpha1
		kind: Foo
		metadata: {name: $1}
		spec: {deploymentName: $2, replicas: $3, image: "registry.k8s.io/pause:3.10"}
	EOT
}

trap clean_up EXIT
step "Building the image"
make image
step "Creating the kind cluster $name"
kind create cluster --name "$name" --kubeconfig "$KUBECONFIG" --wait 120s
kind load image-archive "bin/image/foo-controller-linux-$arch.tar" --name "$name"
step "make deploy"
make deploy KUBECONFIG="$KUBECONFIG"

step "Trying it"
kubectl create namespace "$namespace"
foo web web 2
kubectl wait --for=condition=Ready foo/web -n "$namespace" --timeout=120s
kubectl scale deployment/web --replicas=5 -n "$namespace"
eventually "a change of the Deployment is corrected" replicas_are deployment/web 2
kubectl patch foo web -n "$namespace" --type=merge -p '{"spec":{"deploymentName":"moved"}}'
eventually "the Foo has moved to another name" is_gone deployment/web
kubectl wait --for=condition=Ready foo/web -n "$namespace" --timeout=120s
kubectl create deployment foreign --image=registry.k8s.io/pause:3.10 -n "$namespace"
foo other foreign 3
eventually "a Deployment of somebody else is reported" reason_is other NotOwned
before=$(leader)
kubectl delete pod "$before" -n "$system"
eventually "the standby has taken over" leader_is_not "$before"
kubectl rollout status deployment/foo-controller -n "$system" --timeout=120s
kubectl delete foo web -n "$namespace"
eventually "the Deployment of a deleted Foo is deleted" is_gone deployment/moved
step "make undeploy"
make undeploy KUBECONFIG="$KUBECONFIG"
kubectl get foo other -n "$namespace" >/dev/null || fail "undeploy has deleted a Foo"
step "All of this worked"
