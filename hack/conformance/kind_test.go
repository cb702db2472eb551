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
