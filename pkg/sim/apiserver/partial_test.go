package apiserver_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/tools/cache"

	"example.com/foo-controller/pkg/sim/apiserver"
)

// An informer of metadata sees every change by its watch: it lists once. The metadata client asks for protobuf first.
func TestMetadataInformers(t *testing.T) {
	for _, test := range []struct {
		resource schema.GroupVersionResource
		given    string
		path     string
	}{
		{configMaps, aConfigMap, "configmaps/a"},
		{widgets, aWidget, "widgets/w"},
		{gadgets, `POST gadgets {$gadget,"metadata":{"name":"g"},"spec":{"x":1}}`, "gadgets/g"},
	} {
		t.Run(test.resource.Resource, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := apiserver.New(kinds()...)
				r := &requester{t, s}
				r.do(test.given)
				ctx, cancel := context.WithCancel(t.Context())
				factory := metadatainformer.NewSharedInformerFactory(metadata.NewForConfigOrDie(s.Config("alice")), 0)
				informer := factory.ForResource(test.resource).Informer()
				var seen []string
				note := func(what string, obj any) {
					m := obj.(*metav1.PartialObjectMetadata)
					seen = append(seen, fmt.Sprintf("%s %s %s %v", what, m.Name, m.ResourceVersion, m.Labels))
				}
				_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
					AddFunc:    func(obj any) { note("added", obj) },
					UpdateFunc: func(_, obj any) { note("updated", obj) },
					DeleteFunc: func(obj any) { note("deleted", obj) },
				})
				if err != nil {
					t.Fatal(err)
				}
				factory.Start(ctx.Done())
				synctest.Wait()
				r.do("MERGE " + test.path + ` {"metadata":{"labels":{"x":"y"}}}`)
				r.do("DELETE " + test.path)
				synctest.Wait()
				time.Sleep(2 * time.Hour) // Watches end and are resumed.
				cancel()
				factory.Shutdown()
				name := test.path[len(test.resource.Resource)+1:]
				want := []string{
					"added " + name + " 3 map[]",
					"updated " + name + " 4 map[x:y]",
					"deleted " + name + " 5 map[x:y]",
				}
				if diff := cmp.Diff(want, seen); diff != "" {
					t.Errorf("(-want +got):\n%s\n%s", diff, s.Trace())
				}
			})
		})
	}
}

func TestObjectsAsTheClientAcceptsThem(t *testing.T) {
	const (
		object = ";as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
		list   = ";as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
		a      = "/api/v1/namespaces/default/configmaps/a"
		all    = "/api/v1/namespaces/default/configmaps"
		none   = "/api/v1/namespaces/x/configmaps"
		w      = "/apis/example.com/v1/namespaces/default/widgets/w"
	)
	for _, test := range []struct{ path, accept, want string }{
		{a, "application/json" + object, `200 application/json {"kind":"PartialObjectMetadata",` +
			`"apiVersion":"meta.k8s.io/v1","metadata":{"name":"a","namespace":"default",` +
			`"uid":"370cabd5-0000-4000-8000-000000000002","resourceVersion":"3",` +
			`"creationTimestamp":"2000-01-01T00:00:00Z"}}`},
		{none, "application/json" + list, `200 application/json {"kind":"PartialObjectMetadataList",` +
			`"apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"4"},"items":null}`},
		{none, "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1beta1",
			`200 application/json {"kind":"PartialObjectMetadataList",` +
				`"apiVersion":"meta.k8s.io/v1beta1","metadata":{"resourceVersion":"4"},"items":null}`},
		{all, "application/json" + object, `406 application/json {"kind":"Status","apiVersion":"v1","metadata":{},` +
			`"status":"Failure","message":"you requested PartialObjectMetadata, but the requested object is a list ` +
			`(*core.ConfigMapList)","reason":"NotAcceptable","code":406}`},
		{a, "application/json" + list, `406 application/json {"kind":"Status","apiVersion":"v1","metadata":{},` +
			`"status":"Failure","message":"you requested PartialObjectMetadataList, but the requested object is not a ` +
			`list (*core.ConfigMap)","reason":"NotAcceptable","code":406}`},
		{w, "application/json" + list, `500 application/json {"kind":"Status","apiVersion":"v1","metadata":{},` +
			`"status":"Failure","message":"content is not a list","code":500}`},
		{none, "application/yaml", "200 application/yaml apiVersion: v1\nitems: []\nkind: ConfigMapList\nmetadata:\n" +
			"  resourceVersion: \"4\"\n"},
		{w, "application/yaml" + object, "200 application/yaml apiVersion: meta.k8s.io/v1\nkind: " +
			"PartialObjectMetadata\nmetadata:\n  creationTimestamp: \"2000-01-01T00:00:00Z\"\n  generation: 1\n  " +
			"name: w\n  namespace: default\n  resourceVersion: \"4\"\n  uid: 360caa42-0000-4000-8000-000000000003\n"},
		{a, "text/plain", `406 application/json {"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure",` +
			`"message":"406: Not Acceptable\n\nAvailable representations: application/json, application/yaml, ` +
			`application/vnd.kubernetes.protobuf","reason":"NotAcceptable","details":{},"code":406}`},
		{w, "text/plain", `406 application/json {"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure",` +
			`"message":"only the following media types are accepted: application/json, application/yaml, ` +
			`application/vnd.kubernetes.protobuf","reason":"NotAcceptable","code":406}`},
		{all + "?watch=1", "application/yaml", "406 application/yaml apiVersion: v1\ncode: 406\nkind: Status\n" +
			"message: 'only the following media types are accepted: application/json;stream=watch,\n  " +
			"application/vnd.kubernetes.protobuf;stream=watch'\nmetadata: {}\nreason: NotAcceptable\nstatus: Failure\n"},
		{all + "?watch=1&includeObject=x", "application/yaml;as=Table;g=meta.k8s.io;v=v1", "400 application/json " +
			`{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure",` +
			`"message":"Unable to convert to Table as requested: includeObject: Invalid value: \"x\": ` +
			`must be 'Metadata', 'Object', 'None', or empty","reason":"BadRequest","code":400}`},
	} {
		t.Run(test.path+" as "+test.accept, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := apiserver.New(kinds()...)
				r := &requester{t, s}
				r.do(aConfigMap)
				r.do(aWidget)
				out, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://apiserver"+test.path, nil)
				if err != nil {
					t.Fatal(err)
				}
				out.Header.Set("Accept", test.accept)
				response, err := s.RoundTrip(out)
				if err != nil {
					t.Fatal(err)
				}
				defer response.Body.Close()
				body, err := io.ReadAll(response.Body)
				if err != nil {
					t.Fatal(err)
				}
				got := fmt.Sprintf("%d %s %s", response.StatusCode, response.Header.Get("Content-Type"), body)
				if diff := cmp.Diff(test.want, got); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
			})
		})
	}
}
