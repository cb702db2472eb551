package apiserver_test

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"example.com/foo-controller/pkg/sim/apiserver"
)

const anEvent = `POST events {"metadata":{"name":"e"},"eventTime":"2000-01-01T00:00:00.000000Z","type":"Normal",` +
	`"reason":"Done","action":"Do","note":"It is done","regarding":{"kind":"Widget","name":"w","uid":"u"},` +
	`"reportingController":"c","reportingInstance":"i","deprecatedCount":2,` +
	`"series":{"count":3,"lastObservedTime":"2000-01-01T00:00:55.000000Z"}}`

// kubectl describe lists the Events of v1 that are about an object.
func TestEventsCanBeReadAsThoseOfTheCoreGroup(t *testing.T) {
	for _, contentType := range []string{"application/json", "application/vnd.kubernetes.protobuf"} {
		synctest.Test(t, func(t *testing.T) {
			s := apiserver.New(kinds()...)
			r := &requester{t, s}
			r.do(anEvent)
			r.do(strings.NewReplacer(`"name":"e"`, `"name":"f"`, `"name":"w"`, `"name":"x"`).Replace(anEvent))
			config := s.Config("kubectl")
			config.ContentType = contentType
			api := kubernetes.NewForConfigOrDie(config).CoreV1().Events("default")
			// kubectl describe asks for the first two.
			const about = "involvedObject.kind=Widget,involvedObject.name=w,source=c"
			list, err := api.List(t.Context(), metav1.ListOptions{FieldSelector: about})
			if err != nil || len(list.Items) != 1 {
				t.Fatalf("the Events about w: %v, %v", list, err)
			}
			got, err := api.Get(t.Context(), "e", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(list.Items[0], *got, ignoreType); diff != "" {
				t.Errorf("an Event in a list and alone:\n%s", diff)
			}
			w, err := api.Watch(t.Context(), metav1.ListOptions{ResourceVersion: "2", FieldSelector: about})
			if err != nil {
				t.Fatal(err)
			}
			defer w.Stop()
			if diff := cmp.Diff(got, (<-w.ResultChan()).Object, ignoreType); diff != "" {
				t.Errorf("an Event alone and in a watch:\n%s", diff)
			}
			if got.InvolvedObject.Name != "w" || got.Message != "It is done" || got.Count != 2 || got.Action != "Do" ||
				got.Series.Count != 3 || got.ReportingController != "c" || got.ResourceVersion != "3" {
				t.Errorf("the Event lacks fields: %v", got)
			}
		})
	}
}

var ignoreType = cmp.FilterPath(func(p cmp.Path) bool { return p.Last().String() == ".TypeMeta" }, cmp.Ignore())

func TestEventsOfTheCoreGroupCannotBeWritten(t *testing.T) {
	s := apiserver.New(kinds()...)
	r := &requester{t, s}
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
	r := &requester{t, s}
	const request = `POST /api/v1/namespaces/default/events {"metadata":{"name":"f"}}`
	if code, answer := r.do(request); code != http.StatusCreated {
		t.Errorf("%d %v", code, answer)
	}
	if n := len(s.Objects(own.Resource)); n != 1 {
		t.Errorf("%d Events", n)
	}
}
