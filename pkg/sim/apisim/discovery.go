package apisim

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
)

// discover answers requests for discovery, for the version and for the health of the server.
func (s *Server) discover(r *Request) (*http.Response, error) {
	if r.HTTP.Method != http.MethodGet {
		return notFound(r), nil
	}
	var found any
	switch parts := r.path; {
	case len(parts) == 1 && parts[0] == "version":
		found = version.Info{Major: "1", Minor: "36", GitVersion: "v1.36.0+apisim"}
	case len(parts) == 1 && (parts[0] == "healthz" || parts[0] == "livez" || parts[0] == "readyz"):
		return response(r, http.StatusOK, "text/plain; charset=utf-8", io.NopCloser(strings.NewReader("ok"))), nil
	case len(parts) == 1 && parts[0] == "api":
		found = &metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}, Versions: []string{"v1"}}
	case len(parts) == 1 && parts[0] == "apis":
		found = s.groups()
	case len(parts) == 2 && parts[0] == "api":
		found = s.resources(schema.GroupVersion{Version: parts[1]})
	case len(parts) == 3 && parts[0] == "apis":
		found = s.resources(schema.GroupVersion{Group: parts[1], Version: parts[2]})
	}
	if list, is := found.(*metav1.APIResourceList); found == nil || is && list == nil {
		return notFound(r), nil
	}
	encoded, err := json.Marshal(found)
	if err != nil {
		return nil, fmt.Errorf("encode %T: %w", found, err)
	}
	return response(r, http.StatusOK, string(mediaJSON), io.NopCloser(strings.NewReader(string(encoded)))), nil
}

// groups returns the groups of the registered kinds.
func (s *Server) groups() *metav1.APIGroupList {
	list := &metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}}
	for _, kind := range s.kinds {
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

// resources returns the registered kinds of a group and version, nil if there are none.
func (s *Server) resources(gv schema.GroupVersion) *metav1.APIResourceList {
	var list *metav1.APIResourceList
	verbs := metav1.Verbs{"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"}
	for _, kind := range s.kinds {
		if kind.gvk.GroupVersion() != gv {
			continue
		}
		if list == nil {
			list = &metav1.APIResourceList{
				TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: gv.String(),
			}
		}
		add := func(subresource, kindName string, verbs metav1.Verbs) {
			list.APIResources = append(list.APIResources, metav1.APIResource{
				Name: kind.gr.Resource + subresource, Kind: kindName, Namespaced: !kind.ClusterScoped, Verbs: verbs,
				SingularName: strings.ToLower(kindName),
			})
		}
		add("", kind.gvk.Kind, verbs)
		if kind.Status {
			add("/status", kind.gvk.Kind, metav1.Verbs{"get", "patch", "update"})
		}
		if kind.Scale != nil {
			add("/scale", "Scale", metav1.Verbs{"get", "patch", "update"})
		}
	}
	return list
}
