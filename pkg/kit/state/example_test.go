package state_test

import (
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"example.com/foo-controller/pkg/kit/state"
)

// Somebody has scaled a Deployment, and somebody else has added a label, which stays.
func ExampleDrift() {
	want := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"},
		Spec:       appsv1.DeploymentSpec{Replicas: new(int32(3))},
	}
	have := want.DeepCopy()
	have.UID, have.ResourceVersion = "uid-of-web", "7"
	have.Labels = map[string]string{"team": "blue"}
	have.Spec.Replicas = new(int32(9))

	patch, err := state.Drift(have, want)
	fmt.Println(patch.Fields, err)
	fmt.Println(string(patch.Body)) // For the method Patch of a client, with types.StrategicMergePatchType.

	have.Spec.Replicas = new(int32(3))
	patch, err = state.Drift(have, want)
	fmt.Println(patch == nil, err)
	// Output:
	// [spec.replicas 9 -> 3] <nil>
	// {"metadata":{"resourceVersion":"7","uid":"uid-of-web"},"spec":{"replicas":3}}
	// true <nil>
}

func ExampleConditions() {
	var status []metav1.Condition
	for generation, report := range []state.Report{
		{True: state.Reconciling, Reason: "Progressing", Message: "1 of 2 replicas available"},
		{True: state.Ready, Reason: "Available", Message: "2 of 2 replicas available"},
	} {
		status = state.Conditions(status, report, int64(generation), time.Now())
		for _, c := range status {
			fmt.Printf("%s=%s: %s\n", c.Type, c.Status, c.Message)
		}
	}
	// Output:
	// Ready=False: 1 of 2 replicas available
	// Reconciling=True: 1 of 2 replicas available
	// Ready=True: 2 of 2 replicas available
}

// The spec that a controller follows has no arguments any more. It owns their path, so they go.
func ExampleDrift_owned() {
	want := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"}}
	want.Spec.Template.Spec.Containers = []corev1.Container{{Name: "web", Image: "nginx"}}
	have := want.DeepCopy()
	have.UID, have.ResourceVersion = "uid-of-web", "7"
	have.Spec.Template.Spec.Containers[0].Args = []string{"-v"}

	patch, err := state.Drift(have, want)
	fmt.Println(patch == nil, err)
	patch, err = state.Drift(have, want, "spec.template.spec.containers[web].args")
	fmt.Println(patch.Fields, err)
	_, err = state.Drift(have, want, "spec.template.spec.containers[web].arg")
	fmt.Println(err)
	// Output:
	// true <nil>
	// [spec.template.spec.containers] <nil>
	// compare web: the path "spec.template.spec.containers[web].arg": v1.Container has no ".arg"
}
