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
	"example.com/foo-controller/pkg/sim/scenario"
)

// This file has the steps of scenarios in which a user creates or edits Foos and Deployments.

// editMeta edits labels and finalizers.
func editMeta(obj scenario.Object, args scenario.Arguments) {
	labels := maps.Clone(obj.GetLabels())
	if labels == nil {
		labels = map[string]string{}
	}
	for label, value := range args.Values("label.") {
		editLabel(labels, label, value)
	}
	obj.SetLabels(labels)
	if finalizer, ok := args.Value("finalizer"); ok {
		obj.SetFinalizers(slices.DeleteFunc([]string{finalizer}, func(f string) bool { return f == scenario.None }))
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
	if value == scenario.None {
		delete(labels, label)
	}
}

// foo creates a Foo, or edits it if it exists.
func foo(e *scenario.Env, args scenario.Arguments) error {
	foo := storedFoo(e, args.Word(0))
	if foo != nil {
		return e.Edit(foosResource, "", foo.Name, func(obj scenario.Object) { editFoo(obj.(*v1alpha1.Foo), args) })
	}
	foo = &v1alpha1.Foo{ObjectMeta: metav1.ObjectMeta{Name: args.Word(0)}}
	editFoo(foo, args)
	return e.Add(foosResource, foo)
}

// storeFoo stores a Foo whose spec or status, given as JSON, may have what no rule allows.
func storeFoo(e *scenario.Env, args scenario.Arguments) error {
	foo := storedFoo(e, args.Word(0))
	if foo == nil {
		return fmt.Errorf("there is no Foo %q", args.Word(0))
	}
	stored := map[string]any{"metadata": foo.ObjectMeta, "spec": foo.Spec, "status": foo.Status}
	for part := range stored {
		if value, ok := args.Value(part); ok {
			stored[part] = json.RawMessage(value)
		}
	}
	encoded, err := json.Marshal(stored)
	if err != nil {
		return err
	}
	return e.Server.LoadJSON(fooResource, encoded)
}

func editFoo(foo *v1alpha1.Foo, args scenario.Arguments) {
	editMeta(foo, args)
	if name, ok := args.Value("deployment"); ok {
		foo.Spec.DeploymentName = name
	}
	if image, ok := args.Value("image"); ok {
		foo.Spec.Image = strings.TrimPrefix(image, scenario.None)
	}
	if paused, ok := args.Value("paused"); ok {
		foo.Spec.Paused = paused == "true"
	}
	if replicas, ok := args.Value("replicas"); ok {
		foo.Spec.Replicas = new(args.Number("replicas", 0))
		if replicas == scenario.None {
			foo.Spec.Replicas = nil
		}
	}
}

// deployment creates a Deployment as a user.
func deployment(e *scenario.Env, args scenario.Arguments) error {
	dep := newDeployment(args.Word(0))
	if owner, ok := args.Value("owner"); ok {
		dep.Spec.Selector.MatchLabels["controller"] = owner // The pod template has the same map.
		dep.OwnerReferences = []metav1.OwnerReference{ownerReference(e, owner, args)}
	}
	changeDeployment(e, dep, args)
	return e.Add(deploymentsResource, dep)
}

// ownerReference returns an owner reference to a Foo as the controller makes it, with the changes that args ask for.
func ownerReference(e *scenario.Env, owner string, args scenario.Arguments) metav1.OwnerReference {
	foo := storedFoo(e, owner)
	if foo == nil {
		foo = &v1alpha1.Foo{ObjectMeta: metav1.ObjectMeta{Name: owner, UID: types.UID("uid-of-" + owner)}}
	}
	ref := *metav1.NewControllerRef(foo, plan.FooKind.GroupVersionKind)
	if group, ok := args.Value("owner.group"); ok {
		ref.APIVersion = group + "/v1"
	}
	if version, ok := args.Value("owner.version"); ok {
		ref.APIVersion = v1alpha1.GroupName + "/" + version
	}
	if kind, ok := args.Value("owner.kind"); ok {
		ref.Kind = kind
	}
	if uid, ok := args.Value("owner.uid"); ok {
		ref.UID = types.UID(uid)
	}
	if controller, ok := args.Value("owner.controller"); ok {
		ref.Controller = new(controller == "true")
	}
	return ref
}

// editDeployments edits the Deployments that args name.
func editDeployments(e *scenario.Env, args scenario.Arguments) error {
	for _, name := range args.Words() {
		err := e.Edit(deploymentsResource, "", name, func(obj scenario.Object) { changeDeployment(e, obj, args) })
		if err != nil {
			return err
		}
	}
	return nil
}

// override changes all Deployments that controllers write, as a mutating admission policy does.
func override(e *scenario.Env, args scenario.Arguments) error {
	changeDeployment(e, newDeployment("any"), args) // Marks the arguments as used.
	e.Overrides = append(e.Overrides, func(obj scenario.Object) {
		if dep, ok := obj.(*appsv1.Deployment); ok {
			changeDeployment(e, dep, args)
		}
	})
	return nil
}

func changeDeployment(e *scenario.Env, obj scenario.Object, args scenario.Arguments) {
	dep := obj.(*appsv1.Deployment)
	editMeta(dep, args)
	pod := &dep.Spec.Template.Spec
	if _, ok := args.Value("replicas"); ok {
		dep.Spec.Replicas = new(args.Number("replicas", 1))
	}
	if image, ok := args.Value("image"); ok {
		pod.Containers[0].Image = image
	}
	if paused, ok := args.Value("paused"); ok {
		dep.Spec.Paused = paused == "true"
	}
	if sidecar, ok := args.Value("sidecar"); ok {
		pod.Containers = append(pod.Containers, corev1.Container{Name: "sidecar", Image: sidecar})
	}
	if owner, ok := args.Value("owner"); ok {
		dep.OwnerReferences = []metav1.OwnerReference{ownerReference(e, owner, args)}
		if owner == scenario.None {
			dep.OwnerReferences = nil
		}
	}
}

// copyDeployment creates a copy of a Deployment under another name.
func copyDeployment(e *scenario.Env, args scenario.Arguments) error {
	dep := storedDeployment(e, args.Word(0)).DeepCopy()
	dep.Name, dep.UID, dep.Status = args.Word(1), "", appsv1.DeploymentStatus{}
	return e.Add(deploymentsResource, dep)
}

func storedFoo(e *scenario.Env, name string) *v1alpha1.Foo {
	foo, _ := e.Object(foosResource, name).(*v1alpha1.Foo)
	return foo
}

func storedDeployment(e *scenario.Env, name string) *appsv1.Deployment {
	dep, _ := e.Object(deploymentsResource, name).(*appsv1.Deployment)
	return dep
}

// newDeployment returns a Deployment as a user creates it, with the two labels that the upstream sample sets.
func newDeployment(name string) *appsv1.Deployment {
	labels := map[string]string{"app": "nginx", "controller": name}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.DeploymentSpec{
			Replicas: new(int32(1)),
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: plan.ContainerName, Image: plan.DefaultImage}}},
			},
		},
	}
}
