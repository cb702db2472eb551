package plan

import (
	"maps"
	"strconv"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/foo-controller/pkg/sim/walktest"
)

// This file has the worlds of the walk: the product of five lists. An option of such a list changes one part of a plain
// world. What backs off is added by package walktest.

// walkStart is when every first sync begins.
var walkStart = time.Date(2026, 2, 3, 4, 5, 6, 0, time.UTC)

// walkKey is the key of an object in the namespace of the walk.
func walkKey(kind, name string) walktest.Key {
	return walktest.Key{Kind: kind, Namespace: "default", Name: name}
}

// walkCached returns the Foo in the cache.
func walkCached(w *walktest.World) *v1alpha1.Foo {
	return walktest.Get(w.Cached, FooKind, "default", "web")
}

// walkNamedIn returns the Deployment that the Foo names, nil if there is none.
func walkNamedIn(objects walktest.Objects) *appsv1.Deployment {
	return walktest.Get(objects, walkDeploymentKind, "default", walkName)
}

// walkStore puts a Deployment into a copy of objects, which other worlds may share.
func walkStore(objects *walktest.Objects, dep *appsv1.Deployment) {
	*objects = maps.Clone(*objects)
	(*objects)[walkKey(DeploymentKind.Kind, dep.Name)] = dep
}

// Options that others depend on.
const (
	walkAsWanted    = "as wanted"
	walkOlder       = "older label"
	walkServing     = "a serving one"
	walkUndeletable = "an undeletable one"
)

const walkName = "web-3" // The Deployment that the Foo names.

// walkFoo returns the Foo at its third generation, with all fields set, as nobody has reported on it.
func walkFoo(changes ...func(*v1alpha1.Foo)) *v1alpha1.Foo {
	foo := &v1alpha1.Foo{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: "web", UID: "foo-uid", ResourceVersion: "10", Generation: 3,
		},
		Spec: v1alpha1.FooSpec{DeploymentName: walkName, Replicas: new(int32(3)), Image: "nginx:1.29"},
	}
	for _, change := range changes {
		change(foo)
	}
	return foo
}

// walkOwner returns another Foo.
func walkOwner(name, deployment string) *v1alpha1.Foo {
	return walkFoo(func(foo *v1alpha1.Foo) {
		foo.Name, foo.UID, foo.Spec.DeploymentName = name, types.UID(name+"-uid"), deployment
	})
}

func walkReported(foo *v1alpha1.Foo) {
	foo.Status = v1alpha1.FooStatus{ObservedGeneration: 2, Replicas: 3, AvailableReplicas: 3}
	foo.Status.Conditions = []metav1.Condition{{
		Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonAvailable,
		ObservedGeneration: 2, LastTransitionTime: metav1.NewTime(walkStart.Add(-time.Hour)),
	}}
}

func walkAbsentFields(foo *v1alpha1.Foo) { foo.Spec.Replicas, foo.Spec.Image = nil, "" }
func walkNone(foo *v1alpha1.Foo)         { foo.Spec.Replicas = new(int32(0)) }
func walkPaused(foo *v1alpha1.Foo)       { foo.Spec.Paused = true }
func walkInvalid(foo *v1alpha1.Foo)      { foo.Spec.Replicas = new(int32(-1)) }
func walkDeletedFoo(foo *v1alpha1.Foo)   { foo.DeletionTimestamp = &metav1.Time{Time: walkStart} }

func walkEdited(foo *v1alpha1.Foo) {
	foo.Generation += 7
	foo.ResourceVersion += "1"
}

func walkRenamed(foo *v1alpha1.Foo) {
	walkEdited(foo)
	foo.Spec.DeploymentName = "web-4"
}

func walkPausedNow(foo *v1alpha1.Foo) {
	walkEdited(foo)
	walkPaused(foo)
}

// walkRestored: the API server was restored from a backup.
func walkRestored(foo *v1alpha1.Foo) { foo.Generation, foo.ResourceVersion = 2, "9" }

func walkRecreated(foo *v1alpha1.Foo) {
	foo.UID, foo.Generation, foo.ResourceVersion, foo.Status = "foo-uid-2", 1, "15", v1alpha1.FooStatus{}
}

func walkOtherStatus(foo *v1alpha1.Foo) {
	foo.ResourceVersion += "1"
	foo.Status.AvailableReplicas = 99
}

// Foos that own a Deployment of the name: one names it too, one names another and leaves, and one waits for a previous
// Deployment of the Foo, so that neither can move.
var (
	walkHolder = walkOwner("holder", walkName)
	walkMover  = walkOwner("mover", "elsewhere")
	walkRing   = walkOwner("ring", "web-1")
	walkOwners = []*v1alpha1.Foo{walkHolder, walkMover, walkRing}
)

// walkDeployment returns foo's Deployment as it is stored when its rollout is complete.
func walkDeployment(foo *v1alpha1.Foo, changes ...func(*appsv1.Deployment)) *appsv1.Deployment {
	dep := Deployment(foo)
	dep.UID, dep.ResourceVersion, dep.Generation = types.UID(dep.Name+"-uid"), "20", 1
	walkRollout(*dep.Spec.Replicas)(dep)
	walkProgressing(corev1.ConditionTrue, "NewReplicaSetAvailable")(dep)
	for _, change := range changes {
		change(dep)
	}
	return dep
}

// walkPrevious returns the Deployment that was made for foo at generation 1, when it had that name.
func walkPrevious(foo *v1alpha1.Foo, name string, changes ...func(*appsv1.Deployment)) *appsv1.Deployment {
	was := foo.DeepCopy()
	was.Spec.DeploymentName, was.Generation, was.Spec.Replicas = name, 1, new(int32(3))
	return walkDeployment(was, changes...)
}

// walkRollout sets how many replicas are updated and available.
func walkRollout(replicas int32) func(*appsv1.Deployment) {
	return func(dep *appsv1.Deployment) {
		walkRun(dep, replicas, 0)
		walkObserve(dep)
	}
}

func walkAvailable(n int32) func(*appsv1.Deployment) {
	return func(dep *appsv1.Deployment) {
		walkRun(dep, n, 0)
		dep.Status.AvailableReplicas = n
	}
}

const walkEarlierImage = "nginx:earlier"

// walkRun sets the available pods of dep: how many are of its current template, and how many of an earlier one. The
// controller cannot see them, only the numbers of the status. They are in annotations, by their image.
func walkRun(dep *appsv1.Deployment, current, earlier int32) {
	dep.Annotations = map[string]string{
		imageOf(dep): strconv.Itoa(int(current)), walkEarlierImage: strconv.Itoa(int(earlier)),
	}
}

// walkPods returns the available pods of dep: those of its current template, and those of earlier ones.
func walkPods(dep *appsv1.Deployment) (current, earlier int32) {
	for image, count := range dep.Annotations {
		n, err := strconv.ParseInt(count, 10, 32)
		switch {
		case err != nil:
			panic(err)
		case image == imageOf(dep):
			current += int32(n)
		default:
			earlier += int32(n)
		}
	}
	return current, earlier
}

// walkObserve is the Deployment controller writing the status.
func walkObserve(dep *appsv1.Deployment) {
	current, earlier := walkPods(dep)
	dep.Status.ObservedGeneration, dep.Status.UpdatedReplicas = dep.Generation, current
	dep.Status.Replicas, dep.Status.AvailableReplicas = current+earlier, current+earlier
}

// walkDeploymentController is one step of that controller.
func walkDeploymentController(dep *appsv1.Deployment) {
	wanted := *dep.Spec.Replicas
	switch current, earlier := walkPods(dep); {
	case earlier == 0, current >= wanted:
		walkRun(dep, wanted, 0)
	case dep.Status.ObservedGeneration < dep.Generation: // The pods of the earlier template are still there.
	case walkEndsAllFirst(dep):
		walkRun(dep, current, 0)
	default:
		walkRun(dep, wanted, earlier)
	}
	walkObserve(dep)
}

// walkEndsAllFirst reports whether the pods of an earlier template end before there are new ones.
func walkEndsAllFirst(dep *appsv1.Deployment) bool {
	strategy := &dep.Spec.Strategy
	return strategy.Type == appsv1.RecreateDeploymentStrategyType || strategy.RollingUpdate != nil
}

func walkRecreate(dep *appsv1.Deployment) {
	dep.Spec.Strategy.Type = appsv1.RecreateDeploymentStrategyType
}

func walkAllUnavailable(dep *appsv1.Deployment) {
	dep.Spec.Strategy.RollingUpdate = &appsv1.RollingUpdateDeployment{MaxUnavailable: new(intstr.FromString("100%"))}
}

// walkMixed gives dep pods of two templates, as the Deployment controller has just observed them.
func walkMixed(current, earlier int32) func(*appsv1.Deployment) {
	return func(dep *appsv1.Deployment) {
		dep.Generation++
		walkRun(dep, current, earlier)
		walkObserve(dep)
	}
}

func walkProgressing(value corev1.ConditionStatus, reason string) func(*appsv1.Deployment) {
	return func(dep *appsv1.Deployment) {
		dep.Status.Conditions = []appsv1.DeploymentCondition{{
			Type: appsv1.DeploymentProgressing, Status: value, Reason: reason,
		}}
	}
}

func walkSurplus(dep *appsv1.Deployment)      { dep.Status.Replicas++ }
func walkNoConditions(dep *appsv1.Deployment) { dep.Status.Conditions = nil }

// walkStopped: somebody has paused the rollout.
func walkStopped(dep *appsv1.Deployment) {
	dep.Spec.Paused = true
	walkProgressing(corev1.ConditionUnknown, "DeploymentPaused")(dep)
}

func walkNoRoom(dep *appsv1.Deployment) {
	dep.Status.Conditions = []appsv1.DeploymentCondition{{
		Type: appsv1.DeploymentReplicaFailure, Status: corev1.ConditionTrue,
	}}
}

func walkScaled(n int32) func(*appsv1.Deployment) {
	return func(dep *appsv1.Deployment) {
		dep.Spec.Replicas = &n
		walkRollout(n)(dep)
	}
}

// walkNewImage: somebody has changed the image, and the rollout of that is complete.
func walkNewImage(dep *appsv1.Deployment) {
	dep.Spec.Template.Spec.Containers = []corev1.Container{{Name: ContainerName, Image: "nginx:other"}}
	walkRollout(*dep.Spec.Replicas)(dep)
}

func walkGeneration(label string) func(*appsv1.Deployment) {
	return func(dep *appsv1.Deployment) { dep.Labels[v1alpha1.LabelFooGeneration] = label }
}

func walkUnlabelled(dep *appsv1.Deployment)  { dep.Labels = nil }
func walkUnowned(dep *appsv1.Deployment)     { dep.OwnerReferences = nil }
func walkTerminating(dep *appsv1.Deployment) { dep.DeletionTimestamp = &metav1.Time{Time: walkStart} }
func walkNotObserved(dep *appsv1.Deployment) {
	dep.Annotations, dep.Status = nil, appsv1.DeploymentStatus{}
}
func walkWithoutUID(dep *appsv1.Deployment)   { dep.UID = "" }
func walkUnversioned(dep *appsv1.Deployment)  { dep.ResourceVersion = "" }
func walkUnblocked(dep *appsv1.Deployment)    { dep.OwnerReferences[0].BlockOwnerDeletion = nil }
func walkOtherGroup(dep *appsv1.Deployment)   { dep.OwnerReferences[0].APIVersion = "other.io/v1" }
func walkEarlierOwner(dep *appsv1.Deployment) { dep.OwnerReferences[0].UID = "earlier-uid" }
func walkCopied(dep *appsv1.Deployment)       { dep.Name, dep.UID = "web-9", "web-9-uid" }

// walkAnd returns option with one more change.
func walkAnd(option walktest.Option, change func(*walktest.World)) walktest.Option {
	set := option.Set
	option.Set = func(w *walktest.World) { set(w); change(w) }
	return option
}

// walkWorlds calls visit with every world. The Foo comes first, as all others depend on it.
func walkWorlds(visit func(walktest.World)) {
	walktest.Combine([][]walktest.Option{
		walkFoos(), walkNamed(), walkEarlier(), walkTemplates(), walkOwnWrites(),
	}, visit)
}

// walkFoos: the Foo in the cache, and what the API server has instead.
func walkFoos() []walktest.Option {
	foo := func(name string, live func(*v1alpha1.Foo), changes ...func(*v1alpha1.Foo)) walktest.Option {
		cached := walkFoo(changes...)
		newest := cached
		if live != nil {
			newest = cached.DeepCopy()
			live(newest)
		}
		return walktest.Option{Name: name, Set: func(w *walktest.World) {
			w.Cached, w.Live, w.EventDue = walktest.Objects{}, walktest.Objects{}, live != nil
			for _, owner := range walkOwners {
				w.Cached[walkKey(FooKind.Kind, owner.Name)], w.Live[walkKey(FooKind.Kind, owner.Name)] = owner, owner
			}
			w.Cached[walkKey(FooKind.Kind, "web")], w.Live[walkKey(FooKind.Kind, "web")] = cached, newest
		}}
	}
	return []walktest.Option{
		foo("new Foo", nil),
		foo("Foo", nil, walkReported),
		foo("Foo with absent fields", nil, walkReported, walkAbsentFields),
		foo("Foo that asks for no replicas", nil, walkReported, walkNone),
		foo("paused Foo", nil, walkReported, walkPaused),
		foo("invalid Foo", nil, walkReported, walkInvalid),
		foo("renamed Foo", walkRenamed, walkReported),
		foo("Foo paused just now", walkPausedNow, walkReported),
		foo("Foo of an older generation than cached", walkRestored, walkReported),
		foo("recreated Foo", walkRecreated, walkReported),
		foo("Foo being deleted", walkDeletedFoo, walkReported),
		walkAnd(foo("Foo gone", walkEdited, walkReported), func(w *walktest.World) {
			delete(w.Live, walkKey(FooKind.Kind, "web"))
		}),
	}
}

// walkNamed: the Deployment that has the name.
func walkNamed() []walktest.Option {
	named := func(name string, changes ...func(*appsv1.Deployment)) walktest.Option {
		return walktest.Option{Name: name, Set: func(w *walktest.World) {
			walkSetNamed(w, walkDeployment(walkCached(w), changes...))
		}}
	}
	others := func(name string, owner *v1alpha1.Foo) walktest.Option {
		return walktest.Option{Name: name, Set: func(w *walktest.World) { walkSetNamed(w, walkPrevious(owner, walkName)) }}
	}
	stuck := func(w *walktest.World) { w.Stuck = true }
	late := walkProgressing(corev1.ConditionFalse, "ProgressDeadlineExceeded")
	return []walktest.Option{
		{Name: "no Deployment", Set: func(*walktest.World) {}},
		named(walkAsWanted), named("scaled", walkScaled(9)), named("another image", walkNewImage),
		named("no labels", walkUnlabelled), named("weak owner reference", walkUnblocked),
		named(walkOlder, walkGeneration("2")),
		named("older label, another image", walkGeneration("2"), walkNewImage, walkRecreate), // Renamed back.
		named("newer label", walkGeneration("4"), walkScaled(9)),
		named("foreign", walkUnowned),
		named("owner of another group", walkOtherGroup), named("owner gone", walkEarlierOwner),
		others("another Foo's", walkHolder), others("left by another Foo", walkMover), others("in a cycle", walkRing),
		named("terminating", walkTerminating), named("not observed", walkNotObserved),
		named("coming up", walkAvailable(1)), named("with an old replica", walkSurplus),
		walkAnd(named("stuck", walkAvailable(0), late), stuck),
		walkAnd(named("no room for pods", walkAvailable(0), walkNoRoom), stuck),
		walkAnd(named("room for one pod", walkAvailable(1), walkNoRoom), stuck),
		walkAnd(named("capped by a policy", walkScaled(1)), func(w *walktest.World) { w.Admits = true }),
		named("scaled, without uid", walkScaled(9), walkWithoutUID),
	}
}

// walkSetNamed makes dep the Deployment of the name, for the caches and the API server.
func walkSetNamed(w *walktest.World, dep *appsv1.Deployment) {
	walkStore(&w.Cached, dep)
	walkStore(&w.Live, dep)
}

// walkOurs reports whether the cached Deployment belongs to the cached Foo.
func walkOurs(w *walktest.World) bool {
	dep := walkNamedIn(w.Cached)
	return dep != nil && walkControls(walkCached(w), dep)
}

// walkEarlier: the previous Deployments.
func walkEarlier() []walktest.Option {
	type maker func(*v1alpha1.Foo) *appsv1.Deployment
	made := func(name string, changes ...func(*appsv1.Deployment)) maker {
		return func(foo *v1alpha1.Foo) *appsv1.Deployment { return walkPrevious(foo, name, changes...) }
	}
	previous := func(name string, makers ...maker) walktest.Option {
		return walktest.Option{Name: name, Set: func(w *walktest.World) {
			for _, make := range makers {
				walkSetNamed(w, make(walkCached(w)))
			}
		}}
	}
	options := []walktest.Option{
		previous("no previous"), previous(walkServing, made("web-1")),
		previous("a copy", made("web-1", walkCopied)), previous("a terminating one", made("web-1", walkTerminating)),
		walkAnd(previous(walkUndeletable, made("web-1")), func(w *walktest.World) { w.Undeletable = true }),
		previous("one with a newer label", made("web-1", walkGeneration("9"))),
		previous("one without resourceVersion", made("web-1", walkUnversioned)),
	}
	none, one := walkAvailable(0), walkAvailable(1)
	never := walkProgressing(corev1.ConditionTrue, "ReplicaSetUpdated")
	late := walkProgressing(corev1.ConditionFalse, "ProgressDeadlineExceeded")
	// What matters only while the Deployment is the Foo's: until then no previous one is deleted, whatever its state.
	for _, option := range []walktest.Option{
		previous("one that lost its pods", made("web-1", none)), // Its rollout was complete.
		previous("one in its first rollout", made("web-1", none, never)),
		previous("one in a rollout", made("web-1", one, never)),
		previous("one in a bad rollout", made("web-1", one, late)),
		previous("one in a bad rollout that lost its pods", made("web-1", none, late)),
		previous("one without a deadline that lost its pods", made("web-1", none, walkNoConditions)),
		previous("a paused one that lost its pods", made("web-1", none, walkStopped)),
		previous("one scaled to none", made("web-1", walkScaled(0))),
		previous("a serving one and one in its first rollout", made("web-1"), made("web-2", none, never)),
		previous("a small one that serves and a larger one that lost its pods",
			made("web-1", walkScaled(1)), made("web-2", none)),
	} {
		option.Fits = walkOurs
		options = append(options, option)
	}
	return options
}

// walkTemplates: the pods of the Deployment of the name, while a previous one serves.
func walkTemplates() []walktest.Option {
	mixed := func(name string, changes ...func(*appsv1.Deployment)) walktest.Option {
		set := func(w *walktest.World) {
			dep := walkNamedIn(w.Cached).DeepCopy()
			for _, change := range changes {
				change(dep)
			}
			walkSetNamed(w, dep)
		}
		fits := func(w *walktest.World) bool {
			named, earlier := w.Options[1], w.Options[2]
			return (named == walkAsWanted || named == walkOlder) && (earlier == walkServing || earlier == walkUndeletable)
		}
		return walktest.Option{Name: name, Set: set, Fits: fits}
	}
	return []walktest.Option{
		{Name: "one template", Set: func(*walktest.World) {}},
		mixed("pods of an earlier template, Recreate", walkRecreate, walkMixed(0, 3)),
		mixed("pods of an earlier template, all may be unavailable", walkAllUnavailable, walkMixed(0, 3)),
		mixed("pods of two templates", walkMixed(1, 3)),
	}
}

// walkOwnWrites: writes of earlier syncs. The caches lack them longer than the controller waits.
func walkOwnWrites() []walktest.Option {
	mayWrite := func(w *walktest.World) bool { return walkNamedIn(w.Cached) == nil || walkOurs(w) }
	current := func(w *walktest.World) bool { return walktest.Get(w.Live, FooKind, "default", "web") == walkCached(w) }
	return []walktest.Option{
		{Name: "all writes seen", Set: func(*walktest.World) {}},
		{Name: "a write of the Deployment unseen", Fits: mayWrite, Set: func(w *walktest.World) {
			w.Memory.Wrote, w.Held = true, true
			written := walkDeployment(walkCached(w), walkNotObserved)
			written.ResourceVersion = "30"
			walkStore(&w.Live, written)
		}},
		{Name: "the outcome of a write unknown", Fits: mayWrite, Set: func(w *walktest.World) { w.Memory.Wrote = true }},
		{Name: "a write of the status unseen", Fits: current, Set: func(w *walktest.World) {
			foo := walkCached(w).DeepCopy()
			foo.ResourceVersion, foo.Status.Replicas, foo.Status.AvailableReplicas = "11", 0, 0
			w.Held, w.Live = true, maps.Clone(w.Live)
			w.Live[walkKey(FooKind.Kind, "web")] = foo
		}},
	}
}
