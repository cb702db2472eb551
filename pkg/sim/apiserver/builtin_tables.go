package apiserver

import (
	"cmp"
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// builtInColumns returns the columns that a real server has for a kind.
func builtInColumns(of schema.GroupVersionResource) []column {
	switch of {
	case corev1.SchemeGroupVersion.WithResource("namespaces"):
		return namespaceColumns()
	case corev1.SchemeGroupVersion.WithResource("configmaps"):
		return configMapColumns()
	case coordinationv1.SchemeGroupVersion.WithResource("leases"):
		return leaseColumns()
	case appsv1.SchemeGroupVersion.WithResource("deployments"):
		return deploymentColumns()
	case corev1.SchemeGroupVersion.WithResource("events"), eventsv1.SchemeGroupVersion.WithResource("events"):
		return eventColumns()
	}
	return []column{nameColumn, ageColumn} // A real server has more for some kinds.
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

func namespaceColumns() []column {
	return []column{
		nameColumn,
		columnOf("Status", "The status of the namespace", func(ns *corev1.Namespace) any { return ns.Status.Phase }),
		ageColumn,
	}
}

func configMapColumns() []column {
	return []column{
		nameColumn,
		columnOf("Data", corev1.ConfigMap{}.SwaggerDoc()["data"], func(cm *corev1.ConfigMap) any {
			return len(cm.Data) + len(cm.BinaryData)
		}),
		ageColumn,
	}
}

func leaseColumns() []column {
	return []column{
		nameColumn,
		columnOf("Holder", coordinationv1.LeaseSpec{}.SwaggerDoc()["holderIdentity"], func(l *coordinationv1.Lease) any {
			return orZero(l.Spec.HolderIdentity)
		}),
		ageColumn,
	}
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
