package apiserver

import (
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// This file has as much of OpenAPI as kubectl reads before it writes: which kinds accept the parameter fieldValidation.
// There are no schemas.

// openAPI returns the index of the documents for an empty path, else the document of a group and version, nil if there
// is none.
func (s *Server) openAPI(path string) any {
	index, paths := map[string]any{}, map[string]any{}
	for _, kind := range slices.Concat(s.kinds, s.views) {
		gv := gvPath(kind.gvk.GroupVersion())
		index[gv] = map[string]any{"serverRelativeURL": "/openapi/v3/" + gv}
		if gv == path {
			paths["/"+gv+"/"+kind.objectPath()] = map[string]any{"patch": kind.patchOperation()}
		}
	}
	switch {
	case path == "":
		return map[string]any{"paths": index}
	case len(paths) == 0:
		return nil
	}
	return map[string]any{
		"openapi": "3.0.0", "info": map[string]any{"title": "Simulated", "version": "unversioned"}, "paths": paths,
		"components": map[string]any{"schemas": map[string]any{}},
	}
}

// gvPath returns the beginning of the paths of a group and version.
func gvPath(gv schema.GroupVersion) string {
	if gv.Group == "" {
		return "api/" + gv.Version
	}
	return "apis/" + gv.String()
}

// objectPath returns the path of the objects of the kind in its group and version.
func (r *resource) objectPath() string {
	if r.ClusterScoped {
		return r.gr.Resource + "/{name}"
	}
	return "namespaces/{namespace}/" + r.gr.Resource + "/{name}"
}

func (r *resource) patchOperation() map[string]any {
	return map[string]any{
		"x-kubernetes-group-version-kind": map[string]any{
			"group": r.gvk.Group, "version": r.gvk.Version, "kind": r.gvk.Kind,
		},
		"parameters": []any{map[string]any{
			"name": "fieldValidation", "in": "query", "schema": map[string]any{"type": "string"},
		}},
		"responses": map[string]any{},
	}
}
