package conformance

import "strings"

// A kind is a resource that operations use.
type kind struct {
	group, version, resource, kind string
	clusterScoped                  bool
	custom                         bool   // From a CustomResourceDefinition.
	status, scale                  bool   // Has these subresources.
	list                           string // The kind of a list, if it is not the kind and "List".
	// fresh returns a valid new object of this name, without kind and version.
	fresh func(name string) map[string]any
	// edits are the edits for objects of this kind, in addition to those for all kinds.
	edits []edit
	// fieldSelectors select an object from fresh, if it has the right name, and one with the spec selected.
	fieldSelectors []string
	selected       map[string]any
}

func (k *kind) String() string { return k.resource }

func (k *kind) apiVersion() string {
	return strings.TrimPrefix(k.group+"/"+k.version, "/")
}

// path returns the path of the objects of a namespace.
func (k *kind) path(namespace string) string {
	if k.clusterScoped {
		namespace = ""
	}
	return k.misplacedPath(namespace)
}

// misplacedPath returns the path of the objects of a namespace, even if the kind has none, or of all namespaces.
func (k *kind) misplacedPath(namespace string) string {
	path := "/apis/" + k.group
	if k.group == "" {
		path = "/api"
	}
	path += "/" + k.version
	if namespace != "" {
		path += "/namespaces/" + namespace
	}
	return path + "/" + k.resource
}

// kinds are all kinds whose objects have namespaces. The first ones are drawn more often.
var kinds = []*kind{deployments, foos, widgets, configMaps, leases}

// object returns a valid new object with kind and version.
func (k *kind) object(name string) map[string]any {
	object := k.fresh(name)
	object["apiVersion"], object["kind"] = k.apiVersion(), k.kind
	return object
}

// metadata returns the metadata of a new object. All valid label selectors of operations select its labels.
func metadata(name string) map[string]any {
	return map[string]any{"name": name, "labels": map[string]any{"app": "x", "tier": "t"}}
}

var namespaceKind = &kind{version: "v1", resource: "namespaces", kind: "Namespace", clusterScoped: true}

// The first edits of deployments are valid, the others are not.
var deployments = &kind{
	group: "apps", version: "v1", resource: "deployments", kind: "Deployment",
	status: true, scale: true,
	fresh: func(name string) map[string]any {
		return map[string]any{
			"metadata": metadata(name),
			"spec": map[string]any{
				"replicas": 1,
				"selector": map[string]any{"matchLabels": map[string]any{"app": "x"}},
				"template": map[string]any{
					"metadata": map[string]any{"labels": map[string]any{"app": "x"}},
					"spec":     map[string]any{"containers": []any{map[string]any{"name": "c", "image": "i"}}},
				},
			},
		}
	},
	edits: []edit{
		{"spec.replicas", 2},
		{"spec.replicas", 0},
		{"spec.template.spec.containers.0.image", "j"},
		{"spec.template.metadata.labels", map[string]any{"app": "x", "more": "1"}},
		{"spec.template.metadata.annotations", map[string]any{"at": "1"}},
		{"spec.replicas", nil},
		{"spec.paused", true},
		{"spec.minReadySeconds", 5},
		{"spec.strategy", map[string]any{"type": "Recreate"}},
		{"spec.strategy", map[string]any{"rollingUpdate": map[string]any{"maxSurge": 0, "maxUnavailable": "30%"}}},
		{"spec.template.spec.containers.0.ports", []any{map[string]any{"containerPort": 80}}},
		{"spec.revisionHistoryLimit", 0},
		{"spec.strategy", map[string]any{"type": "Bogus"}},
		{"spec.strategy", map[string]any{"rollingUpdate": map[string]any{"maxSurge": 0, "maxUnavailable": "0%"}}},
		{"spec.strategy", map[string]any{"rollingUpdate": map[string]any{"maxSurge": "x%", "maxUnavailable": "150%"}}},
		{"spec.strategy", map[string]any{"rollingUpdate": map[string]any{"maxSurge": -1}}},
		{"spec.revisionHistoryLimit", -1},
		{"spec.template.spec.containers", []any{
			map[string]any{"name": "c", "image": "i"}, map[string]any{"name": "c", "image": "j"},
		}},
		{"spec.replicas", -1},
		{"spec.selector", nil},
		{"spec.selector.matchLabels", map[string]any{"app": "z"}},
		{"spec.selector.matchLabels", map[string]any{}},
		{"spec.template.metadata.labels", map[string]any{"app": "z"}},
		{"spec.template.spec.containers", []any{}},
		{"spec.template.spec.containers.0.image", ""},
		{"spec.template.spec.containers.0.name", "Not A Name"},
		{"spec.template.spec.restartPolicy", "Never"},
		{"spec.minReadySeconds", -5},
		{"spec.progressDeadlineSeconds", 30},
		{"spec.replicas", "three"},
		{"spec.bogus", "b"},
		{"spec", nil},
		{"status.replicas", 7},
	},
}

// foos have no edit to an empty image, because the Go type does not distinguish it from a missing one.
var foos = &kind{
	group: "samplecontroller.k8s.io", version: "v1alpha1", resource: "foos", kind: "Foo",
	custom: true, status: true, scale: true,
	fresh: func(name string) map[string]any {
		return map[string]any{"metadata": metadata(name), "spec": map[string]any{"deploymentName": "d", "replicas": 1}}
	},
	edits: []edit{
		{"spec.replicas", 2},
		{"spec.replicas", 0},
		{"spec.image", "nginx:1"},
		{"spec.replicas", nil},
		{"spec.paused", true},
		{"spec.deploymentName", "e"},
		{"spec.deploymentName", "Not A Name"},
		{"spec.deploymentName", nil},
		{"spec.replicas", -1},
		{"spec.image", "with space"},
		{"spec", nil},
		{"spec.replicas", "three"},
		{"spec.bogus", "b"},
		{"status.replicas", 7},
	},
	fieldSelectors: []string{"spec.deploymentName=d"},
	selected:       map[string]any{"deploymentName": "d"},
}

// widgets are unstructured for the simulated server, and have a schema that allows everything.
var widgets = &kind{
	group: "conformance.example.com", version: "v1", resource: "widgets", kind: "Widget", list: "Wids",
	custom: true, status: true, scale: true,
	fresh: func(name string) map[string]any {
		return map[string]any{"metadata": metadata(name), "spec": map[string]any{"replicas": 1}}
	},
	edits: looseEdits,
}

// gadgets are the same without namespaces.
var gadgets = &kind{
	group: "example.com", version: "v1", resource: "gadgets", kind: "Gadget",
	custom: true, status: true, clusterScoped: true,
	fresh: widgets.fresh,
	edits: looseEdits,
}

// looseEdits are edits of objects without a schema. Only metadata has types.
var looseEdits = []edit{
	{"spec.replicas", 2},
	{"spec.replicas", 0},
	{"spec.replicas", nil},
	{"spec.list", []any{1, "a", nil, map[string]any{"b": 1.5}}},
	{"anything", map[string]any{"a": "b"}},
	{"spec", nil},
	{"spec", 5},
	{"spec.replicas", -1},
	{"spec.replicas", "three"},
	{"status.replicas", 7},
	{"metadata.labels.app", 5},
	{"metadata.labels", "x"},
	{"metadata.annotations", map[string]any{"a": nil}},
	{"metadata.finalizers", "x"},
	{"metadata.finalizers", []any{1}},
	{"metadata.creationTimestamp", "yesterday"},
	{"metadata.unknown", 1},
	{"metadata.ownerReferences", []any{map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "name": "a", "uid": "u", "controller": "yes", "unknown": 1,
	}}},
}

// gizmos have a schema that uses most of what schemas can have.
var gizmos = &kind{
	group: "conformance.example.com", version: "v1", resource: "gizmos", kind: "Gizmo",
	custom: true, status: true, scale: true,
	fresh: func(name string) map[string]any {
		return map[string]any{"metadata": metadata(name), "spec": map[string]any{"mode": "slow"}}
	},
	edits: []edit{
		{"spec.replicas", 2},
		{"spec.replicas", 7}, // Only if it is fast.
		{"spec.replicas", 11},
		{"spec.replicas", -1},
		{"spec.replicas", nil}, // Gets the default.
		{"spec.replicas", "three"},
		{"spec.mode", "fast"},
		{"spec.mode", "bogus"},
		{"spec.mode", nil},
		{"spec", nil},
		{"spec", 5},
		{"spec.bogus", "b"},
		{"bogus", map[string]any{"a": "b"}},
		{"spec.words", "a b"},
		{"spec.words", "Not These Words"},
		{"spec.when", "2000-01-01T00:00:00Z"},
		{"spec.when", "yesterday"},
		{"spec.ratio", 0.5},
		{"spec.ratio", 0},
		{"spec.nothing", nil},
		{"spec.amount", "5%"},
		{"spec.amount", 5},
		{"spec.amount", 0.5},
		{"spec.limits", map[string]any{"a": 1, "b": nil}},
		{"spec.limits", map[string]any{"a": 1, "b": 2, "c": 3}},
		{"spec.free", map[string]any{"a": map[string]any{"b": nil}}},
		{"spec.ports", []any{map[string]any{"name": "a"}, map[string]any{"name": "b", "port": 90, "bogus": 1}}},
		{"spec.ports", []any{map[string]any{"name": "a", "port": 8}}},
		{"spec.ports", []any{map[string]any{"name": "a"}, map[string]any{"name": "a"}}},
		{"spec.ports", []any{map[string]any{"port": 1}}},
		{"spec.tags", []any{"a", "b"}},
		{"spec.tags", []any{"a", "a"}},
		{"spec.tags", []any{"a", nil}},
		{"spec.fixed", "a"},
		{"spec.fixed", "b"},
		{"spec.begins", "a"},
		{"spec.begins", "b"},
		{"spec.choice", map[string]any{"a": "x"}},
		{"spec.choice", map[string]any{"a": "x", "b": "y"}},
		{"spec.template", map[string]any{"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": "p"}}},
		{"spec.template", map[string]any{"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"bogus": 1}}},
		{"spec.template", map[string]any{"apiVersion": "v1", "metadata": map[string]any{"labels": 5}}},
		{"status.replicas", 7},
		{"status.replicas", -1},
		{"status.replicas", "three"},
		{"status.phase", "Done"},
		{"status.phase", "New"},
		{"status.phase", nil},
		{"status.bogus", 1},
		{"status", nil},
		{"metadata.unknown", 1},
		{"metadata.finalizers", "x"},
	},
	fieldSelectors: []string{"spec.mode=slow"},
	selected:       map[string]any{"mode": "slow", "replicas": 1},
}

// configMaps have no subresources and no generation.
var configMaps = &kind{
	version: "v1", resource: "configmaps", kind: "ConfigMap",
	fresh: func(name string) map[string]any {
		return map[string]any{"metadata": metadata(name), "data": map[string]any{"k": "v"}}
	},
	edits: []edit{
		{"data.k", "w"},
		{"data.l", "v"},
		{"data", nil},
		{"immutable", true},
		{"data.bad key", "v"},
		{"binaryData", map[string]any{"b": "AAEC"}},
		{"binaryData", map[string]any{"k": "AAEC"}},
		{"data.k", 5},
		{"bogus", "b"},
	},
}

// leases can be created by an update, too.
var leases = &kind{
	group: "coordination.k8s.io", version: "v1", resource: "leases", kind: "Lease",
	fresh: func(name string) map[string]any {
		return map[string]any{
			"metadata": metadata(name),
			"spec":     map[string]any{"holderIdentity": "h", "leaseDurationSeconds": 15},
		}
	},
	edits: []edit{
		{"spec.holderIdentity", "i"},
		{"spec.leaseTransitions", 1},
		{"spec.renewTime", "2026-01-02T03:04:05.678901Z"},
		{"spec.leaseDurationSeconds", 0},
		{"spec.leaseTransitions", -1},
		{"spec", nil},
		{"spec.renewTime", "yesterday"},
	},
}
