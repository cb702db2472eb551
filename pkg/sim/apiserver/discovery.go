package apiserver

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
)

// discover answers requests for discovery, for the version and for the health of the server, whether a client may do
// something, and all those that are not served. It describes the response for the trace.
func (s *Server) discover(r *Request, kind *resource) (*http.Response, string) {
	code, found := http.StatusOK, s.found(r)
	var err error
	switch {
	case kind == nil && r.asksForPermission():
		code = http.StatusCreated
		found, err = permit(r)
	case found == nil:
		code, found = http.StatusNotFound, "404 page not found\n" // As in a real server, this is no API object.
		err = s.notServed(r, kind)
	}
	if err != nil {
		return respondError(r, err, nil)
	}
	var body []byte
	media := mediaJSON
	switch found := found.(type) {
	case string:
		media, body = "text/plain; charset=utf-8", []byte(found)
	case runtime.Object:
		media = errorMedia(r)
		body, err = media.encode(&answer{object: found})
	default:
		body, err = json.Marshal(found)
	}
	if err != nil {
		return respondError(r, err, nil)
	}
	return encoded(r, code, media, body, nil), outcome(code, "", "")
}

// found returns what a path of discovery has, a string for plain text, nil if there is no such path.
func (s *Server) found(r *Request) any {
	if r.HTTP.Method != http.MethodGet {
		return nil
	}
	switch parts := r.path; {
	case len(parts) == 1 && parts[0] == "version":
		return version.Info{Major: "1", Minor: "37", GitVersion: "v1.37.0+simulated"}
	case len(parts) == 1 && (parts[0] == "healthz" || parts[0] == "livez" || parts[0] == "readyz"):
		return "ok"
	case len(parts) >= 2 && parts[0] == "openapi" && parts[1] == "v3":
		return s.openAPI(strings.Join(parts[2:], "/"))
	case len(parts) == 1 && parts[0] == "api":
		return &metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}, Versions: []string{"v1"}}
	case len(parts) == 1 && parts[0] == "apis":
		return s.groups()
	case len(parts) == 2 && parts[0] == "api":
		return s.resources(schema.GroupVersion{Version: parts[1]})
	case len(parts) == 2 && parts[0] == "apis":
		return s.group(parts[1])
	case len(parts) == 3 && parts[0] == "apis":
		return s.resources(schema.GroupVersion{Group: parts[1], Version: parts[2]})
	}
	return nil
}

// group returns a group of the registered kinds, nil if there is none.
func (s *Server) group(name string) any {
	for _, group := range s.groups().Groups {
		if group.Name == name {
			group.TypeMeta = metav1.TypeMeta{Kind: "APIGroup", APIVersion: "v1"}
			return &group
		}
	}
	return nil
}

// groups returns the groups of the registered kinds.
func (s *Server) groups() *metav1.APIGroupList {
	list := &metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}}
	for _, kind := range slices.Concat(s.kinds, s.views) {
		gv := kind.gvk.GroupVersion()
		if gv.Group == "" {
			continue
		}
		served := metav1.GroupVersionForDiscovery{GroupVersion: gv.String(), Version: gv.Version}
		i := slices.IndexFunc(list.Groups, func(g metav1.APIGroup) bool { return g.Name == gv.Group })
		if i < 0 {
			list.Groups = append(list.Groups, metav1.APIGroup{Name: gv.Group, PreferredVersion: served})
			i = len(list.Groups) - 1
		}
		if group := &list.Groups[i]; !slices.Contains(group.Versions, served) {
			group.Versions = append(group.Versions, served)
		}
	}
	return list
}

// resources returns the registered kinds of a group and version in the order of their names, nil if there are none.
func (s *Server) resources(gv schema.GroupVersion) any {
	list := &metav1.APIResourceList{
		TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: gv.String(),
	}
	if gv.Group == "" {
		list.APIVersion = "" // As in a real server.
	}
	for _, kind := range slices.Concat(s.kinds, s.views) {
		if kind.gvk.GroupVersion() == gv {
			list.APIResources = append(list.APIResources, kind.discovered()...)
		}
	}
	if len(list.APIResources) == 0 {
		return nil
	}
	slices.SortStableFunc(list.APIResources, func(a, b metav1.APIResource) int {
		of, than := strings.Split(a.Name, "/"), strings.Split(b.Name, "/")
		return strings.Compare(of[0], than[0]) // The subresources keep their order.
	})
	return list
}

// discovered returns the kind and its subresources.
func (r *resource) discovered() []metav1.APIResource {
	verbs := metav1.Verbs{"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"}
	switch {
	case r.isView:
		verbs = viewVerbs
	case r.custom:
		verbs = metav1.Verbs{"delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"}
	case r.isNamespaces():
		verbs = metav1.Verbs{"create", "delete", "get", "list", "patch", "update", "watch"}
	}
	found := []metav1.APIResource{{
		Name: r.gr.Resource, SingularName: r.Singular, Namespaced: !r.ClusterScoped, Kind: r.gvk.Kind, Verbs: verbs,
		ShortNames: r.ShortNames, Categories: r.Categories,
	}}
	subresources := []string{"finalize", "scale", "status"} // In the order of their names.
	if r.custom {
		subresources = []string{"status", "scale"}
	}
	for _, name := range subresources {
		if !r.hasSubresource(name) {
			continue
		}
		one := metav1.APIResource{
			Name: r.gr.Resource + "/" + name, Namespaced: !r.ClusterScoped, Kind: r.gvk.Kind,
			Verbs: metav1.Verbs{"get", "patch", "update"},
		}
		switch name {
		case "finalize":
			one.Verbs = metav1.Verbs{"update"}
		case "scale":
			one.Group, one.Version, one.Kind = scaleKind.Group, scaleKind.Version, scaleKind.Kind
		}
		found = append(found, one)
	}
	return found
}

// As much of OpenAPI is simulated as kubectl reads before it writes: which kinds accept the parameter fieldValidation.
// There are no schemas.

// openAPI returns the index of the documents for an empty path, else the document of a group and version, nil if there
// is none.
func (s *Server) openAPI(path string) any {
	index, paths := map[string]any{}, map[string]any{}
	for _, kind := range slices.Concat(s.kinds, s.views) {
		gv := gvPath(kind.gvk.GroupVersion())
		index[gv] = map[string]any{"serverRelativeURL": "/openapi/v3/" + gv}
		if gv == path {
			namespace := "{namespace}"
			if kind.ClusterScoped {
				namespace = ""
			}
			paths[kind.path(namespace, "{name}", "")] = map[string]any{"patch": kind.patchOperation()}
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

// asksForPermission reports whether a client asks whether it may do something.
func (r *Request) asksForPermission() bool {
	return r.Verb == "create" && r.Name == "" &&
		r.Resource == authorizationv1.SchemeGroupVersion.WithResource("selfsubjectaccessreviews")
}

// permit answers that the client may do what it asks for, because the server refuses nobody anything.
func permit(r *Request) (*authorizationv1.SelfSubjectAccessReview, error) {
	review := &authorizationv1.SelfSubjectAccessReview{}
	var err error
	if strings.HasPrefix(r.HTTP.Header.Get("Content-Type"), string(mediaBinary)) {
		_, err = decodeBinary(r.Body, review)
	} else {
		err = json.Unmarshal(r.Body, review)
	}
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	review.SetGroupVersionKind(authorizationv1.SchemeGroupVersion.WithKind("SelfSubjectAccessReview"))
	review.Status = authorizationv1.SubjectAccessReviewStatus{Allowed: true, Reason: "the server is simulated"}
	return review, nil
}
