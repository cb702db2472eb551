package plan

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"example.com/foo-controller/pkg/apis/samplecontroller/v1alpha1"
)

// Only the names of the Deployment's own pods are left out of a message. Another name may be what a user must know.
func TestIsPodName(t *testing.T) {
	long := strings.Repeat("d", 60)
	for _, tc := range []struct {
		name, deployment string
		want             bool
	}{
		{name: "web-1-7c5ddbdf54-x2fkd", deployment: "web-1", want: true},
		{name: "7c5ddbdf54-x2fkd", deployment: "web-1"},
		{name: "web-1--x2fkd", deployment: "web-1"},
		{name: "web-1-x2fkd", deployment: "web-1"},
		{name: "web-1-static-x2fkd", deployment: "web-1"},
		{name: "x2fkd", deployment: "web-1"},
		{name: long[:58] + "x2fkd", deployment: long, want: true},
		{name: long[:57] + "-x2fkd", deployment: long[:57], want: true},
		{name: strings.Repeat("e", 58) + "x2fkd", deployment: long},
	} {
		if got := isPodName(tc.name, tc.deployment); got != tc.want {
			t.Errorf("isPodName(%q, %q) = %t", tc.name, tc.deployment, got)
		}
	}
}

// The messages of other conditions name a ReplicaSet. No decision reads them, and the cache has one of each Deployment.
func TestTrimKeepsTheMessagesOfFailuresOnly(t *testing.T) {
	for _, tc := range []struct {
		name   string
		kind   appsv1.DeploymentConditionType
		status corev1.ConditionStatus
		reason string
		want   string
	}{
		{
			name: "pods are refused", kind: appsv1.DeploymentReplicaFailure, status: corev1.ConditionTrue,
			reason: "FailedCreate", want: "the cause",
		},
		{
			name: "pods were refused", kind: appsv1.DeploymentReplicaFailure, status: corev1.ConditionFalse,
			reason: "FailedCreate",
		},
		{
			name: "a rollout is complete", kind: appsv1.DeploymentProgressing, status: corev1.ConditionTrue,
			reason: "NewReplicaSetAvailable",
		},
		{
			name: "a ReplicaSet is refused", kind: appsv1.DeploymentProgressing, status: corev1.ConditionFalse,
			reason: "ReplicaSetCreateError", want: "the cause",
		},
	} {
		have := appsv1.DeploymentCondition{Type: tc.kind, Status: tc.status, Reason: tc.reason, Message: "the cause"}
		want := have
		want.Message = tc.want
		dep := &appsv1.Deployment{}
		dep.Name, dep.OwnerReferences = "web-1", []metav1.OwnerReference{ownerReference(&v1alpha1.Foo{})}
		dep.Status.Conditions = []appsv1.DeploymentCondition{have}
		trimmed, err := Trim(dep)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]appsv1.DeploymentCondition{want}, trimmed.(*appsv1.Deployment).Status.Conditions); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.name, diff)
		}
	}
}

// A message is shortened in the cache and in the report. The end of a name that was cut must not look like a pod's name
// then, or the report would change between a cached Deployment and one that was read live.
func TestAShortenedMessageGivesTheSameReport(t *testing.T) {
	const cut = "web-1-7c5ddbdf54-x2fkd"
	message := strings.Repeat("x", causeLimit-len("... ")-len(cut)) + " " + cut + "zz" + strings.Repeat(" more", 1000)
	dep := &appsv1.Deployment{}
	dep.Name, dep.OwnerReferences = "web-1", []metav1.OwnerReference{ownerReference(&v1alpha1.Foo{})}
	dep.Status.Conditions = []appsv1.DeploymentCondition{{
		Type: appsv1.DeploymentReplicaFailure, Status: corev1.ConditionTrue, Message: message,
	}}
	trimmed, err := Trim(dep)
	if err != nil {
		t.Fatal(err)
	}
	live, cached := &dep.Status.Conditions[0], &trimmed.(*appsv1.Deployment).Status.Conditions[0]
	if diff := cmp.Diff(causeIn(live, dep.Name), causeIn(cached, dep.Name)); diff != "" {
		t.Errorf("different reports (-live +cached):\n%s", diff)
	}
	if !strings.HasSuffix(causeIn(live, dep.Name), cut) {
		t.Errorf("the message is not cut in the name: %q", causeIn(live, dep.Name))
	}
}
