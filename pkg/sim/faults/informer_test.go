package faults_test

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

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

// Their requests and events of one moment have no order but that of the seed.
func TestASeedReplaysWithTwoInformersOfAResource(t *testing.T) {
	play := func() (seen []string) {
		synctest.Test(t, func(t *testing.T) {
			server := apiserver.New(apiserver.ConfigMaps())
			faults.Random(7, true).Inject(server, "controller")
			client, began := kubernetes.NewForConfigOrDie(server.Config("controller")), time.Now()
			var mu sync.Mutex
			for _, selector := range []string{"app=a", "app in (a,b)"} {
				factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTweakListOptions(
					func(opts *metav1.ListOptions) { opts.LabelSelector = selector }))
				_, err := factory.Core().V1().ConfigMaps().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
					AddFunc: func(obj any) {
						mu.Lock()
						defer mu.Unlock()
						seen = append(seen, fmt.Sprint(time.Since(began), selector, obj.(*corev1.ConfigMap).Name))
					},
				})
				if err != nil {
					t.Fatal(err)
				}
				factory.StartWithContext(t.Context())
				t.Cleanup(factory.Shutdown) // The context ends before.
			}
			user := kubernetes.NewForConfigOrDie(server.Config("user")).CoreV1().ConfigMaps("default")
			for i := range 20 {
				time.Sleep(time.Second)
				cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint(i), Labels: map[string]string{"app": "a"}}}
				if _, err := user.Create(t.Context(), cm, metav1.CreateOptions{}); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(10 * time.Minute)
		})
		slices.Sort(seen)
		return seen
	}
	first := play()
	for range 10 {
		if diff := cmp.Diff(first, play()); diff != "" {
			t.Fatalf("(-first +replay):\n%s", diff)
		}
	}
}
