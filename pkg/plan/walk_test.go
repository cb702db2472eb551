package plan

import (
	"encoding/json"
	"slices"
	"strconv"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/foo-controller/pkg/kit/reconcile"
	"example.com/foo-controller/pkg/sim/walktest"
)

// walkDeploymentKind is DeploymentKind of what the API server has, which has not passed Trim.
var walkDeploymentKind = reconcile.KindOf[*appsv1.Deployment](DeploymentKind.GroupVersionKind)

// TestWalk plays the conversations that a sync of a Foo can have with the API server, see package walktest. With
// -walk-all, it plays all of them. The worlds are in walk_world_test.go. This file has what must hold of a Foo besides
// what must hold of any object; it uses no function of this package that decides anything.
func TestWalk(t *testing.T) {
	edit := func(name string, do func(*appsv1.Deployment)) walktest.Edit[metav1.Object] {
		return walktest.Edit[metav1.Object]{Name: name, Do: func(obj metav1.Object) { do(obj.(*appsv1.Deployment)) }}
	}
	walk := &walktest.Walk[Input, *v1alpha1.Foo]{
		Plan: Foos, Kind: FooKind, Trim: Trim, Observe: walkInput, Object: walkFoo(),
		Worlds: walkWorlds, MayWant: walkMayWant, Ready: walkMayBeReady, Settled: walkSettled, Progress: walkProgress,
		Oracles: walkOracles, ReportsAll: true, MaxRequests: 8,
		Changes: []walktest.Edit[*v1alpha1.Foo]{
			{Name: "one of another name", Do: func(foo *v1alpha1.Foo) { foo.Spec.DeploymentName = "web-4" }},
			{Name: "paused", Do: walkPaused},
			{Name: "reported by somebody else", Do: walkOtherStatus},
		},
		Children: []walktest.Child[*v1alpha1.Foo]{{
			Kind: DeploymentKind.Kind,
			Want: func(foo *v1alpha1.Foo) metav1.Object { return walkDeployment(foo, walkNotObserved) },
			Edits: []walktest.Edit[metav1.Object]{
				edit("one that has lost its pods", walkAvailable(0)), edit("scaled", walkScaled(7)),
			},
			Admit: func(obj metav1.Object) { obj.(*appsv1.Deployment).Spec.Replicas = new(int32(1)) },
		}},
		Vary: map[string]func(*Input) bool{
			"the order of lists does not matter": func(in *Input) bool {
				slices.Reverse(in.Others)
				return len(in.Others) > 1
			},
			"the status of another Foo does not matter": walkReportOwner,
		},
	}
	walk.Test(t)
}

// walkInput is what syncOf of the controller does.
func walkInput(cached walktest.Objects) *Input {
	in := &Input{Foo: walktest.Get(cached, FooKind, "default", "web")}
	in.Deployment = walktest.Get(cached, DeploymentKind, "default", in.Foo.Spec.DeploymentName)
	for key, obj := range cached {
		if dep, ok := obj.(*TrimmedDeployment); ok && key.Name != in.Foo.Spec.DeploymentName && walkControls(in.Foo, dep) {
			in.Others = append(in.Others, dep)
		}
	}
	in.Owner = func(dep *TrimmedDeployment) *v1alpha1.Foo {
		for _, obj := range cached {
			if foo, ok := obj.(*v1alpha1.Foo); ok && walkControls(foo, dep) {
				return foo
			}
		}
		return nil
	}
	return in
}

// walkReportOwner gives another status to the Foos that own a Deployment of the name.
func walkReportOwner(in *Input) bool {
	owner := in.Owner
	in.Owner = func(dep *TrimmedDeployment) *v1alpha1.Foo {
		foo := owner(dep)
		if foo != nil && foo.UID != in.Foo.UID {
			foo = foo.DeepCopy()
			walkReported(foo)
		}
		return foo
	}
	return in.Deployment != nil && !walkControls(in.Foo, in.Deployment)
}

// walkMayWant returns the operations that a sync might do.
func walkMayWant(w *walktest.World) (ops []reconcile.Op) {
	foo := walkCached(w)
	add := func(verb reconcile.Verb, kind, name string) {
		ops = append(ops, reconcile.Op{Verb: verb, Kind: kind, Namespace: "default", Name: name})
	}
	if !foo.Spec.Paused && !walkIsInvalid(foo) {
		switch dep := walkNamedIn(w.Cached); {
		case dep == nil:
			add(reconcile.Create, DeploymentKind.Kind, walkName)
		case walkControls(foo, dep) && dep.DeletionTimestamp == nil:
			add(reconcile.Patch, DeploymentKind.Kind, walkName)
		}
		for _, name := range []string{"web-1", "web-2"} {
			if w.Cached[walkKey(DeploymentKind.Kind, name)] != nil {
				add(reconcile.Delete, DeploymentKind.Kind, name)
			}
		}
	}
	add(reconcile.UpdateStatus, FooKind.Kind, "web")
	return ops
}

func walkIsInvalid(foo *v1alpha1.Foo) bool { return foo.Spec.Replicas != nil && *foo.Spec.Replicas < 0 }

// walkProgress: the Deployment controller, and the Foo that leaves the name.
func walkProgress(foo *v1alpha1.Foo, obj metav1.Object) bool {
	dep, ok := obj.(*appsv1.Deployment)
	switch {
	case !ok:
		return false
	case walkControls(walkMover, dep):
		walkTerminating(dep)
		return true
	case dep.Name != foo.Spec.DeploymentName, walkComplete(dep):
		return false
	}
	walkDeploymentController(dep)
	return true
}

// walkComplete reports whether the Deployment controller has nothing to do.
func walkComplete(dep *appsv1.Deployment) bool {
	wanted, status := *dep.Spec.Replicas, &dep.Status
	return status.ObservedGeneration >= dep.Generation && status.UpdatedReplicas == wanted &&
		status.AvailableReplicas == wanted && status.Replicas == wanted
}

// walkControls reports whether foo is the controller of dep.
func walkControls(foo *v1alpha1.Foo, dep metav1.Object) bool {
	return slices.ContainsFunc(dep.GetOwnerReferences(), func(ref metav1.OwnerReference) bool {
		return ref.APIVersion == "samplecontroller.k8s.io/v1alpha1" && ref.Kind == "Foo" && ref.UID == foo.UID &&
			ref.Controller != nil && *ref.Controller
	})
}

// walkMayBeReady reports whether the Deployment is complete and, unless the reason allows another one, as foo wants it.
func walkMayBeReady(foo *v1alpha1.Foo, objects walktest.Objects) bool {
	dep := walktest.Get(objects, walkDeploymentKind, "default", foo.Spec.DeploymentName)
	if dep == nil || !walkControls(foo, dep) || dep.DeletionTimestamp != nil || dep.Spec.Replicas == nil {
		return false
	}
	reason := ""
	if ready := meta.FindStatusCondition(foo.Status.Conditions, v1alpha1.ConditionReady); ready != nil {
		reason = ready.Reason
	}
	// Overridden is that of what package walktest remembers.
	asObserved := slices.Contains([]string{
		v1alpha1.ReasonPaused, v1alpha1.ReasonFieldsOverridden, reconcile.Overridden,
	}, reason)
	if foo.Spec.Replicas != nil && *foo.Spec.Replicas != *dep.Spec.Replicas && !asObserved {
		return false
	}
	image := dep.Spec.Template.Spec.Containers[0].Image
	if foo.Spec.Image != "" && foo.Spec.Image != image && !asObserved {
		return false
	}
	status, wanted := dep.Status, *dep.Spec.Replicas
	return status.ObservedGeneration >= dep.Generation && status.UpdatedReplicas >= wanted &&
		status.AvailableReplicas >= wanted && status.Replicas <= wanted
}

// walkSettled reports whether the Foo has what it asks for when nothing changes any more, or its status gives the
// reason.
func walkSettled(foo *v1alpha1.Foo, objects walktest.Objects, stuck bool) bool {
	ready := meta.FindStatusCondition(foo.Status.Conditions, v1alpha1.ConditionReady)
	if ready == nil || foo.Status.ObservedGeneration != foo.Generation {
		return false
	}
	dep := walktest.Get(objects, walkDeploymentKind, "default", foo.Spec.DeploymentName)
	blocked := dep != nil && !walkControls(foo, dep) || stuck
	left := len(walkPreviousOf(foo, objects)) > 0
	switch {
	case foo.Spec.Paused:
		return ready.Reason == v1alpha1.ReasonPaused
	case walkIsInvalid(foo):
		return ready.Reason == v1alpha1.ReasonInvalid
	case left && walkNobodyMissesPrevious(foo, objects):
		return false
	case blocked:
		return ready.Status == "False" || walkMayBeReady(foo, objects)
	case left: // The Foo sets no number, and the Deployment has fewer than the previous one is set to.
		return ready.Status == "False" && ready.Reason == v1alpha1.ReasonRenaming && foo.Spec.Replicas == nil
	}
	return ready.Status == "True" && ready.Reason == v1alpha1.ReasonAvailable &&
		len(foo.Status.Conditions) == 1 && walkMayBeReady(foo, objects) &&
		foo.Status.AvailableReplicas == dep.Status.AvailableReplicas
}

var walkOracles = []walktest.Oracle{
	{Name: "nothing but the status is written for a Foo that is paused or invalid", Holds: walkRespectsPause},
	{Name: "a create for a Foo with a previous Deployment comes after a live read of the Foo", Holds: walkCreates},
	{Name: "a patch is for a new spec, or comes after a live read of the Foo", Holds: walkPatches},
	{Name: "a patch mentions only fields that the Foo owns", Holds: walkMentionsOwnFields},
	{Name: "a delete comes after live reads of the Foo and of the replacement", Holds: func(s walktest.Situation) bool {
		return s.Verb != reconcile.Delete || walkHasRead(s, FooKind.Kind, "web") &&
			walkHasRead(s, DeploymentKind.Kind, walkCached(s.World).Spec.DeploymentName)
	}},
	{Name: "a delete removes a previous Deployment that was made for the Foo", Holds: walkDeletesItsOwn},
	// This asks the API server, and not the cache.
	{Name: "a previous Deployment is deleted only when nobody can miss it", Holds: func(s walktest.Situation) bool {
		foo := walktest.Get(s.Live, FooKind, "default", "web")
		return s.Verb != reconcile.Delete || foo != nil && walkNobodyMissesPrevious(foo, s.Live)
	}},
	{Name: "at most one previous Deployment is deleted", Holds: func(s walktest.Situation) bool {
		return s.Verb != reconcile.Delete ||
			!slices.ContainsFunc(s.Sent, func(op reconcile.Op) bool { return op.Verb == reconcile.Delete })
	}},
}

// walkHasRead reports whether an object was read live since the last write.
func walkHasRead(s walktest.Situation, kind, name string) bool {
	return slices.Contains(s.Read, reconcile.Op{Verb: reconcile.Get, Kind: kind, Namespace: "default", Name: name})
}

// walkRespectsPause: a pause counts as soon as a live read has shown it.
func walkRespectsPause(s walktest.Situation) bool {
	foo, seen := walkCached(s.World), walktest.Get(s.Seen, FooKind, "default", "web")
	paused := foo.Spec.Paused || seen != nil && seen.Spec.Paused
	return s.IsRead() || s.Verb == reconcile.UpdateStatus || !paused && !walkIsInvalid(foo)
}

func walkCreates(s walktest.Situation) bool {
	foo, had := walkCached(s.World), false
	for key, obj := range s.World.Cached {
		had = had || key.Name != foo.Spec.DeploymentName && walkControls(foo, obj)
	}
	return s.Verb != reconcile.Create || !had || walkHasRead(s, FooKind.Kind, "web")
}

// walkPatches: what undoes a change of somebody else, or was written for a newer spec than the cached one, needs a live
// read of the Foo. What its spec asks for needs none: a Deployment of an older spec, or one without our labels.
func walkPatches(s walktest.Situation) bool {
	if s.Verb != reconcile.Patch {
		return true
	}
	dep := s.Have().(*TrimmedDeployment)
	label, err := strconv.ParseInt(dep.FooGeneration, 10, 64)
	isUpdate := err == nil && label < walkCached(s.World).Generation || dep.FooGeneration == "" && dep.MadeFor == ""
	return isUpdate || walkHasRead(s, FooKind.Kind, "web")
}

func walkMentionsOwnFields(s walktest.Situation) bool {
	if s.Verb != reconcile.Patch {
		return true
	}
	own := []string{"metadata.uid", "metadata.resourceVersion", "metadata.ownerReferences"}
	for _, label := range []string{"app.kubernetes.io/managed-by", v1alpha1.LabelMadeFor, v1alpha1.LabelFooGeneration} {
		own = append(own, "metadata.labels."+label)
	}
	foo := walkCached(s.World)
	if foo.Spec.Replicas != nil {
		own = append(own, "spec.replicas")
	}
	if foo.Spec.Image != "" {
		own = append(own, "spec.template.spec.containers")
	}
	fields := map[string]any{}
	err := json.Unmarshal(s.Step.Patch, &fields)
	isForeign := func(path string) bool { return !slices.Contains(own, path) }
	containers := s.Patched.(*appsv1.Deployment).Spec.Template.Spec.Containers
	return err == nil && !slices.ContainsFunc(walkPaths("", fields), isForeign) && len(containers) == 1
}

// walkPaths returns where the values in fields are. A list counts as one value.
func walkPaths(prefix string, fields map[string]any) []string {
	var paths []string
	for name, value := range fields {
		if inner, ok := value.(map[string]any); ok {
			paths = append(paths, walkPaths(prefix+name+".", inner)...)
			continue
		}
		paths = append(paths, prefix+name)
	}
	return paths
}

func walkDeletesItsOwn(s walktest.Situation) bool {
	if s.Verb != reconcile.Delete {
		return true
	}
	dep, foo := s.Have().(*TrimmedDeployment), walkCached(s.World)
	return dep.Name != foo.Spec.DeploymentName && dep.Name != "web-9" && dep.MadeFor != "" &&
		walkControls(foo, dep) && dep.DeletionTimestamp == nil
}

// walkPreviousOf returns the previous Deployments: made for the Foo under another name, and not being deleted.
func walkPreviousOf(foo *v1alpha1.Foo, objects walktest.Objects) (previous []*appsv1.Deployment) {
	for _, obj := range objects {
		dep, ok := obj.(*appsv1.Deployment)
		isCopy := ok && (dep.Name == "web-9" || dep.Labels[v1alpha1.LabelMadeFor] == "")
		if ok && dep.Name != foo.Spec.DeploymentName && dep.DeletionTimestamp == nil && !isCopy && walkControls(foo, dep) {
			previous = append(previous, dep)
		}
	}
	return previous
}

// walkNobodyMissesPrevious reports whether nobody can miss the previous Deployments. The Deployment of the name, at
// the current generation and observed, must have at least one available pod of its current template, since those of
// earlier ones are about to end, and at least as many as the smaller of two numbers: what the Foo asks for, and what
// the previous one is set to; of several the one that is set to most counts. A Foo without a number asks for what the
// previous one is set to. Nothing is needed for a Foo that asks for none.
func walkNobodyMissesPrevious(foo *v1alpha1.Foo, objects walktest.Objects) bool {
	dep, set := walktest.Get(objects, walkDeploymentKind, "default", foo.Spec.DeploymentName), int32(0)
	if dep == nil {
		return false
	}
	for _, previous := range walkPreviousOf(foo, objects) {
		set = max(set, *previous.Spec.Replicas)
	}
	asked := set
	if foo.Spec.Replicas != nil {
		asked = *foo.Spec.Replicas
	}
	isCurrent := dep.Labels[v1alpha1.LabelFooGeneration] == strconv.FormatInt(foo.Generation, 10) &&
		dep.Status.ObservedGeneration >= dep.Generation
	current, _ := walkPods(dep)
	available := min(current, *dep.Spec.Replicas) // Others are about to end.
	return walkControls(foo, dep) && dep.DeletionTimestamp == nil && isCurrent &&
		(asked == 0 || available >= 1 && available >= min(asked, set))
}
