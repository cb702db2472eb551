package reconcile_test

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"example.com/foo-controller/pkg/kit/reconcile"
)

// An input is a Namespace, which is to have a ConfigMap.
type input struct {
	Namespace *corev1.Namespace
	ConfigMap *corev1.ConfigMap
}

// noStatus: a controller of Namespaces must not write their status.
func noStatus(*input, *reconcile.Sync) *reconcile.Step { return nil }

var plan = reconcile.New(reconcile.Plan[input]{
	Object:             func(in *input) reconcile.Ref { return reconcile.RefTo(namespaceKind, &in.Namespace) },
	ObservedGeneration: func(in *input) int64 { return 0 },
	Rules: []reconcile.Rule[input]{
		{Name: "being deleted", Ask: func(in *input) reconcile.Answer {
			return reconcile.Answer{
				Final: in.Namespace.Status.Phase == corev1.NamespaceTerminating,
				Why:   "the phase is " + string(in.Namespace.Status.Phase),
			}
		}},
		{Name: "keep ConfigMap", Ask: func(in *input) reconcile.Answer {
			return reconcile.Keep(configMapKind, &in.ConfigMap, &corev1.ConfigMap{
				ObjectMeta: metav1.ObjectMeta{
					Name:            "hi",
					OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(in.Namespace, namespaceKind.GroupVersionKind)},
				},
				Data: map[string]string{"text": "Hello"},
			})
		}},
	},
	Status: noStatus,
})

// A sync is a conversation: Next returns a request, and Record takes its answer. Here somebody has edited a ConfigMap.
func Example() {
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	in := &input{
		Namespace: &corev1.Namespace{
			ObjectMeta: metav1.ObjectMeta{Name: "team", UID: "7d9e", ResourceVersion: "3"},
			Status:     corev1.NamespaceStatus{Phase: corev1.NamespaceActive},
		},
	}
	in.ConfigMap = plan.Rules[1].Ask(in).Steps[0].Body.(*corev1.ConfigMap)
	in.ConfigMap.UID, in.ConfigMap.ResourceVersion = "04cc", "7"
	in.ConfigMap.Data = map[string]string{"text": "Hi", "more": "is of others"}

	sync := plan.Sync(in)
	sync.Begin(reconcile.Memory{}, now, 0)
	for step := sync.Next(); step != nil; step = sync.Next() {
		for _, e := range sync.Explain() {
			fmt.Printf("%s: %s\n", e.Rule, e.Answer)
		}
		if step.IsRead() { // Of the Namespace: it may have changed a moment ago.
			sync.Record(step, step.Answered(in.Namespace, nil), now)
			continue
		}
		fmt.Printf("%s\n", step.Patch)
		answer := in.ConfigMap.DeepCopy() // What the API server returns.
		answer.Data["text"], answer.ResourceVersion = "Hello", "8"
		sync.Record(step, step.Answered(answer, nil), now)
	}
	outcome, _ := sync.End()
	fmt.Println(outcome.Kind)
	// Output:
	// being deleted: does not apply: the phase is Active
	// keep ConfigMap: sends get Namespace team first, and then patch ConfigMap hi: ConfigMap "hi" differs: data.text
	// update status: not reached: keep ConfigMap comes first
	// being deleted: does not apply: the phase is Active
	// keep ConfigMap: sends patch ConfigMap hi: ConfigMap "hi" differs: data.text
	// update status: not reached: keep ConfigMap comes first
	// {"data":{"text":"Hello"},"metadata":{"resourceVersion":"7","uid":"04cc"}}
	// done
}

// A team has a Namespace and its ConfigMaps.
type team struct {
	Namespace  *corev1.Namespace
	ConfigMaps []*corev1.ConfigMap
}

// The annotations of a Namespace name its ConfigMaps. One has just been renamed.
func ExampleKeepAll() {
	child := func(in *team, name string) *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
			Namespace: in.Namespace.Name, Name: name,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(in.Namespace, namespaceKind.GroupVersionKind)},
		}}
	}
	plan := reconcile.New(reconcile.Plan[team]{
		Object:             func(in *team) reconcile.Ref { return reconcile.RefTo(namespaceKind, &in.Namespace) },
		ObservedGeneration: func(*team) int64 { return 0 },
		Rules: []reconcile.Rule[team]{{Name: "keep ConfigMaps", Ask: func(in *team) reconcile.Answer {
			var wants []*corev1.ConfigMap
			for name := range in.Namespace.Annotations {
				wants = append(wants, child(in, name))
			}
			return reconcile.KeepAll(configMapKind, &in.ConfigMaps, wants, "data")
		}}},
		Status: func(*team, *reconcile.Sync) *reconcile.Step { return nil },
	})
	in := &team{Namespace: &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: "blue", UID: "7d9e", ResourceVersion: "3", Annotations: map[string]string{"rules": "", "hi": ""},
	}}}
	for _, name := range []string{"hello", "rules"} {
		have := child(in, name)
		have.UID, have.ResourceVersion = "04cc", "7"
		in.ConfigMaps = append(in.ConfigMaps, have)
	}

	sync := plan.Sync(in)
	sync.Begin(reconcile.Memory{}, time.Now(), 0)
	for step := sync.Next(); step != nil; step = sync.Next() {
		fmt.Printf("%v: %s\n", step.Op, step.Why)
		var answer metav1.Object // What the API server returns: nothing after a deletion.
		switch step.Verb {
		case reconcile.Get:
			answer = in.Namespace
		case reconcile.Create:
			answer = step.Body
		}
		if event := sync.Record(step, step.Answered(answer, nil), time.Now()); event != nil {
			fmt.Println("event:", event.Note)
		}
	}
	// Output:
	// create ConfigMap blue/hi: ConfigMap "hi" does not exist
	// get Namespace blue: ConfigMap "hello" is not wanted
	// delete ConfigMap blue/hello: ConfigMap "hello" is not wanted
	// event: Deleted ConfigMap "hello", which is not wanted any more
}
