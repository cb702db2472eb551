package scenario

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"example.com/foo-controller/pkg/sim/apiserver"
)

// problems checks what holds for any controller on the kit. It knows neither the plan nor the kit.
func (s *Simulation) problems() []string {
	wrong := append([]string(nil), s.wrong...)
	for _, obj := range s.Server.Objects(s.kind.Served[0].Resource) {
		obj := obj.(Object)
		status := statusOf(obj)
		if obj.GetDeletionTimestamp() == nil && status.ObservedGeneration != obj.GetGeneration() {
			wrong = append(wrong, fmt.Sprintf("%s %s: generation %d, observed %d",
				s.kind.Served[0].Kind, obj.GetName(), obj.GetGeneration(), status.ObservedGeneration))
		}
	}
	i := &invariants{kind: s.kind, objects: map[types.UID]bool{}, observed: map[types.UID]int64{}}
	for _, rev := range s.Server.History(s.kind.resources()...) {
		if problem := i.check(rev); problem != "" {
			wrong = append(wrong, fmt.Sprintf("version %d, %s %s: %s", rev.Version, rev.Resource.Resource, rev.Name, problem))
		}
	}
	return wrong
}

// invariants check the history of a simulation, revision by revision.
type invariants struct {
	kind *Kind
	// objects are the uids of the objects of the kind, also of those that are gone.
	objects map[types.UID]bool
	// observed are the generations that statuses were written for.
	observed map[types.UID]int64
}

// check returns the invariant that a change of the controller violates, or "".
func (i *invariants) check(rev *apiserver.Revision) string {
	obj := rev.Object.(Object)
	own := rev.Resource == i.kind.Served[0].Resource
	if own {
		i.objects[obj.GetUID()] = true
	}
	switch {
	case rev.User != i.kind.Controller:
		return ""
	case own:
		return i.checkStatus(rev, obj)
	}
	before := obj // A child that is created must be owned from the beginning.
	if rev.Before != nil {
		before = rev.Before.(Object)
	}
	if owner := metav1.GetControllerOf(before); owner == nil || !i.objects[owner.UID] {
		return fmt.Sprintf("no %s owns it", i.kind.Served[0].Kind)
	}
	return ""
}

// checkStatus checks a write of an object of the kind itself. What else it changes, such as finalizers, is metadata.
func (i *invariants) checkStatus(rev *apiserver.Revision, obj Object) string {
	now, last := statusOf(obj).ObservedGeneration, i.observed[obj.GetUID()]
	i.observed[obj.GetUID()] = now
	switch {
	case rev.Type == watch.Deleted && obj.GetDeletionTimestamp() != nil: // The last finalizer was removed.
		return ""
	case rev.Type != watch.Modified:
		return "it is " + string(rev.Type) + " by its controller"
	case !reflect.DeepEqual(othersOf(rev.Before), othersOf(obj)):
		return "more than the status changes"
	case now < last || now > obj.GetGeneration():
		return fmt.Sprintf("observedGeneration %d after %d, of %d", now, last, obj.GetGeneration())
	}
	return ""
}

// othersOf returns the fields of an object, and its labels and annotations, that belong to its users.
func othersOf(obj runtime.Object) map[string]any {
	var fields map[string]any
	text, err := json.Marshal(obj)
	if err := errors.Join(err, json.Unmarshal(text, &fields)); err != nil {
		panic(err) // The API server has encoded it before.
	}
	m, _ := fields["metadata"].(map[string]any)
	fields["metadata"] = []any{m["labels"], m["annotations"]}
	delete(fields, "status")
	return fields
}
