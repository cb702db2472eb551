package apiserver_test

import (
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"

	"example.com/foo-controller/pkg/sim/apiserver"
)

// The clients of client-go are generated from the Go types, with their scope and subresources.
func TestBuiltInKindsHaveTheResourceScopeAndSubresourcesOfTheirClients(t *testing.T) {
	compared := 0
	for group := range reflect.TypeFor[kubernetes.Interface]().Methods() {
		if group.Type.NumOut() != 1 || group.Name == "Discovery" {
			continue
		}
		for resource := range group.Type.Out(0).Methods() {
			client := resource.Type.Out(0)
			get, found := client.MethodByName("Get")
			if !found || resource.Name == "RESTClient" {
				continue
			}
			obj := reflect.New(get.Type.Out(0).Elem()).Interface().(runtime.Object)
			kind := apiserver.KindOf(obj, scheme.Scheme)
			_, status := client.MethodByName("UpdateStatus")
			type traits struct {
				resource              string
				clusterScoped, status bool
			}
			have := traits{kind.Resource.Resource, kind.ClusterScoped, kind.Status}
			want := traits{strings.ToLower(resource.Name), resource.Type.NumIn() == 0, status}
			if have != want {
				t.Errorf("%T has %+v, want %+v", obj, have, want)
			}
			compared++
		}
	}
	if compared < 50 {
		t.Errorf("only %d kinds were compared", compared)
	}
}

func TestKindsOfGoTypes(t *testing.T) {
	types := runtime.NewScheme()
	types.AddKnownTypes(widgets.GroupVersion(), &Widget{})
	used := &Widget{Spec: WidgetSpec{Color: "red"}}
	want := apiserver.Kind{Resource: widgets, Kind: "Widget", Object: &Widget{}, Status: true}
	if diff := cmp.Diff(want, apiserver.KindOf(used, types)); diff != "" {
		t.Errorf("a custom resource (-want +got):\n%s", diff)
	}

	for kind, want := range map[string]string{
		"Gateway": "gateways", "Policy": "policies", "Mesh": "meshes", "Proxy": "proxies", "Box": "boxes", "Bus": "buses",
	} {
		types := runtime.NewScheme()
		types.AddKnownTypeWithName(widgets.GroupVersion().WithKind(kind), &Widget{})
		if got := apiserver.KindOf(used, types).Resource.Resource; got != want {
			t.Errorf("the resource of %s is %s", kind, got)
		}
	}

	if kind := apiserver.KindOf(&appsv1.StatefulSet{}, scheme.Scheme); kind.Scale == nil {
		t.Error("StatefulSets have no scale subresource")
	}
	if kind := apiserver.KindOf(&appsv1.Deployment{}, scheme.Scheme); kind.Default == nil {
		t.Error("Deployments are not those of Deployments()")
	}

	defer func() {
		if recover() == nil {
			t.Error("KindOf accepts a type that the scheme does not know")
		}
	}()
	apiserver.KindOf(&Widget{}, scheme.Scheme)
}

func TestSecretsHaveTheirStringsAsData(t *testing.T) {
	s := apiserver.New(apiserver.KindOf(&corev1.Secret{}, scheme.Scheme))
	secret := &corev1.Secret{ObjectMeta: objectMeta("a"), StringData: map[string]string{"k": "v"}}
	got, err := clientOf(s, "alice").CoreV1().Secrets("default").Create(t.Context(), secret, metav1.CreateOptions{})
	if err != nil || string(got.Data["k"]) != "v" || got.StringData != nil {
		t.Errorf("%v, %v", got, err)
	}
}

func TestNodesAreCreatedWithTheirStatus(t *testing.T) {
	s := apiserver.New(apiserver.KindOf(&corev1.Node{}, scheme.Scheme))
	node := &corev1.Node{ObjectMeta: objectMeta("a"), Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{}}}}
	got, err := clientOf(s, "alice").CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{})
	if err != nil || len(got.Status.Conditions) != 1 {
		t.Errorf("%v, %v", got, err)
	}
}

func TestBuiltInKindsHaveGenerationsAsInACluster(t *testing.T) {
	server := apiserver.New(apiserver.KindOf(&corev1.Service{}, scheme.Scheme),
		apiserver.KindOf(&networkingv1.NetworkPolicy{}, scheme.Scheme))
	client := kubernetes.NewForConfigOrDie(server.Config("alice"))
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
	service, err := client.CoreV1().Services("default").Create(t.Context(), service, metav1.CreateOptions{})
	if err != nil || service.Generation != 0 {
		t.Errorf("a Service has generation %d, error %v", service.Generation, err)
	}
	api := client.NetworkingV1().NetworkPolicies("default")
	policy := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
	policy, err = api.Create(t.Context(), policy, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	policy.Spec.PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeEgress}
	policy, err = api.Update(t.Context(), policy, metav1.UpdateOptions{})
	if err != nil || policy.Generation != 2 {
		t.Errorf("a NetworkPolicy with another spec has generation %d, error %v", policy.Generation, err)
	}
}
