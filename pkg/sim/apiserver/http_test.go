package apiserver_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"example.com/foo-controller/pkg/sim/apiserver"
)

// overHTTP serves s on loopback, and returns a client whose user agent is alice/1.
func overHTTP(t *testing.T, s *apiserver.Server) *kubernetes.Clientset {
	web := httptest.NewServer(s)
	t.Cleanup(web.CloseClientConnections)
	t.Cleanup(web.Close)
	return kubernetes.NewForConfigOrDie(&rest.Config{Host: web.URL, UserAgent: "alice/1"})
}

func TestInformersWorkOverHTTP(t *testing.T) {
	s := apiserver.New(kinds()...)
	client := overHTTP(t, s)
	ctx, cancel := context.WithCancel(t.Context())
	factory := informers.NewSharedInformerFactory(client, 0)
	informer := factory.Core().V1().ConfigMaps().Informer()
	seen := make(chan string, 10)
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) { seen <- obj.(*corev1.ConfigMap).Name },
	}); err != nil {
		t.Fatal(err)
	}
	factory.StartWithContext(ctx)
	defer factory.Shutdown()
	defer cancel()
	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		t.Fatal("the informer has not synced")
	}
	cm := &corev1.ConfigMap{ObjectMeta: objectMeta("a")}
	if _, err := client.CoreV1().ConfigMaps("default").Create(ctx, cm, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if name := <-seen; name != "a" {
		t.Errorf("the informer has seen %q", name)
	}
	if !strings.Contains(s.Trace(), "alice: create configmaps -n default (a): 201, version 3") {
		t.Errorf("the trace lacks the user:\n%s", s.Trace())
	}
}

func TestAnAnswerOverHTTPHasItsCodeAndItsType(t *testing.T) {
	web := httptest.NewServer(apiserver.New(kinds()...))
	defer web.Close()
	for path, want := range map[string]string{
		"/api/v1/namespaces/default/configmaps":   "200 application/json",
		"/api/v1/namespaces/default/configmaps/a": "404 application/json",
	} {
		response, err := http.Get(web.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if got := fmt.Sprint(response.StatusCode, " ", response.Header.Get("Content-Type")); got != want {
			t.Errorf("GET %s: %s, want %s", path, got, want)
		}
	}
}

func TestServingBehindAWriterThatCannotFlush(t *testing.T) {
	s := apiserver.New(kinds()...)
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.ServeHTTP(struct{ http.ResponseWriter }{w}, r)
	}))
	defer web.Close()
	response, err := http.Get(web.URL + "/api/v1/configmaps")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if body, err := io.ReadAll(response.Body); err != nil || len(body) == 0 {
		t.Errorf("the answer is %q, with the error %v", body, err)
	}
}

// After a clean end the client would think that the watch has timed out.
func TestABrokenWatchBreaksItsConnection(t *testing.T) {
	s := apiserver.New(kinds()...)
	web := httptest.NewServer(s)
	defer web.Close()
	response, err := http.Get(web.URL + "/api/v1/configmaps?watch=true&resourceVersion=2")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	s.BreakWatches("Go-http-client", "", errReset)
	if _, err := io.ReadAll(response.Body); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("the watch ends with the error %v", err)
	}
}

func TestARequestWithoutAnAnswerBreaksItsConnection(t *testing.T) {
	s := apiserver.New(kinds()...)
	s.Intercept(func(*apiserver.Request, apiserver.Next) (*http.Response, error) { return nil, errReset })
	// client-go would repeat a GET.
	err := overHTTP(t, s).CoreV1().ConfigMaps("default").Delete(t.Context(), "a", metav1.DeleteOptions{})
	if err == nil || !strings.Contains(err.Error(), "EOF") {
		t.Errorf("the client has the error %v", err)
	}
}

func TestEverythingIsAllowed(t *testing.T) {
	for _, contentType := range []string{"application/json", "application/vnd.kubernetes.protobuf"} {
		s := apiserver.New(kinds()...)
		config := s.Config("alice")
		config.ContentType = contentType
		review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
			ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "delete", Resource: "namespaces"},
		}}
		answer, err := kubernetes.NewForConfigOrDie(config).AuthorizationV1().SelfSubjectAccessReviews().
			Create(t.Context(), review, metav1.CreateOptions{})
		if err != nil || !answer.Status.Allowed || answer.Spec.ResourceAttributes.Verb != "delete" {
			t.Errorf("with %s: %v, %v", contentType, answer, err)
		}
	}
}

// kubectl validates what it sends itself, without a schema, if the server does not say that it does.
func TestOpenAPIHasTheParameterForValidationOfEachPatch(t *testing.T) {
	s := apiserver.New(kinds()...)
	paths, err := kubernetes.NewForConfigOrDie(s.Config("kubectl")).Discovery().OpenAPIV3().Paths()
	if err != nil {
		t.Fatal(err)
	}
	for gv, want := range map[string]string{
		"api/v1":              "/api/v1/namespaces/{namespace}/configmaps/{name}",
		"apis/example.com/v1": "/apis/example.com/v1/gadgets/{name}",
	} {
		if paths[gv] == nil {
			t.Fatalf("%s is missing in %v", gv, paths)
		}
		document, err := paths[gv].Schema("application/json")
		if err != nil || !strings.Contains(string(document), want) || !strings.Contains(string(document), "fieldValidation") {
			t.Errorf("the document of %s lacks %s: %s, %v", gv, want, document, err)
		}
	}
	r := &requester{t, s}
	if code, _ := r.do("GET /openapi/v3/apis/none/v1"); code != http.StatusNotFound {
		t.Errorf("a group that does not exist: %d", code)
	}
}
