package faults_test

import (
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"

	"example.com/foo-controller/pkg/sim/apiserver"
	"example.com/foo-controller/pkg/sim/faults"
)

// An error outside of a bubble has a real time. client-go's handler of errors would make the informer wait until then.
func TestAnInformerInABubbleRecoversAfterAnErrorOutside(t *testing.T) {
	utilruntime.HandleError(errors.New("an error of another test"))
	synctest.Test(t, func(t *testing.T) {
		server := apiserver.New(apiserver.Namespaces(), apiserver.ConfigMaps())
		const unavailable = http.StatusServiceUnavailable
		faults.Schedule{Faults: []faults.Fault{
			{Kind: faults.Refused, Verb: "watch", Code: unavailable, For: time.Minute},
			{Kind: faults.Refused, Verb: "list", Code: unavailable, For: time.Minute},
		}}.Inject(server, "user")
		client := kubernetes.NewForConfigOrDie(server.Config("user"))
		factory := informers.NewSharedInformerFactory(client, 0)
		informer := factory.Core().V1().ConfigMaps().Informer()
		factory.StartWithContext(t.Context())
		t.Cleanup(factory.Shutdown) // The context ends before.
		cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
		if _, err := client.CoreV1().ConfigMaps("default").Create(t.Context(), cm, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		if n := len(informer.GetStore().List()); n != 1 {
			t.Errorf("after an hour, the cache has %d ConfigMaps\n%s", n, server.Trace())
		}
	})
}
