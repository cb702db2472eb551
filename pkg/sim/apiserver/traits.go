package apiserver

import (
	"reflect"
	"strings"

	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// traits are the ways in which a real server treats kinds differently, apart from what a Kind contains.
type traits struct {
	custom         bool // A custom resource.
	createOnUpdate bool // An update creates the object if it does not exist.
	requireVersion bool // An update must have a resourceVersion.
	orphans        bool // A deletion without a policy orphans the dependents.
	noPropagation  bool // The server ignores the policies of deletions.
	generations    bool // The objects have generations.
}

// traitsOf returns the traits of a kind.
func traitsOf(k Kind) traits {
	if !builtIn(k) {
		return traits{custom: true, requireVersion: true, generations: true}
	}
	of := k.Resource.GroupResource()
	return traits{
		createOnUpdate: createdOnUpdate[of], requireVersion: versioned[of], orphans: orphaning[k.Resource],
		noPropagation: of.Resource == "events", generations: k.NewGeneration != nil || generated[of],
	}
}

// builtIn reports whether the Go type of a kind comes with Kubernetes.
func builtIn(k Kind) bool {
	t := reflect.TypeOf(k.Object)
	if t.Kind() != reflect.Pointer {
		return false
	}
	path := t.Elem().PkgPath()
	return strings.HasPrefix(path, "k8s.io/api/") || strings.HasPrefix(path, "k8s.io/apiextensions-apiserver/") ||
		strings.HasPrefix(path, "k8s.io/kube-aggregator/")
}

// nameRule returns the rule for the names of a kind.
func nameRule(k Kind) validation.ValidateNameFunc {
	of := k.Resource.GroupResource()
	switch {
	case !builtIn(k):
	case of.Group == "rbac.authorization.k8s.io":
		return pathSegment
	case labelNames[of]:
		return validation.NameIsDNSLabel
	}
	return validation.NameIsDNSSubdomain
}

// The exceptions among the kinds of the stable groups of Kubernetes 1.37, from the strategies in its pkg/registry.
var (
	createdOnUpdate = resourcesOf(
		"endpoints", "events", "limitranges", "services",
		"events.events.k8s.io",
		"leasecandidates.coordination.k8s.io", "leases.coordination.k8s.io",
		"runtimeclasses.node.k8s.io",
		"clusterrolebindings.rbac.authorization.k8s.io", "clusterroles.rbac.authorization.k8s.io",
		"rolebindings.rbac.authorization.k8s.io", "roles.rbac.authorization.k8s.io",
	)
	versioned = resourcesOf(
		"leasecandidates.coordination.k8s.io", "leases.coordination.k8s.io",
		"mutatingadmissionpolicies.admissionregistration.k8s.io",
		"mutatingadmissionpolicybindings.admissionregistration.k8s.io",
		"mutatingwebhookconfigurations.admissionregistration.k8s.io",
		"validatingadmissionpolicies.admissionregistration.k8s.io",
		"validatingadmissionpolicybindings.admissionregistration.k8s.io",
		"validatingwebhookconfigurations.admissionregistration.k8s.io",
		"poddisruptionbudgets.policy",
		"runtimeclasses.node.k8s.io",
		"csidrivers.storage.k8s.io", "csinodes.storage.k8s.io", "csistoragecapacities.storage.k8s.io",
		"volumeattachments.storage.k8s.io",
	)
	generated = resourcesOf(
		"pods", "podtemplates", "replicationcontrollers",
		"mutatingadmissionpolicies.admissionregistration.k8s.io",
		"mutatingadmissionpolicybindings.admissionregistration.k8s.io",
		"mutatingwebhookconfigurations.admissionregistration.k8s.io",
		"validatingadmissionpolicies.admissionregistration.k8s.io",
		"validatingadmissionpolicybindings.admissionregistration.k8s.io",
		"validatingwebhookconfigurations.admissionregistration.k8s.io",
		"daemonsets.apps", "deployments.apps", "replicasets.apps", "statefulsets.apps",
		"horizontalpodautoscalers.autoscaling",
		"cronjobs.batch", "jobs.batch",
		"endpointslices.discovery.k8s.io",
		"flowschemas.flowcontrol.apiserver.k8s.io", "prioritylevelconfigurations.flowcontrol.apiserver.k8s.io",
		"ingressclasses.networking.k8s.io", "ingresses.networking.k8s.io", "networkpolicies.networking.k8s.io",
		"poddisruptionbudgets.policy",
		"deviceclasses.resource.k8s.io", "devicetaintrules.resource.k8s.io", "resourceslices.resource.k8s.io",
		"priorityclasses.scheduling.k8s.io",
	)
	// labelNames are the kinds whose names have no dots.
	labelNames = resourcesOf("namespaces", "services", "statefulsets.apps")
	// orphaning are the kinds whose dependents stay when a deletion has no policy.
	orphaning = map[schema.GroupVersionResource]bool{
		{Group: "batch", Version: "v1", Resource: "jobs"}:              true,
		{Group: "batch", Version: "v1beta1", Resource: "cronjobs"}:     true,
		{Group: "", Version: "v1", Resource: "replicationcontrollers"}: true,
	}
)

func resourcesOf(names ...string) map[schema.GroupResource]bool {
	set := map[schema.GroupResource]bool{}
	for _, name := range names {
		set[schema.ParseGroupResource(name)] = true
	}
	return set
}
