package simtest

import (
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"example.com/foo-controller/pkg/sim/apiserver"
)

func configMap(name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
}

// The name of a new object is in its body, as protobuf or as JSON.
func TestRecordWrites(t *testing.T) {
	server := apiserver.New(apiserver.ConfigMaps(), apiserver.Deployments())
	refused := apierrors.NewConflict(corev1.Resource("configmaps"), "b", errors.New("planted"))
	writes := RecordWrites(server, "alice", map[string]error{"create configmaps b": refused})
	for _, contentType := range []string{"application/json", "application/vnd.kubernetes.protobuf"} {
		config := server.Config("alice")
		config.ContentType = contentType
		client := kubernetes.NewForConfigOrDie(config).CoreV1().ConfigMaps("default")
		if _, err := client.Create(t.Context(), configMap("a"), metav1.CreateOptions{}); err != nil {
			t.Error(err)
		}
		if _, err := client.Create(t.Context(), configMap("b"), metav1.CreateOptions{}); !apierrors.IsConflict(err) {
			t.Errorf("error %v, want a conflict", err)
		}
		if _, err := client.Get(t.Context(), "a", metav1.GetOptions{}); err != nil {
			t.Error(err)
		}
		_, err := client.Patch(t.Context(), "a", types.MergePatchType, []byte("{}"), metav1.PatchOptions{}, "status")
		if !apierrors.IsNotFound(err) {
			t.Errorf("error %v, want that there is no such subresource", err)
		}
		if err := clientOf(server, "bob").CoreV1().ConfigMaps("default").Delete(t.Context(), "a",
			metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
		want := []string{"create configmaps a", "create configmaps b", "patch configmaps/status a"}
		if diff := cmp.Diff(want, writes.Take()); diff != "" {
			t.Errorf("writes in %s (-want +got):\n%s", contentType, diff)
		}
	}
	if again := writes.Take(); len(again) > 0 {
		t.Errorf("returned twice: %q", again)
	}
}

func clientOf(server *apiserver.Server, user string) kubernetes.Interface {
	return kubernetes.NewForConfigOrDie(rest.CopyConfig(server.Config(user)))
}

func TestAuthorize(t *testing.T) {
	server := apiserver.New(apiserver.ConfigMaps())
	unused := Authorize(server, "alice", []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"get", "list"}},
		{APIGroups: []string{"apps"}, Resources: []string{"deployments/status"}, Verbs: []string{"update"}},
	})
	alice, bob := clientOf(server, "alice").CoreV1().ConfigMaps("default"), clientOf(server,
		"bob").CoreV1().ConfigMaps("default")
	if _, err := alice.List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Error(err)
	}
	if _, err := alice.Create(t.Context(), configMap("a"), metav1.CreateOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("error %v, want that alice may not create", err)
	}
	if _, err := bob.Create(t.Context(), configMap("a"), metav1.CreateOptions{}); err != nil {
		t.Error(err)
	}
	discovery := clientOf(server, "alice").Discovery() // Everybody may.
	if _, err := discovery.ServerPreferredResources(); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff([]string{"get configmaps", "update deployments.apps/status"}, unused()); diff != "" {
		t.Errorf("unused (-want +got):\n%s", diff)
	}
}

func TestRunInformersWaitsForALateList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := apiserver.New(apiserver.ConfigMaps())
		server.Intercept(func(r *apiserver.Request, next apiserver.Next) (*http.Response, error) {
			if err := r.Sleep(time.Second); err != nil {
				return nil, err
			}
			return next()
		})
		informer := informers.NewSharedInformerFactory(clientOf(server, "alice"), 0).Core().V1().ConfigMaps().Informer()
		RunInformers(t, informer)
		if !informer.HasSynced() {
			t.Error("the cache is not filled")
		}
	})
}

func TestCachedReturnsWhatWasModified(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := apiserver.New(apiserver.ConfigMaps())
		if err := server.Load(configMap("a"), configMap("b")); err != nil {
			t.Fatal(err)
		}
		configMaps := informers.NewSharedInformerFactory(clientOf(server, "alice"), 0).Core().V1().ConfigMaps()
		RunInformers(t, configMaps.Informer())
		changed := Cached(configMaps.Informer())
		if objects := changed(); len(objects) > 0 {
			t.Errorf("nothing is modified, but %q are returned", objects)
		}
		cached, err := configMaps.Lister().ConfigMaps("default").Get("a")
		if err != nil {
			t.Fatal(err)
		}
		cached.Data = map[string]string{"a": "b"}
		if diff := cmp.Diff([]string{"*v1.ConfigMap"}, changed()); diff != "" {
			t.Errorf("modified (-want +got):\n%s", diff)
		}
	})
}

func TestCondition(t *testing.T) {
	server, gvr := apiserver.New(apiserver.Deployments()), appsv1.SchemeGroupVersion.WithResource("deployments")
	deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a"}}
	deployment.Status.Conditions = []appsv1.DeploymentCondition{{Type: "Available", Status: "True", Reason: "Enough"}}
	if err := server.Load(deployment); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[[2]string]string{
		{"a", "Available"}: "True/Enough", {"a", "Other"}: "", {"b", "Available"}: "",
	} {
		if got := Condition(server, gvr, "default", name[0], name[1]); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
