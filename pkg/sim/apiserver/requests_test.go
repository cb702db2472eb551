package apiserver_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"example.com/foo-controller/pkg/sim/apiserver"
)

// A requester makes requests that tables write as "MERGE deployments/web/status {...}": a method or a type of patch, a
// path below the namespace "default", and a body. In the body, $uid and $version are those of the stored object, and
// $widget or $gadget is replaced by the type metadata of that kind. A path may also begin with a slash, at the root.
type requester struct {
	t      *testing.T
	server *apiserver.Server
}

var methods = map[string][2]string{
	"GET":       {http.MethodGet, ""},
	"POST":      {http.MethodPost, "application/json"},
	"YAML":      {http.MethodPost, "application/yaml"},
	"TEXT":      {http.MethodPost, "text/plain"},
	"PUT":       {http.MethodPut, "application/json"},
	"DELETE":    {http.MethodDelete, "application/json"},
	"MERGE":     {http.MethodPatch, "application/merge-patch+json"},
	"STRATEGIC": {http.MethodPatch, "application/strategic-merge-patch+json"},
	"JSONPATCH": {http.MethodPatch, "application/json-patch+json"},
	"PATCH":     {http.MethodPatch, "text/plain"},
	"APPLY":     {http.MethodPatch, "application/apply-patch+yaml"},
}

// resources are the resources for the paths of the tables.
var resources = map[string]schema.GroupVersionResource{
	"namespaces": namespaces, "configmaps": configMaps, "deployments": deployments, "leases": leases,
	"events": events, "jobs": jobs, "widgets": widgets, "gadgets": gadgets,
}

// do makes a request and returns the code and the body of the response.
func (r *requester) do(request string) (int, map[string]any) {
	r.t.Helper()
	response := r.send(request)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	answer := map[string]any{}
	if err := json.Unmarshal(body, &answer); err != nil {
		answer["message"] = strings.TrimSpace(string(body))
	}
	return response.StatusCode, answer
}

func (r *requester) send(request string) *http.Response {
	r.t.Helper()
	method, rest, _ := strings.Cut(request, " ")
	path, body, _ := strings.Cut(rest, " ")
	path, query, _ := strings.Cut(path, "?")
	parts := strings.Split(path, "/")
	gvr := resources[parts[0]]
	body = strings.ReplaceAll(body, "$widget", `"apiVersion":"example.com/v1","kind":"Widget"`)
	body = strings.ReplaceAll(body, "$gadget", `"apiVersion":"example.com/v1","kind":"Gadget"`)
	if object := r.stored(parts); object != nil {
		m, err := meta.Accessor(object)
		if err != nil {
			r.t.Fatal(err)
		}
		body = strings.NewReplacer("$uid", string(m.GetUID()), "$version", m.GetResourceVersion()).Replace(body)
	}
	url := "http://apiserver/apis/" + gvr.Group + "/" + gvr.Version + "/namespaces/default/" + path
	if gvr.Group == "" {
		url = "http://apiserver/api/v1/namespaces/default/" + path
	}
	if path[0] == '/' {
		url = "http://apiserver" + path
	} else if parts[0] == "namespaces" || parts[0] == "gadgets" {
		url = strings.Replace(url, "/namespaces/default", "", 1)
	}
	out, err := http.NewRequestWithContext(r.t.Context(), methods[method][0], url+"?"+query, strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	out.Header.Set("Content-Type", methods[method][1])
	out.Header.Set("User-Agent", "test")
	response, err := r.server.RoundTrip(out)
	if err != nil {
		r.t.Fatal(err)
	}
	return response
}

// stored returns the stored object for a path.
func (r *requester) stored(path []string) runtime.Object {
	if len(path) < 2 {
		return nil
	}
	return r.server.Object(resources[path[0]], "default", path[1])
}

// result describes the result of a request: the code, and the error or the change of the object.
func (r *requester) result(request string) string {
	r.t.Helper()
	_, rest, _ := strings.Cut(request, " ")
	rest, _, _ = strings.Cut(rest, " ")
	rest, _, _ = strings.Cut(rest, "?")
	path := strings.Split(rest, "/")
	before := r.stored(path)
	code, answer := r.do(request)
	if code >= http.StatusBadRequest {
		return refusalWords(code, answer)
	}
	after := r.stored(path)
	switch {
	case before == nil && after == nil:
		return fmt.Sprint(code)
	case after == nil:
		return fmt.Sprintf("%d deleted", code)
	case before == nil:
		return fmt.Sprintf("%d new %s", code, metaWords(after))
	case before == after:
		return fmt.Sprintf("%d unchanged", code)
	}
	return fmt.Sprintf("%d written %s", code, metaWords(after))
}

func refusalWords(code int, answer map[string]any) string {
	message, _, _ := strings.Cut(fmt.Sprint(answer["message"]), " in scheme ") // What follows is about Go.
	words := fmt.Sprintf("%d %v: %s", code, answer["reason"], message)
	details, _ := answer["details"].(map[string]any)
	causes, _ := details["causes"].([]any)
	for _, cause := range causes {
		fields, _ := cause.(map[string]any)
		words += fmt.Sprintf("\n%v %v", fields["reason"], fields["field"])
	}
	return words
}

func metaWords(obj runtime.Object) string {
	m, _ := meta.Accessor(obj)
	words := fmt.Sprintf("generation %d", m.GetGeneration())
	if m.GetDeletionTimestamp() != nil {
		words += " deleting"
	}
	if len(m.GetFinalizers()) > 0 {
		words += " " + strings.Join(slices.Clone(m.GetFinalizers()), ",")
	}
	return words
}

func objectMeta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name}
}
