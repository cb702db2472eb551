package reconcile

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"example.com/foo-controller/pkg/kit/state"
)

// A Verb is a kind of request. Logs and error messages use the same words.
type Verb string

const (
	Get          Verb = "get" // A live read: from the API server, and not from a cache.
	Create       Verb = "create"
	Patch        Verb = "patch"
	Delete       Verb = "delete"
	UpdateStatus Verb = "update status of"
)

// A Kind is a kind of objects, whose type is T. A plan has one variable for each of its kinds: its rules make their
// steps with it, and kit.KindOf their requests.
type Kind[T Object] struct{ schema.GroupVersionKind }

// KindOf is the Kind of objects of type T.
func KindOf[T Object](kind schema.GroupVersionKind) Kind[T] { return Kind[T]{kind} }

// An Op is an operation on one object: what backs off after a failure.
type Op struct {
	Verb Verb
	Kind string
	// Namespace is that of the object, "" for an object without one.
	Namespace, Name string
}

// Request is the operation without the name, such as "create Deployment".
func (op Op) Request() string { return string(op.Verb) + " " + op.Kind }

func (op Op) String() string { return op.Request() + " " + op.nameFrom("") }

// nameFrom is the name of the object for people who know the namespace that they are in.
func (op Op) nameFrom(namespace string) string {
	if op.Namespace == namespace {
		return op.Name
	}
	return op.Namespace + "/" + op.Name
}

// An Object is a pointer to an object of the API, or to what is kept of one.
type Object interface {
	comparable
	metav1.Object
}

// A slot is a field of an Input that has an object as a cache, or as the last answer, has it. It is nil if there is
// none. Its steps take from it the version that they are about, and put their answers into it.
type slot interface {
	get() metav1.Object
	set(obj metav1.Object)
}

type fieldOf[T Object] struct{ field *T }

func (s fieldOf[T]) get() metav1.Object {
	var none T
	if *s.field == none {
		return nil
	}
	return *s.field
}

func (s fieldOf[T]) set(obj metav1.Object) { *s.field, _ = obj.(T) }

// An elementOf is the slot of an object in a list of an Input. Its own field has the object, nil if the list lacks it.
// The list is replaced and never changed, because copies of the Input share it.
type elementOf[T Object] struct {
	fieldOf[T]
	list *[]T
}

func (s elementOf[T]) set(obj metav1.Object) {
	was := *s.field
	list := slices.DeleteFunc(slices.Clone(*s.list), func(element T) bool { return element == was })
	if s.fieldOf.set(obj); obj != nil {
		list = append(list, *s.field)
	}
	*s.list = list
}

// A Ref refers to an object in a field of an Input, which a live read replaces.
type Ref struct {
	read Op
	slot slot
}

// RefTo is a Ref to the object in a field of an Input, which is not nil.
func RefTo[T Object](kind Kind[T], field *T) Ref {
	return Ref{opOn(Get, kind, *field), fieldOf[T]{field}}
}

func opOn[T Object](verb Verb, kind Kind[T], obj metav1.Object) Op {
	return Op{Verb: verb, Kind: kind.Kind, Namespace: obj.GetNamespace(), Name: obj.GetName()}
}

// A Field of an object is what a step changes.
type Field = state.Field

// A Step is one request to the API server. CreateStep, PatchStep, DeleteStep and StatusStep make one. What follows Body
// is optional, and may be set by the rule that returns it.
type Step struct {
	// Op has the namespace of the object of the sync, if the body of a create has none.
	Op
	// Rule is the name of the rule that asked for the request, and Why the facts for which it did: if it is "", those of
	// the answer.
	Rule, Why string
	// For is the write that a live read comes before. When the read fails, that write has failed.
	For Op
	// UID and ResourceVersion are those of the version that the step is about. A patch has them in its body, too.
	UID, ResourceVersion string
	// Body is the object to create, or with the status to write. Patch is a strategic merge patch or, for the kind of the
	// plan, a JSON merge patch: custom resources take no other.
	Body      metav1.Object
	Patch     []byte
	JSONMerge bool

	// Fields are what the request changes, for people.
	Fields []Field
	// Spec means that a new spec asks for the patch. Otherwise it corrects what somebody has changed.
	Spec bool
	// want is what Keep patches towards, nil if the patch is not of Keep. Keep leaves it to the Sync whether a patch is an
	// update or a correction. A patch towards something else repeats nothing.
	want any
	// Event, unless nil, is sent when the write has had its effect.
	Event *Event
	// Confirm are the objects of which a stale version would do harm: they are read live before.
	Confirm []Ref
	// Idempotent means that the write may be repeated without a live read, such as a PUT to something outside of the
	// cluster.
	Idempotent bool
	// Differs, unless nil, is called after the write. It returns what is wrong if the object is not stored as it was
	// written, because admission has changed it.
	Differs func() *Problem
	// Undone, unless nil, is called after the fourth write for one spec: something undoes it. It returns what to report.
	Undone func() *Problem
	// Log has keys and values for the line of the log.
	Log []any

	slot slot
}

// IsRead reports whether the step is a live read.
func (step *Step) IsRead() bool { return step.Verb == Get }

// CreateStep creates an object, and puts it into a field of the Input, which is nil.
func CreateStep[T Object](kind Kind[T], field *T, body metav1.Object) *Step {
	return &Step{Op: opOn(Create, kind, body), Body: body, slot: fieldOf[T]{field}}
}

// PatchStep patches the object in a field of the Input. Body is a strategic merge patch that has the uid and the
// resourceVersion of the object, so that it cannot hit another version.
func PatchStep[T Object](kind Kind[T], field *T, body []byte, fields []Field) *Step {
	step := about(Patch, kind, field)
	step.Patch, step.Fields = body, fields
	return step
}

// FinalizersStep sets the finalizers of the object in a field of the Input.
func FinalizersStep[T Object](kind Kind[T], field *T, finalizers []string) *Step {
	step := about(Patch, kind, field)
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": step.UID, "resourceVersion": step.ResourceVersion, "finalizers": finalizers,
	}})
	if err != nil {
		panic(err) // Strings can always be encoded.
	}
	step.Patch, step.JSONMerge, step.Spec = body, true, true
	step.Fields = []Field{{Path: "metadata.finalizers"}}
	step.Undone = func() *Problem {
		return &Problem{
			Reason: Overridden, Advice: "Stop it",
			Message: "Another client, or a webhook, keeps changing the finalizers of this " + kind.Kind,
		}
	}
	step.Differs = func() *Problem {
		if slices.Equal((*field).GetFinalizers(), finalizers) {
			return nil
		}
		return step.Undone()
	}
	return step
}

// DeleteStep deletes the object in a field of the Input, in this version.
func DeleteStep[T Object](kind Kind[T], field *T) *Step {
	return about(Delete, kind, field)
}

// StatusStep writes the status of the object in a field of the Input. Body is a copy with the new status: a pointer to
// a struct that has the field Status. The step has an event if the condition Ready has a new reason: a warning if the
// object is Stalled, or a request has failed or is undone, and a normal one if it is Ready.
func StatusStep[T Object](kind Kind[T], field *T, body T, was, is []metav1.Condition) *Step {
	step := about(UpdateStatus, kind, field)
	step.Body = body
	step.Fields = []Field{{Path: "status", Have: Summary(was), Want: Summary(is)}}
	step.Event, step.Why, step.Log = readyEvent(was, is), "the status differs", []any{"status", step.Fields[0].Want}
	return step
}

// StatusPatch returns what a StatusStep sends to the subresource status: a JSON patch that replaces the status of the
// version of the object that the sync has seen, and nothing else. An update of the status would have the whole object,
// without the metadata that the caches leave out. API servers before 1.36 take that for a removal: the metadata stays,
// but they forget which managers have set it.
func (step *Step) StatusPatch() ([]byte, error) {
	status := statusOf(step.Body)
	if status == nil {
		return nil, fmt.Errorf("%T has no field Status", step.Body)
	}
	return json.Marshal([]map[string]any{
		{"op": "replace", "path": "/metadata/uid", "value": step.UID},
		{"op": "replace", "path": "/metadata/resourceVersion", "value": step.ResourceVersion},
		{"op": "add", "path": "/status", "value": status},
	})
}

func about[T Object](verb Verb, kind Kind[T], field *T) *Step {
	have := *field
	return &Step{
		Op: opOn(verb, kind, have), UID: string(have.GetUID()), ResourceVersion: have.GetResourceVersion(),
		slot: fieldOf[T]{field},
	}
}

// A Reply is what the API server returned for a Step. Its object is nil after a live read that found nothing, which is
// a success, and after a deletion.
type Reply struct {
	Object metav1.Object
	Err    error
}

// Answered returns the Reply of a request that has returned obj and err.
func (step *Step) Answered(obj metav1.Object, err error) Reply {
	switch {
	case step.IsRead() && isGone(err, step.Name):
		return Reply{}
	case err != nil:
		return Reply{Err: err}
	}
	return Reply{Object: obj}
}

// An Event is a change that a person acts on.
type Event struct {
	// Type is corev1.EventTypeNormal or corev1.EventTypeWarning. Reason is in CamelCase.
	Type, Reason string
	// Action is what the controller did. client-go counts events with the same reason and action in one object, whose
	// note is that of the first: events have the same action if their notes are the same for a reader.
	Action string
	// Note is for people, at most 1 kB.
	Note string
}

// Summary returns the conditions Ready, Reconciling and Stalled in one line. All of them have the same message.
func Summary(conditions []metav1.Condition) string {
	ready, other := "no conditions", ""
	for i := range conditions {
		switch c := &conditions[i]; c.Type {
		case state.Ready:
			ready = "Ready=" + string(c.Status) + " " + c.Reason + ": " + c.Message
		case state.Reconciling, state.Stalled:
			other = c.Type + ", "
		}
	}
	return other + ready
}

// readyEvent returns the event of a status, or nil.
func readyEvent(was, is []metav1.Condition) *Event {
	had, ready := meta.FindStatusCondition(was, state.Ready), meta.FindStatusCondition(is, state.Ready)
	event := &Event{Type: corev1.EventTypeNormal}
	switch {
	case ready == nil, had != nil && had.Reason == ready.Reason:
		return nil
	case meta.FindStatusCondition(is, state.Stalled) != nil,
		ready.Reason == Refused, ready.Reason == RequestFailed, ready.Reason == Overridden:
		event.Type = corev1.EventTypeWarning
	case ready.Status != metav1.ConditionTrue:
		return nil
	}
	event.Reason, event.Action, event.Note = ready.Reason, "Report "+ready.Reason, Clip(ready.Message, NoteLimit)
	return event
}

// Have is the version of the object that the step is about, nil if there is none.
func (step *Step) Have() metav1.Object { return step.slot.get() }

// FieldList returns what the step changes in one line, with the values if they are known. As a list, klog would write
// them as JSON, also in the text format, and escape every "->".
func (step *Step) FieldList() string {
	var fields []string
	for _, field := range step.Fields {
		fields = append(fields, field.String())
	}
	return strings.Join(fields, ", ")
}
