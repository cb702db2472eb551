package footest

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/foo-controller/pkg/sim/apiserver"
)

// A request is a request of a controller.
type request struct {
	verb, resource, name string
	// line describes the request in the output.
	line string
	do   func() (*http.Response, error)
	body []byte
	// flaw is the reason why no controller should send the request, or nil for a correct request.
	flaw error
}

// describe describes a request of a controller.
func (c *cluster) describe(from *apiserver.Request, next apiserver.Next) *request {
	r := &request{verb: from.Verb, resource: from.Resource.Resource, name: from.Name, do: next, body: from.Body}
	switch from.Verb + from.Subresource {
	case "get":
		r.line = fmt.Sprintf("get %s %s", strings.TrimSuffix(r.resource, "s"), r.name)
		return r
	case "create":
		r.flaw = r.describeCreate(from)
	case "patch":
		r.flaw = c.describePatch(r, from)
	case "updatestatus":
		r.flaw = c.describeStatusUpdate(r, from)
	case "delete":
		r.flaw = r.describeDelete(from)
		return r // A delete has no field manager.
	default:
		r.line, r.flaw = from.String(), errors.New("a Foo controller does not send such requests")
	}
	if manager := from.Query.Get("fieldManager"); manager != controllerName && r.flaw == nil {
		r.flaw = fmt.Errorf("its field manager is %q", manager)
	}
	return r
}

func (r *request) describeCreate(from *apiserver.Request) error {
	dep := &appsv1.Deployment{}
	if err := decodeInto(from.Body, dep); err != nil {
		return err
	}
	r.name = dep.Name
	image := dep.Spec.Template.Spec.Containers[0].Image
	r.line = fmt.Sprintf("create deployment %s replicas=%d image=%s", dep.Name, *dep.Spec.Replicas, image)
	return nil
}

func (r *request) describeDelete(from *apiserver.Request) error {
	r.line = "delete deployment " + r.name
	options := &metav1.DeleteOptions{}
	if err := decodeInto(from.Body, options); err != nil {
		return err
	}
	if options.PropagationPolicy == nil || *options.PropagationPolicy != metav1.DeletePropagationBackground {
		return errors.New("its propagation policy is not Background")
	}
	if p := options.Preconditions; p == nil || p.UID == nil || p.ResourceVersion == nil {
		return errors.New("it lacks a uid or resourceVersion")
	}
	return nil
}

// describePatch shows each field of a patch, with its value in the stored Deployment and in the patch.
func (c *cluster) describePatch(r *request, from *apiserver.Request) error {
	have, want := map[string]string{}, map[string]string{}
	var patch any
	if err := json.Unmarshal(from.Body, &patch); err != nil {
		return err
	}
	flatten("", patch, want)
	if dep := c.deployment(from.Name); dep != nil {
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(dep)
		if err != nil {
			return err
		}
		flatten("", content, have)
	}
	identified := want["metadata.uid"] != "" && want["metadata.resourceVersion"] != ""
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
	r.line = fmt.Sprintf("patch deployment %s %s", from.Name, strings.Join(fields, ", "))
	if from.HTTP.Header.Get("Content-Type") != string(types.StrategicMergePatchType) || !identified {
		return errors.New("it is not a strategic merge patch, or lacks a uid or resourceVersion")
	}
	return nil
}

var shortPath = strings.NewReplacer(
	"metadata.labels.samplecontroller.k8s.io/", "label ",
	"metadata.labels.app.kubernetes.io/", "label ",
	"metadata.labels.", "label ",
	"metadata.ownerReferences", "owner",
	"spec.template.spec.containers[nginx].image", "image",
	"spec.replicas", "replicas",
)

// flatten adds the values at path and below to leaves.
func flatten(path string, value any, leaves map[string]string) {
	switch value := value.(type) {
	case map[string]any:
		for key, value := range value {
			flatten(strings.TrimPrefix(path+"."+key, "."), value, leaves)
		}
	case []any:
		flattenList(path, value, leaves)
	default:
		leaves[path] = fmt.Sprint(value)
	}
}

func flattenList(path string, list []any, leaves map[string]string) {
	for i, element := range list {
		fields, _ := element.(map[string]any)
		switch name := fields["name"]; {
		case path == "metadata.ownerReferences":
			leaves[path] = strings.TrimPrefix(leaves[path]+" and "+describeOwner(fields), " and ")
		case name != nil:
			delete(fields, "name")
			flatten(fmt.Sprintf("%s[%s]", path, name), fields, leaves)
		default:
			flatten(fmt.Sprintf("%s[%d]", path, i), element, leaves)
		}
	}
}

func describeOwner(ref map[string]any) string {
	line := fmt.Sprintf("%v %v %v", ref["apiVersion"], ref["kind"], ref["name"])
	if ref["controller"] != true {
		line += " (not controller)"
	}
	return line
}

// describeStatusUpdate describes a write of a status in one line. If the conditions do not change, the line has the
// other fields that change.
func (c *cluster) describeStatusUpdate(r *request, from *apiserver.Request) error {
	r.verb = "status"
	foo := &v1alpha1.Foo{}
	if err := decodeInto(from.Body, foo); err != nil {
		return err
	}
	r.line = fmt.Sprintf("status %s %s", foo.Name, describeStatus(&foo.Status))
	have := c.foo(foo.Name)
	if have != nil && describeStatus(&have.Status) == describeStatus(&foo.Status) {
		r.line += describeNumbers(&have.Status, &foo.Status)
	}
	if foo.UID == "" || foo.ResourceVersion == "" {
		return errors.New("it lacks a uid or resourceVersion")
	}
	return nil
}

// describeNumbers returns which fields outside the conditions differ, in parentheses.
func describeNumbers(have, want *v1alpha1.FooStatus) string {
	var changes []string
	compare := func(name string, have, want any) {
		if have != want {
			changes = append(changes, fmt.Sprintf("%s %v -> %v", name, have, want))
		}
	}
	compare("observedGeneration", have.ObservedGeneration, want.ObservedGeneration)
	compare("replicas", have.Replicas, want.Replicas)
	compare("availableReplicas", have.AvailableReplicas, want.AvailableReplicas)
	compare("selector", cmp.Or(have.Selector, "none"), cmp.Or(want.Selector, "none"))
	if len(changes) == 0 {
		return ""
	}
	return fmt.Sprintf(" (%s)", strings.Join(changes, ", "))
}

// describeStatus returns the conditions in one line. All of them should have the reason and message of Ready. A
// condition with another reason or message is shown with it.
func describeStatus(status *v1alpha1.FooStatus) string {
	ready := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionReady)
	if ready == nil {
		return "nothing"
	}
	line := "Ready=" + string(ready.Status)
	for _, cond := range status.Conditions {
		if cond.Type == v1alpha1.ConditionReady {
			continue
		}
		line += " " + cond.Type
		if cond.Status != metav1.ConditionTrue || cond.Reason != ready.Reason || cond.Message != ready.Message {
			line += fmt.Sprintf("(%s, %s: %s)", cond.Status, cond.Reason, cond.Message)
		}
	}
	return fmt.Sprintf("%s %s: %s", line, ready.Reason, ready.Message)
}
