package apiserver_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/scale"
	"k8s.io/client-go/tools/cache"

	"example.com/foo-controller/pkg/sim/apiserver"
)

// An autoscaler finds the kind of a scale by discovery, and the path of a scale by the kind of its target.
func TestAScaleClientWithDiscovery(t *testing.T) {
	s, r := newServer(t)
	r.do(aWidget)
	config := s.Config("autoscaler")
	info := discovery.NewDiscoveryClientForConfigOrDie(config)
	if version, err := info.ServerVersion(); err != nil || version.Minor == "" {
		t.Errorf("version: %v, %v", version, err)
	}
	if body, err := info.RESTClient().Get().AbsPath("/readyz").DoRaw(t.Context()); err != nil || string(body) != "ok" {
		t.Errorf("readyz: %s, %v", body, err)
	}
	groups, err := restmapper.GetAPIGroupResources(info)
	if err != nil {
		t.Fatal(err)
	}
	mapper := restmapper.NewDiscoveryRESTMapper(groups)
	client, err := scale.NewForConfig(config, mapper, dynamic.LegacyAPIPathResolverFunc,
		scale.NewDiscoveryScaleKindResolver(info))
	if err != nil {
		t.Fatal(err)
	}
	mapping, err := mapper.RESTMapping(schema.GroupKind{Group: widgets.Group, Kind: "Widget"})
	if err != nil {
		t.Fatal(err)
	}
	api := client.Scales("default")
	have, err := api.Get(t.Context(), mapping.Resource.GroupResource(), "w", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	have.Spec.Replicas = 3
	have, err = api.Update(t.Context(), mapping.Resource.GroupResource(), have, metav1.UpdateOptions{})
	if err != nil || have.Spec.Replicas != 3 {
		t.Errorf("%v, %v", have, err)
	}
}

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
				s, r := newServer(t)
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

// overHTTP serves s on loopback, and returns a client whose user agent is alice/1.
func overHTTP(t *testing.T, s *apiserver.Server) *kubernetes.Clientset {
	web := httptest.NewServer(s)
	t.Cleanup(web.CloseClientConnections)
	t.Cleanup(web.Close)
	return kubernetes.NewForConfigOrDie(&rest.Config{Host: web.URL, UserAgent: "alice/1"})
}

func TestInformersWorkOverHTTP(t *testing.T) {
	s := apiserver.New(kinds()...)
	client := overHTTP(t, s)
	ctx, cancel := context.WithCancel(t.Context())
	factory := informers.NewSharedInformerFactory(client, 0)
	informer := factory.Core().V1().ConfigMaps().Informer()
	seen := make(chan string, 10)
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) { seen <- obj.(*corev1.ConfigMap).Name },
	}); err != nil {
		t.Fatal(err)
	}
	factory.StartWithContext(ctx)
	defer factory.Shutdown()
	defer cancel()
	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		t.Fatal("the informer has not synced")
	}
	cm := &corev1.ConfigMap{ObjectMeta: objectMeta("a")}
	if _, err := client.CoreV1().ConfigMaps("default").Create(ctx, cm, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if name := <-seen; name != "a" {
		t.Errorf("the informer has seen %q", name)
	}
	if !strings.Contains(s.Trace(), "alice: create configmaps -n default (a): 201, version 3") {
		t.Errorf("the trace lacks the user:\n%s", s.Trace())
	}
}

// After a clean end the client would think that the watch has timed out.
func TestABrokenWatchBreaksItsConnection(t *testing.T) {
	s := apiserver.New(kinds()...)
	web := httptest.NewServer(s)
	defer web.Close()
	response, err := http.Get(web.URL + "/api/v1/configmaps?watch=true&resourceVersion=2")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	s.BreakWatches("Go-http-client", "", errReset)
	if _, err := io.ReadAll(response.Body); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("the watch ends with the error %v", err)
	}
}

func TestARequestWithoutAnAnswerBreaksItsConnection(t *testing.T) {
	s := apiserver.New(kinds()...)
	s.Intercept(func(*apiserver.Request, apiserver.Next) (*http.Response, error) { return nil, errReset })
	// client-go would repeat a GET.
	err := overHTTP(t, s).CoreV1().ConfigMaps("default").Delete(t.Context(), "a", metav1.DeleteOptions{})
	if err == nil || !strings.Contains(err.Error(), "EOF") {
		t.Errorf("the client has the error %v", err)
	}
}

func TestEverythingIsAllowed(t *testing.T) {
	for _, contentType := range []string{"application/json", "application/vnd.kubernetes.protobuf"} {
		s := apiserver.New(kinds()...)
		config := s.Config("alice")
		config.ContentType = contentType
		review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
			ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "delete", Resource: "namespaces"},
		}}
		answer, err := kubernetes.NewForConfigOrDie(config).AuthorizationV1().SelfSubjectAccessReviews().
			Create(t.Context(), review, metav1.CreateOptions{})
		if err != nil || !answer.Status.Allowed || answer.Spec.ResourceAttributes.Verb != "delete" {
			t.Errorf("with %s: %v, %v", contentType, answer, err)
		}
	}
}

// kubectl validates what it sends itself, without a schema, if the server does not say that it does.
func TestOpenAPIHasTheParameterForValidationOfEachPatch(t *testing.T) {
	s := apiserver.New(kinds()...)
	paths, err := kubernetes.NewForConfigOrDie(s.Config("kubectl")).Discovery().OpenAPIV3().Paths()
	if err != nil {
		t.Fatal(err)
	}
	for gv, want := range map[string]string{
		"api/v1":              "/api/v1/namespaces/{namespace}/configmaps/{name}",
		"apis/example.com/v1": "/apis/example.com/v1/gadgets/{name}",
	} {
		if paths[gv] == nil {
			t.Fatalf("%s is missing in %v", gv, paths)
		}
		document, err := paths[gv].Schema("application/json")
		if err != nil || !strings.Contains(string(document), want) || !strings.Contains(string(document), "fieldValidation") {
			t.Errorf("the document of %s lacks %s: %s, %v", gv, want, document, err)
		}
	}
	r := &requester{t: t, server: s}
	if code, _ := r.do("GET /openapi/v3/apis/none/v1"); code != http.StatusNotFound {
		t.Errorf("a group that does not exist: %d", code)
	}
}

const anEvent = `POST events {"metadata":{"name":"e"},"eventTime":"2000-01-01T00:00:00.000000Z","type":"Normal",` +
	`"reason":"Done","action":"Do","note":"It is done","regarding":{"kind":"Widget","name":"w","uid":"u"},` +
	`"reportingController":"c","reportingInstance":"i","deprecatedCount":2,` +
	`"series":{"count":3,"lastObservedTime":"2000-01-01T00:00:55.000000Z"}}`

// kubectl describe lists the Events of v1 that are about an object. Their fields are recorded.
func TestEventsCanBeReadAsThoseOfTheCoreGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, r := newServer(t)
		r.do(anEvent)
		r.do(strings.NewReplacer(`"name":"e"`, `"name":"f"`, `"name":"w"`, `"name":"x"`).Replace(anEvent))
		config := s.Config("kubectl")
		config.ContentType = "application/vnd.kubernetes.protobuf"
		api := kubernetes.NewForConfigOrDie(config).CoreV1().Events("default")
		const about = "involvedObject.kind=Widget,involvedObject.name=w,source=c"
		list, err := api.List(t.Context(), metav1.ListOptions{FieldSelector: about})
		if err != nil || len(list.Items) != 1 {
			t.Fatalf("the Events about w: %v, %v", list, err)
		}
		w, err := api.Watch(t.Context(), metav1.ListOptions{ResourceVersion: "2", FieldSelector: about})
		if err != nil {
			t.Fatal(err)
		}
		defer w.Stop()
		if diff := cmp.Diff(&list.Items[0], (<-w.ResultChan()).Object, ignoreType); diff != "" {
			t.Errorf("an Event in a list and in a watch:\n%s", diff)
		}
	})
}

var ignoreType = cmp.FilterPath(func(p cmp.Path) bool { return p.Last().String() == ".TypeMeta" }, cmp.Ignore())

func TestEventsOfTheCoreGroupCannotBeWritten(t *testing.T) {
	_, r := newServer(t)
	r.do(anEvent)
	for _, request := range []string{
		`POST /api/v1/namespaces/default/events {"metadata":{"name":"f"}}`,
		`MERGE /api/v1/namespaces/default/events/e {"reason":"x"}`,
		`DELETE /api/v1/namespaces/default/events/e`,
	} {
		if code, answer := r.do(request); code != http.StatusMethodNotAllowed {
			t.Errorf("%s: %d %v", request, code, answer)
		}
	}
}

func TestAKindOfEventsOfTheCoreGroupIsServedInPlaceOfThoseOfEvents(t *testing.T) {
	own := apiserver.Kind{
		Resource: corev1.SchemeGroupVersion.WithResource("events"), Kind: "Event", Object: &corev1.Event{},
	}
	s := apiserver.New(apiserver.Events(), own)
	r := &requester{t: t, server: s}
	const request = `POST /api/v1/namespaces/default/events {"metadata":{"name":"f"}}`
	if code, answer := r.do(request); code != http.StatusCreated {
		t.Errorf("%d %v", code, answer)
	}
	if n := len(s.Objects(own.Resource)); n != 1 {
		t.Errorf("%d Events", n)
	}
}

// configMapServer returns a server for the examples.
func configMapServer() *apiserver.Server {
	return apiserver.New(apiserver.Namespaces(), apiserver.ConfigMaps())
}

func configMap(name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

// A controller that labels ConfigMaps, with a real informer. A test would run it in a bubble of testing/synctest, where
// it takes no time.
func Example() {
	s := configMapServer()
	client := kubernetes.NewForConfigOrDie(s.Config("labeler"))
	ctx, cancel := context.WithCancel(context.Background())
	factory := informers.NewSharedInformerFactory(client, 0)
	labeled := make(chan struct{})
	label := func(cm *corev1.ConfigMap) {
		if cm.Labels["seen"] != "" {
			close(labeled)
			return
		}
		cm = cm.DeepCopy()
		cm.Labels = map[string]string{"seen": "yes"}
		if _, err := client.CoreV1().ConfigMaps(cm.Namespace).Update(ctx, cm, metav1.UpdateOptions{}); err != nil {
			fmt.Println(err)
		}
	}
	_, err := factory.Core().V1().ConfigMaps().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { label(obj.(*corev1.ConfigMap)) },
		UpdateFunc: func(_, obj any) { label(obj.(*corev1.ConfigMap)) },
	})
	if err != nil {
		fmt.Println(err)
	}
	factory.StartWithContext(ctx)
	factory.WaitForCacheSyncWithContext(ctx)

	user := kubernetes.NewForConfigOrDie(s.Config("alice")).CoreV1().ConfigMaps("default")
	if _, err := user.Create(ctx, configMap("a"), metav1.CreateOptions{}); err != nil {
		fmt.Println(err)
	}
	<-labeled
	cancel()
	factory.Shutdown()
	for _, rev := range s.History(configMaps) {
		fmt.Println(rev.Version, rev.Type, rev.Name, "by", rev.User)
	}
	// Output:
	// 3 ADDED a by alice
	// 4 MODIFIED a by labeler
}

// A quota returns the message of a real server.
func ExampleServer_Review() {
	s := configMapServer()
	s.Review(apiserver.Quota(s, "small", configMaps, 1))
	api := kubernetes.NewForConfigOrDie(s.Config("alice")).CoreV1().ConfigMaps("default")
	for _, name := range []string{"a", "b"} {
		_, err := api.Create(context.Background(), configMap(name), metav1.CreateOptions{})
		fmt.Println(strings.ReplaceAll(fmt.Sprint(err), ", requested", ",\nrequested"))
	}
	// Output:
	// <nil>
	// configmaps "b" is forbidden: exceeded quota: small,
	// requested: count/configmaps=1, used: count/configmaps=1, limited: count/configmaps=1
}
