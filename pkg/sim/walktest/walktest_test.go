package walktest

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"example.com/foo-controller/pkg/kit/reconcile"
	"example.com/foo-controller/pkg/kit/state"
)

// A tenant has no namespace. It asks for a ConfigMap in each of its namespaces, and has a finalizer: it is deleted
// after them.
type tenant struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              tenantSpec
	Status            tenantStatus
}

type tenantSpec struct{ Namespaces []string }

type tenantStatus struct {
	ObservedGeneration int64
	Conditions         []metav1.Condition
}

func (t *tenant) DeepCopyObject() runtime.Object {
	c := *t
	t.DeepCopyInto(&c.ObjectMeta)
	c.Spec.Namespaces, c.Status.Conditions = slices.Clone(t.Spec.Namespaces), slices.Clone(t.Status.Conditions)
	return &c
}

var (
	tenantKind    = reconcile.KindOf[*tenant](schema.GroupVersionKind{Group: "walk.test", Version: "v1", Kind: "Tenant"})
	configMapKind = reconcile.KindOf[*corev1.ConfigMap](corev1.SchemeGroupVersion.WithKind("ConfigMap"))
)

const finalizer = "walk.test/config-maps"

// A tenantInput has a ConfigMap, which may be nil, for each namespace of the spec, and those that are too many.
type tenantInput struct {
	Tenant       *tenant
	Maps, Others []*corev1.ConfigMap
	asked        *int
}

func configMap(t *tenant, namespace string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: t.Name,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(t, tenantKind.GroupVersionKind)},
		},
		Data: map[string]string{"tenant": t.Name},
	}
}

// A defect is what is wrong with a plan.
type defect string

// tenants is the plan. Its rules are those of a good one, but for the defect.
func tenants(d defect) *reconcile.Plan[tenantInput] {
	return reconcile.New(reconcile.Plan[tenantInput]{
		Object:             func(in *tenantInput) reconcile.Ref { return reconcile.RefTo(tenantKind, &in.Tenant) },
		ObservedGeneration: func(in *tenantInput) int64 { return in.Tenant.Status.ObservedGeneration },
		Clone: func(in tenantInput) tenantInput {
			in.Maps, in.Others = slices.Clone(in.Maps), slices.Clone(in.Others)
			return in
		},
		Rules: []reconcile.Rule[tenantInput]{
			{Name: "being deleted", Ask: d.beingDeleted}, {Name: "add finalizer", Ask: d.addFinalizer},
			{Name: "keep ConfigMaps", Ask: d.keepConfigMaps}, {Name: "delete others", Ask: d.deleteOthers},
		},
		Status: d.status,
	})
}

func (d defect) beingDeleted(in *tenantInput) reconcile.Answer {
	if in.Tenant.DeletionTimestamp == nil {
		return reconcile.Answer{Why: "it is not being deleted"}
	}
	a := reconcile.Answer{Final: true, Why: "it is being deleted"}
	for _, maps := range [][]*corev1.ConfigMap{in.Maps, in.Others} {
		for i := range maps {
			if maps[i] != nil && reconcile.Owns(in.Tenant, maps[i]) && maps[i].DeletionTimestamp == nil {
				a.Steps = append(a.Steps, reconcile.DeleteStep(configMapKind, &maps[i]))
			}
		}
	}
	if len(a.Steps) == 0 && len(in.Tenant.Finalizers) > 0 && d != "stays" {
		a.Steps = append(a.Steps, reconcile.FinalizersStep(tenantKind, &in.Tenant, nil))
	}
	return a
}

func (d defect) addFinalizer(in *tenantInput) reconcile.Answer {
	if slices.Contains(in.Tenant.Finalizers, finalizer) && d != "writes what is there" {
		return reconcile.Answer{Why: "it has the finalizer"}
	}
	step := reconcile.FinalizersStep(tenantKind, &in.Tenant, []string{finalizer})
	return reconcile.Answer{Steps: []*reconcile.Step{step}, Why: "it has no finalizer"}
}

func (d defect) keepConfigMaps(in *tenantInput) (a reconcile.Answer) {
	switch *in.asked++; d {
	case "counts":
		a.Why = fmt.Sprint(*in.asked)
	case "panics":
		panic("there is no plan")
	case "changes what is shared":
		in.Tenant.Labels = map[string]string{"tenant": "x"}
	}
	for i, namespace := range in.Tenant.Spec.Namespaces {
		want := configMap(in.Tenant, namespace)
		switch have := in.Maps[i]; {
		case d == "owns nothing" && have == nil:
			want.OwnerReferences = nil
			a.Steps = append(a.Steps, reconcile.CreateStep(configMapKind, &in.Maps[i], want))
			continue
		case d == "takes what is another's" && have != nil && have.UID != "" && have.ResourceVersion != "":
			const format = `{"metadata":{"uid":%q,"resourceVersion":%q},"data":{"tenant":"t"}}`
			body := fmt.Sprintf(format, have.UID, have.ResourceVersion)
			if have.Data["tenant"] != "t" {
				a.Steps = append(a.Steps, reconcile.PatchStep(configMapKind, &in.Maps[i], []byte(body), nil))
			}
			continue
		}
		kept := reconcile.Keep(configMapKind, &in.Maps[i], want)
		a.Steps = append(a.Steps, kept.Steps...)
		if a.Problem == nil {
			a.Problem = kept.Problem
		}
	}
	return a
}

func (d defect) deleteOthers(in *tenantInput) (a reconcile.Answer) {
	for i := range in.Others {
		if in.Others[i] == nil || in.Others[i].DeletionTimestamp != nil {
			continue
		}
		step := reconcile.DeleteStep(configMapKind, &in.Others[i])
		step.Confirm = []reconcile.Ref{reconcile.RefTo(tenantKind, &in.Tenant)}
		a.Steps = append(a.Steps, step)
	}
	return a
}

func (d defect) status(in *tenantInput, s *reconcile.Sync) *reconcile.Step {
	problem := s.First()
	if problem == nil && in.Tenant.DeletionTimestamp != nil {
		return nil
	}
	report := state.Report{True: state.Ready, Reason: "Complete", Message: "all ConfigMaps are there"}
	if problem != nil && d != "is always ready" {
		report = problem.Report()
	}
	switch d {
	case "has the time":
		report.Message = s.Now().String()
	case "keeps failures to itself":
		report.Message = "something is wrong"
	}
	t := in.Tenant.DeepCopyObject().(*tenant)
	t.Status.Conditions = state.Conditions(t.Status.Conditions, report, t.Generation, s.Now())
	if t.Status.ObservedGeneration = t.Generation; d == "is about another spec" {
		t.Status.ObservedGeneration = 1
	}
	if equality.Semantic.DeepEqual(t.Status, in.Tenant.Status) {
		return nil
	}
	return reconcile.StatusStep(tenantKind, &in.Tenant, t, in.Tenant.Status.Conditions, t.Status.Conditions)
}

func walkOfTenants(d defect) *Walk[tenantInput, *tenant] {
	child := func(namespace string) Child[*tenant] {
		return Child[*tenant]{
			Kind: configMapKind.Kind, Want: func(t *tenant) metav1.Object {
				if !slices.Contains(t.Spec.Namespaces, namespace) {
					return nil
				}
				return configMap(t, namespace)
			},
			Edits: []Edit[metav1.Object]{{Name: "edited", Do: func(c metav1.Object) {
				c.(*corev1.ConfigMap).Data = map[string]string{"tenant": "x"}
			}}},
		}
	}
	finalized := func(t *tenant) { t.Finalizers = []string{finalizer} }
	asked := 0
	return &Walk[tenantInput, *tenant]{
		Plan: tenants(d), Kind: tenantKind, Deletion: true,
		Trim: func(obj any) (any, error) { return obj, nil },
		Observe: func(cached Objects) *tenantInput {
			in := &tenantInput{Tenant: Get(cached, tenantKind, "", "t"), asked: &asked}
			for _, namespace := range in.Tenant.Spec.Namespaces {
				in.Maps = append(in.Maps, Get(cached, configMapKind, namespace, "t"))
			}
			for _, obj := range cached {
				c, ok := obj.(*corev1.ConfigMap)
				if ok && reconcile.Owns(in.Tenant, c) && !slices.Contains(in.Maps, c) {
					in.Others = append(in.Others, c)
				}
			}
			slices.SortFunc(in.Others, func(a, b *corev1.ConfigMap) int {
				return strings.Compare(a.Namespace+a.Name, b.Namespace+b.Name)
			})
			return in
		},
		Object: &tenant{ObjectMeta: metav1.ObjectMeta{Name: "t"}, Spec: tenantSpec{Namespaces: []string{"one", "two"}}},
		Objects: []Edit[*tenant]{
			{Name: "finalized", Do: finalized},
			{Name: "being deleted", Do: func(t *tenant) { finalized(t); t.DeletionTimestamp = new(metav1.NewTime(start)) }},
			{Name: "reported", Do: func(t *tenant) { finalized(t); t.Status.ObservedGeneration = t.Generation }},
		},
		Changes: []Edit[*tenant]{
			{Name: "one of one namespace", Do: func(t *tenant) { t.Spec.Namespaces = []string{"one"} }},
		},
		Children: []Child[*tenant]{child("one"), child("two")},
		Ready: func(t *tenant, objects Objects) bool {
			return !slices.ContainsFunc(t.Spec.Namespaces, func(namespace string) bool {
				return Get(objects, configMapKind, namespace, "t").Data["tenant"] != "t"
			})
		},
		MaxRequests: 20,
	}
}

// TestAPlanWithAFinalizer walks a plan for objects without a namespace that have a list of children and a finalizer.
func TestAPlanWithAFinalizer(t *testing.T) { walkOfTenants("").test(t, 20_000) }

// TestOracles walks plans with a defect.
func TestOracles(t *testing.T) {
	for _, test := range []struct {
		defect defect
		change func(*Walk[tenantInput, *tenant])
		oracle string
	}{
		{defect: "stays", oracle: "in the end the object has what it asks for, or its status gives the reason"},
		{defect: "panics", oracle: "nothing panics"},
		{defect: "writes what is there", oracle: "a write changes something"},
		{defect: "counts", oracle: "a rule that is asked twice answers the same"},
		{defect: "changes what is shared", oracle: "the objects of caches are not changed"},
		{defect: "owns nothing", oracle: "a child is created for the object, with its controller"},
		{defect: "takes what is another's", oracle: "nothing of another's, and nothing that is being deleted, is written"},
		{defect: "is always ready", oracle: "Ready is True only when it is"},
		{defect: "has the time", oracle: "when all answers are good another sync sends nothing"},
		{defect: "keeps failures to itself", oracle: "what was refused is in the condition Ready"},
		{defect: "is about another spec", oracle: "the status is about the generation"},
		{oracle: "a sync sends few requests", change: func(walk *Walk[tenantInput, *tenant]) { walk.MaxRequests = 3 }},
		{oracle: "nothing is created", change: func(walk *Walk[tenantInput, *tenant]) {
			walk.Oracles = []Oracle{{
				Name: "nothing is created", Holds: func(s Situation) bool { return s.Verb != reconcile.Create },
			}}
		}},
		{oracle: "what is too many does not matter", change: func(walk *Walk[tenantInput, *tenant]) {
			walk.Vary = map[string]func(*tenantInput) bool{"what is too many does not matter": func(in *tenantInput) bool {
				in.Others = nil
				return true
			}}
		}},
	} {
		t.Run(test.oracle, func(t *testing.T) {
			walk := walkOfTenants(test.defect)
			if test.change != nil {
				test.change(walk)
			}
			wrong := walk.play(1).wrong[test.oracle]
			if wrong == nil || wrong.count == 0 {
				t.Fatal("it holds")
			}
			t.Log(wrong.example)
		})
	}
}
