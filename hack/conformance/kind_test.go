package conformance

import "strings"

// A kind is one of the resources that operations are about.
type kind struct {
	group, version, resource, kind string
	clusterScoped                  bool
	custom                         bool // From a CustomResourceDefinition.
	status, scale                  bool // Has these subresources.
	// fresh returns a valid new object of this name, without kind and version.
	fresh func(name string) map[string]any
	// edits are what operations do to an object of this kind, besides what they do to any.
	edits []edit
	// fieldSelectors are those that select an object which fresh returns, if it has the right name.
	fieldSelectors []string
}

func (k *kind) String() string { return k.resource }

func (k *kind) apiVersion() string {
	return strings.TrimPrefix(k.group+"/"+k.version, "/")
}

// path returns where the objects of a namespace are.
func (k *kind) path(namespace string) string {
	prefix := "/apis/" + k.group
	if k.group == "" {
		prefix = "/api"
	}
	prefix += "/" + k.version
	if k.clusterScoped {
		return prefix + "/" + k.resource
	}
	return prefix + "/namespaces/" + namespace + "/" + k.resource
}

// kinds are all of them. What stands first is drawn more often.
var kinds = []*kind{deployments, foos, configMaps, leases}

// object returns a valid new object with kind and version.
func (k *kind) object(name string) map[string]any {
	object := k.fresh(name)
	object["apiVersion"], object["kind"] = k.apiVersion(), k.kind
	return object
}

// metadata is that of a new object: its labels are selected by all label selectors that operations use.
func metadata(name string) map[string]any {
	return map[string]any{"name": name, "labels": map[string]any{"app": "x", "tier": "t"}}
}
