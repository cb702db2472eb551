package apiserver_test

import (
	"context"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/scale"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"example.com/foo-controller/pkg/sim/apiserver"
)

// TestClients uses real clients as controllers do, once for each media type that clients support.
func TestClients(t *testing.T) {
	for _, contentType := range []string{"", "application/json", "application/vnd.kubernetes.protobuf"} {
		t.Run(contentType, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := apiserver.New(kinds()...)
				config := s.Config("alice")
				config.ContentType = contentType
				client := kubernetes.NewForConfigOrDie(config)
				ctx, cancel := context.WithCancel(t.Context())
				factory := informers.NewSharedInformerFactory(client, 0)
				informer := factory.Apps().V1().Deployments().Informer()
				factory.StartWithContext(ctx)
				if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
					t.Fatal("the informer has not synced")
				}
				useDeployments(t, client, informer.GetStore())
				time.Sleep(time.Hour) // Watches end and are resumed.
				if s.Version() != 7 {
					t.Errorf("version %d, want 7\n%s", s.Version(), s.Trace())
				}
				cancel()
				factory.Shutdown()
			})
		})
	}
}

func useDeployments(t *testing.T, client kubernetes.Interface, store cache.Store) {
	t.Helper()
	ctx, api := t.Context(), client.AppsV1().Deployments("default")
	check := func(dep *appsv1.Deployment, err error, version string, generation int64) {
		t.Helper()
		if err != nil || dep.ResourceVersion != version || dep.Generation != generation {
			t.Fatalf("version %s, generation %d, %v; want %s, %d",
				dep.ResourceVersion, dep.Generation, err, version, generation)
		}
		synctest.Wait()
		obj, found, _ := store.GetByKey("default/web")
		if diff := cmp.Diff(dep, obj); !found || diff != "" {
			t.Errorf("wrong objects in the informer (-responses +informer):\n%s", diff)
		}
	}
	dep := &appsv1.Deployment{ObjectMeta: objectMeta("web"), Spec: appsv1.DeploymentSpec{
		Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
	}}
	dep, err := api.Create(ctx, dep, metav1.CreateOptions{})
	check(dep, err, "3", 1)
	dep = dep.DeepCopy()
	dep.Spec.Paused = true
	dep, err = api.Update(ctx, dep, metav1.UpdateOptions{})
	check(dep, err, "4", 2)
	dep = dep.DeepCopy()
	dep.Status.Replicas = 3
	dep, err = api.UpdateStatus(ctx, dep, metav1.UpdateOptions{})
	check(dep, err, "5", 2)
	scale, err := api.GetScale(ctx, "web", metav1.GetOptions{})
	if err != nil || scale.Spec.Replicas != 1 || scale.Status.Replicas != 3 || scale.Status.Selector != "app=web" {
		t.Fatalf("scale %v, %v", scale, err)
	}
	wanted := &autoscalingv1.Scale{
		ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: autoscalingv1.ScaleSpec{Replicas: 5},
	}
	if _, err := api.UpdateScale(ctx, "web", wanted, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	patch := []byte(`{"spec":{"paused":true}}`)
	dep, err = api.Patch(ctx, "web", types.StrategicMergePatchType, patch, metav1.PatchOptions{})
	check(dep, err, "6", 3)
	list, err := api.List(ctx, metav1.ListOptions{})
	if err != nil || len(list.Items) != 1 || list.Items[0].Name != "web" || list.ResourceVersion != "6" {
		t.Fatalf("list %v, %v", list, err)
	}
	if err := api.Delete(ctx, "web", *metav1.NewPreconditionDeleteOptions("x")); !apierrors.IsConflict(err) {
		t.Fatalf("a deletion of another: %v", err)
	}
	if err := api.Delete(ctx, "web", *metav1.NewPreconditionDeleteOptions(string(dep.UID))); err != nil {
		t.Fatal(err)
	}
	if _, err := api.Get(ctx, "web", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
	synctest.Wait()
	if left := store.List(); len(left) > 0 {
		t.Errorf("the informer still has %v", left)
	}
}

func TestDynamicClientAndDiscovery(t *testing.T) {
	s := apiserver.New(kinds()...)
	r := &requester{t, s}
	r.do(aWidget)
	client := dynamic.NewForConfigOrDie(s.Config("alice"))
	w, err := client.Resource(widgets).Namespace("default").Get(t.Context(), "w", metav1.GetOptions{})
	if err != nil || w.GetKind() != "Widget" {
		t.Errorf("get a Widget: %v, %v", w, err)
	}
	info := discovery.NewDiscoveryClientForConfigOrDie(s.Config("alice"))
	if version, err := info.ServerVersion(); err != nil || version.Minor == "" {
		t.Errorf("version: %v, %v", version, err)
	}
	_, lists, err := info.ServerGroupsAndResources()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, list := range lists {
		for _, one := range list.APIResources {
			names = append(names, list.GroupVersion+" "+one.Name)
		}
	}
	want := []string{
		"v1 configmaps", "v1 events", "v1 namespaces", "v1 namespaces/finalize", "v1 namespaces/status",
		"apps/v1 deployments",
		"apps/v1 deployments/scale", "apps/v1 deployments/status", "coordination.k8s.io/v1 leases",
		"batch/v1 jobs", "batch/v1 jobs/status", "events.k8s.io/v1 events", "example.com/v1 gadgets",
		"example.com/v1 gadgets/status", "example.com/v1 widgets", "example.com/v1 widgets/status",
		"example.com/v1 widgets/scale",
	}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Errorf("resources (-want +got):\n%s", diff)
	}
	if _, err := info.ServerResourcesForGroupVersion("example.com/v2"); !apierrors.IsNotFound(err) {
		t.Errorf("a version that there is not: %v", err)
	}
	if body, err := info.RESTClient().Get().AbsPath("/readyz").DoRaw(t.Context()); err != nil || string(body) != "ok" {
		t.Errorf("readyz: %s, %v", body, err)
	}
}

// An autoscaler finds the kind of a scale by discovery, and the path of a scale by the kind of its target.
func TestAScaleClientWithDiscovery(t *testing.T) {
	s := apiserver.New(kinds()...)
	r := &requester{t, s}
	r.do(aWidget)
	config := s.Config("autoscaler")
	info := discovery.NewDiscoveryClientForConfigOrDie(config)
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

func TestContentTypes(t *testing.T) {
	const binary = "application/vnd.kubernetes.protobuf"
	for _, test := range []struct{ path, accept, want string }{
		{"/api/v1/configmaps", "", "application/json"},
		{"/api/v1/configmaps", binary + ",application/json", binary},
		{"/api/v1/configmaps?watch=1", binary + ",application/json", binary + ";stream=watch"},
		{"/api/v1/configmaps?watch=1", "application/json", "application/json"},
		{"/api/v1/namespaces/default/configmaps/x", binary, binary},
		{"/apis/example.com/v1/widgets", binary + ",*/*", "application/json"},
		{"/nowhere", binary, "text/plain; charset=utf-8"},
	} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://apiserver"+test.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Accept", test.accept)
		response, err := apiserver.New(kinds()...).RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if got := response.Header.Get("Content-Type"); got != test.want {
			t.Errorf("%s as %q is answered as %q, want %q", test.path, test.accept, got, test.want)
		}
	}
}

func TestAnUnknownMediaTypeIsRefused(t *testing.T) {
	s := apiserver.New(kinds()...)
	config := s.Config("alice")
	config.AcceptContentTypes = "application/json;as=Table;g=meta.k8s.io;v=v2"
	err := discovery.NewDiscoveryClientForConfigOrDie(config).RESTClient().Get().
		AbsPath("/api/v1/namespaces/default/configmaps").Do(t.Context()).Error()
	if code := apierrors.ReasonForError(err); code != metav1.StatusReasonNotAcceptable {
		t.Errorf("a table: %v", err)
	}
}

func TestWarnings(t *testing.T) {
	s := apiserver.New(kinds()...)
	r := &requester{t, s}
	const owner = `{"apiVersion":"v1","kind":"ConfigMap","name":"b","uid":"c"}`
	metadata := `{"name":"a","ownerReferences":[` + owner + "," + owner + `]}`
	response := r.send(`POST configmaps {"metadata":` + metadata + `,"dat":{}}`)
	want := []string{
		`299 - "unknown field \"dat\""`,
		`299 - ".metadata.ownerReferences contains duplicate entries; API server dedups owner references in 1.20+, and ` +
			`may reject such ` +
			`requests as early as 1.24; please fix your requests; duplicate UID(s) observed: c"`,
	}
	diff := cmp.Diff(want, response.Header.Values("Warning"))
	if response.StatusCode != http.StatusCreated || diff != "" {
		t.Errorf("%s (-want +got):\n%s", response.Status, diff)
	}
}

func TestARefusedRequestHasItsWarnings(t *testing.T) {
	r := &requester{t, apiserver.New(kinds()...)}
	response := r.send(`POST configmaps {"metadata":{"name":"A"},"dat":{}}`)
	want := []string{`299 - "unknown field \"dat\""`}
	if diff := cmp.Diff(want, response.Header.Values("Warning")); response.StatusCode != 422 || diff != "" {
		t.Errorf("%s (-want +got):\n%s", response.Status, diff)
	}
}

func TestLeaderElectionLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := clientOf(apiserver.New(kinds()...), "alice")
		lock := &resourcelock.LeaseLock{
			LeaseMeta: metav1.ObjectMeta{Namespace: "default", Name: "l"}, Client: client.CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{Identity: "alice"},
		}
		now := metav1.Now().Rfc3339Copy()
		record := resourcelock.LeaderElectionRecord{
			HolderIdentity: "alice", LeaseDurationSeconds: 15, AcquireTime: now, RenewTime: now,
		}
		if err := lock.Create(t.Context(), record); err != nil {
			t.Fatal(err)
		}
		got, _, err := lock.Get(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(&record, got); diff != "" {
			t.Errorf("a record (-want +got):\n%s", diff)
		}
	})
}

func TestGeneratedNames(t *testing.T) {
	s := apiserver.New(kinds()...)
	api := clientOf(s, "alice").CoreV1().ConfigMaps("default")
	names := map[string]bool{}
	for range 100 {
		cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "x-"}}
		cm, err := api.Create(t.Context(), cm, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		names[cm.Name] = true
	}
	if len(names) != 100 || names["x-"] {
		t.Errorf("%d names of 100", len(names))
	}
}
