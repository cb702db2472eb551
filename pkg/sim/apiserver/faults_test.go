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

	"example.com/foo-controller/pkg/sim/apiserver"
)

var errReset = errors.New("connection reset by peer")

func TestFaults(t *testing.T) {
	for _, test := range []struct {
		name  string
		fault func(r *apiserver.Request, next apiserver.Next) (*http.Response, error)
		want  string // The trace.
	}{
		{
			name:  "before the commit",
			fault: func(*apiserver.Request, apiserver.Next) (*http.Response, error) { return nil, errReset },
			want:  "    0.000s alice: create configmaps -n default: no answer: connection reset by peer\n",
		},
		{
			name: "after the commit",
			fault: func(_ *apiserver.Request, next apiserver.Next) (*http.Response, error) {
				if _, err := next(); err != nil {
					return nil, err
				}
				return nil, errReset
			},
			want: "    0.000s alice: create configmaps -n default (a): no answer: connection reset by peer " +
				"(the server: 201, version 3)\n",
		},
		{
			name: "a late request",
			fault: func(r *apiserver.Request, next apiserver.Next) (*http.Response, error) {
				if err := r.Sleep(2 * time.Second); err != nil {
					return nil, err
				}
				return next()
			},
			want: "    2.000s alice: create configmaps -n default (a): 201, version 3\n",
		},
		{
			name: "a request that times out",
			fault: func(r *apiserver.Request, next apiserver.Next) (*http.Response, error) {
				if err := r.Sleep(20 * time.Second); err != nil {
					return nil, err
				}
				return next()
			},
			want: "   10.000s alice: create configmaps -n default: no answer: context deadline exceeded\n",
		},
		{
			name: "a request that is sent twice",
			fault: func(_ *apiserver.Request, next apiserver.Next) (*http.Response, error) {
				if _, err := next(); err != nil {
					return nil, err
				}
				return next()
			},
			want: "    0.000s alice: create configmaps -n default (a): 409 AlreadyExists: " +
				"configmaps \"a\" already exists (the server: 201, version 3) (the server: 409 AlreadyExists: configmaps \"a\" already exists)\n",
		},
		{
			name: "a refused request",
			fault: func(r *apiserver.Request, _ apiserver.Next) (*http.Response, error) {
				return r.Refuse(apierrors.NewServerTimeout(r.Resource.GroupResource(), r.Verb, 0))
			},
			want: "    0.000s alice: create configmaps -n default: 500 ServerTimeout: " +
				"The create operation against configmaps could not be completed at this time, please try again.\n",
		},
		{
			name: "a broken proxy",
			fault: func(r *apiserver.Request, _ apiserver.Next) (*http.Response, error) {
				return &http.Response{StatusCode: http.StatusBadGateway, Body: http.NoBody, Request: r.HTTP}, nil
			},
			want: "    0.000s alice: create configmaps -n default: 502\n",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := apiserver.New(kinds()...)
				s.Intercept(test.fault)
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
				// The trace has the error.
				_, _ = clientOf(s, "alice").CoreV1().ConfigMaps("default").Create(ctx, cm, metav1.CreateOptions{})
				if diff := cmp.Diff(test.want, s.Trace()); diff != "" {
					t.Errorf("trace (-want +got):\n%s", diff)
				}
			})
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
	r := &requester{t, s}
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
		review func(s *apiserver.Server) func(*apiserver.Admission) error
		when   string
		want   string
	}{
		{
			name: "a quota",
			review: func(s *apiserver.Server) func(*apiserver.Admission) error {
				return apiserver.Quota(s, "small", deployments, 1)
			},
			when: `POST deployments {"metadata":{"name":"second"}}`,
			want: `403 Forbidden: deployments.apps "second" is forbidden: exceeded quota: small, requested: ` +
				`count/deployments.apps=1, used: count/deployments.apps=1, limited: count/deployments.apps=1`,
		},
		{
			name: "a quota that allows it",
			review: func(s *apiserver.Server) func(*apiserver.Admission) error {
				return apiserver.Quota(s, "small", deployments, 2)
			},
			when: `POST deployments {"metadata":{"name":"second"}}`,
			want: "201",
		},
		{
			name: "a policy",
			review: func(*apiserver.Server) func(*apiserver.Admission) error {
				return func(a *apiserver.Admission) error {
					return a.DeniedByPolicy("frozen", "everywhere", "come back tomorrow")
				}
			},
			when: `MERGE deployments/web {"spec":{"replicas":7}}`,
			want: `422 Invalid: deployments.apps "web" is forbidden: ValidatingAdmissionPolicy 'frozen' with binding ` +
				`'everywhere' denied ` +
				"request: come back tomorrow\n<nil> <nil>",
		},
		{
			name: "a webhook",
			review: func(*apiserver.Server) func(*apiserver.Admission) error {
				return func(*apiserver.Admission) error { return apiserver.DeniedByWebhook("no.example.com", "no") }
			},
			when: `DELETE deployments/web`,
			want: `403 Forbidden: admission webhook "no.example.com" denied the request: no`,
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
	} {
		t.Run(test.name, func(t *testing.T) {
			s := apiserver.New(kinds()...)
			r := &requester{t, s}
			r.do(aDeployment)
			if test.mutate != nil {
				s.Admit(test.mutate)
			}
			if test.review != nil {
				s.Review(test.review(s))
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
		s := apiserver.New(kinds()...)
		r := &requester{t, s}
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
	if !apierrors.IsInternalError(err) && !strings.Contains(fmt.Sprint(err), "refused without an error") {
		t.Errorf("the client gets %v", err)
	}
}

func TestRegistration(t *testing.T) {
	for name, wrong := range map[string][]apiserver.Kind{
		"nothing":                      {{}},
		"a request that is sent twice": {widgetKind, widgetKind},
		"an object of a nil":           {{Resource: configMaps, Kind: "ConfigMap"}},
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("New accepts that")
				}
			}()
			apiserver.New(wrong...)
		})
	}
}
