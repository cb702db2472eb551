package scenario

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"example.com/foo-controller/pkg/sim/apiserver"
)

// A request is a request of a controller.
type request struct {
	*apiserver.Request
	next apiserver.Next
	// verb and name are those of a scenario: the verb of a status write is status, and a create has a name.
	verb, name string
	// line describes the request in the output.
	line string
	// flaw is the reason why no controller should send the request, or nil for a correct request.
	flaw error
}

// describe describes a request of a controller.
func (k *Kind) describe(server *apiserver.Server, from *apiserver.Request, next apiserver.Next) *request {
	r := &request{Request: from, next: next, verb: from.Verb, name: from.Name, line: from.String()}
	served := k.served(from.Resource.Resource)
	if served == nil {
		r.flaw = errors.New("the controller has no informer of this resource")
		return r
	}
	r.line = fmt.Sprintf("%s %s %s", r.verb, strings.ToLower(served.Kind), r.name)
	switch from.Verb + from.Subresource {
	case "get":
		return r
	case "create":
		r.flaw = r.describeCreate(k)
	case "patch":
		r.flaw = r.describePatch(k, server)
	case "patchstatus":
		r.flaw = r.describeStatus(k, server)
	case "delete":
		r.flaw = r.checkDelete()
		return r // A delete has no field manager.
	default:
		r.line, r.flaw = from.String(), errors.New("a controller on the kit does not send such requests")
	}
	if manager := from.Query.Get("fieldManager"); manager != k.Controller && r.flaw == nil {
		r.flaw = fmt.Errorf("its field manager is %q", manager)
	}
	return r
}

func (r *request) describeCreate(k *Kind) error {
	obj, err := k.decode(r.Request)
	if err != nil {
		return err
	}
	r.name = obj.GetName()
	r.line += r.name
	if k.Describe != nil {
		r.line += k.Describe(obj)
	}
	return nil
}

func (r *request) checkDelete() error {
	options := &metav1.DeleteOptions{}
	if err := runtime.DecodeInto(decoder, r.Body, options); err != nil {
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

// describePatch shows each field of a patch, with its value in the stored object and in the patch.
func (r *request) describePatch(k *Kind, server *apiserver.Server) error {
	have, want := map[string]string{}, map[string]string{}
	var patch any
	if err := json.Unmarshal(r.Body, &patch); err != nil {
		return err
	}
	flatten("", patch, want)
	if stored := server.Object(r.Resource, r.Namespace, r.name); stored != nil {
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(stored)
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
		shown := path
		if k.Short != nil {
			shown = k.Short.Replace(path)
		}
		fields = append(fields, fmt.Sprintf("%s %s -> %s", shown, before, want[path]))
	}
	r.line += " " + strings.Join(fields, ", ")
	switch types.PatchType(r.HTTP.Header.Get("Content-Type")) {
	case types.StrategicMergePatchType, types.MergePatchType:
	default:
		return errors.New("it is no merge patch")
	}
	if !identified {
		return errors.New("it lacks a uid or resourceVersion")
	}
	return nil
}

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

// describeStatus describes a write of a status. If the conditions do not change, the line has the other fields that
// change.
func (r *request) describeStatus(k *Kind, server *apiserver.Server) error {
	r.verb = "status"
	obj, err := k.decode(r.Request)
	if err != nil {
		return err
	}
	summary := Summary(obj)
	r.line = fmt.Sprintf("status %s %s", r.name, summary)
	if have := server.Object(r.Resource, r.Namespace, r.name); have != nil && Summary(have) == summary {
		r.line += otherFields(have, obj)
	}
	if obj.GetUID() == "" || obj.GetResourceVersion() == "" {
		return errors.New("it lacks a uid or resourceVersion")
	}
	return nil
}

// otherFields returns which fields of two statuses outside the conditions differ, in parentheses.
func otherFields(have, want runtime.Object) string {
	before, after := statusFields(have), statusFields(want)
	var changes []string
	for i := range after {
		if before[i] != after[i] {
			changes = append(changes, fmt.Sprintf("%s %s -> %s", after[i].name, before[i].value, after[i].value))
		}
	}
	if len(changes) == 0 {
		return ""
	}
	return fmt.Sprintf(" (%s)", strings.Join(changes, ", "))
}

type statusField struct{ name, value string }

// statusFields returns the fields of the status of a Go type, except the conditions.
func statusFields(obj runtime.Object) (fields []statusField) {
	status := reflect.ValueOf(obj).Elem().FieldByName("Status")
	for i := range status.NumField() {
		name, _, _ := strings.Cut(status.Type().Field(i).Tag.Get("json"), ",")
		value := ""
		if v := reflect.Indirect(status.Field(i)); v.IsValid() {
			value = fmt.Sprint(v)
		}
		if name != "conditions" {
			fields = append(fields, statusField{name, cmp.Or(value, "none")})
		}
	}
	return fields
}

// Summary returns the conditions of an object in one line. All of them should have the reason and message of Ready. A
// condition with another reason or message is shown with it.
func Summary(obj runtime.Object) string {
	conditions := statusOf(obj).Conditions
	ready := meta.FindStatusCondition(conditions, "Ready")
	if ready == nil {
		return "nothing"
	}
	line := "Ready=" + string(ready.Status)
	for _, cond := range conditions {
		if cond.Type == ready.Type {
			continue
		}
		line += " " + cond.Type
		if cond.Status != metav1.ConditionTrue || cond.Reason != ready.Reason || cond.Message != ready.Message {
			line += fmt.Sprintf("(%s, %s: %s)", cond.Status, cond.Reason, cond.Message)
		}
	}
	return fmt.Sprintf("%s %s: %s", line, ready.Reason, ready.Message)
}
