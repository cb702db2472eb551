package apiserver_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"

	"example.com/foo-controller/pkg/sim/apiserver"
)

var errReset = errors.New("connection reset by peer")

// Package faults has the other faults, with their traces.
func TestARequestMayBeSentTwiceOrTooLate(t *testing.T) {
	for want, fault := range map[string]func(r *apiserver.Request, next apiserver.Next) (*http.Response, error){
		"    0.000s alice: create configmaps -n default (a): 409 AlreadyExists: configmaps \"a\" already exists " +
			"(the server: 201, version 3) (the server: 409 AlreadyExists: configmaps \"a\" already exists)\n": func(
			_ *apiserver.Request, next apiserver.Next,
		) (*http.Response, error) {
			if _, err := next(); err != nil {
				return nil, err
			}
			return next()
		},
		"   10.000s alice: create configmaps -n default: no answer: context deadline exceeded\n": func(
			r *apiserver.Request, next apiserver.Next,
		) (*http.Response, error) {
			if err := r.Sleep(20 * time.Second); err != nil {
				return nil, err
			}
			return next()
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := apiserver.New(kinds()...)
			s.Intercept(fault)
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			// The trace has the error.
			_, _ = clientOf(s, "alice").CoreV1().ConfigMaps("default").Create(ctx, configMap("a"), metav1.CreateOptions{})
			if diff := cmp.Diff(want, s.Trace()); diff != "" {
				t.Errorf("trace (-want +got):\n%s", diff)
			}
		})
	}
}

func TestInterceptorsAreNested(t *testing.T) {
	s := apiserver.New(kinds()...)
	var order []string
	for _, name := range []string{"outer", "inner"} {
		s.Intercept(func(r *apiserver.Request, next apiserver.Next) (*http.Response, error) {
			order = append(order, name+" "+r.String())
			return next()
		})
	}
	r := &requester{t: t, server: s}
	r.do(`MERGE deployments/web/status {}`)
	want := []string{"outer patch deployments/status default/web", "inner patch deployments/status default/web"}
	if diff := cmp.Diff(want, order); diff != "" {
		t.Errorf("interceptors (-want +got):\n%s", diff)
	}
}

func TestARequestIsNotServedAfterTheClientGaveUp(t *testing.T) {
	s := apiserver.New(kinds()...)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	const url = "http://apiserver/api/v1/namespaces/default/configmaps"
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(`{"metadata":{"name":"a"}}`))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.RoundTrip(r); !errors.Is(err, context.Canceled) || s.Version() != 2 {
		t.Errorf("%v, version %d", err, s.Version())
	}
}

func TestAdmission(t *testing.T) {
	for _, test := range []struct {
		name   string
		mutate func(*apiserver.Admission) error
		review func(*apiserver.Admission) error
		when   string
		want   string
	}{
		{
			name: "a policy",
			review: func(a *apiserver.Admission) error {
				return a.DeniedByPolicy("frozen", "everywhere", "come back tomorrow")
			},
			when: `MERGE deployments/web {"spec":{"replicas":7}}`,
			want: `422 Invalid: deployments.apps "web" is forbidden: ValidatingAdmissionPolicy 'frozen' with binding ` +
				`'everywhere' denied ` +
				"request: come back tomorrow\n<nil> <nil>",
		},
		{
			name:   "a webhook",
			review: func(*apiserver.Admission) error { return apiserver.DeniedByWebhook("no.example.com", "no") },
			when:   `DELETE deployments/web`,
			want:   `403 Forbidden: admission webhook "no.example.com" denied the request: no`,
		},
		{
			name:   "a webhook without a message",
			mutate: func(*apiserver.Admission) error { return apiserver.DeniedByWebhook("no.example.com", "") },
			when:   `MERGE deployments/web {"spec":{"replicas":7}}`,
			want:   `403 Forbidden: admission webhook "no.example.com" denied the request without explanation`,
		},
		{
			name:   "a webhook that cannot be reached",
			mutate: func(*apiserver.Admission) error { return apiserver.WebhookFailed("no.example.com", errReset) },
			when:   `PUT deployments/web/scale {"metadata":{"name":"web"},"spec":{"replicas":7}}`,
			want: `500 InternalError: Internal error occurred: failed calling webhook "no.example.com": failed to ` +
				`call webhook: ` +
				"connection reset by peer\n<nil> <nil>",
		},
		{
			name: "an admission that reverts the change",
			mutate: func(a *apiserver.Admission) error {
				a.Object.(metav1.Object).SetLabels(nil)
				return nil
			},
			when: `MERGE deployments/web {"metadata":{"labels":{"a":"b"}}}`,
			want: "200 unchanged",
		},
		{
			name: "the rules of a kind",
			when: `MERGE widgets/w {"spec":{"color":"blue"}}`,
			want: "422 Invalid: Widget.example.com \"w\" is invalid: spec.color: Forbidden: red stays red\n" +
				"FieldValueForbidden spec.color",
		},
		{
			name: "server-side apply, which is not simulated", when: `APPLY deployments/web?fieldManager=x {}`,
			want: "415 UnsupportedMediaType: the simulated API server has no server-side apply: use client-side apply",
		},
		{
			name: "a Go type that cannot hold a value",
			when: `POST widgets {$widget,"metadata":{"name":"v"},"spec":{"size":"2"}}`,
			want: "422 Invalid: Widget.example.com \"v\" is invalid: spec.size: Invalid value: \"string\": spec.size in " +
				"body must be of type integer: \"string\"\nFieldValueTypeInvalid spec.size",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			s, r := newServer(t)
			r.do(aDeployment)
			r.do(aWidget)
			if test.mutate != nil {
				s.Admit(test.mutate)
			}
			if test.review != nil {
				s.Review(test.review)
			}
			if diff := cmp.Diff(test.want, r.result(test.when)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", test.when, diff)
			}
		})
	}
}

func TestTraceKeepsTheLastLines(t *testing.T) {
	s := apiserver.New(kinds()...)
	s.KeepTrace(2)
	for i := range 10 {
		s.Note("note %d", i)
	}
	s.KeepTrace(1)
	if got := s.Trace()[11:]; got != "note 9\n" {
		t.Errorf("trace %q", got)
	}
	s.KeepTrace(0)
	s.Note("more")
	if got := s.Trace(); got != "" {
		t.Errorf("trace %q", got)
	}
}

func TestTraceOfChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, r := newServer(t)
		spec := `"spec":{"template":{"spec":{"containers":[{"name":"c","image":%q}]}}}}`
		r.do(`POST deployments {"metadata":{"name":"web"},` + fmt.Sprintf(spec, "a"))
		r.do(`STRATEGIC deployments/web {"metadata":{"labels":{"x.y/z":"v"}},` + fmt.Sprintf(spec, "b"))
		r.do(`MERGE deployments/web {"spec":{"replicas":1}}`)
		r.do(`POST deployments {"metadata":{"name":"other","finalizers":["x/y"]}}`)
		r.do(`DELETE deployments`)
		want := `    0.000s test: create deployments -n default (web): 201, version 3
    0.000s test: patch deployments default/web (metadata.generation 1 -> 2, metadata.labels[x.y/z] none -> v, ` +
			`spec.template.spec.containers[c].image a -> b): 200, version 4
    0.000s test: patch deployments default/web (nothing): 200, version 4
    0.000s test: create deployments -n default (other): 201, version 5
    0.000s test: deletecollection deployments -n default (default/other metadata.deletionGracePeriodSeconds none ` +
			`-> 0, ` +
			`metadata.deletionTimestamp none -> 2000-01-01T00:00:00Z, metadata.generation 1 -> 2; default/web deleted): 200, ` +
			`version 7
`
		if diff := cmp.Diff(want, s.Trace()); diff != "" {
			t.Errorf("trace (-want +got):\n%s", diff)
		}
	})
}

func TestARefusalWithoutAnErrorIsAnInternalError(t *testing.T) {
	s := apiserver.New(kinds()...)
	s.Intercept(func(r *apiserver.Request, _ apiserver.Next) (*http.Response, error) {
		return r.Refuse(nil)
	})
	_, err := clientOf(s, "alice").CoreV1().ConfigMaps("default").Get(t.Context(), "a", metav1.GetOptions{})
	if !apierrors.IsInternalError(err) || !strings.Contains(fmt.Sprint(err), "refused without an error") {
		t.Errorf("the client gets %v", err)
	}
}

func TestRegistration(t *testing.T) {
	wrongColumn := widgetKind
	wrongColumn.Columns = []apiserver.Column{{Name: "X", JSONPath: ".spec["}}
	for want, wrong := range map[string][]apiserver.Kind{
		`kind "" of`:          {{}},
		"is registered twice": {widgetKind, widgetKind},
		"or its Object":       {{Resource: configMaps, Kind: "ConfigMap"}},
		"column X":            {wrongColumn},
	} {
		t.Run(want, func(t *testing.T) {
			defer func() {
				if message := fmt.Sprint(recover()); !strings.Contains(message, want) {
					t.Errorf("New panics with %s, want %s", message, want)
				}
			}()
			apiserver.New(wrong...)
		})
	}
}

func clientOf(s *apiserver.Server, user string) kubernetes.Interface {
	return kubernetes.NewForConfigOrDie(s.Config(user))
}

func listOptions(version string) metav1.ListOptions {
	return metav1.ListOptions{ResourceVersion: version}
}

// listed describes the items of a list.
func listed(code int, answer map[string]any) string {
	if code != 200 {
		return refusalWords(code, answer)
	}
	metadata := answer["metadata"].(map[string]any)
	var names []string
	for _, item := range answer["items"].([]any) {
		m := item.(map[string]any)["metadata"].(map[string]any)
		names = append(names, fmt.Sprintf("%v@%v", m["name"], m["resourceVersion"]))
	}
	words := fmt.Sprintf("%s at %v", strings.Join(names, " "), metadata["resourceVersion"])
	if remaining, found := metadata["remainingItemCount"]; found {
		words += fmt.Sprintf(", %v more", remaining)
	}
	return words
}

func TestListsAtTheVersionOfTheCompaction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, r := newServer(t)
		r.do(`POST configmaps {"metadata":{"name":"a"}}`)
		r.do(`POST configmaps {"metadata":{"name":"b"}}`)
		r.do(`POST configmaps {"metadata":{"name":"c"}}`)
		s.Compact()
		code, refused := r.do("GET configmaps?resourceVersionMatch=Exact&resourceVersion=4")
		want := "410 Expired: The resourceVersion for the provided list is too old."
		if got := refusalWords(code, refused); got != want {
			t.Errorf("at 4: %s, want %s", got, want)
		}
		r.do(`MERGE configmaps/a {"data":{"k":"v"}}`)
		r.do(`DELETE configmaps/b`)
		r.do(`POST configmaps {"metadata":{"name":"d"}}`)
		for version, want := range map[string]string{
			"5": "a@3 b@4 c@5 at 5", "6": "a@6 b@4 c@5 at 6", "7": "a@6 c@5 at 7", "8": "a@6 c@5 d@8 at 8",
		} {
			got := listed(r.do("GET configmaps?resourceVersionMatch=Exact&resourceVersion=" + version))
			if got != want {
				t.Errorf("at %s: %s, want %s", version, got, want)
			}
		}
	})
}

func TestLoad(t *testing.T) {
	s := apiserver.New(kinds()...)
	old := &Widget{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "w", UID: "u", Generation: 7}}
	for range 2 {
		if err := s.Load(old); err != nil {
			t.Fatal(err)
		}
	}
	got := s.Object(widgets, "default", "w").(*Widget)
	if got.UID != "u" || got.Generation != 7 || got.ResourceVersion != "4" || got.Status.Phase != "" ||
		old.ResourceVersion != "" {
		t.Errorf("loaded %v", got)
	}
	gadget := &unstructured.Unstructured{Object: map[string]any{"status": map[string]any{"ready": true}}}
	gadget.SetGroupVersionKind(gadgets.GroupVersion().WithKind("Gadget"))
	gadget.SetName("g")
	if err := s.Load(gadget); err != nil {
		t.Fatal(err)
	}
	before := s.Version()
	(&requester{t: t, server: s}).do(`MERGE gadgets/g/status {"status":{"ready":true}}`)
	if s.Version() != before {
		t.Error("the first write of a status that changes nothing is a change")
	}
	for _, wrong := range []runtime.Object{
		&metav1.PartialObjectMetadata{}, // A kind that nobody knows.
		&Widget{ObjectMeta: metav1.ObjectMeta{Namespace: "default"}},
		&Widget{ObjectMeta: metav1.ObjectMeta{Name: "w"}},
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "n"}},
	} {
		if err := s.Load(wrong); err == nil {
			t.Errorf("loaded %v", wrong)
		}
	}
}

// A client whose list was compacted gets a token for the rest of it, at another version.
func TestPagesAfterACompaction(t *testing.T) {
	s, r := newServer(t)
	for _, name := range []string{"a", "b", "c"} {
		r.do(fmt.Sprintf(`POST configmaps {"metadata":{"name":%q}}`, name))
	}
	next := func(answer map[string]any) string { return fmt.Sprint(answer["metadata"].(map[string]any)["continue"]) }
	_, page := r.do("GET configmaps?limit=2")
	r.do(`MERGE configmaps/c {"data":{"k":"v"}}`)
	s.Compact()
	code, expired := r.do("GET configmaps?limit=2&continue=" + next(page))
	if code != http.StatusGone {
		t.Fatalf("a token from before the compaction: %d %v", code, expired)
	}
	if got := listed(r.do("GET configmaps?limit=2&continue=" + next(expired))); got != "c@6 at 6" {
		t.Errorf("the rest, inconsistently: %s", got)
	}
}
