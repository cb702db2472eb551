package apiserver

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// This file and deployments.go have the kinds that come with Kubernetes and that many controllers work with. All of
// them except Events are compared with those of a real server. Tests can define other kinds in the same way.

// Namespaces returns the kind of Namespaces of v1. If it is registered, the namespace "default" exists but not the
// others of a cluster, such as kube-system, objects can be created only in existing namespaces, and RunNamespaces
// deletes the contents of terminating ones.
func Namespaces() Kind {
	return Kind{
		Resource: corev1.SchemeGroupVersion.WithResource("namespaces"), Kind: "Namespace", Object: &corev1.Namespace{},
		ClusterScoped: true, Status: true, ShortNames: []string{"ns"},
	}
}

// ConfigMaps returns the kind of ConfigMaps of v1, with the validation of a real server.
func ConfigMaps() Kind {
	return Kind{
		Resource: corev1.SchemeGroupVersion.WithResource("configmaps"), Kind: "ConfigMap",
		Object: &corev1.ConfigMap{}, ShortNames: []string{"cm"},
		Validate: func(obj, old runtime.Object) field.ErrorList {
			cm := obj.(*corev1.ConfigMap)
			errs := finalizerNames(&cm.ObjectMeta)
			if old != nil {
				errs = append(errs, configMapUpdate(cm, old.(*corev1.ConfigMap))...)
				// A real server validates all metadata again.
				name := validation.NameIsDNSSubdomain
				errs = append(errs,
					validation.ValidateObjectMeta(&cm.ObjectMeta, true, name, field.NewPath("metadata"))...)
				errs = append(errs, finalizerNames(&cm.ObjectMeta)...)
			}
			return append(errs, configMapKeys(cm)...)
		},
	}
}

func configMapUpdate(cm, old *corev1.ConfigMap) field.ErrorList {
	if old.Immutable == nil || !*old.Immutable {
		return nil
	}
	const message = "field is immutable when `immutable` is set"
	var errs field.ErrorList
	if cm.Immutable == nil || !*cm.Immutable {
		errs = append(errs, field.Forbidden(field.NewPath("immutable"), message))
	}
	if !equality.Semantic.DeepEqual(cm.Data, old.Data) {
		errs = append(errs, field.Forbidden(field.NewPath("data"), message))
	}
	if !equality.Semantic.DeepEqual(cm.BinaryData, old.BinaryData) {
		errs = append(errs, field.Forbidden(field.NewPath("binaryData"), message))
	}
	return errs
}

func configMapKeys(cm *corev1.ConfigMap) field.ErrorList {
	var errs field.ErrorList
	for key := range cm.Data {
		path := field.NewPath("data").Key(key)
		for _, message := range utilvalidation.IsConfigMapKey(key) {
			errs = append(errs, field.Invalid(path, key, message))
		}
		if _, both := cm.BinaryData[key]; both {
			errs = append(errs, field.Invalid(path, key, "duplicate of key present in binaryData"))
		}
	}
	for key := range cm.BinaryData {
		for _, message := range utilvalidation.IsConfigMapKey(key) {
			errs = append(errs, field.Invalid(field.NewPath("binaryData").Key(key), key, message))
		}
	}
	slices.SortFunc(errs, func(a, b *field.Error) int { return strings.Compare(a.Error(), b.Error()) })
	return errs
}

// finalizerNames checks the rule that only built-in kinds have for finalizers: their names must have a domain.
func finalizerNames(m *metav1.ObjectMeta) field.ErrorList {
	standard := []string{string(corev1.FinalizerKubernetes), metav1.FinalizerOrphanDependents,
		metav1.FinalizerDeleteDependents}
	var errs field.ErrorList
	for i, name := range m.Finalizers {
		if !strings.Contains(name, "/") && !slices.Contains(standard, name) {
			path := field.NewPath("metadata", "finalizers").Index(i)
			errs = append(errs,
				field.Invalid(path, name, "name is neither a standard finalizer name nor is it fully qualified"))
		}
	}
	return errs
}

// Leases returns the kind of Leases of coordination.k8s.io/v1, with the validation of a real server for the fields that
// leader election writes.
func Leases() Kind {
	return Kind{
		Resource: coordinationv1.SchemeGroupVersion.WithResource("leases"), Kind: "Lease",
		Object:        &coordinationv1.Lease{},
		PrepareCreate: func(obj runtime.Object) { dropAlphaFields(obj, &coordinationv1.Lease{}) },
		PrepareUpdate: dropAlphaFields,
		Validate: func(obj, _ runtime.Object) field.ErrorList {
			spec, path := &obj.(*coordinationv1.Lease).Spec, field.NewPath("spec")
			var errs field.ErrorList
			if d := spec.LeaseDurationSeconds; d != nil && *d <= 0 {
				errs = append(errs, field.Invalid(path.Child("leaseDurationSeconds"), *d, "must be greater than 0"))
			}
			if n := spec.LeaseTransitions; n != nil && *n < 0 {
				errs = append(errs,
					field.Invalid(path.Child("leaseTransitions"), *n, "must be greater than or equal to 0"))
			}
			return errs
		},
	}
}

// dropAlphaFields drops the fields of coordinated leader election, which is an alpha feature, unless the Lease has
// them.
func dropAlphaFields(obj, old runtime.Object) {
	spec, before := &obj.(*coordinationv1.Lease).Spec, &old.(*coordinationv1.Lease).Spec
	if before.Strategy == nil {
		spec.Strategy = nil
	}
	if before.PreferredHolder == nil {
		spec.PreferredHolder = nil
	}
}

var notNegative = validation.ValidateNonnegativeField

func orDefault[T any](have **T, value T) {
	if *have == nil {
		*have = &value
	}
}

// Events returns the kind of Events of events.k8s.io/v1, without the validation of a real server. They can also be read
// as Events of v1, which kubectl does, unless a test registers these as a kind.
func Events() Kind {
	return Kind{
		Resource: eventsv1.SchemeGroupVersion.WithResource("events"), Kind: "Event", Object: &eventsv1.Event{},
		ShortNames: []string{"ev"},
	}
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

// selectable has the fields of kinds that come with Kubernetes for field selectors, by the names that they have in
// their selectors. The package comment has what is left out.
var selectable = map[schema.GroupVersionResource][]string{
	corev1.SchemeGroupVersion.WithResource("events"):     eventFields("involvedObject", "source", "reportingComponent"),
	eventsv1.SchemeGroupVersion.WithResource("events"):   eventFields("regarding", "reportingController"),
	corev1.SchemeGroupVersion.WithResource("namespaces"): {"status.phase"},
	corev1.SchemeGroupVersion.WithResource("nodes"):      {"spec.unschedulable"},
	corev1.SchemeGroupVersion.WithResource("pods"): {
		"spec.nodeName", "spec.restartPolicy", "spec.schedulerName", "spec.serviceAccountName", "spec.hostNetwork",
		"status.phase", "status.podIP", "status.nominatedNodeName",
	},
	corev1.SchemeGroupVersion.WithResource("replicationcontrollers"):             {"status.replicas"},
	corev1.SchemeGroupVersion.WithResource("secrets"):                            {"type"},
	corev1.SchemeGroupVersion.WithResource("services"):                           {"spec.clusterIP", "spec.type"},
	batchv1.SchemeGroupVersion.WithResource("jobs"):                              {"status.successful"},
	certificatesv1.SchemeGroupVersion.WithResource("certificatesigningrequests"): {"spec.signerName"},
}

// eventFields returns the selectable fields of Events: those of the object and others.
func eventFields(object string, others ...string) []string {
	fields := append(others, "type", "reason")
	for _, name := range []string{"kind", "apiVersion", "namespace", "name", "uid", "resourceVersion", "fieldPath"} {
		fields = append(fields, object+"."+name)
	}
	return fields
}

// builtInFields returns the Fields of a kind that comes with Kubernetes, nil if it has none.
func builtInFields(of schema.GroupVersionResource) map[string]func(runtime.Object) string {
	var fields map[string]func(runtime.Object) string
	for _, name := range selectable[of] {
		if fields == nil {
			fields = map[string]func(runtime.Object) string{}
		}
		fields[name] = func(obj runtime.Object) string { return selected(of, obj, name) }
	}
	return fields
}

// selected returns the value of a selectable field. Most are at the path of their name.
func selected(of schema.GroupVersionResource, obj runtime.Object, name string) string {
	if of == corev1.SchemeGroupVersion.WithResource("events") {
		obj = coreEvent(obj)
	}
	switch name {
	case "source":
		e := obj.(*corev1.Event)
		return cmp.Or(e.Source.Component, e.ReportingController)
	case "reportingComponent":
		name = "reportingController"
	case "status.successful":
		name = "status.succeeded"
	}
	value := reflect.ValueOf(obj).Elem()
	for path := range strings.SplitSeq(name, ".") {
		value = value.FieldByNameFunc(func(field string) bool { return strings.EqualFold(field, path) })
	}
	return fmt.Sprint(value.Interface())
}

// columnOf returns a column whose cells a function returns.
func columnOf[T runtime.Object](name, description string, value func(obj T) any) column {
	return column{
		TableColumnDefinition: metav1.TableColumnDefinition{Name: name, Type: "string", Description: description},
		value:                 func(obj runtime.Object) any { return value(obj.(T)) },
	}
}

// wide returns a column that kubectl prints only with -o wide.
func (c column) wide() column {
	c.Priority = 1
	return c
}

// builtInColumns are the columns that a real server has for a kind.
var builtInColumns = map[schema.GroupVersionResource][]column{
	corev1.SchemeGroupVersion.WithResource("namespaces"): {
		nameColumn,
		columnOf("Status", "The status of the namespace", func(ns *corev1.Namespace) any { return ns.Status.Phase }),
		ageColumn,
	},
	corev1.SchemeGroupVersion.WithResource("configmaps"): {
		nameColumn,
		columnOf("Data", corev1.ConfigMap{}.SwaggerDoc()["data"], func(cm *corev1.ConfigMap) any {
			return len(cm.Data) + len(cm.BinaryData)
		}),
		ageColumn,
	},
	coordinationv1.SchemeGroupVersion.WithResource("leases"): {
		nameColumn,
		columnOf("Holder", coordinationv1.LeaseSpec{}.SwaggerDoc()["holderIdentity"], func(l *coordinationv1.Lease) any {
			return orZero(l.Spec.HolderIdentity)
		}),
		ageColumn,
	},
	appsv1.SchemeGroupVersion.WithResource("deployments"): deploymentColumns(),
	corev1.SchemeGroupVersion.WithResource("events"):      eventColumns(),
	eventsv1.SchemeGroupVersion.WithResource("events"):    eventColumns(),
}

func deploymentColumns() []column {
	status := appsv1.DeploymentStatus{}.SwaggerDoc()
	return []column{
		nameColumn,
		columnOf("Ready", "Number of the pod with ready state", func(dep *appsv1.Deployment) any {
			return fmt.Sprintf("%d/%d", dep.Status.ReadyReplicas, orZero(dep.Spec.Replicas))
		}),
		columnOf("Up-to-date", status["updatedReplicas"], func(dep *appsv1.Deployment) any {
			return dep.Status.UpdatedReplicas
		}),
		columnOf("Available", status["availableReplicas"], func(dep *appsv1.Deployment) any {
			return dep.Status.AvailableReplicas
		}),
		ageColumn,
		columnOf("Containers", "Names of each container in the template.", func(dep *appsv1.Deployment) any {
			return eachContainer(dep, func(c corev1.Container) string { return c.Name })
		}).wide(),
		columnOf("Images", "Images referenced by each container in the template.", func(dep *appsv1.Deployment) any {
			return eachContainer(dep, func(c corev1.Container) string { return c.Image })
		}).wide(),
		columnOf("Selector", appsv1.DeploymentSpec{}.SwaggerDoc()["selector"], func(dep *appsv1.Deployment) any {
			selector, err := metav1.LabelSelectorAsSelector(dep.Spec.Selector)
			if err != nil {
				return "<invalid>"
			}
			return selector.String()
		}).wide(),
	}
}

func eachContainer(dep *appsv1.Deployment, value func(corev1.Container) string) string {
	var values []string
	for _, c := range dep.Spec.Template.Spec.Containers {
		values = append(values, value(c))
	}
	return strings.Join(values, ",")
}

// orZero returns what p points to. The object of a bookmark lacks fields that all others have.
func orZero[T any](p *T) (value T) {
	if p != nil {
		return *p
	}
	return value
}

func eventColumns() []column {
	of := func(name, description string, value func(e *corev1.Event) any) column {
		return columnOf(name, description, func(obj runtime.Object) any { return value(coreEvent(obj)) })
	}
	event := corev1.Event{}.SwaggerDoc()
	return []column{
		of("Last Seen", event["lastTimestamp"], func(e *corev1.Event) any { return lastSeen(e) }),
		of("Type", event["type"], func(e *corev1.Event) any { return e.Type }),
		of("Reason", event["reason"], func(e *corev1.Event) any { return e.Reason }),
		of("Object", event["involvedObject"], func(e *corev1.Event) any {
			kind := strings.ToLower(e.InvolvedObject.Kind)
			return strings.TrimSuffix(kind+"/"+e.InvolvedObject.Name, "/")
		}),
		of("Subobject", corev1.ObjectReference{}.SwaggerDoc()["fieldPath"], func(e *corev1.Event) any {
			return e.InvolvedObject.FieldPath
		}).wide(),
		of("Source", event["source"], func(e *corev1.Event) any {
			component := cmp.Or(e.Source.Component, e.ReportingController)
			return strings.TrimSuffix(component+", "+cmp.Or(e.Source.Host, e.ReportingInstance), ", ")
		}).wide(),
		of("Message", event["message"], func(e *corev1.Event) any { return strings.TrimSpace(e.Message) }),
		of("First Seen", event["firstTimestamp"], func(e *corev1.Event) any { return firstSeen(e) }).wide(),
		of("Count", event["count"], func(e *corev1.Event) any {
			if e.Series != nil {
				return e.Series.Count
			}
			return max(e.Count, 1)
		}).wide(),
		nameColumn.wide(),
	}
}

func firstSeen(e *corev1.Event) string {
	if e.FirstTimestamp.IsZero() {
		return age(metav1.Time(e.EventTime))
	}
	return age(e.FirstTimestamp)
}

func lastSeen(e *corev1.Event) string {
	switch {
	case e.Series != nil:
		return age(metav1.Time(e.Series.LastObservedTime))
	case e.LastTimestamp.IsZero():
		return firstSeen(e)
	}
	return age(e.LastTimestamp)
}

// A view is a resource that shows the objects of another one in another version. They can be read in it, but not
// written.

// viewVerbs are the verbs of a view.
var viewVerbs = metav1.Verbs{"get", "list", "watch"}

// addViews shows Events of events.k8s.io/v1 as Events of v1, too, unless New has a kind for these.
func (s *Server) addViews() {
	core := Events()
	core.Resource, core.Object = corev1.SchemeGroupVersion.WithResource("events"), &corev1.Event{}
	stored := s.byPath[eventsv1.SchemeGroupVersion.WithResource("events")]
	if stored == nil || stored.custom || s.byPath[core.Resource] != nil {
		return
	}
	r, err := newResource(core)
	if err != nil {
		panic("apiserver: " + err.Error()) // Impossible: it is complete.
	}
	r.storage, r.isView = stored.storage, true
	s.views = append(s.views, r)
}

// served returns the resource with a path, nil if there is none.
func (s *Server) served(path schema.GroupVersionResource) *resource {
	for _, r := range s.views {
		if r.Resource == path {
			return r
		}
	}
	return s.byPath[path]
}

// shown returns a revision with its object in the version of the resource.
func (r *resource) shown(rev *Revision) (*Revision, error) {
	if !r.isView {
		return rev, nil
	}
	obj := coreEvent(rev.Object)
	obj.SetGroupVersionKind(r.gvk)
	return r.newRevision(rev.Type, obj, nil)
}
