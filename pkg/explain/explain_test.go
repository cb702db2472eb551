package explain

import (
	"encoding/json"
	"flag"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
	clientset "example.com/foo-controller/pkg/generated/clientset/versioned"
	"example.com/foo-controller/pkg/plan"
	"example.com/foo-controller/pkg/sim/apiserver"
	"example.com/foo-controller/pkg/sim/footest"
)

var webKey = cache.NewObjectName("default", "web")

func newFoo(edits ...func(*v1alpha1.Foo)) *v1alpha1.Foo {
	foo := &v1alpha1.Foo{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "foo-uid", Generation: 7},
		Spec:       v1alpha1.FooSpec{DeploymentName: "web", Replicas: new(int32(3)), Image: "nginx:1.29"},
	}
	for _, edit := range edits {
		edit(foo)
	}
	return foo
}

// newDeployment returns the Deployment of foo, with a complete rollout.
func newDeployment(foo *v1alpha1.Foo, edits ...func(*appsv1.Deployment)) *appsv1.Deployment {
	dep := plan.Deployment(foo)
	dep.UID, dep.Generation = types.UID("uid-of-"+dep.Name), 1
	dep.Status = appsv1.DeploymentStatus{ObservedGeneration: 1, Replicas: 3, UpdatedReplicas: 3, AvailableReplicas: 3}
	for _, edit := range edits {
		edit(dep)
	}
	return dep
}

// reported gives foo the status that it has when its Deployment is complete.
func reported(foo *v1alpha1.Foo) {
	dep, foo2 := newDeployment(foo), foo.DeepCopy()
	foo2.ResourceVersion, dep.ResourceVersion = "1", "2"
	state := &plan.State{Foo: foo2, Deployment: plan.TrimDeployment(dep), Now: time.Unix(1e9, 0)}
	foo.Status = state.Next().Foo.Status
}

func ofUID(owner types.UID) func(*appsv1.Deployment) {
	return func(dep *appsv1.Deployment) { dep.OwnerReferences[0].UID = owner }
}

func scaled(dep *appsv1.Deployment) { *dep.Spec.Replicas = 9 }

func renamed(foo *v1alpha1.Foo) { foo.Spec.DeploymentName = "next" }

func deleting(foo *v1alpha1.Foo) {
	foo.DeletionTimestamp, foo.Finalizers = new(metav1.Unix(1e9, 0)), []string{"foregroundDeletion"}
}

// A wire is a server, and the requests that have arrived there.
type wire struct {
	*apiserver.Server
	requests []string
}

// newWire returns a server with objects, and without the validation of the API: old objects may break its rules.
func newWire(t *testing.T, objects ...runtime.Object) *wire {
	t.Helper()
	foos := footest.FooKind()
	foos.Validate, foos.ValidateStatus = nil, nil
	w := &wire{Server: apiserver.New(apiserver.Namespaces(), apiserver.Deployments(), foos)}
	if err := w.Load(objects...); err != nil {
		t.Fatal(err)
	}
	w.Intercept(func(r *apiserver.Request, next apiserver.Next) (*http.Response, error) {
		w.requests = append(w.requests, strings.TrimSpace(r.Verb+" "+r.Resource.Resource+" "+r.Name))
		return next()
	})
	return w
}

func (w *wire) explain(t *testing.T) (*Report, error) {
	config := w.Config("reader")
	return Foo(t.Context(), kubernetes.NewForConfigOrDie(config), clientset.NewForConfigOrDie(config), webKey)
}

// The rows have the parts of a Report that depend on the Foo. Only reads arrive at the server.
func TestFoo(t *testing.T) {
	const nothing = ""
	foo, done := newFoo(), newFoo(reported)
	api := newFoo(func(foo *v1alpha1.Foo) { foo.Name, foo.UID = "api", "api-uid" })
	moving := newFoo(reported, renamed)
	ownerless := func(dep *appsv1.Deployment) { dep.OwnerReferences = nil }
	small := func(dep *appsv1.Deployment) { dep.Status.AvailableReplicas = 0 }
	for _, test := range []struct {
		name     string
		objects  []runtime.Object
		requests []string // Besides those that are always sent.
		write    string
		body     string // A part of it, without spaces.
		reason   string // Of the status that would be written, "" if none would be.
		then     string // Its beginning.
	}{
		{
			name: "a new Foo", objects: []runtime.Object{foo},
			write: "create Deployment web", body: `"replicas":3`, reason: "Creating", then: "done",
		},
		{
			name: "a Foo whose Deployment was deleted: live reads count as done", objects: []runtime.Object{done},
			write: "create Deployment web", body: `"image":"nginx:1.29"`, reason: "Creating", then: "done",
		},
		{
			name:    "nothing to do, beside Deployments of others",
			objects: []runtime.Object{done, newDeployment(done), newDeployment(moving, ownerless)}, write: nothing, then: "done",
		},
		{
			name: "only the status", objects: []runtime.Object{foo, newDeployment(foo)},
			write: "update status of Foo web", reason: "Available", then: "done",
		},
		{
			name: "drift", objects: []runtime.Object{done, newDeployment(done, scaled)},
			write: "patch Deployment web", body: `"spec":{"replicas":3}`, reason: "Progressing", then: "done",
		},
		{
			name: "a Deployment that is nobody's", objects: []runtime.Object{foo, newDeployment(foo, ownerless)},
			write: "update status of Foo web", reason: "NotOwned", then: "terminal",
		},
		{
			name: "another Foo's Deployment", objects: []runtime.Object{foo, api, newDeployment(api)},
			requests: []string{"get foos api"},
			write:    "update status of Foo web", reason: "NameTaken", then: "terminal",
		},
		{
			name: "the Deployment of a Foo that is gone", objects: []runtime.Object{foo, newDeployment(api)},
			requests: []string{"get foos api"},
			write:    "update status of Foo web", reason: "WaitingForName", then: "terminal",
		},
		{
			name:     "the Deployment of an earlier Foo of a name",
			objects:  []runtime.Object{foo, api, newDeployment(api, ofUID("old"))},
			requests: []string{"get foos api"},
			write:    "update status of Foo web", reason: "WaitingForName", then: "terminal",
		},
		{
			name: "an owner with a name that no request can have", objects: []runtime.Object{
				foo, newDeployment(api, func(dep *appsv1.Deployment) { dep.OwnerReferences[0].Name = "a/b" }),
			},
			write: "update status of Foo web", reason: "WaitingForName", then: "terminal",
		},
		{
			name: "a rename", objects: []runtime.Object{moving, newDeployment(foo)},
			write: "create Deployment next", reason: "Renaming", then: "done",
		},
		{
			name:    "a rename that is not complete",
			objects: []runtime.Object{moving, newDeployment(foo), newDeployment(moving, small)},
			write:   "update status of Foo web", reason: "Renaming", then: "done",
		},
		{
			name: "a rename that is complete", objects: []runtime.Object{moving, newDeployment(foo), newDeployment(moving)},
			write: "delete Deployment web", body: `"uid":"uid-of-web"`, reason: "Available", then: "done",
		},
		{
			name: "a paused Foo", objects: []runtime.Object{newFoo(func(foo *v1alpha1.Foo) { foo.Spec.Paused = true })},
			write: "update status of Foo web", reason: "Paused", then: "done",
		},
		{
			name:    "an invalid Foo",
			objects: []runtime.Object{newFoo(func(foo *v1alpha1.Foo) { foo.Spec.DeploymentName = "" })},
			write:   "update status of Foo web", reason: "Invalid", then: "terminal",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newWire(t, test.objects...)
			report, err := w.explain(t)
			if err != nil {
				t.Fatal(err)
			}
			want := append([]string{"get foos web", "list deployments"}, test.requests...)
			if diff := cmp.Diff(want, w.requests); diff != "" {
				t.Errorf("requests (-want +got):\n%s", diff)
			}
			if report.Write != test.write || report.WouldSend != (test.write != nothing) {
				t.Errorf("would send: %t, %q, want %q", report.WouldSend, report.Write, test.write)
			}
			if differs := len(report.Differences) > 0; differs != strings.HasPrefix(test.write, "patch") {
				t.Errorf("differences: %v", report.Differences)
			}
			if body, _ := json.Marshal(report.Body); !strings.Contains(string(body), test.body) {
				t.Errorf("body %s, want %s", body, test.body)
			}
			reason := ""
			if report.Status != nil {
				reason, _ = plan.ReadyReason(&v1alpha1.Foo{Status: *report.Status})
			}
			if reason != test.reason || !strings.HasPrefix(report.Then, test.then) {
				t.Errorf("reason %q, then %q; want %q and %q", reason, report.Then, test.reason, test.then)
			}
			sends := slices.ContainsFunc(report.Rules, func(e plan.Explanation) bool {
				return e.Sends && strings.HasPrefix(e.Answer, "sends "+test.write)
			})
			if sends != (test.write != nothing) {
				t.Errorf("no rule has the write, or one has although nothing is written: %v", report.Rules)
			}
		})
	}
}

// What happens to its Deployments depends on how it was deleted: kubectl delete has --cascade=orphan.
func TestAFooThatIsBeingDeleted(t *testing.T) {
	w := newWire(t, newFoo(deleting), newDeployment(newFoo()))
	report, err := w.explain(t)
	if err != nil {
		t.Fatal(err)
	}
	const want = "done: the Foo is being deleted, and the garbage collector deletes or orphans its Deployments"
	if report.WouldSend || report.Then != want {
		t.Errorf("would send: %t, then %q", report.WouldSend, report.Then)
	}
}

func TestAFooThatDoesNotExist(t *testing.T) {
	report, err := newWire(t).explain(t)
	if want := `get Foo default/web: foos.samplecontroller.k8s.io "web" not found`; !apierrors.IsNotFound(err) ||
		err.Error() != want {
		t.Errorf("%v, %v; want %s", report, err, want)
	}
}

func TestText(t *testing.T) {
	foo := newFoo(reported)
	w := newWire(t, foo, newDeployment(foo, scaled))
	report, err := w.explain(t)
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := report.Print(&out, Text); err != nil {
		t.Fatal(err)
	}
	const message = "Progressing: Waiting for the Deployment controller to apply the last change (3 of 3 replicas available)"
	const want = `Foo default/web, generation 7: the controller would send patch Deployment web

Desired
  Deployment         web
  replicas           3
  image              nginx:1.29

Fields that differ
  spec.replicas      have 9, want 3

Rules
  paused             does not apply: spec.paused is false
  invalid            does not apply: the spec is valid
  create             not needed: Deployment web exists and is the Foo's
  name conflict      does not apply: Deployment web is the Foo's
  wait for deletion  does not apply: Deployment web is not being deleted
  patch drift        sends patch Deployment web: spec.replicas was 9, must be 3
  delete replaced    not reached: patch drift comes first
  update status      not reached: patch drift comes first

First write: patch Deployment web
  {
    "metadata": {
      "resourceVersion": "4",
      "uid": "uid-of-web"
    },
    "spec": {
      "replicas": 3
    }
  }

Status that it would write
  replicas           3, 3 available
  Ready              False ` + message + `
  Reconciling        True ` + message + `

Then
  sync               done: the next event of an object brings the Foo back
  not known          Backoffs and recent writes: only the running controller has them, see its /debug/syncs
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("text (-want +got):\n%s", diff)
	}
}

// A text of a user cannot control the terminal, and JSON that is printed is the same after it was read.
func TestTextsOfUsersAreEscaped(t *testing.T) {
	const bad = "a\x1b[2J\u009b\u202e\n\U000e0041"
	report := newReport(newFoo(func(foo *v1alpha1.Foo) { foo.Spec.Image = bad }))
	report.Rules = []plan.Explanation{{Rule: "create", Answer: bad}}
	for _, format := range []Format{Text, JSON} {
		var out strings.Builder
		if err := report.Print(&out, format); err != nil {
			t.Fatal(err)
		}
		if want := `a\u001b[2J\u009b\u202e`; strings.Count(out.String(), want) != 2 {
			t.Errorf("%s: want %s twice in\n%q", format, want, out.String())
		}
		if format == JSON {
			again := &Report{}
			if err := json.Unmarshal([]byte(out.String()), again); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(report, again); diff != "" {
				t.Errorf("read again (-want +got):\n%s", diff)
			}
		}
	}
}

// While /debug/syncs is off, a sync allocates nothing for it.
func TestNothingIsShownWhileItIsOff(t *testing.T) {
	state := &plan.State{Foo: newFoo(), Now: time.Unix(1e9, 0)}
	step := state.Next()
	if allocs := testing.AllocsPerRun(100, func() {
		Observed(t.Context(), state)
		Sent(t.Context(), state, step, plan.Answer{}, time.Time{})
		Concluded(t.Context(), state)
	}); allocs != 0 {
		t.Errorf("%v allocations", allocs)
	}
}

func TestFlags(t *testing.T) {
	for arguments, want := range map[string]string{
		"":                   "/ text",
		"--explain=team/web": "team/web text",
		"--explain=team/web --explain-format=json": "team/web json",
		"--explain=web":        `invalid value "web" for flag -explain: give NAMESPACE/NAME of a Foo`,
		"--explain=":           `invalid value "" for flag -explain: give NAMESPACE/NAME of a Foo`,
		"--explain=/web":       `invalid value "/web" for flag -explain: give NAMESPACE/NAME of a Foo`,
		"--explain=a/b/c":      `invalid value "a/b/c" for flag -explain: give NAMESPACE/NAME of a Foo`,
		"--explain-format=xml": `invalid value "xml" for flag -explain-format: give text or json`,
	} {
		var q Question
		fs := flag.NewFlagSet("test", flag.ContinueOnError)
		fs.SetOutput(io.Discard)
		q.AddFlags(fs)
		have := ""
		if err := fs.Parse(strings.Fields(arguments)); err != nil {
			have = err.Error()
		} else {
			have = q.Foo.Namespace + "/" + q.Foo.Name + " " + string(q.Format)
		}
		if have != want {
			t.Errorf("%s: %s, want %s", arguments, have, want)
		}
	}
}
