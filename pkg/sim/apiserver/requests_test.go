package apiserver_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/kubernetes/scheme"

	"example.com/foo-controller/pkg/sim/apiserver"
)

// A requester makes requests that tables write as "MERGE deployments/web/status {...}": a method or a type of patch, a
// path below the namespace "default", and a body. In the body, $uid and $version are those of the stored object,
// $widget or $gadget is the type metadata of that kind, and $web is what the spec of a Deployment must have. A path may
// also begin with a slash, at the root. After a method, a colon and the media type that the client accepts may follow.
type requester struct {
	t      *testing.T
	server *apiserver.Server
	// Those of a conversation. A real server has another transport and host.
	namespace, host string
	transport       http.RoundTripper
}

// newServer returns a server of all kinds, and a requester of it.
func newServer(t *testing.T) (*apiserver.Server, *requester) {
	s := apiserver.New(kinds()...)
	return s, &requester{t: t, server: s}
}

var abbreviations = strings.NewReplacer(
	"$widget", `"apiVersion":"example.com/v1","kind":"Widget"`, "$gadget", `"apiVersion":"example.com/v1","kind":"Gadget"`,
	"$web", `"selector":{"matchLabels":{"app":"x"}},"template":{"metadata":{"labels":{"app":"x"}},`+
		`"spec":{"containers":[{"name":"c","image":"i"}]}}`)

var methods = map[string][2]string{
	"GET":       {http.MethodGet, ""},
	"WATCH":     {http.MethodGet, ""},
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
	method, accept, _ := strings.Cut(method, ":")
	path, body, _ := strings.Cut(rest, " ")
	path, query, _ := strings.Cut(path, "?")
	if method == "WATCH" {
		query += "&watch=1"
		if !strings.Contains(query, "timeoutSeconds") {
			query += "&timeoutSeconds=10"
		}
	}
	if object := r.stored(strings.Split(path, "/")); object != nil {
		m, err := meta.Accessor(object)
		if err != nil {
			r.t.Fatal(err)
		}
		body = strings.NewReplacer("$uid", string(m.GetUID()), "$version", m.GetResourceVersion()).Replace(body)
	}
	url := cmp.Or(r.host, "http://apiserver") + r.pathOf(path) + "?" + query
	body = abbreviations.Replace(body)
	out, err := http.NewRequestWithContext(r.t.Context(), methods[method][0], url, strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	out.Header.Set("Content-Type", methods[method][1])
	out.Header.Set("Accept", accept)
	out.Header.Set("User-Agent", "test")
	transport := r.transport
	if transport == nil {
		transport = r.server
	}
	response, err := transport.RoundTrip(out)
	if err != nil {
		r.t.Fatal(err)
	}
	return response
}

// pathOf returns the path of a request at the root.
func (r *requester) pathOf(path string) string {
	if strings.HasPrefix(path, "/") {
		return path
	}
	resource, _, _ := strings.Cut(path, "/")
	gvr := resources[resource]
	root := "/apis/" + gvr.Group + "/" + gvr.Version
	if gvr.Group == "" {
		root = "/api/v1"
	}
	if resource == "namespaces" || resource == "gadgets" {
		return root + "/" + path
	}
	return root + "/namespaces/" + cmp.Or(r.namespace, "default") + "/" + path
}

// stored returns the stored object for a path.
func (r *requester) stored(path []string) runtime.Object {
	if len(path) < 2 || r.server == nil {
		return nil
	}
	return r.server.Object(resources[path[0]], "default", path[1])
}

// result describes the result of a request: the code and the error, or whether nothing was written.
func (r *requester) result(request string) string {
	r.t.Helper()
	before := r.server.Version()
	code, answer := r.do(request)
	switch {
	case code >= http.StatusBadRequest:
		return refusalWords(code, answer)
	case r.server.Version() == before:
		return fmt.Sprintf("%d unchanged", code)
	}
	return fmt.Sprint(code)
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

func objectMeta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name}
}

const (
	aConfigMap  = `POST configmaps {"metadata":{"name":"a"},"data":{"k":"v"}}`
	aDeployment = `POST deployments {"metadata":{"name":"web"},"spec":{"replicas":2}}`
	aWidget     = `POST widgets {$widget,"metadata":{"name":"w"},"spec":{"color":"red","size":1}}`
)

var (
	namespaces  = corev1.SchemeGroupVersion.WithResource("namespaces")
	configMaps  = corev1.SchemeGroupVersion.WithResource("configmaps")
	deployments = appsv1.SchemeGroupVersion.WithResource("deployments")
	jobs        = batchv1.SchemeGroupVersion.WithResource("jobs")
	leases      = coordinationv1.SchemeGroupVersion.WithResource("leases")
	events      = eventsv1.SchemeGroupVersion.WithResource("events")
	widgets     = schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}
	gadgets     = schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "gadgets"}
)

// A Widget is a custom resource with a Go type.
type Widget struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              WidgetSpec   `json:"spec"`
	Status            WidgetStatus `json:"status,omitzero"`
}

type WidgetSpec struct {
	Size  *int32 `json:"size,omitempty"`
	Color string `json:"color,omitempty"`
}

type WidgetStatus struct {
	Size     int32             `json:"size,omitempty"`
	Selector string            `json:"selector,omitempty"`
	Phase    string            `json:"phase,omitempty"`
	Notes    map[string]string `json:"notes,omitempty"`
}

func (w *Widget) DeepCopyObject() runtime.Object {
	other := *w
	other.ObjectMeta = *w.ObjectMeta.DeepCopy()
	if w.Spec.Size != nil {
		other.Spec.Size = new(*w.Spec.Size)
	}
	other.Status.Notes = maps.Clone(w.Status.Notes)
	return &other
}

// kinds are the kinds that the tests register.
func kinds() []apiserver.Kind {
	return []apiserver.Kind{
		apiserver.Namespaces(),
		{Resource: configMaps, Kind: "ConfigMap", Object: &corev1.ConfigMap{}}, // Without rules, for short requests.
		deploymentKind(),
		apiserver.Leases(),
		apiserver.KindOf(&batchv1.Job{}, scheme.Scheme),
		apiserver.Events(),
		widgetKind,
		{
			Resource: gadgets, Kind: "Gadget", Object: &unstructured.Unstructured{}, Status: true,
			ClusterScoped: true,
		},
	}
}

// deploymentKind is the kind of Deployments without most of its validation, so that requests can be short.
func deploymentKind() apiserver.Kind {
	kind := apiserver.Deployments()
	kind.ValidateStatus = nil
	kind.Validate = func(obj, _ runtime.Object) field.ErrorList {
		if spec := &obj.(*appsv1.Deployment).Spec; *spec.Replicas < 0 {
			path := field.NewPath("spec", "replicas")
			return field.ErrorList{field.Invalid(path, *spec.Replicas, "must be greater than or equal to 0")}
		}
		return nil
	}
	return kind
}

var widgetKind = apiserver.Kind{
	Resource: widgets, Kind: "Widget", Object: &Widget{}, Status: true,
	Scale: &apiserver.Scale{
		SpecReplicas: ".spec.size", StatusReplicas: ".status.size", Selector: ".status.selector",
	},
	Default: func(obj runtime.Object) {
		if w := obj.(*Widget); w.Status.Phase == "" {
			w.Status.Phase = "Pending"
		}
	},
	Validate: func(obj, old runtime.Object) field.ErrorList {
		spec := field.NewPath("spec")
		var errs field.ErrorList
		w := obj.(*Widget)
		if w.Spec.Color == "ultraviolet" {
			errs = append(errs, field.NotSupported(spec.Child("color"), w.Spec.Color, []string{"blue", "red"}))
		}
		if old != nil && old.(*Widget).Spec.Color == "red" && w.Spec.Color != "red" {
			errs = append(errs, field.Forbidden(spec.Child("color"), "red stays red"))
		}
		return errs
	},
	Fields: map[string]func(runtime.Object) string{
		"spec.color": func(obj runtime.Object) string { return obj.(*Widget).Spec.Color },
	},
}
