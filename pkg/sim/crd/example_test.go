package crd_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"example.com/foo-controller/pkg/sim/apiserver"
	"example.com/foo-controller/pkg/sim/crd"
	"example.com/foo-controller/pkg/sim/faults"
	"example.com/foo-controller/pkg/sim/simtest"
)

func TestAGreetingGetsItsConfigMapThoughAnAnswerIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // Time is virtual: a minute takes none.
		server := apiserver.New(apiserver.ConfigMaps(), crd.MustLoad("testdata/greetings.yaml"))
		lost := faults.Fault{Kind: faults.LostAfter, Verb: "create", Nth: 1} // The server executes the first create.
		faults.Schedule{Faults: []faults.Fault{lost}}.Inject(server, "greeter")
		writes := simtest.RecordWrites(server, "greeter", nil)
		go runGreeter(t.Context(), server.Config("greeter"))

		user := dynamic.NewForConfigOrDie(server.Config("alice")).Resource(greetings).Namespace("default")
		greeting := &unstructured.Unstructured{}
		greeting.SetGroupVersionKind(greetings.GroupVersion().WithKind("Greeting"))
		greeting.SetName("a")
		if _, err := user.Create(t.Context(), greeting, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute) // The queue of the controller backs off before it tries again.

		stored := server.Objects(corev1.SchemeGroupVersion.WithResource("configmaps"))
		if len(stored) != 1 || stored[0].(*corev1.ConfigMap).Data["text"] != "hello" { // The default of the schema.
			t.Errorf("the ConfigMaps are %v after the requests\n%s", stored, server.Trace())
		}
		if diff := cmp.Diff([]string{"create configmaps a", "create configmaps a"}, writes.Take()); diff != "" {
			t.Errorf("the controller creates the ConfigMap, and tries once more (-want +got):\n%s", diff)
		}
	})
}
