package reconcile_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"example.com/foo-controller/pkg/kit/reconcile"
	"example.com/foo-controller/pkg/kit/state"
)

// A pair is a Namespace, which has no namespace, and for which two ConfigMaps of one name are kept in others. Observed is
// the generation that its status is about.
type pair struct {
	Namespace *corev1.Namespace
	Observed  int64
	A, B      *corev1.ConfigMap
}

var (
	namespaceKind = reconcile.KindOf[*corev1.Namespace](corev1.SchemeGroupVersion.WithKind("Namespace"))
	configMapKind = reconcile.KindOf[*corev1.ConfigMap](corev1.SchemeGroupVersion.WithKind("ConfigMap"))
)

var pairs = reconcile.New(reconcile.Plan[pair]{
	Object:   func(in *pair) reconcile.Ref { return reconcile.RefTo(namespaceKind, &in.Namespace) },
	Observed: func(in *pair) int64 { return in.Observed },
	Rules: []reconcile.Rule[pair]{
		{Name: "keep A", Ask: func(in *pair) reconcile.Answer { return reconcile.Keep(configMapKind, &in.A, in.want("a")) }},
		{Name: "keep B", Ask: func(in *pair) reconcile.Answer { return reconcile.Keep(configMapKind, &in.B, in.want("b")) }},
	},
	Status: func(in *pair, s *reconcile.Sync) *reconcile.Step {
		problem := s.First()
		if problem == nil {
			return nil
		}
		is := state.Conditions(nil, problem.Report(), 1, s.Now())
		return reconcile.StatusStep(namespaceKind, &in.Namespace, in.Namespace, nil, is)
	},
})

func (in *pair) want(namespace string) *corev1.ConfigMap {
	owner := *metav1.NewControllerRef(in.Namespace, namespaceKind.GroupVersionKind)
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: "hello", OwnerReferences: []metav1.OwnerReference{owner},
		},
		Data: map[string]string{"text": "Hello"},
	}
}

// newPair returns a Namespace with both ConfigMaps, and with a status.
func newPair() *pair {
	in := &pair{Observed: 1, Namespace: &corev1.Namespace{ObjectMeta: stored("team")}}
	in.A, in.B = in.want("a"), in.want("b")
	for _, c := range []*corev1.ConfigMap{in.A, in.B} {
		c.UID, c.ResourceVersion = types.UID(c.Namespace), "7"
	}
	return in
}

func stored(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, UID: types.UID(name), ResourceVersion: "3", Generation: 1}
}

// A server answers the requests of syncs with the objects of a pair.
type server struct {
	in     *pair
	fails  map[string]error            // By request.
	admit  func(*corev1.ConfigMap)     // A webhook.
	edit   func(obj *corev1.Namespace) // Of the live Namespace.
	memory reconcile.Memory
	now    time.Time
	// Of the last sync.
	requests []string
	status   string
	events   []string
}

// sync plays a sync.
func (s *server) sync() reconcile.Outcome {
	s.requests, s.status, s.events = nil, "", nil
	sync := pairs.Sync(s.in)
	sync.Begin(s.memory, s.now, 0)
	for step := sync.Next(); step != nil; step = sync.Next() {
		s.requests = append(s.requests, step.Request()+" "+sync.NameOf(step.Op))
		if step.Verb == reconcile.Update {
			s.status = step.Fields[0].Want
		}
		if event := sync.Record(step, step.Answered(s.answer(step)), s.now); event != nil {
			s.events = append(s.events, event.Type+" "+event.Reason)
		}
	}
	outcome, memory := sync.End()
	s.memory = memory
	return outcome
}

func (s *server) answer(step *reconcile.Step) (metav1.Object, error) {
	if err := s.fails[step.Request()+" "+cache.NewObjectName(step.Namespace, step.Name).String()]; err != nil {
		return nil, err
	}
	if step.Kind == "Namespace" {
		live := s.in.Namespace.DeepCopy()
		if s.edit != nil {
			s.edit(live)
		}
		return live, nil
	}
	if step.IsRead() {
		return step.Have(), nil
	}
	want := s.in.want(step.Namespace)
	want.UID, want.ResourceVersion = types.UID(step.Namespace), "8"
	if s.admit != nil {
		s.admit(want)
	}
	return want, nil
}

// The uid of an owner can be known, and written into a reference, by who has no right in its namespace.
func TestAnOwnerOwnsNothingInAnotherNamespace(t *testing.T) {
	owned := newPair().A
	for namespace, want := range map[string]bool{"": true, "a": true, "b": false} {
		owner := &corev1.ConfigMap{ObjectMeta: stored("team")}
		owner.Namespace = namespace
		if got := reconcile.Owns(owner, owned); got != want {
			t.Errorf("an owner in %q owns an object in %q: %t", namespace, owned.Namespace, got)
		}
	}
}

var refused = apierrors.NewForbidden(corev1.Resource("configmaps"), "a", errors.New("no"))

// The object may have changed, and no cache has it yet. Then a correction would undo what somebody has done after that,
// and an update what another copy of the controller has written for a newer spec.
func TestKeepReadsTheObjectBeforeAPatch(t *testing.T) {
	const read, patch = "get Namespace team", "patch ConfigMap a/hello"
	for _, test := range []struct {
		name     string
		observed int64
		edit     func(*corev1.Namespace)
		requests []string
		events   []string
	}{
		{name: "an update", observed: 0, requests: []string{read, patch}},
		{
			name: "an update after a change", observed: 0, requests: []string{read},
			edit: func(live *corev1.Namespace) { live.Generation++ },
		},
		{name: "a correction", observed: 1, requests: []string{read, patch}, events: []string{"Normal Corrected"}},
		{
			name: "a correction after a change", observed: 1, requests: []string{read},
			edit: func(live *corev1.Namespace) { live.Generation++ },
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := &server{in: newPair(), edit: test.edit}
			s.in.Observed, s.in.A.Data = test.observed, nil
			s.sync()
			if diff := cmp.Diff(test.requests, s.requests); diff != "" {
				t.Errorf("requests (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(test.events, s.events); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
		})
	}
}

// The status is written while a patch backs off. An update then stays an update, and a correction a correction.
func TestAFailedPatchStaysWhatItWas(t *testing.T) {
	for _, test := range []struct {
		name     string
		observed int64
		events   []string
	}{
		{name: "an update", observed: 0},
		{name: "a correction", observed: 1, events: []string{"Normal Corrected"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := &server{in: newPair(), fails: map[string]error{"patch ConfigMap a/hello": refused}}
			s.in.Observed, s.in.A.Data = test.observed, nil
			s.now = s.now.Add(s.sync().After)
			s.in.Observed, s.fails = 1, nil
			s.sync()
			if diff := cmp.Diff(test.events, s.events); diff != "" || !slices.Contains(s.requests, "patch ConfigMap a/hello") {
				t.Errorf("requests %q, events (-want +got):\n%s", s.requests, diff)
			}
		})
	}
}

// What a person must end comes before what may pass.
func TestAProblemThatNoRetryEndsComesFirst(t *testing.T) {
	s := &server{in: newPair(), fails: map[string]error{"patch ConfigMap a/hello": refused}}
	s.in.A.Data, s.in.B.OwnerReferences = nil, nil
	s.sync()
	const want = `Stalled, Ready=False NotOwned: ConfigMap "hello" exists and is controlled by nobody. ` +
		"Delete it, or give the Namespace another name"
	if s.status != want {
		t.Errorf("the status is %q, want %q", s.status, want)
	}
}

// The first three writes that somebody else undoes are free. Each further one is reported, and comes later. Nobody must
// change the object to end that, so it is not Stalled.
func TestAFightIsReportedAndSlow(t *testing.T) {
	for _, test := range []struct{ name, write, status string }{
		{
			name: "edited", write: "patch ConfigMap a/hello",
			status: `Reconciling, Ready=False Overridden: Another client keeps changing ConfigMap "hello": data.text. ` +
				"The controller corrects it at least once a minute. Stop that client, for example an autoscaler or a GitOps tool",
		},
		{
			name: "deleted", write: "create ConfigMap a/hello",
			status: `Reconciling, Ready=False Overridden: Another client keeps deleting ConfigMap "hello". ` +
				"The controller creates it again at least once a minute. Stop that client",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := &server{in: newPair()}
			for i := range 6 {
				if s.in.A.Data = nil; test.name == "deleted" {
					s.in.A = nil
				}
				outcome := s.sync()
				s.now = s.now.Add(outcome.After)
				isReported, isSlow := s.status == test.status, outcome.After >= time.Second
				if want := i >= 3; isReported != want || isSlow != want || !slices.Contains(s.requests, test.write) {
					t.Errorf("write %d: requests %q, status %q, back after %v", i+1, s.requests, s.status, outcome.After)
				}
			}
		})
	}
}

func TestWhatAdmissionChangesIsReported(t *testing.T) {
	for name, edit := range map[string]func(*pair){
		"on creation": func(in *pair) { in.A = nil }, "on correction": func(in *pair) { in.A.Data = nil },
	} {
		t.Run(name, func(t *testing.T) {
			s := &server{in: newPair(), admit: func(c *corev1.ConfigMap) { c.Data["text"] = "No" }}
			edit(s.in)
			outcome := s.sync()
			const want = `Reconciling, Ready=False Overridden: ConfigMap "hello": a webhook or a policy of this cluster changes ` +
				"data.text. Set what it accepts"
			if s.status != want || outcome.After < time.Second {
				t.Errorf("the status is %q, and the key comes back after %v", s.status, outcome.After)
			}
			if diff := cmp.Diff([]string{"Warning Overridden"}, s.events); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
		})
	}
}
