package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/apimachinery/pkg/util/validation/field"
	clienttesting "k8s.io/client-go/testing"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/foo-controller/pkg/plan"
)

const namespace = "default"

// object is a Foo or a Deployment.
type object interface {
	metav1.Object
	runtime.Object
}

// A fakeCluster is what stands behind the fake clients in scenarios: the Foos and Deployments of one namespace,
// with as much of an API server's manners as the controller depends on. There is one sequence of resource
// versions. A write is refused when its uid or resourceVersion is not the stored one's, a status is written
// apart from the rest, the generation counts changes of the spec, and finalizers hold up a deletion. It also
// refuses what no controller should send: a write to an existing object without both of them, or one that
// does not say whose it is.
type fakeCluster struct {
	objects map[string]map[string]object // By resource and name.
	version int                          // The last resourceVersion given.
	made    int                          // How many objects there were.
	// history has all changes in order. Watches tell them, each as far as it has come.
	history []change
	// refusals answer requests in place of what follows from the objects.
	refusals []*refusal
	// terminating says that the namespace is being deleted.
	terminating bool
	// overrides change each Deployment that is written, as a mutating admission policy does.
	overrides []func(*appsv1.Deployment)
}

// A change is what a watch event tells: an object as it is now, or as it was when it went.
type change struct {
	resource string
	object   object
	gone     bool
}

// A refusal answers requests of one verb for one resource, or one object.
type refusal struct {
	verb, resource string
	name           string // Empty for all.
	answer         func(name string) error
	done           bool // The request is carried out all the same.
	once           bool
}

func newFakeCluster() *fakeCluster {
	return &fakeCluster{objects: map[string]map[string]object{foosResource: {}, deploymentsResource: {}}, version: 100}
}

func (c *fakeCluster) foo(name string) *v1alpha1.Foo {
	foo, _ := c.objects[foosResource][name].(*v1alpha1.Foo)
	return foo
}

func (c *fakeCluster) deployment(name string) *appsv1.Deployment {
	dep, _ := c.objects[deploymentsResource][name].(*appsv1.Deployment)
	return dep
}

// sorted returns the objects of a resource by name.
func (c *fakeCluster) sorted(resource string) []object {
	var sorted []object
	for _, name := range slices.Sorted(maps.Keys(c.objects[resource])) {
		sorted = append(sorted, c.objects[resource][name])
	}
	return sorted
}

// add stores a new object.
func (c *fakeCluster) add(resource string, obj object) error {
	if c.objects[resource][obj.GetName()] != nil {
		return apierrors.NewAlreadyExists(groupResource(resource), obj.GetName())
	}
	c.made++
	obj.SetNamespace(namespace)
	obj.SetUID(types.UID(fmt.Sprintf("uid-%d", c.made)))
	obj.SetGeneration(1)
	obj.SetCreationTimestamp(metav1.NewTime(time.Now().Truncate(time.Second)))
	c.store(resource, obj)
	return nil
}

// update stores obj in place of have, which it was made from, unless they are equal.
func (c *fakeCluster) update(resource string, have, obj object) {
	if equality.Semantic.DeepEqual(have, obj) {
		return
	}
	if !equality.Semantic.DeepEqual(specOf(have), specOf(obj)) {
		obj.SetGeneration(have.GetGeneration() + 1)
	}
	if obj.GetDeletionTimestamp() != nil && len(obj.GetFinalizers()) == 0 {
		c.remove(resource, obj)
		return
	}
	c.store(resource, obj)
}

// edit changes an object as somebody other than the controller does.
func (c *fakeCluster) edit(resource, name string, edit func(object)) error {
	have := c.objects[resource][name]
	if have == nil {
		return apierrors.NewNotFound(groupResource(resource), name)
	}
	changed := have.DeepCopyObject().(object)
	edit(changed)
	c.update(resource, have, changed)
	return nil
}

// delete deletes an object, or marks it when a finalizer holds it.
func (c *fakeCluster) delete(resource, name string, foreground bool) error {
	have := c.objects[resource][name]
	if have == nil {
		return apierrors.NewNotFound(groupResource(resource), name)
	}
	if have.GetDeletionTimestamp() != nil {
		return nil
	}
	obj := have.DeepCopyObject().(object)
	if foreground {
		obj.SetFinalizers(append(obj.GetFinalizers(), metav1.FinalizerDeleteDependents))
	}
	if len(obj.GetFinalizers()) == 0 {
		c.remove(resource, obj)
		return nil
	}
	obj.SetDeletionTimestamp(new(metav1.NewTime(time.Now().Truncate(time.Second))))
	obj.SetGeneration(obj.GetGeneration() + 1)
	c.store(resource, obj)
	return nil
}

func (c *fakeCluster) store(resource string, obj object) {
	c.objects[resource][obj.GetName()] = obj
	c.tell(resource, obj, false)
}

func (c *fakeCluster) remove(resource string, obj object) {
	delete(c.objects[resource], obj.GetName())
	c.tell(resource, obj, true)
}

func (c *fakeCluster) tell(resource string, obj object, gone bool) {
	c.version++
	obj.SetResourceVersion(strconv.Itoa(c.version))
	c.history = append(c.history, change{resource, obj.DeepCopyObject().(object), gone})
}

// collectGarbage deletes the Deployments whose owners are gone or wait for them to go, and then such owners.
func (c *fakeCluster) collectGarbage() error {
	for _, dep := range c.sorted(deploymentsResource) {
		refs := dep.GetOwnerReferences()
		kept := slices.ContainsFunc(refs, func(ref metav1.OwnerReference) bool {
			foo := c.foo(ref.Name)
			return foo != nil && foo.UID == ref.UID && !slices.Contains(foo.Finalizers, metav1.FinalizerDeleteDependents)
		})
		if len(refs) == 0 || kept {
			continue
		}
		if err := c.delete(deploymentsResource, dep.GetName(), false); err != nil {
			return err
		}
	}
	for _, foo := range c.sorted(foosResource) {
		dependents := slices.ContainsFunc(c.sorted(deploymentsResource), func(dep object) bool {
			return slices.ContainsFunc(dep.GetOwnerReferences(), func(ref metav1.OwnerReference) bool { return ref.UID == foo.GetUID() })
		})
		if dependents {
			continue
		}
		if err := c.edit(foosResource, foo.GetName(), func(foo object) {
			foo.SetFinalizers(slices.DeleteFunc(foo.GetFinalizers(), func(f string) bool { return f == metav1.FinalizerDeleteDependents }))
		}); err != nil {
			return err
		}
	}
	return nil
}

// A request is what the controller asks or tells the API server.
type request struct {
	verb, resource, name string
	words                string
	do                   func() (object, error)
	// flaw is what no controller should send.
	flaw error
}

// serve answers r, and adds to its words how that ended.
func (c *fakeCluster) serve(r *request) (object, error) {
	refused := c.refused(r)
	var answer object
	var err error
	if refused == nil || refused.done {
		answer, err = r.do()
	}
	if err == nil && refused != nil {
		err = refused.answer(r.name)
	}
	if err != nil {
		r.words += " -> " + outcome(err)
		return nil, err
	}
	return answer.DeepCopyObject().(object), nil // Nobody may change what is stored.
}

// requestOf returns what a client sends.
func (c *fakeCluster) requestOf(action clienttesting.Action) *request {
	r := &request{verb: action.GetVerb(), resource: action.GetResource().Resource}
	var manager string
	switch action := action.(type) {
	case clienttesting.GetActionImpl:
		r.name, r.words = action.Name, fmt.Sprintf("get %s %s", strings.TrimSuffix(r.resource, "s"), action.Name)
		r.do = func() (object, error) { return c.get(r.resource, action.Name) }
		return r
	case clienttesting.CreateActionImpl:
		dep := action.Object.(*appsv1.Deployment)
		manager, r.name = action.CreateOptions.FieldManager, dep.Name
		r.words = fmt.Sprintf("create deployment %s replicas=%d image=%s", dep.Name, *dep.Spec.Replicas, dep.Spec.Template.Spec.Containers[0].Image)
		r.do = func() (object, error) { return c.createDeployment(dep) }
	case clienttesting.PatchActionImpl:
		manager, r.name = action.PatchOptions.FieldManager, action.Name
		r.words, r.flaw = c.describePatch(action)
		r.do = func() (object, error) { return c.patchDeployment(action.Name, action.Patch) }
	case clienttesting.UpdateActionImpl:
		foo := action.Object.(*v1alpha1.Foo)
		manager, r.name, r.verb, r.words = action.UpdateOptions.FieldManager, foo.Name, action.Subresource, c.describeStatus(foo)
		if foo.UID == "" || foo.ResourceVersion == "" || action.Subresource != "status" {
			r.flaw = errors.New("it is not of the status, or lacks a uid or resourceVersion")
		}
		r.do = func() (object, error) { return c.updateStatus(foo) }
	case clienttesting.DeleteActionImpl:
		manager, r.name, r.words = controllerName, action.Name, "delete deployment "+action.Name
		if options := action.DeleteOptions; options.PropagationPolicy == nil || *options.PropagationPolicy != metav1.DeletePropagationBackground ||
			options.Preconditions == nil || options.Preconditions.UID == nil || options.Preconditions.ResourceVersion == nil {
			r.flaw = errors.New("it is not in the background, or lacks a uid or resourceVersion")
		}
		r.do = func() (object, error) { return c.deleteDeployment(action.Name, action.DeleteOptions.Preconditions) }
	default:
		r.words, r.flaw = action.GetVerb()+" "+r.resource, errors.New("nobody expects it")
	}
	if manager != controllerName {
		r.flaw = fmt.Errorf("its field manager is %q", manager)
	}
	return r
}

// refused returns what the test wants answered to such a request, nil for the usual.
func (c *fakeCluster) refused(r *request) *refusal {
	i := slices.IndexFunc(c.refusals, func(f *refusal) bool {
		return f.verb == r.verb && f.resource == r.resource && (f.name == "" || f.name == r.name)
	})
	if i < 0 {
		return nil
	}
	found := c.refusals[i]
	if found.once {
		c.refusals = slices.Delete(c.refusals, i, i+1)
	}
	return found
}

// outcome puts the answer to a request that failed into a word.
func outcome(err error) string {
	if reason := apierrors.ReasonForError(err); reason != metav1.StatusReasonUnknown {
		return string(reason)
	}
	return "no answer"
}

func (c *fakeCluster) get(resource, name string) (object, error) {
	obj := c.objects[resource][name]
	if obj == nil {
		return nil, apierrors.NewNotFound(groupResource(resource), name)
	}
	return obj, nil
}

func (c *fakeCluster) createDeployment(dep *appsv1.Deployment) (object, error) {
	dep = dep.DeepCopy()
	c.admit(dep)
	if err := c.add(deploymentsResource, dep); err != nil {
		return nil, err
	}
	return dep, nil
}

// admit does to a Deployment what admission does.
func (c *fakeCluster) admit(dep *appsv1.Deployment) {
	for _, override := range c.overrides {
		override(dep)
	}
}

func (c *fakeCluster) patchDeployment(name string, patch []byte) (object, error) {
	have := c.deployment(name)
	if have == nil {
		return nil, apierrors.NewNotFound(deploymentsGR, name)
	}
	before, err := json.Marshal(have)
	if err != nil {
		return nil, err
	}
	after, err := strategicpatch.StrategicMergePatch(before, patch, appsv1.Deployment{})
	if err != nil {
		return nil, err
	}
	dep := &appsv1.Deployment{}
	if err := json.Unmarshal(after, dep); err != nil {
		return nil, err
	}
	switch {
	case dep.ResourceVersion != have.ResourceVersion:
		return nil, modified(deploymentsGR, name)
	case dep.UID != have.UID: // The API server takes it for a change of an immutable field.
		path := field.NewPath("metadata", "uid")
		return nil, apierrors.NewInvalid(deploymentKind, name, field.ErrorList{field.Invalid(path, dep.UID, "field is immutable")})
	}
	c.admit(dep)
	c.update(deploymentsResource, have, dep)
	return dep, nil
}

func (c *fakeCluster) updateStatus(foo *v1alpha1.Foo) (object, error) {
	have := c.foo(foo.Name)
	switch {
	case have == nil:
		return nil, apierrors.NewNotFound(foosGR, foo.Name)
	case foo.UID != have.UID:
		return nil, apierrors.NewConflict(foosGR, foo.Name, errors.New("Precondition failed: UID in precondition"))
	case foo.ResourceVersion != have.ResourceVersion:
		return nil, modified(foosGR, foo.Name)
	}
	changed := have.DeepCopy()
	changed.Status = *foo.Status.DeepCopy()
	c.update(foosResource, have, changed)
	return changed, nil
}

func (c *fakeCluster) deleteDeployment(name string, conditions *metav1.Preconditions) (object, error) {
	have := c.deployment(name)
	switch {
	case have == nil:
		return nil, apierrors.NewNotFound(deploymentsGR, name)
	case *conditions.UID != have.UID || *conditions.ResourceVersion != have.ResourceVersion:
		return nil, apierrors.NewConflict(deploymentsGR, name, errors.New("Precondition failed"))
	}
	return have, c.delete(deploymentsResource, name, false)
}

// describePatch tells what a patch mentions of the stored Deployment: each field, its value there and in
// the patch. It is an error when it lacks what it must carry.
func (c *fakeCluster) describePatch(action clienttesting.PatchActionImpl) (string, error) {
	have, want := map[string]string{}, map[string]string{}
	var patch any
	if err := json.Unmarshal(action.Patch, &patch); err != nil {
		return "", err
	}
	flatten("", patch, want)
	if dep := c.deployment(action.Name); dep != nil {
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(dep)
		if err != nil {
			return "", err
		}
		flatten("", content, have)
	}
	var err error
	if action.PatchType != types.StrategicMergePatchType || want["metadata.uid"] == "" || want["metadata.resourceVersion"] == "" {
		err = errors.New("it is of another type, or lacks a uid or resourceVersion")
	}
	delete(want, "metadata.uid")
	delete(want, "metadata.resourceVersion")
	var fields []string
	for _, path := range slices.Sorted(maps.Keys(want)) {
		before, known := have[path]
		if !known {
			before = "none"
		}
		fields = append(fields, fmt.Sprintf("%s %s -> %s", shortPath.Replace(path), before, want[path]))
	}
	return fmt.Sprintf("patch deployment %s %s", action.Name, strings.Join(fields, ", ")), err
}

var shortPath = strings.NewReplacer(
	"metadata.labels.samplecontroller.k8s.io/", "label ",
	"metadata.labels.app.kubernetes.io/", "label ",
	"metadata.labels.", "label ",
	"metadata.ownerReferences", "owner",
	"spec.template.spec.containers[nginx].image", "image",
	"spec.replicas", "replicas",
)

// flatten adds to leaves what is at path and below.
func flatten(path string, value any, leaves map[string]string) {
	switch value := value.(type) {
	case map[string]any:
		for key, value := range value {
			flatten(strings.TrimPrefix(path+"."+key, "."), value, leaves)
		}
	case []any:
		for i, element := range value {
			fields, _ := element.(map[string]any)
			switch name := fields["name"]; {
			case path == "metadata.ownerReferences":
				leaves[path] = strings.TrimPrefix(leaves[path]+" and "+ownerWords(fields), " and ")
			case name != nil:
				delete(fields, "name")
				flatten(fmt.Sprintf("%s[%s]", path, name), fields, leaves)
			default:
				flatten(fmt.Sprintf("%s[%d]", path, i), element, leaves)
			}
		}
	default:
		leaves[path] = fmt.Sprint(value)
	}
}

func ownerWords(ref map[string]any) string {
	words := fmt.Sprintf("%v %v %v", ref["apiVersion"], ref["kind"], ref["name"])
	if ref["controller"] != true {
		words += " (not controller)"
	}
	return words
}

// describeStatus puts a status that is about to be written into one line. When it reads like the one
// before, the line has the other fields that differ.
func (c *fakeCluster) describeStatus(foo *v1alpha1.Foo) string {
	line := fmt.Sprintf("status %s %s", foo.Name, statusWords(&foo.Status))
	have := c.foo(foo.Name)
	if have == nil || statusWords(&have.Status) != statusWords(&foo.Status) {
		return line
	}
	var more []string
	differs := func(name string, have, want any) {
		if have != want {
			more = append(more, fmt.Sprintf("%s %v -> %v", name, have, want))
		}
	}
	differs("observedGeneration", have.Status.ObservedGeneration, foo.Status.ObservedGeneration)
	differs("replicas", have.Status.Replicas, foo.Status.Replicas)
	differs("availableReplicas", have.Status.AvailableReplicas, foo.Status.AvailableReplicas)
	differs("selector", cmp.Or(have.Status.Selector, "none"), cmp.Or(foo.Status.Selector, "none"))
	if len(more) == 0 {
		return line
	}
	return fmt.Sprintf("%s (%s)", line, strings.Join(more, ", "))
}

// statusWords says what the conditions do; all of them have the same reason and message.
func statusWords(status *v1alpha1.FooStatus) string {
	ready := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionReady)
	if ready == nil {
		return "nothing"
	}
	words := "Ready=" + string(ready.Status)
	for _, cond := range status.Conditions {
		if cond.Type == v1alpha1.ConditionReady {
			continue
		}
		words += " " + cond.Type
		if cond.Status != metav1.ConditionTrue || cond.Reason != ready.Reason || cond.Message != ready.Message {
			words += fmt.Sprintf("(%s, %s: %s)", cond.Status, cond.Reason, cond.Message)
		}
	}
	return fmt.Sprintf("%s %s: %s", words, ready.Reason, ready.Message)
}

var deploymentKind = schema.GroupKind{Group: "apps", Kind: "Deployment"}

// errorOf makes the answer of a kind, with these words in it.
func errorOf(kind, words, resource string) (func(name string) error, error) {
	gr := groupResource(resource)
	reason := errors.New(words)
	switch kind {
	case "forbidden":
		return func(name string) error { return apierrors.NewForbidden(gr, name, reason) }, nil
	case "invalid":
		return func(name string) error {
			return apierrors.NewInvalid(deploymentKind, name, field.ErrorList{field.Forbidden(field.NewPath("spec"), words)})
		}, nil
	case "conflict":
		return func(name string) error { return modified(gr, name) }, nil
	case "broken":
		return func(string) error { return apierrors.NewInternalError(reason) }, nil
	case "throttled":
		return func(string) error { return apierrors.NewTooManyRequests(words, 0) }, nil
	case "terminating":
		return func(name string) error {
			err := apierrors.NewForbidden(gr, name, fmt.Errorf("unable to create new content in namespace %s because it is being terminated", namespace))
			err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
			return err
		}, nil
	}
	return nil, fmt.Errorf("no such answer: %q", kind)
}

var errNoAnswer = errors.New("dial tcp 10.0.0.1:443: i/o timeout")

func modified(gr schema.GroupResource, name string) error {
	return apierrors.NewConflict(gr, name, errors.New("the object has been modified; please apply your changes to the latest version and try again"))
}

func groupResource(resource string) schema.GroupResource {
	if resource == foosResource {
		return foosGR
	}
	return deploymentsGR
}

func specOf(obj object) any {
	switch obj := obj.(type) {
	case *v1alpha1.Foo:
		return obj.Spec
	case *appsv1.Deployment:
		return obj.Spec
	}
	return nil
}

// deploymentOf returns a Deployment as somebody makes it: with two labels of the kind that the sample which
// this controller goes back to sets.
func deploymentOf(name string) *appsv1.Deployment {
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
