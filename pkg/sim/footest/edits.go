package footest

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/foo-controller/pkg/plan"
)

// This file has the steps in which a user creates or edits Foos and Deployments.

// editMeta edits labels and finalizers.
func editMeta(obj object, args arguments) {
	labels := maps.Clone(obj.GetLabels())
	if labels == nil {
		labels = map[string]string{}
	}
	for key, value := range args.values {
		if label, ok := strings.CutPrefix(key, "label."); ok {
			args.value(key)
			editLabel(labels, label, value)
		}
	}
	obj.SetLabels(labels)
	if finalizer, ok := args.value("finalizer"); ok {
		obj.SetFinalizers(slices.DeleteFunc([]string{finalizer}, func(f string) bool { return f == none }))
	}
}

// editLabel sets a label. A scenario leaves out the prefixes of the labels that the controller sets.
func editLabel(labels map[string]string, label, value string) {
	for _, prefix := range []string{"samplecontroller.k8s.io/", "app.kubernetes.io/"} {
		if _, known := labels[prefix+label]; known {
			label = prefix + label
		}
	}
	labels[label] = value
	if value == none {
		delete(labels, label)
	}
}

// foo creates a Foo, or edits it if it exists.
func (e *env) foo(args arguments) error {
	foo := e.cluster.foo(args.word(0))
	if foo != nil {
		return e.cluster.edit(foosResource, "", foo.Name, func(obj object) { editFoo(obj.(*v1alpha1.Foo), args) })
	}
	foo = &v1alpha1.Foo{ObjectMeta: metav1.ObjectMeta{Name: args.word(0)}}
	editFoo(foo, args)
	return e.cluster.add(foosResource, foo)
}

// storeFoo stores a Foo whose spec or status, given as JSON, may have what no rule allows.
func (e *env) storeFoo(args arguments) error {
	foo := e.cluster.foo(args.word(0))
	if foo == nil {
		return fmt.Errorf("there is no Foo %q", args.word(0))
	}
	encoded, err := json.Marshal(foo)
	if err != nil {
		return err
	}
	stored := map[string]json.RawMessage{}
	if err := json.Unmarshal(encoded, &stored); err != nil {
		return err
	}
	for _, part := range []string{"spec", "status"} {
		if value, ok := args.value(part); ok {
			stored[part] = json.RawMessage(value)
		}
	}
	if encoded, err = json.Marshal(stored); err != nil {
		return err
	}
	return e.cluster.LoadJSON(fooResource, encoded)
}

func editFoo(foo *v1alpha1.Foo, args arguments) {
	editMeta(foo, args)
	if name, ok := args.value("deployment"); ok {
		foo.Spec.DeploymentName = name
	}
	if image, ok := args.value("image"); ok {
		foo.Spec.Image = strings.TrimPrefix(image, none)
	}
	if paused, ok := args.value("paused"); ok {
		foo.Spec.Paused = paused == "true"
	}
	if replicas, ok := args.value("replicas"); ok {
		foo.Spec.Replicas = new(args.number("replicas", 0))
		if replicas == none {
			foo.Spec.Replicas = nil
		}
	}
}

// deployment creates a Deployment as a user.
func (e *env) deployment(args arguments) error {
	dep := newDeployment(args.word(0))
	if owner, ok := args.value("owner"); ok {
		dep.Spec.Selector.MatchLabels["controller"] = owner // The pod template has the same map.
		dep.OwnerReferences = []metav1.OwnerReference{e.ownerReference(owner, args)}
	}
	e.editDeployment(dep, args)
	return e.cluster.add(deploymentsResource, dep)
}

// ownerReference returns an owner reference to a Foo as the controller makes it, with the changes that args ask for.
func (e *env) ownerReference(owner string, args arguments) metav1.OwnerReference {
	foo := e.cluster.foo(owner)
	if foo == nil {
		foo = &v1alpha1.Foo{ObjectMeta: metav1.ObjectMeta{Name: owner, UID: types.UID("uid-of-" + owner)}}
	}
	ref := *metav1.NewControllerRef(foo, plan.FooKind.GroupVersionKind)
	if group, ok := args.value("owner.group"); ok {
		ref.APIVersion = group + "/v1"
	}
	if version, ok := args.value("owner.version"); ok {
		ref.APIVersion = v1alpha1.GroupName + "/" + version
	}
	if kind, ok := args.value("owner.kind"); ok {
		ref.Kind = kind
	}
	if uid, ok := args.value("owner.uid"); ok {
		ref.UID = types.UID(uid)
	}
	if controller, ok := args.value("owner.controller"); ok {
		ref.Controller = new(controller == "true")
	}
	return ref
}

// editAll edits the Deployments that args name, or a subresource of them.
func (e *env) editAll(subresource string, args arguments, edit func(object, arguments)) error {
	for i := range args.words {
		name := args.word(i)
		if err := e.cluster.edit(deploymentsResource, subresource, name, func(obj object) { edit(obj, args) }); err != nil {
			return err
		}
	}
	return nil
}

func (e *env) editDeployment(obj object, args arguments) {
	dep := obj.(*appsv1.Deployment)
	editMeta(dep, args)
	pod := &dep.Spec.Template.Spec
	if _, ok := args.value("replicas"); ok {
		dep.Spec.Replicas = new(args.number("replicas", 1))
	}
	if image, ok := args.value("image"); ok {
		pod.Containers[0].Image = image
	}
	if paused, ok := args.value("paused"); ok {
		dep.Spec.Paused = paused == "true"
	}
	if sidecar, ok := args.value("sidecar"); ok {
		pod.Containers = append(pod.Containers, corev1.Container{Name: "sidecar", Image: sidecar})
	}
	if owner, ok := args.value("owner"); ok {
		dep.OwnerReferences = []metav1.OwnerReference{e.ownerReference(owner, args)}
		if owner == none {
			dep.OwnerReferences = nil
		}
	}
}

// copyDeployment creates a copy of a Deployment under another name.
func (e *env) copyDeployment(args arguments) error {
	dep := e.cluster.deployment(args.word(0)).DeepCopy()
	dep.Name, dep.UID, dep.Status = args.word(1), "", appsv1.DeploymentStatus{}
	return e.cluster.add(deploymentsResource, dep)
}

// rollout writes the status of a Deployment as the Deployment controller does. All replicas are available unless args
// give other numbers.
func (e *env) rollout(args arguments) error {
	one := arguments{words: []string{args.word(0)}, used: args.used}
	return e.editAll("status", one, func(obj object, _ arguments) {
		dep := obj.(*appsv1.Deployment)
		dep.Status = rolloutStatus(dep, args)
	})
}

func rolloutStatus(dep *appsv1.Deployment, args arguments) appsv1.DeploymentStatus {
	n := *dep.Spec.Replicas
	status := appsv1.DeploymentStatus{
		ObservedGeneration: dep.Generation,
		UpdatedReplicas:    args.number("updated", n),
		AvailableReplicas:  args.number("available", n),
	}
	status.ReadyReplicas = status.AvailableReplicas
	status.Replicas = args.number("replicas", max(status.UpdatedReplicas, status.AvailableReplicas))
	progressing := appsv1.DeploymentCondition{
		Type: appsv1.DeploymentProgressing, Status: corev1.ConditionTrue, Reason: "ReplicaSetUpdated",
	}
	// A rollout that was complete once stays complete until the pod template changes.
	wasComplete := slices.ContainsFunc(dep.Status.Conditions, func(cond appsv1.DeploymentCondition) bool {
		return cond.Reason == "NewReplicaSetAvailable"
	})
	if status.UpdatedReplicas >= n && (status.AvailableReplicas >= n || wasComplete) {
		progressing.Reason = "NewReplicaSetAvailable"
	}
	if args.has("stuck") {
		progressing.Status, progressing.Reason = corev1.ConditionFalse, "ProgressDeadlineExceeded"
	}
	status.Conditions = []appsv1.DeploymentCondition{progressing}
	if args.has("failing") {
		status.Conditions = append(status.Conditions, appsv1.DeploymentCondition{
			Type: appsv1.DeploymentReplicaFailure, Status: corev1.ConditionTrue, Reason: "FailedCreate",
		})
	}
	return status
}
