package apiserver

import (
	"strconv"

	batchv1 "k8s.io/api/batch/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// builtInFields are the Fields of kinds that come with Kubernetes. The package comment has what is left out.
var builtInFields = map[schema.GroupVersionResource]map[string]func(runtime.Object) string{
	corev1.SchemeGroupVersion.WithResource("events"):   coreEventFields(),
	eventsv1.SchemeGroupVersion.WithResource("events"): eventFields("regarding", "reportingController"),
	corev1.SchemeGroupVersion.WithResource("namespaces"): {
		"status.phase": selectable(func(n *corev1.Namespace) string { return string(n.Status.Phase) }),
	},
	corev1.SchemeGroupVersion.WithResource("nodes"): {
		"spec.unschedulable": selectable(func(n *corev1.Node) string {
			return strconv.FormatBool(n.Spec.Unschedulable)
		}),
	},
	corev1.SchemeGroupVersion.WithResource("pods"): {
		"spec.nodeName":           selectable(func(p *corev1.Pod) string { return p.Spec.NodeName }),
		"spec.restartPolicy":      selectable(func(p *corev1.Pod) string { return string(p.Spec.RestartPolicy) }),
		"spec.schedulerName":      selectable(func(p *corev1.Pod) string { return p.Spec.SchedulerName }),
		"spec.serviceAccountName": selectable(func(p *corev1.Pod) string { return p.Spec.ServiceAccountName }),
		"spec.hostNetwork": selectable(func(p *corev1.Pod) string {
			return strconv.FormatBool(p.Spec.HostNetwork)
		}),
		"status.phase":             selectable(func(p *corev1.Pod) string { return string(p.Status.Phase) }),
		"status.podIP":             selectable(func(p *corev1.Pod) string { return p.Status.PodIP }),
		"status.nominatedNodeName": selectable(func(p *corev1.Pod) string { return p.Status.NominatedNodeName }),
	},
	corev1.SchemeGroupVersion.WithResource("replicationcontrollers"): {
		"status.replicas": selectable(func(c *corev1.ReplicationController) string {
			return decimal(c.Status.Replicas)
		}),
	},
	corev1.SchemeGroupVersion.WithResource("secrets"): {
		"type": selectable(func(s *corev1.Secret) string { return string(s.Type) }),
	},
	corev1.SchemeGroupVersion.WithResource("services"): {
		"spec.clusterIP": selectable(func(s *corev1.Service) string { return s.Spec.ClusterIP }),
		"spec.type":      selectable(func(s *corev1.Service) string { return string(s.Spec.Type) }),
	},
	batchv1.SchemeGroupVersion.WithResource("jobs"): {
		"status.successful": selectable(func(j *batchv1.Job) string { return decimal(j.Status.Succeeded) }),
	},
	certificatesv1.SchemeGroupVersion.WithResource("certificatesigningrequests"): {
		"spec.signerName": selectable(func(r *certificatesv1.CertificateSigningRequest) string {
			return r.Spec.SignerName
		}),
	},
}

// selectable returns a function of an object of any type from one for the Go type of the kind.
func selectable[T runtime.Object](get func(T) string) func(runtime.Object) string {
	return func(obj runtime.Object) string { return get(obj.(T)) }
}

func decimal(n int32) string { return strconv.Itoa(int(n)) }
