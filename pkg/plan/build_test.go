package plan_test

import (
	"errors"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/foo-controller/pkg/kit/reconcile"
	"example.com/foo-controller/pkg/kit/state"
	"example.com/foo-controller/pkg/plan"
)

// This file builds the Foos and Deployments of all tests here. newFoo and newDeployment return the simplest
// good ones; options give what is special in a case.

type (
	fooOption        = func(*v1alpha1.Foo)
	deploymentOption = func(*appsv1.Deployment)
)

var now = time.Date(2026, 2, 3, 4, 5, 6, 0, time.UTC)

// newFoo returns a Foo that no controller has reported on yet.
func newFoo(with ...fooOption) *v1alpha1.Foo {
	foo := &v1alpha1.Foo{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: "web", UID: "foo-uid", ResourceVersion: "10", Generation: 2,
		},
		Spec: v1alpha1.FooSpec{DeploymentName: "web-1"},
	}
	for _, option := range with {
		option(foo)
	}
	return foo
}

func withUID(uid types.UID) fooOption { return func(foo *v1alpha1.Foo) { foo.UID = uid } }
func withGeneration(generation int64) fooOption {
	return func(foo *v1alpha1.Foo) { foo.Generation = generation }
}
func withName(name string) fooOption { return func(foo *v1alpha1.Foo) { foo.Name = name } }
func withDeploymentName(name string) fooOption {
	return func(foo *v1alpha1.Foo) { foo.Spec.DeploymentName = name }
}
func withReplicas(n int32) fooOption   { return func(foo *v1alpha1.Foo) { foo.Spec.Replicas = &n } }
func withImage(image string) fooOption { return func(foo *v1alpha1.Foo) { foo.Spec.Image = image } }
func withPaused(foo *v1alpha1.Foo)     { foo.Spec.Paused = true }
func deletedFoo(foo *v1alpha1.Foo)     { foo.DeletionTimestamp = &metav1.Time{Time: now} }

// observed is a Foo that a controller has reported on.
func observed(foo *v1alpha1.Foo) { foo.Status.ObservedGeneration = 1 }

func withConditions(conditions ...metav1.Condition) fooOption {
	return func(foo *v1alpha1.Foo) { foo.Status.Conditions = conditions }
}

// named returns a Foo of this name that names the Deployment.
func named(name, deployment string, with ...fooOption) *v1alpha1.Foo {
	return newFoo(append([]fooOption{
		withName(name), withUID(types.UID(name + "-uid")), withDeploymentName(deployment),
	}, with...)...)
}

// renamed is a Foo of generation 3 that names web-3; it named web-1 at first, and perhaps web-2 for a moment.
func renamed(with ...fooOption) *v1alpha1.Foo {
	return newFoo(append([]fooOption{
		withDeploymentName("web-3"), withGeneration(3), withReplicas(3), observed,
	}, with...)...)
}

// unsetReplicas is a Foo that does not set the number.
func unsetReplicas(foo *v1alpha1.Foo) { foo.Spec.Replicas = nil }

// newDeployment returns foo's Deployment as it is stored once its rollout is complete.
func newDeployment(foo *v1alpha1.Foo, with ...deploymentOption) *appsv1.Deployment {
	dep := plan.Deployment(foo)
	dep.UID, dep.ResourceVersion, dep.Generation = "dep-uid", "20", 1
	n := *dep.Spec.Replicas
	dep.Status = appsv1.DeploymentStatus{ObservedGeneration: 1, Replicas: n, UpdatedReplicas: n, AvailableReplicas: n}
	for _, option := range with {
		option(dep)
	}
	return dep
}

// earlier returns the Deployment that was made for foo at generation 1, when that was its name.
func earlier(foo *v1alpha1.Foo, name string, with ...deploymentOption) *appsv1.Deployment {
	was := foo.DeepCopy()
	was.Spec.DeploymentName, was.Generation = name, 1
	dep := newDeployment(was, with...)
	dep.UID = types.UID(name + "-uid")
	return dep
}

// copied returns what "kubectl get | sed | kubectl create" makes of dep, with its numbers.
func copied(dep *appsv1.Deployment, name string) *appsv1.Deployment {
	dep = dep.DeepCopy()
	dep.Name, dep.UID = name, types.UID(name+"-uid")
	return dep
}

// all returns Deployments that stand by name.
func all(deps ...*appsv1.Deployment) []*appsv1.Deployment { return deps }

func deleted(dep *appsv1.Deployment)           { dep.DeletionTimestamp = &metav1.Time{Time: now} }
func pausedByUser(dep *appsv1.Deployment)      { dep.Spec.Paused = true }
func withoutLabels(dep *appsv1.Deployment)     { dep.Labels = nil }
func withoutContainers(dep *appsv1.Deployment) { dep.Spec.Template.Spec.Containers = nil }
func withoutReplicas(dep *appsv1.Deployment)   { dep.Spec.Replicas = nil }

func scaled(n int32) deploymentOption { return func(dep *appsv1.Deployment) { dep.Spec.Replicas = &n } }

func withLabel(label, value string) deploymentOption {
	return func(dep *appsv1.Deployment) {
		dep.Labels = maps.Clone(dep.Labels)
		dep.Labels[label] = value
	}
}

// withFence sets the generation of the Foo that the Deployment was written for.
func withFence(generation string) deploymentOption {
	return withLabel(v1alpha1.LabelFooGeneration, generation)
}

func running(image string) deploymentOption {
	return func(dep *appsv1.Deployment) {
		dep.Spec.Template.Spec.Containers = []corev1.Container{{Name: plan.ContainerName, Image: image}}
	}
}

// owned changes the first owner reference, which is the Foo's.
func owned(change func(*metav1.OwnerReference)) deploymentOption {
	return func(dep *appsv1.Deployment) { change(&dep.OwnerReferences[0]) }
}

func ownedBy(refs ...metav1.OwnerReference) deploymentOption {
	return func(dep *appsv1.Deployment) { dep.OwnerReferences = refs }
}

// rollout sets the numbers that the Deployment controller reports.
func rollout(replicas, updated, available int32) deploymentOption {
	return func(dep *appsv1.Deployment) {
		dep.Status.Replicas, dep.Status.UpdatedReplicas = replicas, updated
		dep.Status.AvailableReplicas = available
	}
}

// available is a Deployment that has its three replicas, n of them available.
func available(n int32) deploymentOption { return rollout(3, 3, n) }

// observedAt sets the Deployment's generation and the one that the Deployment controller has seen of it.
func observedAt(seen, generation int64) deploymentOption {
	return func(dep *appsv1.Deployment) { dep.Status.ObservedGeneration, dep.Generation = seen, generation }
}

// unobserved is a Deployment that the Deployment controller has not seen yet.
func unobserved(dep *appsv1.Deployment) { dep.Status = appsv1.DeploymentStatus{} }

func withCondition(kind appsv1.DeploymentConditionType, status corev1.ConditionStatus, reason string) deploymentOption {
	return func(dep *appsv1.Deployment) {
		dep.Status.Conditions = append(dep.Status.Conditions, appsv1.DeploymentCondition{
			Type: kind, Status: status, Reason: reason,
			Message: "pods \"web-1-abc\" is forbidden", LastUpdateTime: metav1.Time{Time: now},
		})
	}
}

var (
	deadlineExceeded = withCondition(appsv1.DeploymentProgressing, corev1.ConditionFalse, "ProgressDeadlineExceeded")
	noReplicaSet     = withCondition(appsv1.DeploymentProgressing, corev1.ConditionFalse, "ReplicaSetCreateError")
	replicaFailure   = withCondition(appsv1.DeploymentReplicaFailure, corev1.ConditionTrue, "FailedCreate")
)

// foreignData is what others may put on a Deployment: nothing of it is the Foo's.
func foreignData(dep *appsv1.Deployment) {
	dep.Labels = maps.Clone(dep.Labels)
	dep.Labels["team"] = "a"
	dep.Annotations = map[string]string{"deployment.kubernetes.io/revision": "3"}
	dep.Finalizers = []string{"example.com/keep"}
	dep.OwnerReferences = append(dep.OwnerReferences,
		metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: "bill", UID: "bill-uid"})
	dep.ManagedFields = []metav1.ManagedFieldsEntry{
		{Manager: "kubectl-edit", Operation: metav1.ManagedFieldsOperationUpdate},
	}
	dep.Spec.RevisionHistoryLimit = new(int32(2))
	dep.Spec.Strategy.Type = appsv1.RecreateDeploymentStrategyType
	template := &dep.Spec.Template
	template.Annotations = map[string]string{"kubectl.kubernetes.io/restartedAt": "2026-01-01T00:00:00Z"}
	template.Labels = map[string]string{"app": "nginx", "mesh": "on"}
	for i := range template.Spec.Containers {
		template.Spec.Containers[i].Env = []corev1.EnvVar{{Name: "A", Value: "b"}}
		template.Spec.Containers[i].Ports = []corev1.ContainerPort{{ContainerPort: 80, Protocol: corev1.ProtocolTCP}}
	}
	template.Spec.Containers = append([]corev1.Container{{Name: "proxy", Image: "proxy:1"}}, template.Spec.Containers...)
	template.Spec.InitContainers = []corev1.Container{{Name: plan.ContainerName + "-init", Image: "init:1"}}
	template.Spec.Volumes = []corev1.Volume{{Name: "tmp"}}
}

// ledger is what is remembered of operations.
type ledger = map[reconcile.Op]reconcile.Entry

// remembers returns what is remembered of foo.
func remembers(foo *v1alpha1.Foo, operations ledger) reconcile.Memory {
	return reconcile.Memory{UID: foo.UID, Generation: foo.Generation, Ledger: operations}
}

// op returns an operation on an object.
func op(request, name string) reconcile.Op {
	i := strings.LastIndexByte(request, ' ')
	return reconcile.Op{Verb: reconcile.Verb(request[:i]), Kind: request[i+1:], Namespace: "default", Name: name}
}

// until returns an operation that was refused and whose delay ends so long after now.
func until(left time.Duration) reconcile.Entry {
	return refusedUntil(left,
		&reconcile.Problem{Reason: v1alpha1.ReasonRefused, Message: "exceeded quota: small", Failed: true})
}

func refusedUntil(left time.Duration, report *reconcile.Problem) reconcile.Entry {
	return reconcile.Entry{Failed: reconcile.Attempt{Count: 1, Until: now.Add(left), Report: report}}
}

// repeated returns an operation that something keeps undoing.
func repeated(count int, left time.Duration, report *reconcile.Problem) reconcile.Entry {
	return reconcile.Entry{Repeated: reconcile.Attempt{Count: count, Until: now.Add(left), Report: report}}
}

// paths returns where the fields are.
func paths(fields []reconcile.Field) []string {
	var paths []string
	for _, field := range fields {
		paths = append(paths, field.Path)
	}
	return paths
}

// unchanged fails the test at its end when one of the objects has changed by then.
func unchanged(t *testing.T, foo *v1alpha1.Foo, dep *appsv1.Deployment) {
	t.Helper()
	allUnchanged(t, world{Foo: foo, Deployment: dep})
}

// allUnchanged fails the test at its end when anything that state was given has changed by then, be it an order.
func allUnchanged(t *testing.T, state world) {
	t.Helper()
	foos := func() []*v1alpha1.Foo {
		return []*v1alpha1.Foo{state.Foo, state.Owner}
	}
	deps := func() []*appsv1.Deployment {
		return slices.Concat([]*appsv1.Deployment{state.Deployment}, state.Others)
	}
	foosBefore, depsBefore, ledgerBefore := copies(foos()), copies(deps()), maps.Clone(state.Memory.Ledger)
	t.Cleanup(func() {
		checkUnchanged(t, "the Foos were", foosBefore, foos())
		checkUnchanged(t, "the Deployments were", depsBefore, deps())
		checkUnchanged(t, "the ledger of the caller was", ledgerBefore, state.Memory.Ledger)
	})
}

// driftOf returns what differs in dep as it is observed.
func driftOf(dep *appsv1.Deployment, foo *v1alpha1.Foo) *state.Patch {
	return plan.Drift(plan.TrimDeployment(dep), foo)
}

func checkUnchanged(t *testing.T, what string, before, after any) {
	t.Helper()
	if !reflect.DeepEqual(before, after) { // Much faster than a diff.
		t.Errorf("%s changed:\n%s", what, cmp.Diff(before, after))
	}
}

func copies[T interface{ DeepCopy() T }](all []T) []T {
	var copies []T
	for _, one := range all {
		copies = append(copies, one.DeepCopy())
	}
	return copies
}

// These are the errors that a request may be answered with.
var (
	deployments = appsv1.Resource("deployments")

	forbidden = apierrors.NewForbidden(deployments, "web-1", errors.New("exceeded quota: small"))
)

const (
	// quota is the message of forbidden, and overQuota the cause that it is reported as.
	quota     = `deployments.apps "web-1" is forbidden: exceeded quota: small`
	overQuota = refusedBy + quota
	refusedBy = "refused by the API server: "
	// triesAgain ends the messages about what is refused.
	triesAgain = ". The controller tries again at least once a minute"
	// lasts ends those about a quota, passes those about a failure of the API server.
	lasts  = ". Raise the quota or delete what uses it, or ask an administrator of the cluster to do it" + triesAgain
	passes = triesAgain + ". If the failure lasts, check the API server and its admission webhooks"
)

func seconds(n int) time.Duration { return time.Duration(n) * time.Second }
