package apiserver_test

import (
	"context"
	"fmt"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"

	"example.com/foo-controller/pkg/sim/apiserver"
)

// BenchmarkRequests measures the requests of a controller. One operation creates a Deployment, patches it and writes
// its status through a real client, while an informer watches.
func BenchmarkRequests(b *testing.B) {
	s := apiserver.New(kinds()...)
	s.KeepTrace(0)
	client := clientOf(s, "alice")
	ctx, cancel := context.WithCancel(b.Context())
	factory := informers.NewSharedInformerFactory(client, 0)
	factory.Apps().V1().Deployments().Informer()
	factory.StartWithContext(ctx)
	factory.WaitForCacheSyncWithContext(ctx)
	api := client.AppsV1().Deployments("default")
	labels := map[string]string{"app": "web"}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		dep := &appsv1.Deployment{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("web-", i)},
			Spec: appsv1.DeploymentSpec{
				Selector: &metav1.LabelSelector{MatchLabels: labels},
				Template: corev1.PodTemplateSpec{
					ObjectMeta: metav1.ObjectMeta{Labels: labels},
					Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "web", Image: "nginx"}}},
				},
			},
		}
		dep, err := api.Create(ctx, dep, metav1.CreateOptions{})
		if err != nil {
			b.Fatal(err)
		}
		patch := fmt.Appendf(nil, `{"metadata":{"uid":%q,"resourceVersion":%q},"spec":{"replicas":3}}`,
			dep.UID, dep.ResourceVersion)
		dep, err = api.Patch(ctx, dep.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{})
		if err != nil {
			b.Fatal(err)
		}
		dep.Status.ObservedGeneration = dep.Generation
		if _, err = api.UpdateStatus(ctx, dep, metav1.UpdateOptions{}); err != nil {
			b.Fatal(err)
		}
		if i%1000 == 999 {
			s.Compact()
		}
	}
	b.ReportMetric(3*float64(b.N)/b.Elapsed().Seconds(), "requests/s")
	cancel()
	factory.Shutdown()
}
