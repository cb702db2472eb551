package apiserver

import (
	"cmp"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Events returns the kind of Events of events.k8s.io/v1, without the validation of a real server. They can also be read
// as Events of v1, which kubectl does, unless a test registers these as a kind.
func Events() Kind {
	return Kind{
		Resource: eventsv1.SchemeGroupVersion.WithResource("events"), Kind: "Event", Object: &eventsv1.Event{},
		ShortNames: []string{"ev"},
	}
}

// coreEvents is the view of Events as those of v1.
func coreEvents() Kind {
	kind := Events()
	kind.Resource, kind.Object = corev1.SchemeGroupVersion.WithResource("events"), &corev1.Event{}
	return kind
}

// coreEventFields returns the fields that a field selector for Events of v1 may use.
func coreEventFields() map[string]func(obj runtime.Object) string {
	fields := eventFields("involvedObject", "reportingComponent")
	fields["source"] = func(obj runtime.Object) string {
		e := coreEvent(obj)
		return cmp.Or(e.Source.Component, e.ReportingController)
	}
	return fields
}

// eventFields returns the fields that a field selector for Events may use. object and controller are the names that
// differ between the versions.
func eventFields(object, controller string) map[string]func(obj runtime.Object) string {
	fields := map[string]func(runtime.Object) string{}
	add := func(name string, value func(e *corev1.Event) string) {
		fields[name] = func(obj runtime.Object) string { return value(coreEvent(obj)) }
	}
	add("type", func(e *corev1.Event) string { return e.Type })
	add("reason", func(e *corev1.Event) string { return e.Reason })
	add(controller, func(e *corev1.Event) string { return e.ReportingController })
	add(object+".kind", func(e *corev1.Event) string { return e.InvolvedObject.Kind })
	add(object+".apiVersion", func(e *corev1.Event) string { return e.InvolvedObject.APIVersion })
	add(object+".namespace", func(e *corev1.Event) string { return e.InvolvedObject.Namespace })
	add(object+".name", func(e *corev1.Event) string { return e.InvolvedObject.Name })
	add(object+".uid", func(e *corev1.Event) string { return string(e.InvolvedObject.UID) })
	add(object+".resourceVersion", func(e *corev1.Event) string { return e.InvolvedObject.ResourceVersion })
	add(object+".fieldPath", func(e *corev1.Event) string { return e.InvolvedObject.FieldPath })
	return fields
}

// coreEvent returns an Event as one of v1. It shares data with obj.
func coreEvent(obj runtime.Object) *corev1.Event {
	e, ok := obj.(*eventsv1.Event)
	if !ok {
		return obj.(*corev1.Event)
	}
	core := &corev1.Event{
		ObjectMeta: e.ObjectMeta, InvolvedObject: e.Regarding, Reason: e.Reason, Message: e.Note,
		Source: e.DeprecatedSource, FirstTimestamp: e.DeprecatedFirstTimestamp,
		LastTimestamp: e.DeprecatedLastTimestamp, Count: e.DeprecatedCount, Type: e.Type, EventTime: e.EventTime,
		Action: e.Action, Related: e.Related, ReportingController: e.ReportingController,
		ReportingInstance: e.ReportingInstance,
	}
	if s := e.Series; s != nil {
		core.Series = &corev1.EventSeries{Count: s.Count, LastObservedTime: s.LastObservedTime}
	}
	return core
}
