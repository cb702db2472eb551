package preflight

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

var fooKind = schema.GroupVersionKind{Group: "samplecontroller.k8s.io", Version: "v1alpha1", Kind: "Foo"}

// A cluster answers the requests of checks.
type cluster struct {
	// denied has what nobody may do, in the form of Permission.String.
	denied map[string]bool
	// user is the name of the client. If it is empty, the cluster does not answer who the client is.
	user string
	// documents has the answers to GET by path. All other paths are not found.
	documents map[string]string
	// down lets every request fail.
	down bool
	// requests counts all requests.
	requests int
}

func (c *cluster) client(t *testing.T) *kubernetes.Clientset {
	client, err := kubernetes.NewForConfigAndClient(&rest.Config{
		Host: "https://api.test", QPS: -1, ContentConfig: rest.ContentConfig{ContentType: "application/json"},
	}, &http.Client{Transport: roundTripper(c.serve)})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func (c *cluster) serve(req *http.Request) (*http.Response, error) {
	c.requests++
	if c.down {
		return nil, errors.New("connection refused")
	}
	if req.Method == http.MethodGet {
		body, found := c.documents[req.URL.Path]
		if !found {
			return respond(http.StatusNotFound, `{"kind":"Status","apiVersion":"v1","reason":"NotFound","code":404}`), nil
		}
		return respond(http.StatusOK, body), nil
	}
	if strings.HasSuffix(req.URL.Path, "/selfsubjectreviews") && c.user == "" {
		return respond(http.StatusForbidden, `{"kind":"Status","apiVersion":"v1","reason":"Forbidden","code":403}`), nil
	}
	if strings.HasSuffix(req.URL.Path, "/selfsubjectreviews") {
		return respond(http.StatusCreated, `{"status":{"userInfo":{"username":"`+c.user+`"}}}`), nil
	}
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return nil, err
	}
	var review authorizationv1.SelfSubjectAccessReview
	if err := json.Unmarshal(body, &review); err != nil {
		return nil, err
	}
	a := review.Spec.ResourceAttributes
	permission := Permission{Verb: a.Verb, Group: a.Group, Resource: a.Resource, Subresource: a.Subresource, Name: a.Name}
	review.Status.Allowed = !c.denied[strings.TrimSpace(permission.String()+" "+a.Namespace)]
	body, err = json.Marshal(review)
	return respond(http.StatusCreated, string(body)), err
}

func respond(code int, body string) *http.Response {
	return &http.Response{
		StatusCode: code, Header: http.Header{"Content-Type": {"application/json"}},
		Body: io.NopCloser(strings.NewReader(body)),
	}
}

func mustFind(t *testing.T, check Check, want ...string) {
	t.Helper()
	found, err := check(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	lines := []string{}
	for _, p := range found {
		lines = append(lines, p.String())
	}
	if diff := cmp.Diff(want, lines); diff != "" {
		t.Errorf("- wanted, + found:\n%s", diff)
	}
}

var permissions = []Permission{
	{Verb: "create", Group: "apps", Resource: "deployments"},
	{Verb: "update", Group: "samplecontroller.k8s.io", Resource: "foos", Subresource: "status"},
	{Verb: "get", Resource: "pods"},
}

func TestMissingPermissionsAreFound(t *testing.T) {
	c := &cluster{denied: map[string]bool{
		"update foos.samplecontroller.k8s.io/status": true, "get pods": true, "create deployments.apps team": true,
	}}
	c.user = "system:serviceaccount:foo-system:foo-controller"
	mustFind(t, Permissions(c.client(t), "grant it", permissions...),
		`A permission is missing, will keep trying permission="update foos.samplecontroller.k8s.io/status" fix="grant it" `+
			`show="kubectl auth can-i update foos.samplecontroller.k8s.io --subresource=status --all-namespaces `+
			`--as=system:serviceaccount:foo-system:foo-controller"`,
		`A permission is missing, will keep trying permission="get pods" fix="grant it" `+
			`show="kubectl auth can-i get pods --all-namespaces --as=system:serviceaccount:foo-system:foo-controller"`)
	c.user = ""
	inTeam := Permission{Verb: "create", Group: "apps", Resource: "deployments", Namespace: "team"}
	named := Permission{Verb: "get", Resource: "pods", Namespace: "team", Name: "web"}
	c.denied["get pods web team"] = true
	mustFind(t, Permissions(c.client(t), "grant it", inTeam, named),
		`A permission is missing, will keep trying permission="create deployments.apps" fix="grant it" `+
			`show="kubectl auth can-i create deployments.apps --namespace=team"`,
		`A permission is missing, will keep trying permission="get pods web" fix="grant it" `+
			`show="kubectl auth can-i get pods/web --namespace=team"`)
}

const (
	groupPath   = "/apis/samplecontroller.k8s.io"
	versionPath = groupPath + "/v1alpha1"
	schemaPath  = "/openapi/v3" + versionPath

	foosAndStatus = `{"resources":[{"name":"foos"},{"name":"foos/status"}]}`
)

// fooSchema returns a document with a Foo whose status has this schema, and with another kind.
func fooSchema(status string) string {
	return `{"components":{"schemas":{
		"bar":{"properties":{"status":{}},"x-kubernetes-group-version-kind":[
			{"group":"samplecontroller.k8s.io","version":"v1alpha1","kind":"Bar"}]},
		"foo":{"properties":{"status":` + status + `},"x-kubernetes-group-version-kind":[
			{"group":"samplecontroller.k8s.io","version":"v1alpha1","kind":"Foo"}]}}}}`
}

func TestADefinitionOfAnotherVersionIsFound(t *testing.T) {
	complete := fooSchema(`{"properties":{"conditions":{"type":"array"},"observedGeneration":{}}}`)
	tests := []struct {
		name      string
		documents map[string]string
		want      []string
	}{
		{name: "as it must be", documents: map[string]string{versionPath: foosAndStatus, schemaPath: complete}},
		{name: "not installed", documents: map[string]string{}},
		{name: "not this resource", documents: map[string]string{versionPath: `{"resources":[{"name":"bars"}]}`}},
		{
			name:      "another version",
			documents: map[string]string{groupPath: `{"versions":[{"version":"v1beta1"},{"version":"v1"}]}`},
			want: []string{`The CustomResourceDefinition is installed in another version, will keep trying ` +
				`name="foos.samplecontroller.k8s.io" fix="install it" installed="v1beta1, v1" needed="v1alpha1"`},
		},
		{
			name:      "without the status",
			documents: map[string]string{versionPath: `{"resources":[{"name":"foos"}]}`, schemaPath: complete},
			want: []string{`The CustomResourceDefinition has no subresource status, will keep trying ` +
				`name="foos.samplecontroller.k8s.io" fix="install it"`},
		},
		{
			name: "without conditions",
			documents: map[string]string{
				versionPath: foosAndStatus, schemaPath: fooSchema(`{"properties":{"observedGeneration":{}}}`),
			},
			want: []string{`The CustomResourceDefinition drops fields of the status, will keep trying ` +
				`name="foos.samplecontroller.k8s.io" fix="install it" fields="conditions"`},
		},
		{
			name: "with any fields",
			documents: map[string]string{
				versionPath: foosAndStatus, schemaPath: fooSchema(`{"x-kubernetes-preserve-unknown-fields":true}`),
			},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			c := &cluster{documents: test.documents}
			check := Served(c.client(t).RESTClient(), fooKind, "foos", "install it", "conditions", "observedGeneration")
			mustFind(t, check, append([]string{}, test.want...)...)
		})
	}
}

func TestAnAnswerThatCannotBeReadIsAnError(t *testing.T) {
	for _, path := range []string{versionPath, schemaPath} {
		c := &cluster{documents: map[string]string{versionPath: foosAndStatus, schemaPath: fooSchema("{}")}}
		c.documents[path] = "<html>"
		if found, err := Served(c.client(t).RESTClient(), fooKind, "foos", "", "conditions")(t.Context()); err == nil {
			t.Errorf("%s: found %v, want an error", path, found)
		}
	}
	c := &cluster{down: true}
	check := Permissions(c.client(t), "", permissions...)
	if found, err := check(t.Context()); err == nil {
		t.Errorf("found %v, want an error", found)
	}
}

// findings are what a check finds. The test changes them while the check runs.
type findings struct {
	mu      sync.Mutex
	found   map[string]string // Messages by key.
	failing bool              // The check fails.
	runs    int
}

// check implements Check.
func (f *findings) check(context.Context) ([]Problem, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.runs++
	if f.failing {
		return nil, errors.New("no answer")
	}
	var problems []Problem
	for _, key := range slices.Sorted(maps.Keys(f.found)) {
		problems = append(problems, Problem{Key: key, Message: f.found[key], Values: []any{"fix", "repair it"}})
	}
	return problems, nil
}

// set sets what the check finds, as keys and messages, and whether it fails.
func (f *findings) set(failing bool, keysAndMessages ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.failing, f.found = failing, map[string]string{}
	for pair := range slices.Chunk(keysAndMessages, 2) {
		f.found[pair[0]] = pair[1]
	}
}

func (f *findings) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.runs
}

// keep runs a Reporter with f.
func keep(b *bench, f *findings) {
	go b.reporter.Keep(b.ctx, f.check)
	synctest.Wait()
}

func TestProblemsOfChecksAreLoggedAndSolved(t *testing.T) {
	inBubble(t, func(b *bench) {
		f := &findings{}
		f.set(false, "a", "A is wrong, will keep trying")
		keep(b, f)
		wantProblems(b, `A is wrong fix="repair it"`)
		time.Sleep(10 * time.Second)
		f.set(true, "b", "B is wrong")
		time.Sleep(29 * time.Second) // The check that fails shows nothing, so the problem stays.
		wantProblems(b, `A is wrong fix="repair it"`)
		f.set(false, "b", "B is wrong")
		time.Sleep(3 * time.Second)
		wantProblems(b) // It may pass by itself.
		time.Sleep(10 * time.Second)
		wantProblems(b, `B is wrong fix="repair it"`)
		f.set(false)
		time.Sleep(8 * time.Second)
		wantProblems(b)
		b.wantLog(
			"0s ERROR0 A is wrong, will keep trying fix=repair it",
			"16s INFO2 Could not check the cluster err=no answer", "24s INFO2 Could not check the cluster err=no answer",
			"30s ERROR0 A is wrong, will keep trying fix=repair it", "32s INFO2 Could not check the cluster err=no answer",
			"40s INFO0 A problem is resolved problem=a", "50s ERROR0 B is wrong fix=repair it",
			"56s INFO0 A problem is resolved problem=b")
		b.stop()
	})
}

func wantProblems(b *bench, want ...string) {
	b.Helper()
	if diff := cmp.Diff(want, b.reporter.Problems()); diff != "" {
		b.Errorf("- wanted, + problems:\n%s", diff)
	}
}

// Checks cost requests, so they do not run while everything works. When they do, they do not run for each refusal.
func TestChecksRunWhenAWriteIsRefused(t *testing.T) {
	inBubble(t, func(b *bench) {
		f := &findings{failing: true}
		keep(b, f)
		expect := func(when string, want int) {
			b.Helper()
			synctest.Wait()
			if runs := f.count(); runs != want {
				b.Errorf("%s: the check has run %d times, want %d", when, runs, want)
			}
		}
		expect("at the start", 1)
		time.Sleep(10 * time.Second)
		expect("after an error", 2)
		f.set(false)
		time.Sleep(8 * time.Second)
		expect("after a second error", 3)
		time.Sleep(time.Hour)
		expect("without a problem", 3)

		code := http.StatusConflict
		writes := b.reporter.WrapWrites(roundTripper(func(*http.Request) (*http.Response, error) {
			return respond(code, ""), nil
		}))
		send := func(method string) {
			req, err := http.NewRequestWithContext(b.Context(), method, "https://api.test/", nil)
			if err != nil {
				b.Fatal(err)
			}
			resp, err := writes.RoundTrip(req)
			if err != nil || resp.StatusCode != code {
				b.Fatal(resp, err)
			}
			resp.Body.Close()
		}
		send(http.MethodPut)
		expect("after a conflict", 3)
		code = http.StatusNotFound
		send(http.MethodGet)
		expect("after a read of what does not exist", 3)
		code = http.StatusForbidden
		for range 100 {
			send(http.MethodPost)
		}
		expect("after refusals", 4)
		time.Sleep(time.Minute)
		expect("after refusals that came together", 5)
		time.Sleep(time.Hour)
		expect("without a problem again", 5)
		b.stop()
	})
}

// A problem of an informer may have a cause that a check can name, for example a resource of another version.
func TestChecksRunWhileAnInformerHasAProblem(t *testing.T) {
	inBubble(t, func(b *bench) {
		f := &findings{}
		keep(b, f)
		time.Sleep(time.Hour)
		if runs := f.count(); runs != 1 {
			b.Errorf("the check has run %d times without a problem, want once", runs)
		}
		b.reporter.report("foos", nil, "There are no Foos")
		time.Sleep(time.Minute)
		wantProblems(b, "There are no Foos")
		f.set(false, "status", "Foos have no status")
		time.Sleep(20 * time.Second)
		wantProblems(b, `Foos have no status fix="repair it"`, "There are no Foos")
		f.set(false)
		b.reporter.resolve("foos", "There are Foos")
		time.Sleep(10 * time.Second)
		wantProblems(b)
		b.stop()
	})
}

// An error that no response explains, such as a list that breaks off, is over when a list succeeds.
func TestAnErrorThatNothingExplainsIsOverWhenAListSucceeds(t *testing.T) {
	inBubble(t, func(b *bench) {
		var broken atomic.Bool
		list := func(context.Context) error {
			if broken.Load() {
				return errors.New("unexpected EOF")
			}
			return nil
		}
		if err := b.reporter.Wait(b.ctx, list); err != nil {
			b.Fatal(err)
		}
		f := &findings{}
		keep(b, f)
		broken.Store(true)
		b.reporter.reportOther(errors.New("unexpected EOF"))
		time.Sleep(time.Minute)
		wantProblems(b, "Cannot list and watch: unexpected EOF")
		broken.Store(false)
		time.Sleep(time.Minute)
		wantProblems(b)
		runs := f.count()
		time.Sleep(time.Hour)
		if more := f.count() - runs; more > 1 {
			b.Errorf("the check has run %d times without a problem", more)
		}
		b.stop()
	})
}
