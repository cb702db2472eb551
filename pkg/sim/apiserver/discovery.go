package apiserver

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
)

// discover answers requests for discovery, for the version and for the health of the server, whether a client may do
// something, and all those that are not served. It describes the response for the trace.
func (s *Server) discover(r *Request, kind *resource) (_ *http.Response, result string, err error) {
	if kind == nil && r.asksForPermission() {
		answered, result := permit(r)
		return answered, result, nil
	}
	found := s.found(r)
	if found == nil {
		if err := s.notServed(r, kind); err != nil {
			answered, result := respondError(r, err, nil)
			return answered, result, nil
		}
		return notFound(r), outcome(http.StatusNotFound, "", ""), nil
	}
	if text, is := found.(string); is {
		body := io.NopCloser(strings.NewReader(text))
		return response(r, http.StatusOK, "text/plain; charset=utf-8", body), outcome(http.StatusOK, "", ""), nil
	}
	media, body := mediaJSON, []byte(nil)
	if obj, is := found.(runtime.Object); is {
		media = errorMedia(r)
		body, err = media.encode(&answer{object: obj})
	} else {
		body, err = json.Marshal(found)
	}
	if err != nil {
		return nil, "", fmt.Errorf("encode %T: %w", found, err)
	}
	return encoded(r, http.StatusOK, media, body, nil), outcome(http.StatusOK, "", ""), nil
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
	add := func(name string, kind schema.GroupVersionKind, verbs ...string) {
		one := metav1.APIResource{
			Name: r.gr.Resource + "/" + name, Namespaced: !r.ClusterScoped, Kind: kind.Kind, Verbs: verbs,
		}
		if kind != r.gvk {
			one.Group, one.Version = kind.Group, kind.Version
		}
		found = append(found, one)
	}
	if r.isNamespaces() {
		add("finalize", r.gvk, "update")
	}
	if r.Status && r.custom {
		add("status", r.gvk, "get", "patch", "update")
	}
	if r.Scale != nil {
		add("scale", scaleKind, "get", "patch", "update")
	}
	if r.Status && !r.custom { // In the order of their names.
		add("status", r.gvk, "get", "patch", "update")
	}
	return found
}
