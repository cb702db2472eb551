package plan

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
)

// This file has the worlds of the walk: the product of six lists. An option of such a list changes one part of a plain
// world. The objects of a world are shared by all conversations in it, and nobody changes them.

// walkStart is when every first sync begins.
var walkStart = time.Date(2026, 2, 3, 4, 5, 6, 0, time.UTC)

// A walkWorld is the state in which a sync begins: what the caches have, what the API server has, and what is
// remembered.
type walkWorld struct {
	options []string // One from each list.
	cached  walkCaches
	server  walkServer
	memory  Memory
	// stuck means that the Deployments make no progress by themselves.
	stuck bool
}

// walkCaches is what the informers show.
type walkCaches struct {
	foo        *v1alpha1.Foo
	deployment *appsv1.Deployment
	previous   []*appsv1.Deployment
}

// clone returns a copy of all objects.
func (c walkCaches) clone() walkCaches {
	previous := slices.Clone(c.previous)
	for i := range previous {
		previous[i] = previous[i].DeepCopy()
	}
	return walkCaches{c.foo.DeepCopy(), c.deployment.DeepCopy(), previous}
}

func (w *walkWorld) String() string { return strings.Join(w.options, " | ") }

// state returns the State of a sync in w, as the controller's observe does.
func (w *walkWorld) state(now time.Time) *State {
	foo := w.cached.foo
	state := &State{
		Foo: foo, Deployment: TrimDeployment(w.cached.deployment), Owner: w.server.owner(w.cached.deployment),
		Now: now, Jitter: 0.5, Memory: w.memory.For(foo, now),
	}
	for _, dep := range w.cached.previous {
		state.Previous = append(state.Previous, TrimDeployment(dep))
	}
	return state
}

// walkCaughtUp returns the world in which the caches show what server has. It is nil when there is no sync, because the
// Foo is gone or being deleted.
func walkCaughtUp(w *walkWorld, server walkServer, memory Memory) *walkWorld {
	foo := server.foo
	if foo == nil || foo.DeletionTimestamp != nil {
		return nil
	}
	server.eventDue, server.held, server.cached = false, false, foo
	next := &walkWorld{options: w.options, server: server, memory: memory, stuck: w.stuck}
	next.cached = walkCaches{foo: foo, deployment: server.find(foo.Spec.DeploymentName)}
	for _, dep := range server.deployments {
		if dep.Name != foo.Spec.DeploymentName && walkControls(foo, dep) {
			next.cached.previous = append(next.cached.previous, dep)
		}
	}
	return next
}

// Options that others depend on.
const (
	walkAsWanted    = "as wanted"
	walkOlder       = "older label"
	walkServing     = "a serving one"
	walkUndeletable = "an undeletable one"
)

const (
	walkName   = "web-3"                // The Deployment that the Foo names.
	walkReport = "the quota is used up" // The text of all failures in a ledger.
)

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
	// walkOwnersReported are the same Foos with another status.
	walkOwnersReported = func() []*v1alpha1.Foo {
		var reported []*v1alpha1.Foo
		for _, owner := range walkOwners {
			owner = owner.DeepCopy()
			walkReported(owner)
			reported = append(reported, owner)
		}
		return reported
	}()
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

// A walkOption is one choice in one list.
type walkOption struct {
	name string
	// set changes a world whose options of the lists before are set.
	set func(*walkWorld)
	// fits, unless nil, reports whether the option makes any difference to the world.
	fits func(*walkWorld) bool
}

// and returns option with one more change.
func (option walkOption) and(change func(*walkWorld)) walkOption {
	set := option.set
	option.set = func(w *walkWorld) { set(w); change(w) }
	return option
}

// walkLists are the independent parts of a world. The Foo comes first, as all others depend on it.
var walkLists = [][]walkOption{
	walkFoos(), walkNamed(), walkEarlier(), walkTemplates(), walkOwnWrites(), walkLedgers(),
}

// walkFoos: the Foo in the cache, and what the API server has instead.
func walkFoos() []walkOption {
	foo := func(name string, live func(*v1alpha1.Foo), changes ...func(*v1alpha1.Foo)) walkOption {
		cached := walkFoo(changes...)
		newest := cached
		if live != nil {
			newest = cached.DeepCopy()
			live(newest)
		}
		return walkOption{name: name, set: func(w *walkWorld) {
			w.cached.foo, w.server.cached, w.server.owners = cached, cached, walkOwners
			w.server.foo, w.server.eventDue = newest, live != nil
		}}
	}
	return []walkOption{
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
		foo("Foo gone", walkEdited, walkReported).and(func(w *walkWorld) { w.server.foo = nil }),
	}
}

// walkNamed: the Deployment that has the name.
func walkNamed() []walkOption {
	named := func(name string, changes ...func(*appsv1.Deployment)) walkOption {
		return walkOption{name: name, set: func(w *walkWorld) { w.setNamed(walkDeployment(w.cached.foo, changes...)) }}
	}
	others := func(name string, owner *v1alpha1.Foo) walkOption {
		return walkOption{name: name, set: func(w *walkWorld) { w.setNamed(walkPrevious(owner, walkName)) }}
	}
	stuck := func(w *walkWorld) { w.stuck = true }
	late := walkProgressing(corev1.ConditionFalse, "ProgressDeadlineExceeded")
	return []walkOption{
		{name: "no Deployment", set: func(*walkWorld) {}},
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
		named("stuck", walkAvailable(0), late).and(stuck),
		named("no room for pods", walkAvailable(0), walkNoRoom).and(stuck),
		named("room for one pod", walkAvailable(1), walkNoRoom).and(stuck),
		named("capped by a policy", walkScaled(1)).and(func(w *walkWorld) { w.server.capped = true }),
		named("scaled, without uid", walkScaled(9), walkWithoutUID),
	}
}

// setNamed makes dep the Deployment of the name, for the caches and the API server.
func (w *walkWorld) setNamed(dep *appsv1.Deployment) {
	w.cached.deployment = dep
	w.server.deployments = append(w.server.deployments[:0:0], dep)
}

// ours reports whether the cached Deployment belongs to the cached Foo.
func (w *walkWorld) ours() bool {
	return w.cached.deployment != nil && Owns(w.cached.foo, w.cached.deployment)
}

// walkEarlier: the previous Deployments.
func walkEarlier() []walkOption {
	type maker func(*v1alpha1.Foo) *appsv1.Deployment
	made := func(name string, changes ...func(*appsv1.Deployment)) maker {
		return func(foo *v1alpha1.Foo) *appsv1.Deployment { return walkPrevious(foo, name, changes...) }
	}
	previous := func(name string, makers ...maker) walkOption {
		return walkOption{name: name, set: func(w *walkWorld) {
			for _, make := range makers {
				w.cached.previous = append(slices.Clip(w.cached.previous), make(w.cached.foo))
			}
			w.server.deployments = append(slices.Clip(w.server.deployments), w.cached.previous...)
		}}
	}
	options := []walkOption{
		previous("no previous"), previous(walkServing, made("web-1")),
		previous("a copy", made("web-1", walkCopied)), previous("a terminating one", made("web-1", walkTerminating)),
		previous(walkUndeletable, made("web-1")).and(func(w *walkWorld) { w.server.undeletable = true }),
		previous("one with a newer label", made("web-1", walkGeneration("9"))),
		previous("one without resourceVersion", made("web-1", walkUnversioned)),
	}
	none, one := walkAvailable(0), walkAvailable(1)
	never := walkProgressing(corev1.ConditionTrue, "ReplicaSetUpdated")
	late := walkProgressing(corev1.ConditionFalse, "ProgressDeadlineExceeded")
	// What matters only while the Deployment is the Foo's: until then no previous one is deleted, whatever its state.
	for _, option := range []walkOption{
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
		option.fits = (*walkWorld).ours
		options = append(options, option)
	}
	return options
}

// walkTemplates: the pods of the Deployment of the name, while a previous one serves.
func walkTemplates() []walkOption {
	mixed := func(name string, changes ...func(*appsv1.Deployment)) walkOption {
		set := func(w *walkWorld) {
			dep := w.cached.deployment.DeepCopy()
			for _, change := range changes {
				change(dep)
			}
			w.cached.deployment = dep
			w.server.store(dep)
		}
		fits := func(w *walkWorld) bool {
			named, earlier := w.options[1], w.options[2]
			return (named == walkAsWanted || named == walkOlder) && (earlier == walkServing || earlier == walkUndeletable)
		}
		return walkOption{name: name, set: set, fits: fits}
	}
	return []walkOption{
		{name: "one template", set: func(*walkWorld) {}},
		mixed("pods of an earlier template, Recreate", walkRecreate, walkMixed(0, 3)),
		mixed("pods of an earlier template, all may be unavailable", walkAllUnavailable, walkMixed(0, 3)),
		mixed("pods of two templates", walkMixed(1, 3)),
	}
}

// walkOwnWrites: writes of earlier syncs. The caches lack them longer than the controller waits.
func walkOwnWrites() []walkOption {
	mayWrite := func(w *walkWorld) bool { return w.cached.deployment == nil || w.ours() }
	current := func(w *walkWorld) bool { return w.server.foo == w.cached.foo }
	return []walkOption{
		{name: "all writes seen", set: func(*walkWorld) {}},
		{name: "a write of the Deployment unseen", fits: mayWrite, set: func(w *walkWorld) {
			w.memory.Wrote, w.server.held = true, true
			written := walkDeployment(w.cached.foo, walkNotObserved)
			written.ResourceVersion = "30"
			w.server.store(written)
		}},
		{name: "the outcome of a write unknown", fits: mayWrite, set: func(w *walkWorld) { w.memory.Wrote = true }},
		{name: "a write of the status unseen", fits: current, set: func(w *walkWorld) {
			w.server.held = true
			foo := w.server.foo.DeepCopy()
			foo.ResourceVersion, foo.Status.Replicas, foo.Status.AvailableReplicas = "11", 0, 0
			w.server.foo = foo
		}},
	}
}

func named(name string) func(*appsv1.Deployment) bool {
	return func(dep *appsv1.Deployment) bool { return dep.Name == name }
}

// walkLedgers: the operations that back off, or did until now.
func walkLedgers() []walkOption {
	options := []walkOption{{name: "nothing backs off", set: func(*walkWorld) {}}}
	add := func(op Op, reason string, when ...string) {
		for _, end := range when {
			attempt := Attempt{Count: 4, Until: walkStart, Report: ConditionError{Reason: reason, Message: walkReport}}
			if end == "until now" {
				attempt.Count = 20 // One more, and the delay is the longest.
			} else {
				attempt.Until = walkStart.Add(10 * time.Second)
			}
			if end == "after a conflict" { // The delays after conflicts are short.
				attempt.Count, attempt.Expected, attempt.Until = 2, true, walkStart.Add(10*time.Millisecond)
			}
			suffix := ""
			if op.Again {
				suffix = " again"
			}
			options = append(options, walkOption{
				name: fmt.Sprintf("%s%s backs off %s", op, suffix, end),
				set:  func(w *walkWorld) { w.enter(op, attempt) },
				fits: func(w *walkWorld) bool { return w.mayWant(op) },
			})
		}
	}
	const failed, past, conflict = "after a failure", "until now", "after a conflict"
	for _, verb := range []Verb{CreateDeployment, PatchDeployment} {
		add(Op{Verb: verb, Name: walkName}, v1alpha1.ReasonRefused, failed, past, conflict)
	}
	add(Op{Verb: DeleteDeployment, Name: "web-1"}, v1alpha1.ReasonRefused, failed, past)
	add(Op{Verb: DeleteDeployment, Name: "web-2"}, v1alpha1.ReasonRefused, failed)
	add(Op{Verb: UpdateStatus, Name: "web"}, v1alpha1.ReasonRefused, failed)
	add(Op{Verb: CreateDeployment, Name: walkName, Again: true}, v1alpha1.ReasonCreating, failed, past)
	add(Op{Verb: PatchDeployment, Name: walkName, Again: true}, v1alpha1.ReasonFieldsOverridden, failed, past)
	writable := func(w *walkWorld) bool {
		return w.mayWant(Op{Verb: CreateDeployment}) || w.mayWant(Op{Verb: PatchDeployment})
	}
	return append(options, walkOption{name: "every operation backs off", set: (*walkWorld).enterAll, fits: writable})
}

// enter puts an attempt into the ledger.
func (w *walkWorld) enter(op Op, attempt Attempt) {
	ledger := map[Op]Attempt{op: attempt}
	maps.Copy(ledger, w.memory.Ledger)
	w.memory.Generation, w.memory.Ledger = w.cached.foo.Generation, ledger
}

// enterAll puts all operations that a sync might do into the ledger, with different delays.
func (w *walkWorld) enterAll() {
	report := ConditionError{Reason: v1alpha1.ReasonRefused, Message: walkReport}
	for i, op := range []Op{
		{Verb: CreateDeployment, Name: walkName}, {Verb: PatchDeployment, Name: walkName},
		{Verb: UpdateStatus, Name: "web"},
		{Verb: DeleteDeployment, Name: "web-1"}, {Verb: DeleteDeployment, Name: "web-2"},
	} {
		if w.mayWant(op) {
			w.enter(op, Attempt{Count: 4, Until: walkStart.Add(time.Duration(20-i) * time.Second), Report: report})
		}
	}
}

// mayWant reports whether a sync in w might do op: the ledger has no entry of any other.
func (w *walkWorld) mayWant(op Op) bool {
	if w.cached.foo.Spec.Paused || w.cached.foo.Spec.Replicas != nil && *w.cached.foo.Spec.Replicas < 0 {
		return op.Verb == UpdateStatus
	}
	switch op.Verb {
	case CreateDeployment:
		return w.cached.deployment == nil
	case PatchDeployment:
		return w.ours() && w.cached.deployment.DeletionTimestamp == nil
	case DeleteDeployment:
		return slices.ContainsFunc(w.cached.previous, named(op.Name))
	}
	return true
}

// walkWorlds calls visit with every world, always in the same order.
func walkWorlds(visit func(*walkWorld)) {
	var choose func(w walkWorld, lists [][]walkOption)
	choose = func(w walkWorld, lists [][]walkOption) {
		if len(lists) == 0 {
			w.memory.UID = w.cached.foo.UID
			visit(&w)
			return
		}
		for _, option := range lists[0] {
			if option.fits != nil && !option.fits(&w) {
				continue
			}
			next := w
			next.options = append(slices.Clip(w.options), option.name)
			option.set(&next)
			choose(next, lists[1:])
		}
	}
	choose(walkWorld{}, walkLists)
}
