package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing/synctest"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/kubernetes"
	kubescheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/foo-controller/pkg/apisim"
	clientset "example.com/foo-controller/pkg/generated/clientset/versioned"
	"example.com/foo-controller/pkg/plan"
)

const namespace = "default"

// object is a Foo or a Deployment.
type object interface {
	metav1.Object
	runtime.Object
}

// A simulation is what stands behind the clients in scenarios: a simulated API server with the Foos and Deployments
// of one namespace. What users do goes straight to it; what a controller asks for is put into words on its way,
// and may be refused.
type simulation struct {
	*apisim.Server
	// users are what everybody but the controllers acts through, by resource.
	users map[string]rest.Interface
	// refusals answer requests of controllers in place of the API server.
	refusals []*refusal
	// terminating says that the namespace is being deleted.
	terminating bool
	// overrides change each Deployment that a controller writes, as a mutating admission policy does.
	overrides []func(*appsv1.Deployment)
}

// A refusal answers requests of one verb for one resource, or one object.
type refusal struct {
	verb, resource string
	name           string // Empty for all.
	answer         func(name string) error
	done           bool // The request is carried out all the same.
	once           bool
}

func newSimulation() *simulation {
	c := &simulation{Server: apisim.New(fooKind, deploymentKind)}
	const user = "user"
	c.users = map[string]rest.Interface{
		foosResource:        clientset.NewForConfigOrDie(c.Config(user)).SamplecontrollerV1alpha1().RESTClient(),
		deploymentsResource: kubernetes.NewForConfigOrDie(c.Config(user)).AppsV1().RESTClient(),
	}
	c.Admit(func(a *apisim.Admission) error {
		if dep, ok := a.Object.(*appsv1.Deployment); ok && a.User != user {
			for _, override := range c.overrides {
				override(dep)
			}
		}
		return nil
	})
	return c
}

func (c *simulation) foo(name string) *v1alpha1.Foo {
	foo, _ := c.Object(fooResource, namespace, name).(*v1alpha1.Foo)
	return foo
}

func (c *simulation) deployment(name string) *appsv1.Deployment {
	dep, _ := c.Object(deploymentResource, namespace, name).(*appsv1.Deployment)
	return dep
}

// changes returns what watch events tell, in order.
func (c *simulation) changes() []*apisim.Revision { return c.History(fooResource, deploymentResource) }

// add creates an object as a user does.
func (c *simulation) add(resource string, obj object) error {
	obj.SetResourceVersion("")
	return c.users[resource].Post().Namespace(namespace).Resource(resource).Body(obj).Do(context.Background()).Error()
}

// edit changes an object, or its subresource, as somebody other than the controller does.
func (c *simulation) edit(resource, subresource, name string, edit func(object)) error {
	have, ok := c.Object(gvrOf(resource), namespace, name).(object)
	if !ok {
		return apierrors.NewNotFound(gvrOf(resource).GroupResource(), name)
	}
	changed := have.DeepCopyObject().(object)
	edit(changed)
	return c.users[resource].Put().Namespace(namespace).Resource(resource).Name(name).SubResource(subresource).Body(changed).Do(context.Background()).Error()
}

// delete deletes an object as a user does.
func (c *simulation) delete(resource, name string, foreground bool) error {
	policy := metav1.DeletePropagationBackground
	if foreground {
		policy = metav1.DeletePropagationForeground
	}
	return c.users[resource].Delete().Namespace(namespace).Resource(resource).Name(name).
		Body(&metav1.DeleteOptions{PropagationPolicy: &policy}).Do(context.Background()).Error()
}

// collectGarbage lets the garbage collector work until it has nothing left to do.
func (c *simulation) collectGarbage() {
	ctx, stop := context.WithCancel(context.Background())
	go apisim.RunGarbageCollector(ctx, c.Server, 0)
	synctest.Wait()
	stop()
	synctest.Wait()
}

// A request is what a controller asks or tells the API server.
type request struct {
	verb, resource, name string
	words                string
	do                   func() (*http.Response, error)
	// flaw is what no controller should send.
	flaw error
}

// serve answers r, and adds to its words how that ended.
func (c *simulation) serve(from *apisim.Request, r *request) (*http.Response, error) {
	refused := c.refused(r)
	if refused == nil || refused.done {
		answer, err := r.do()
		if err != nil {
			return nil, err
		}
		if reason := reasonOf(answer); reason != "" {
			r.words += " -> " + reason
			return answer, nil
		}
		if refused == nil {
			return answer, nil
		}
		answer.Body.Close()
	}
	err := refused.answer(r.name)
	if errors.Is(err, errNoAnswer) {
		r.words += " -> no answer"
		return nil, err
	}
	answer, err := from.Refuse(err)
	r.words += " -> " + reasonOf(answer)
	return answer, err
}

// reasonOf returns why the API server says no, "" when it does not.
func reasonOf(answer *http.Response) string {
	if answer.StatusCode < http.StatusBadRequest {
		return ""
	}
	body, err := io.ReadAll(answer.Body)
	answer.Body = io.NopCloser(bytes.NewReader(body))
	status := &metav1.Status{}
	if err := cmp.Or(err, decodeInto(body, status)); err != nil {
		return err.Error()
	}
	return string(status.Reason)
}

// decodeInto reads what clients and API servers say to each other.
func decodeInto(body []byte, into runtime.Object) error {
	return runtime.DecodeInto(codec, body, into)
}

var codec = func() runtime.Decoder {
	scheme := runtime.NewScheme()
	if err := errors.Join(kubescheme.AddToScheme(scheme), v1alpha1.Install(scheme)); err != nil {
		panic(err)
	}
	return serializer.NewCodecFactory(scheme).UniversalDeserializer()
}()

// requestOf puts into words what a client sends.
func (c *simulation) requestOf(from *apisim.Request, next func() (*http.Response, error)) *request {
	r := &request{verb: from.Verb, resource: from.Resource.Resource, name: from.Name, do: next}
	manager := from.Query.Get("fieldManager")
	switch from.Verb + from.Subresource {
	case "get":
		r.words = fmt.Sprintf("get %s %s", strings.TrimSuffix(r.resource, "s"), r.name)
		return r
	case "create":
		dep := &appsv1.Deployment{}
		if r.flaw = decodeInto(from.Body, dep); r.flaw != nil {
			return r
		}
		r.name = dep.Name
		r.words = fmt.Sprintf("create deployment %s replicas=%d image=%s", dep.Name, *dep.Spec.Replicas, dep.Spec.Template.Spec.Containers[0].Image)
	case "patch":
		r.words, r.flaw = c.describePatch(from)
	case "updatestatus":
		foo := &v1alpha1.Foo{}
		if r.flaw = decodeInto(from.Body, foo); r.flaw != nil {
			return r
		}
		r.verb, r.words = "status", c.describeStatus(foo)
		if foo.UID == "" || foo.ResourceVersion == "" {
			r.flaw = errors.New("it lacks a uid or resourceVersion")
		}
	case "delete":
		manager, r.words = controllerName, "delete deployment "+r.name // A delete has no field manager.
		options := &metav1.DeleteOptions{}
		if r.flaw = decodeInto(from.Body, options); r.flaw != nil {
			return r
		}
		if options.PropagationPolicy == nil || *options.PropagationPolicy != metav1.DeletePropagationBackground ||
			options.Preconditions == nil || options.Preconditions.UID == nil || options.Preconditions.ResourceVersion == nil {
			r.flaw = errors.New("it is not in the background, or lacks a uid or resourceVersion")
		}
	default:
		r.words, r.flaw = from.String(), errors.New("nobody expects it")
	}
	if manager != controllerName {
		r.flaw = fmt.Errorf("its field manager is %q", manager)
	}
	return r
}

// refused returns what the test wants answered to such a request, nil for the usual.
func (c *simulation) refused(r *request) *refusal {
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

// describePatch tells what a patch mentions of the stored Deployment: each field, its value there and in
// the patch. It is an error when it lacks what it must carry.
func (c *simulation) describePatch(from *apisim.Request) (string, error) {
	have, want := map[string]string{}, map[string]string{}
	var patch any
	if err := json.Unmarshal(from.Body, &patch); err != nil {
		return "", err
	}
	flatten("", patch, want)
	if dep := c.deployment(from.Name); dep != nil {
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(dep)
		if err != nil {
			return "", err
		}
		flatten("", content, have)
	}
	var err error
	if from.HTTP.Header.Get("Content-Type") != string(types.StrategicMergePatchType) || want["metadata.uid"] == "" || want["metadata.resourceVersion"] == "" {
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
	return fmt.Sprintf("patch deployment %s %s", from.Name, strings.Join(fields, ", ")), err
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
func (c *simulation) describeStatus(foo *v1alpha1.Foo) string {
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

// errorOf makes the answer of a kind, with these words in it.
func errorOf(kind, words, resource string) (func(name string) error, error) {
	gr := gvrOf(resource).GroupResource()
	reason := errors.New(words)
	switch kind {
	case "forbidden":
		return func(name string) error { return apierrors.NewForbidden(gr, name, reason) }, nil
	case "invalid":
		return func(name string) error {
			return apierrors.NewInvalid(appsv1.SchemeGroupVersion.WithKind("Deployment").GroupKind(), name, field.ErrorList{field.Forbidden(field.NewPath("spec"), words)})
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

func gvrOf(resource string) schema.GroupVersionResource {
	if resource == foosResource {
		return fooResource
	}
	return deploymentResource
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
